"""The answer to Week: the hours of rules over some local days, and their odd days."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime

from gate.calendars import Days, Zone
from gate.config import Config
from gate.errors import InvalidParameter
from gate.fetchlimits import followed, rule_pools
from gate.fetchrules import FetchRules
from gate.hours import Case, FetchRule
from gate.interface import LimitSpan, OddDay, RuleWeek, Span, WeekIn, WeekOut
from gate.localdays import Day, Interval, joined, local_days, midnight
from gate.odd import ODD_DAYS_AHEAD, odd_days
from gate.overrides import Override, Overrides, matching
from gate.timetable import Timetable
from gate.wallclock import DAY
from gate.windows import Minus, intervals

DAYS = 7
MOST_RULES = 100
MOST_SPANS = 20_000
"""No further rule is answered for after so many spans, some 1.5 MB."""


def week(config: Config, rules: FetchRules, overrides: Overrides, asked: WeekIn, now: datetime) -> WeekOut:
    """The hours of the rules that were asked for; raises NoSuchRule, InvalidParameter.

    `rules` are those of `config`. Days are those of the first rule's zone: all rules are answered for the same time.
    """
    names = [rule.name for rule in rules.rules]
    wanted = set(names if asked.rule is None else matching(asked.rule, names))
    found = [rule for rule in rules.rules if rule.name in wanted]
    window = _window(asked, rules.timetables[found[0].name].zone if found else Zone("UTC"), now)
    odd = _OddDays(config.days, now)
    answered: list[RuleWeek] = []
    spans = 0
    for rule in found[:MOST_RULES]:
        limits = list(_limits(rule, rules, window))
        one = _rule_week(rule, rules.timetables[rule.name], overrides.get(rule.name, now), window, odd, limits)
        answered.append(one)
        spans += len(one.open) + len(one.closed_by) + len(one.limits)
        if spans > MOST_SPANS:
            break
    return WeekOut(now=now, start=window[0], end=window[1], rules=answered, rules_total=len(found))


def _window(asked: WeekIn, zone: Zone, now: datetime) -> Interval:
    if asked.start is None:
        first = now.astimezone(zone.info).date()
    else:
        try:
            first = date.fromisoformat(asked.start)
        except ValueError:
            raise InvalidParameter(parameter="start") from None
    try:
        return midnight(first, zone.info), midnight(first + (asked.days or DAYS) * DAY, zone.info)
    except OverflowError:
        raise InvalidParameter(parameter="start") from None


def _rule_week(
    rule: FetchRule,
    table: Timetable,
    order: Override | None,
    window: Interval,
    odd: "_OddDays",
    limits: list[LimitSpan],
) -> RuleWeek:
    spans = intervals(table.starts, *window)
    if order is not None:
        spans = joined(sorted(followed(spans, table, order, window)))
    return RuleWeek(
        rule=rule.name,
        timezone=table.zone.key,
        open=_spans(spans),
        closed_by=_spans(intervals(Minus(table.opening, table.starts), *window)),
        limits=limits,
        override=None if order is None else order.info(),
        odd=odd.of(rule, table),
    )


def _limits(rule: FetchRule, rules: FetchRules, window: Interval) -> Iterator[LimitSpan]:
    """How many jobs of a rule may run at once: by its own limit, then by those of what it needs, each in order."""
    for pool in rule_pools(rule):
        table = rules.at_once.get(pool)
        if table is None:  # a rule that counts in resources only
            continue
        constant = len(table.parts) == 1
        found = [
            LimitSpan(pool=pool, number=case.number, by=None if constant else _by(case), start=start, end=end)
            for case, hours in table.parts
            for start, end in intervals(hours, *window)
        ]
        yield from sorted(found, key=lambda span: span.start)


def _by(case: Case) -> str:
    return "else" if case.entries is None else ", ".join(map(str, case.entries))


def _spans(spans: Sequence[Interval]) -> list[Span]:
    return [Span(start=start, end=end) for start, end in spans]


class _OddDays:
    """Finds odd days from today on; rules of the same hours share what was found."""

    def __init__(self, holidays: Days, now: datetime) -> None:
        self._holidays = holidays
        self._now = now
        self._days: dict[str, list[Day]] = {}
        self._found: dict[Timetable, list[OddDay]] = {}

    def of(self, rule: FetchRule, table: Timetable) -> list[OddDay]:
        if table not in self._found:
            entries = [*(rule.open or ()), *rule.closed]
            knows_holidays = any(line.uses_holidays for entry in entries for line in entry.lines)
            holidays = self._holidays if knows_holidays else Days()
            self._found[table] = odd_days(table.starts, table.zone, self._ahead(table.zone), holidays, entries)
        return self._found[table]

    def _ahead(self, zone: Zone) -> list[Day]:
        if zone.key not in self._days:
            first = self._now.astimezone(zone.info).date()
            end = midnight(first + ODD_DAYS_AHEAD * DAY, zone.info)
            self._days[zone.key] = local_days(midnight(first, zone.info), end, zone.info)
        return self._days[zone.key]
