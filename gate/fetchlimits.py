"""The limits of `[[fetch]]` and `[[resource]]` at an instant: what gate/permits.py asks for."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct

from gate.fetchrules import FetchRules, RuleState
from gate.hours import FetchRule
from gate.interface import Steer
from gate.localdays import Interval, joined
from gate.moments import earliest
from gate.overrides import Override, Overrides
from gate.permit import Choice
from gate.pools import Limit, resource_pool, rule_pool
from gate.timetable import Timetable
from gate.windows import ALWAYS, TICK, Minus, intervals


class _Known(Struct, frozen=True):
    """A limit that was found at `since`, by a table of overrides, and holds until `fresh`."""

    limit: Limit
    overrides: Overrides
    since: datetime
    fresh: datetime


class FetchLimits:
    """Compiled limits. A rule without `at_once` and `needs` has no pool: nothing is counted of it."""

    def __init__(self, rules: FetchRules) -> None:
        self.rules = rules
        self._limited = {rule_pool(rule.name): rule for rule in rules.rules if rule.limited}
        self._known: dict[str, _Known] = {}

    @property
    def pools(self) -> list[str]:
        """All pools of the configuration: those of rules in their order, then the resources."""
        return [*self._limited, *(pool for pool in self.rules.at_once if pool not in self._limited)]

    def limit(self, pool: str, now: datetime, overrides: Overrides) -> Limit:
        """What holds for a pool. A rule that is closed, or not in the configuration, gives no place."""
        known = self._known.get(pool)
        if known is None or known.overrides is not overrides or not known.since <= now < known.fresh:
            rule = self._limited.get(pool)
            known = self._shared(pool, now, overrides) if rule is None else self._of_rule(pool, rule, now, overrides)
            self._known[pool] = known
        return known.limit

    def _shared(self, pool: str, now: datetime, overrides: Overrides) -> _Known:
        table = self.rules.at_once.get(pool)
        if table is None:
            return _Known(Limit(number=0, reason="it is not in the configuration"), overrides, now, now)
        found = table.at(now)
        limit = Limit(number=found.number, reason=found.reason, until=found.until)
        return _Known(limit, overrides, now, found.fresh)

    def _of_rule(self, pool: str, rule: FetchRule, now: datetime, overrides: Overrides) -> _Known:
        state = self.rules.state(rule, now, overrides)
        if not state.open:
            reason = state.reason.removeprefix(f"{pool}: ")
            return _Known(Limit(number=0, reason=reason, until=state.until), overrides, now, state.fresh)
        table = self.rules.at_once.get(pool)
        if table is None:
            return _Known(Limit(number=None, reason="no limit", until=state.until), overrides, now, state.fresh)
        found = table.at(now)
        limit = Limit(
            number=found.number,
            reason=found.reason,
            until=earliest([state.until, found.until]),
            ramp=rule.ramp,
            opening=self._opening(rule, state, found.number, now, overrides),
        )
        return _Known(limit, overrides, now, min(state.fresh, found.fresh))

    def _opening(
        self, rule: FetchRule, state: RuleState, number: int, now: datetime, overrides: Overrides
    ) -> datetime | None:
        if rule.ramp is None:
            return None
        ahead = timedelta(seconds=ceil(number / rule.ramp.count) * rule.ramp.every)
        # An order that is over may be what opened the rule: a close that ended.
        return opening(self.rules.timetables[rule.name], overrides.table.get(rule.name), now, now - ahead)

    def pools_of(self, rule: str) -> tuple[str, ...]:
        """The pools in which a job of the rule of this name counts."""
        limited = self._limited.get(rule_pool(rule))
        return () if limited is None else rule_pools(limited)

    # -- questions

    def choices(
        self, worker: str, queues: Sequence[str] | None, now: datetime, overrides: Overrides
    ) -> tuple[Choice, ...]:
        """What is open of a question (None: all queues), with the pools that each part needs."""
        return tuple(
            _choice(rule, decided)
            for rule, decided in self.rules.deciding(worker, queues)
            if self.rules.state(rule, now, overrides).open
        )

    def choice(self, worker: str, queue: str) -> Choice:
        """What decides one queue, open or not."""
        ((rule, decided),) = self.rules.deciding(worker, [queue])
        return _choice(rule, decided)


def rule_pools(rule: FetchRule) -> tuple[str, ...]:
    """The pools in which a job of a rule counts."""
    return (rule_pool(rule.name), *map(resource_pool, rule.needs)) if rule.limited else ()


def _choice(rule: FetchRule | None, queues: tuple[str, ...]) -> Choice:
    return Choice(rule="" if rule is None else rule.name, queues=queues, pools=() if rule is None else rule_pools(rule))


def opening(table: Timetable, order: Override | None, now: datetime, after: datetime) -> datetime | None:
    """Since when a rule that is open now has been so; None if that was not after an instant.

    `order`: the last override of the rule, whether it is over or not.
    """
    spans = intervals(table.starts, after, now + TICK)
    if order is not None:
        spans = joined(sorted(followed(spans, table, order, (after, now + TICK))))
    return spans[-1][0] if spans and spans[-1][0] > after else None


def followed(spans: Iterable[Interval], table: Timetable, order: Override, window: Interval) -> Iterator[Interval]:
    """The same hours where an order was followed, in no order. An `open` one beats all but a limit that is 0."""
    for start, end in spans:
        if start < order.since:
            yield start, min(end, order.since)
        if end > order.until:
            yield max(start, order.until), end
    since, until = max(order.since, window[0]), min(order.until, window[1])
    if order.action is Steer.OPEN and since < until:
        yield from intervals(Minus(ALWAYS, table.shut), since, until)
