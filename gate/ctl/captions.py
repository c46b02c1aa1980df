"""What stands beside the picture of a week, in words: the same in a terminal and in an SVG file."""

from collections.abc import Iterator
from datetime import date
from zoneinfo import ZoneInfo

from gate.calendars import WEEKDAYS
from gate.ctl.marks import Row, now_open
from gate.ctl.output import safe
from gate.interface import LimitSpan, OddDay, OverrideInfo, RuleWeek, Steer, WeekOut
from gate.localdays import hours_in_words, length
from gate.odd import ODD_DAYS_AHEAD
from gate.wallclock import DAY, soon, time

ODD_DAYS = f"odd days of the next {ODD_DAYS_AHEAD}:"


def heading(rule: RuleWeek, week: WeekOut) -> str:
    """The rule and its zone: "dicom, times in Europe/Berlin (CET, UTC+01:00)"."""
    local = week.now.astimezone(ZoneInfo(rule.timezone))
    offset = local.isoformat()[-6:]
    return f"{safe(rule.rule)}, times in {rule.timezone} ({local:%Z}, UTC{offset})"


def override(order: OverrideInfo, rule: RuleWeek, week: WeekOut) -> str:
    """An override in words, in the zone of its rule."""
    zone = ZoneInfo(rule.timezone)
    since, until = (soon(at, week.now, zone) for at in (order.since, order.until))
    done = "opened" if order.action is Steer.OPEN else "closed"
    return f"{done} by {safe(order.by)} since {since} until {until}: {safe(order.note)}"


def limits(rule: RuleWeek) -> Iterator[str]:
    """How many jobs at once, a line for each limit: "at once: 8 by night, else 3"."""
    pools: dict[str, dict[str, None]] = {}
    for span in rule.limits:
        pools.setdefault(span.pool, {})[_number(span)] = None
    for pool, numbers in pools.items():
        where = "" if pool == f"rule {rule.rule}" else f" ({safe(pool)})"
        yield f"at once{where}: {', '.join(sorted(numbers, key=lambda words: words.startswith('else ')))}"


def _number(span: LimitSpan) -> str:
    if span.by is None:
        return str(span.number)
    return f"else {span.number}" if span.by == "else" else f"{span.number} by {safe(span.by)}"


def present(drawn: list[Row], rule: RuleWeek, week: WeekOut) -> str:
    """What holds now, and until when: "now 23:12: open until Tue 06:00"."""
    zone = ZoneInfo(rule.timezone)
    is_open, change = now_open(drawn, week.now)
    minute = week.now.replace(second=0, microsecond=0)
    says = f"now {time(minute.astimezone(zone))}: {'open' if is_open else 'closed'}"
    return f"{says} until {'after these days' if change is None else soon(change, week.now, zone)}"


def day(row: Row) -> str:
    """The name of a day: "mon 2026-11-30"."""
    return _named(row.day.date)


def _named(day: date) -> str:
    return f"{WEEKDAYS[day.weekday()]} {day}"


def hours(row: Row, rule: RuleWeek) -> str:
    """When jobs may start on a day: "open 00:00-06:00, 20:00-24:00 (10h)"."""
    spans = [(stretch.start, stretch.end) for stretch in row.stretches if stretch.mark.opens]
    if not spans:
        return "closed"
    return f"open {hours_in_words(spans, row.day, ZoneInfo(rule.timezone))} ({open_for(row)})"


def open_for(row: Row) -> str:
    """For how long jobs may start on a day."""
    return length(row.open_minutes) if row.open_minutes else "closed"


def odd_days(rule: RuleWeek) -> Iterator[tuple[str, str]]:
    """The odd days of a rule in words; days that follow each other and are odd in one way are one entry."""
    run: list[OddDay] = []
    for odd in rule.odd:
        if run and (odd.what != run[-1].what or date.fromisoformat(odd.day) - date.fromisoformat(run[-1].day) != DAY):
            yield _days(run), safe(run[0].what)
            run = []
        run.append(odd)
    if run:
        yield _days(run), safe(run[0].what)


def _days(run: list[OddDay]) -> str:
    first, last = (_named(date.fromisoformat(odd.day)) for odd in (run[0], run[-1]))
    return first if len(run) == 1 else f"{first} to {last}"
