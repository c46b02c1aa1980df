"""Warnings: what a configuration may say, but can hardly mean."""

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta

from gate import durations
from gate.calendars import DAY, WEEKDAYS, Days, Weekdays, Zone, minute_of
from gate.config import Config
from gate.fetchrules import FetchRules
from gate.globs import GlobIndex, first
from gate.hours import Entry, FetchRule, entries_of
from gate.interface import CatchUp
from gate.lines import CronForLine, CronLine, DatesLine, DayLine, Line, SpanLine
from gate.pauses import PauseHours
from gate.timetable import Timetable
from gate.wallclock import dated
from gate.windows import ALWAYS, Compiler, Hours, Minus, Union, intervals

AHEAD_DAYS = 400
"""How far hours are looked at: a year, and what moves with Easter."""
SHORT_DAYS = 60
"""How far hours that `last_start` uses up are looked for."""
HOLIDAYS_LEFT_DAYS = 60
MOST_LOOKED_AT = 500
"""Different hours that are looked at: beyond, reading a file would take seconds."""

_LAST_MINUTE = DAY - 1
_WORKDAYS = frozenset(range(5))


def hints(config: Config, now: datetime) -> list[str]:
    """What a reader of the file should know; each text names its place."""
    rules = FetchRules(config)
    different = {id(table): (rule, table) for rule in config.fetch for table in [rules.timetables[rule.name]]}
    looked_at = list(different.values())[:MOST_LOOKED_AT]
    found = [*_of_holidays(config, now)]
    for rule, table in looked_at:
        found += _of_lines(f"rule {rule.name}", (*table.opens, *table.closes), now)
    found += [*_of_pauses(config, now), *_of_catching_up(config)]
    for rule, table in looked_at:
        found += [f"rule {rule.name}: {text}" for text in _of_hours(rule, table, now)]
    if len(different) > MOST_LOOKED_AT:
        found.append(f"of {len(different)} different hours of rules, {MOST_LOOKED_AT} were looked at for warnings")
    found += _of_at_once(rules, now)
    return [*dict.fromkeys([*found, *_of_reach(config)])]


# -- [days]


def _of_holidays(config: Config, now: datetime) -> Iterator[str]:
    entries = [entry for rule in config.fetch for entry in (*(rule.open or ()), *rule.closed)]
    entries += [entry for rule in config.send for entry in rule.pause]
    limits = [*(rule.at_once for rule in config.fetch), *(resource.at_once for resource in config.resources)]
    entries += [entry for at_once in limits for entry in entries_of(at_once)]
    lines = [line for entry in entries for line in entry.lines]
    if not config.holidays:
        return
    if not any(line.uses_holidays for line in lines):
        yield "days.holidays: no line uses them: workday, freeday and holiday do, plain weekdays do not"
    calendars = [entry for entry in config.holidays if entry.calendar]
    for entry in calendars:
        yield from _ending(repr(entry.text), entry.last, now)
    dates = [entry.last for entry in config.holidays if entry.last is not None]
    if not calendars and dates:
        yield from _ending("its list of dates", max(dates), now)


def _ending(what: str, last: date | None, now: datetime) -> Iterator[str]:
    if last is None:
        yield f"days.holidays: {what} names no day"
    elif last < now.date():
        yield f"days.holidays: {what} is over since {last}: add the days to come"
    elif last <= now.date() + timedelta(days=HOLIDAYS_LEFT_DAYS):
        yield f"days.holidays: {what} ends on {last}: add the days after it"


# -- lines


def _of_lines(owner: str, entries: Iterable[tuple[Entry, Hours]], now: datetime) -> Iterator[str]:
    for entry, hours in entries:
        place = owner if entry.name is None else f"hours.{entry.name}"
        for line in entry.lines:
            if _ends_at_23_59(line):
                yield f"{place}: {line.text!r} ends at 23:59, and leaves that minute out: write 24:00"
        if not _ever(hours, now):
            yield f"{place}: {entry.text!r} is never open in the next {AHEAD_DAYS} days"


def _of_catching_up(config: Config) -> Iterator[str]:
    for index, rule in enumerate(config.send):
        policy = rule.policy
        if policy.catch_up is not CatchUp.NONE and policy.catch_up_within > config.keep:
            within, keep = durations.text(policy.catch_up_within), durations.text(config.keep)
            text = f"{within} is longer than store.keep, {keep}: what is older is not caught up with"
            yield f"send[{index}].catch_up_within: {text}"


def _of_pauses(config: Config, now: datetime) -> Iterator[str]:
    tables = PauseHours(config)
    for index, rule in enumerate(config.send[:MOST_LOOKED_AT]):
        table = tables.of(rule)
        if table is None:
            continue
        yield from _of_lines(f"send[{index}].pause", table.entries, now)
        if table.hours.contains(now) and table.hours.next_change(now) is None:
            yield f"send[{index}].pause: nothing of {', '.join(rule.schedules)} is ever sent: it always pauses"


def _ends_at_23_59(line: Line) -> bool:
    match line:
        case DayLine() | DatesLine():
            return line.end % DAY == _LAST_MINUTE
        case SpanLine():
            return (line.start + line.length) % DAY == _LAST_MINUTE
        case CronLine() | CronForLine():
            return False


# -- the hours of a rule


def _of_hours(rule: FetchRule, table: Timetable, now: datetime) -> Iterator[str]:
    if not _ever(table.starts, now):
        yield f"no job starts in the next {AHEAD_DAYS} days: its hours are always closed"
    elif rule.last_start:
        yield from _of_last_start(rule, table, now)
    for entry, hours in table.closes:
        if _ever(hours, now) and _ever(table.opening, now) and not _ever(_both(table.opening, hours), now):
            yield f"closed {entry} never meets its open hours in the next {AHEAD_DAYS} days"
    yield from _holes(rule, now)


def _of_last_start(rule: FetchRule, table: Timetable, now: datetime) -> Iterator[str]:
    if table.net is ALWAYS:
        yield "last_start changes nothing, since its hours never end"
        return
    last = timedelta(minutes=rule.last_start)
    end = now + timedelta(days=SHORT_DAYS)
    for start, closing in intervals(table.net, now, end):
        if now < start and closing < end and closing - start <= last:
            yield (
                f"last_start {durations.text(last.total_seconds())} leaves nothing of the "
                f"{durations.text((closing - start).total_seconds())} from {dated(start, table.zone.info)}"
            )
            return


def _of_at_once(rules: FetchRules, now: datetime) -> Iterator[str]:
    """Entries that those before them leave nothing to."""
    for pool, table in list(rules.at_once.items())[:MOST_LOOKED_AT]:
        for case, hours in table.parts:
            if not _ever(hours, now):
                entry = case.entries[0] if case.entries else None
                when = "else" if entry is None else entry.name or entry.text
                yield f"{pool}: '{when}: {case.number}' of at_once never decides in the next {AHEAD_DAYS} days"


def _both(one: Hours, other: Hours) -> Hours:
    return Minus(one, Minus(one, other))


def _ever(hours: Hours, now: datetime) -> bool:
    """Whether it is open at `now` or in the days that are looked at."""
    minute = minute_of(now)
    return hours.search(minute, False, minute + AHEAD_DAYS * DAY) is not None


def _holes(rule: FetchRule, now: datetime) -> Iterator[str]:
    """Mornings that an overnight line of some weekdays leaves out: it belongs to the days it starts on."""
    lines = [line for entry in rule.open or () for line in entry.lines]
    for line in lines:
        if not isinstance(line, DayLine) or not isinstance(line.days, Weekdays) or line.end <= DAY:
            continue
        nights = line.days.weekdays
        open_mornings = _mornings(lines, line, now)
        for day in sorted(nights):
            before, after = (day - 1) % 7, (day + 1) % 7
            if before in nights or day in open_mornings:
                continue
            hours = f"00:00-{_clock(line.end - DAY)}"
            hole = f"{line.text!r} leaves {WEEKDAYS[day]} {hours} closed"
            if {before, after} <= open_mornings:
                yield f"{hole} while {WEEKDAYS[before]} and {WEEKDAYS[after]} {hours} are open: meant daily?"
            elif nights == _WORKDAYS:
                yield f"{hole} and sat {hours} open, as a line belongs to the day it starts on: meant sun-thu or daily?"


def _mornings(lines: Iterable[Line], night: DayLine, now: datetime) -> set[int]:
    """The weekdays whose hours before the end of a night are touched by any line, in a week without holidays."""
    compiler, zone = Compiler(Days()), Zone("UTC")
    hours = Union([compiler.hours(line, zone) for line in lines if not isinstance(line, DatesLine)])
    week = date(now.year + 1, min(night.months), 8)
    days = [(week + timedelta(days=ahead)) for ahead in range(7, 14)]
    morning = (1 << night.end - DAY) - 1
    return {day.weekday() for day in days if hours.mask(day.toordinal()) & morning}


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


# -- rules that nobody can reach


def _of_reach(config: Config) -> Iterator[str]:
    workers = GlobIndex(rule.workers for rule in config.fetch)
    queues = GlobIndex(rule.queues for rule in config.fetch)
    for index, rule in enumerate(config.fetch):
        earlier = (1 << index) - 1
        for pattern in rule.workers:
            earlier &= workers.covering(pattern)
        for pattern in rule.queues:
            earlier &= queues.covering(pattern)
        if earlier:
            covering = config.fetch[first(earlier)].name
            yield f"rule {rule.name}: it can never decide, since rule {covering} before it covers all of it"
    whole = workers.covering("*") & queues.covering("*")
    if config.uncovered == "closed" and whole:
        yield f"uncovered: nothing is uncovered, since rule {config.fetch[first(whole)].name} covers everything"
