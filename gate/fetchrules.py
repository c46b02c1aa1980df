"""May this worker fetch from these queues now: `[[fetch]]` rules and overrides in, a verdict with reason and until out.

The first rule that covers worker and queue decides. An override over it beats its hours.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from functools import lru_cache

from msgspec import Struct

from gate.config import Config
from gate.globs import EVERYTHING, GlobIndex, first, is_glob
from gate.hours import FetchRule
from gate.interface import Steer
from gate.moments import FOREVER, earliest
from gate.overrides import Override, Overrides
from gate.pools import resource_pool, rule_pool
from gate.timetable import State, Timetable, Timetables
from gate.wallclock import soon
from gate.windows import Compiler

REMEMBERED = 2048
"""Questions whose rules are remembered."""
LARGE_QUESTION = 2048
"""Characters of queue names, and 16 for each, beyond which a question is not remembered."""
REASONS = 3
"""How many rules a reason names."""
UNCOVERED = -1


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer to Check, as `io.schedulegate.Fetch.varlink` explains it, without `place`."""

    open: bool
    queues: tuple[str, ...] | None
    excluded: tuple[str, ...] | None
    until: datetime | None
    limited: bool
    reason: str


class RuleState(Struct, frozen=True, kw_only=True):
    """What one rule says at an instant, overrides included. `rule`: None for what no rule covers.

    `until`: when it says the opposite, None if nothing is known to change it. `reason` and `line` hold until `fresh`.
    """

    rule: FetchRule | None
    open: bool
    until: datetime | None
    reason: str
    line: str | None
    override: Override | None
    fresh: datetime


class WhyVerdict(Struct, frozen=True, kw_only=True):
    """The answer to Why. `rule` and `line`: the name of the deciding rule and its line, as the file has them.

    `states`: what every rule that has a say says, the deciding one first.
    """

    open: bool
    until: datetime | None
    reason: str
    rule: str | None
    line: str | None
    states: tuple[RuleState, ...]


class _Cover:
    """The rules that have a say in one question, in their order, each with the queues (or patterns) that it decides.

    `rest`: the rule that decides all other queues, where all were asked for. The last verdict is kept with it.
    """

    __slots__ = ("fresh", "overrides", "parts", "queues", "rest", "since", "verdict")

    def __init__(self, queues: tuple[str, ...] | None, parts: dict[int, tuple[str, ...]], rest: int | None) -> None:
        self.queues = queues
        self.parts = parts
        self.rest = rest
        self.verdict: Verdict | None = None
        self.overrides: Overrides | None = None
        self.since = self.fresh = FOREVER


class FetchRules:
    """The rules of a configuration, compiled; raises UnknownZone. Made anew when holidays or time zone data change.

    What it remembers is checked against `now` and the table of overrides at each question, so that a clock that steps
    needs nothing. `timetables`: by the name of their rule. `zone`: that of the file. `at_once`: limits, by pool.
    """

    def __init__(self, config: Config) -> None:
        compiler = Compiler(config.days)
        made = Timetables(compiler, config.resources)
        self.zone = compiler.zone(config.timezone)
        self.rules = config.fetch
        self.timetables: dict[str, Timetable] = {rule.name: made.of(rule) for rule in config.fetch}
        self._index = {rule.name: index for index, rule in enumerate(config.fetch)}
        self.at_once = {resource_pool(name): limit for name, limit in made.resources.items()}
        for rule in config.fetch:
            if rule.at_once is not None:
                self.at_once[rule_pool(rule.name)] = made.at_once(rule.at_once, rule.timezone)
        self._tables = [self.timetables[rule.name] for rule in config.fetch]
        self._uncovered = config.uncovered == "open"
        self._workers = GlobIndex(rule.workers for rule in config.fetch)
        self._queues = GlobIndex(rule.queues for rule in config.fetch)
        self._catch_all = self._queues.covering(EVERYTHING)
        self._remembered_cover = lru_cache(maxsize=REMEMBERED)(self._find_cover)
        # Workers under the same rules share one cover, and so one verdict.
        self._shared_cover = lru_cache(maxsize=REMEMBERED)(self._cover_of)

    def answer(self, worker: str, queues: Sequence[str] | None, now: datetime, overrides: Overrides) -> Verdict:
        """May this worker fetch from these queues (None: all) at `now`?"""
        cover = self._cover(worker, None if queues is None else tuple(queues))
        verdict = cover.verdict
        if verdict is None or cover.overrides is not overrides or not cover.since <= now < cover.fresh:
            states = self._states(cover, now, overrides)
            verdict = cover.verdict = _verdict(cover, states)
            cover.overrides, cover.since = overrides, now
            cover.fresh = min((state.fresh for state in states.values()), default=FOREVER)
        return verdict

    def why(self, worker: str, queue: str | None, at: datetime, overrides: Overrides) -> WhyVerdict:
        """The same for one queue (None: all), with the rules that decide it."""
        cover = self._cover(worker, None if queue is None else (queue,))
        states = self._states(cover, at, overrides)
        verdict = _verdict(cover, states)
        ordered = _deciding_first(states.values(), verdict.open)
        rule = ordered[0].rule
        return WhyVerdict(
            open=verdict.open,
            until=verdict.until,
            reason=verdict.reason,
            rule=None if rule is None else rule.name,
            line=ordered[0].line,
            states=tuple(ordered),
        )

    def states(self, now: datetime, overrides: Overrides) -> list[RuleState]:
        """What every rule says now, in their order."""
        return [self._state(index, now, overrides) for index in range(len(self.rules))]

    def state(self, rule: FetchRule | None, now: datetime, overrides: Overrides) -> RuleState:
        """What one rule says now; None: what holds where no rule does."""
        return self._state(UNCOVERED if rule is None else self._index[rule.name], now, overrides)

    def deciding(self, worker: str, queues: Sequence[str] | None) -> list[tuple[FetchRule | None, tuple[str, ...]]]:
        """The rules that have a say in a question, in their order, each with the queues (or patterns) it decides.

        Where all were asked for, whatever no pattern before matches is decided by the last one.
        """
        cover = self._cover(worker, None if queues is None else tuple(queues))
        parts = [*cover.parts.items(), *([] if cover.rest is None else [(cover.rest, (EVERYTHING,))])]
        return [(None if index == UNCOVERED else self.rules[index], decided) for index, decided in parts]

    def fetchable(
        self, worker: str, queues: Sequence[str] | None, allowed: Container[str]
    ) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """`queues` and `excluded` of an answer where some rules allow a start, by name ("" for what none covers)."""
        cover = self._cover(worker, None if queues is None else tuple(queues))
        return _fetchable(cover, lambda index: ("" if index == UNCOVERED else self.rules[index].name) in allowed)

    # -- which rules

    def _cover(self, worker: str, queues: tuple[str, ...] | None) -> _Cover:
        if queues is not None and sum(map(len, queues), 16 * len(queues)) > LARGE_QUESTION:
            return self._cover_of(self._workers.matching(worker), queues)
        return self._remembered_cover(worker, queues)

    def _find_cover(self, worker: str, queues: tuple[str, ...] | None) -> _Cover:
        return self._shared_cover(self._workers.matching(worker), queues)

    def _cover_of(self, rules: int, queues: tuple[str, ...] | None) -> _Cover:
        """`rules`: those that cover the worker, as a set of GlobIndex."""
        if queues is None:
            return self._cover_of_all(rules)
        parts: dict[int, list[str]] = {}
        for queue in dict.fromkeys(queues):
            parts.setdefault(first(rules & self._queues.matching(queue)), []).append(queue)
        ordered = sorted(parts, key=lambda index: len(self.rules) if index == UNCOVERED else index)
        return _Cover(queues, {index: tuple(parts[index]) for index in ordered}, None)

    def _cover_of_all(self, rules: int) -> _Cover:
        """Every pattern that a rule before the first catch-all decides; not one that an earlier rule has decided."""
        rest = first(rules & self._catch_all)
        named = rules if rest == UNCOVERED else rules & ((1 << rest) - 1)
        parts: dict[int, tuple[str, ...]] = {}
        while (index := first(named)) != UNCOVERED:
            named ^= 1 << index
            patterns = dict.fromkeys(self.rules[index].queues)
            decided = tuple(p for p in patterns if first(rules & self._queues.covering(p)) == index)
            if decided:
                parts[index] = decided
        return _Cover(None, parts, rest)

    # -- what they say

    def _states(self, cover: _Cover, now: datetime, overrides: Overrides) -> dict[int, RuleState]:
        indexes = cover.parts if cover.rest is None else (*cover.parts, cover.rest)
        return {index: self._state(index, now, overrides) for index in indexes}

    def _state(self, index: int, now: datetime, overrides: Overrides) -> RuleState:
        if index == UNCOVERED:
            return _uncovered(self._uncovered)
        rule, table = self.rules[index], self._tables[index]
        order = overrides.get(rule.name, now)
        if order is not None:
            return _overridden(rule, table, order, now)
        return _by_hours(rule, table.state(now))


def _uncovered(is_open: bool) -> RuleState:
    return RuleState(
        rule=None,
        open=is_open,
        until=None,
        reason=f"no rule covers it: {'open' if is_open else 'closed'}",
        line=None,
        override=None,
        fresh=FOREVER,
    )


def _by_hours(rule: FetchRule, state: State) -> RuleState:
    return RuleState(
        rule=rule,
        open=state.open,
        until=state.until,
        reason=f"rule {rule.name}: {state.text}",
        line=state.line,
        override=None,
        fresh=state.fresh,
    )


def _overridden(rule: FetchRule, table: Timetable, order: Override, now: datetime) -> RuleState:
    """Open or closed until the order ends, and on from there if the hours then say the same.

    No order beats a limit of 0.
    """
    end, shut, edge = order.until, None, None
    if order.action is Steer.OPEN:
        shut, edge = table.why_shut(now), table.shut.next_change(now)
    is_open = order.action is Steer.OPEN and shut is None
    if edge is not None and edge < end:
        until: datetime | None = edge
    else:
        goes_on = table.starts.contains(end) == is_open
        until = table.starts.next_change(end) if goes_on else end
    words = f"{'open' if order.action is Steer.OPEN else 'closed'} by override of {order.by}"
    reason = f"{words} until {soon(end, now, table.zone.info)} {table.zone.key}: {order.note}"
    return RuleState(
        rule=rule,
        open=is_open,
        until=until,
        reason=f"rule {rule.name}: {reason if shut is None else f'{shut[0]}, although {reason}'}",
        line=None if shut is None else shut[1],
        override=order,
        fresh=end if edge is None else min(end, edge),
    )


def _verdict(cover: _Cover, states: dict[int, RuleState]) -> Verdict:
    queues, excluded = _fetchable(cover, lambda index: states[index].open)
    is_open = queues is None or bool(queues)
    return Verdict(
        open=is_open,
        queues=queues,
        excluded=excluded,
        until=earliest(state.until for state in states.values()),
        limited=any(state.rule is not None and state.rule.limited for state in states.values()),
        reason=_reason(_deciding_first(states.values(), is_open)),
    )


def _fetchable(cover: _Cover, is_open: Callable[[int], bool]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """`queues` and `excluded` of an answer. `is_open`: whether a rule allows a start, by its index."""
    return _all_queues(cover, is_open) if cover.queues is None else (_named_queues(cover, is_open), None)


def _named_queues(cover: _Cover, is_open: Callable[[int], bool]) -> tuple[str, ...]:
    """The open ones of those asked for, in the order of the question."""
    if all(map(is_open, cover.parts)):
        return tuple(dict.fromkeys(cover.queues or ()))
    fetchable = {queue for index, queues in cover.parts.items() if is_open(index) for queue in queues}
    return tuple(queue for queue in dict.fromkeys(cover.queues or ()) if queue in fetchable)


def _all_queues(cover: _Cover, is_open: Callable[[int], bool]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """`queues` and `excluded` where all were asked for.

    Where the rest is closed, `excluded` holds what an earlier rule takes out of an open pattern.
    """
    fetchable: list[str] = []
    closed: list[str] = []
    closed_before_a_glob = 0
    for index, patterns in cover.parts.items():
        if is_open(index):
            fetchable += patterns
            if any(map(is_glob, patterns)):
                closed_before_a_glob = len(closed)
        else:
            closed += patterns
    if cover.rest is not None and is_open(cover.rest):
        return None, tuple(closed) or None
    return tuple(fetchable), tuple(closed[:closed_before_a_glob]) or None


def _deciding_first(states: Iterable[RuleState], is_open: bool) -> list[RuleState]:
    """Those that say what the verdict says come first, else in the order of the rules."""
    return sorted(states, key=lambda state: state.open is not is_open)


def _reason(states: list[RuleState]) -> str:
    if not states:
        return "no queue was asked for"
    more = len(states) - REASONS
    shown = "; ".join(state.reason for state in states[:REASONS])
    return f"{shown}; and {more} more" if more > 0 else shown
