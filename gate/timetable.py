"""When one `[[fetch]]` rule is open, and which of its lines says so."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from gate import durations
from gate.calendars import Zone
from gate.hours import AtOnce, Entry, FetchRule, Resource
from gate.limits import AtOnceTable
from gate.moments import FOREVER, earliest
from gate.pools import resource_pool
from gate.wallclock import soon
from gate.windows import ALWAYS, NEVER, Compiler, Hours, Spans


class State(Struct, frozen=True, kw_only=True):
    """What a rule says at an instant.

    `until`: when it says the opposite; None if it does not within eight years. `cause`: why, in words, and `line` the
    deciding line as it was written. `text` is the cause with the time of the change. All of this was found at `since`,
    and holds until `fresh`: then another line may be the reason.
    """

    open: bool
    until: datetime | None
    cause: str
    line: str | None
    text: str
    since: datetime
    fresh: datetime


class Timetable:
    """The hours of one rule; rules that say the same share one.

    `opens` and `closes`: its lines, each with its hours. `opening`: the open lines together. `shut`: when one of its
    limits is 0, which nothing beats. `net`: the open ones without the closed ones, and not while it is shut. `starts`:
    when jobs may start, so without the last minutes either. `limits`: what may be 0, each with words that name it.
    """

    def __init__(
        self,
        rule: FetchRule,
        zone: Zone,
        opens: list[Hours] | None,
        closes: list[Hours],
        limits: list[tuple[str, AtOnceTable]],
        compiler: Compiler,
    ) -> None:
        self.zone = zone
        self.opening = ALWAYS if opens is None else compiler.union(opens)
        self.opens = list(zip(rule.open or (), opens or (), strict=True))
        self.closes = list(zip(rule.closed, closes, strict=True))
        self._last_start = rule.last_start
        self._limits = limits
        self.shut = compiler.union(limit.closed for _, limit in limits)
        self.net = compiler.minus(self.opening, compiler.union([*closes, self.shut]))
        self.starts = compiler.eroded(self.net, rule.last_start)
        self._state: State | None = None

    def state(self, at: datetime) -> State:
        """What the rule says at an instant. The last answer is kept for as long as it holds."""
        state = self._state
        if state is None or not state.since <= at < state.fresh:
            state = self._state = self._find(at)
        return state

    def _find(self, at: datetime) -> State:
        is_open, until = self.starts.contains(at), self.starts.next_change(at)
        cause, line = self._why_open(at) if is_open else self._why_closed(at)
        return State(
            open=is_open,
            until=until,
            cause=cause,
            line=line,
            text=cause + self._change(is_open, until, at),
            since=at,
            fresh=earliest([until, *self._edges(at)]) or FOREVER,
        )

    def _edges(self, at: datetime) -> Iterator[datetime | None]:
        """When a line begins or ends to hold."""
        for _, hours in (*self.opens, *self.closes):
            yield hours.next_change(at)
        for _, limit in self._limits:
            yield limit.at(at).fresh

    def why_shut(self, at: datetime) -> tuple[str, str | None] | None:
        """Which limit is 0, in words, and its line; None if none is."""
        for words, limit in self._limits:
            if limit.closed.contains(at):
                number = limit.at(at)
                return f"{words}{number.reason}", None if number.by is None else number.by.text
        return None

    def _why_open(self, at: datetime) -> tuple[str, str | None]:
        """Of the open lines that hold, the one that holds longest."""
        holding = [(entry, hours.next_change(at) or FOREVER) for entry, hours in self.opens if hours.contains(at)]
        if not holding:
            return "open", None
        entry, _ = max(holding, key=lambda held: held[1])
        return f"open by {entry}", entry.text

    def _why_closed(self, at: datetime) -> tuple[str, str | None]:
        for entry, hours in self.closes:
            if hours.contains(at):
                return f"closed by {entry}", entry.text
        if self.opening.contains(at) and (shut := self.why_shut(at)) is not None:
            return shut
        if self.net.contains(at):
            last = durations.text(self._last_start * 60.0)
            closing = self.net.next_change(at)
            assert closing is not None  # hours that do not end lose no last minutes
            return f"within {last} of closing at {soon(closing, at, self.zone.info)} (last_start)", f"last_start {last}"
        return "outside its hours", None

    def _change(self, is_open: bool, until: datetime | None, at: datetime) -> str:
        if until is None:
            return "" if is_open else ", with no opening in the next eight years"
        return f"{' until' if is_open else ', opens'} {soon(until, at, self.zone.info)} {self.zone.key}"


class Timetables:
    """Makes timetables; what is equal is made once, so that thousands of rules may share a few."""

    def __init__(self, compiler: Compiler, resources: Iterable[Resource] = ()) -> None:
        self._compiler = compiler
        self._made: dict[tuple[object, ...], Timetable] = {}
        self._hours: dict[tuple[Entry, str], Hours] = {}
        self._at_once: dict[tuple[AtOnce, str], AtOnceTable] = {}
        self.resources = {resource.name: self.at_once(resource.at_once, resource.timezone) for resource in resources}

    def at_once(self, at_once: AtOnce, timezone: str) -> AtOnceTable:
        """The limit of a rule or a resource; raises UnknownZone."""
        key = (at_once, timezone)
        if key not in self._at_once:
            self._at_once[key] = AtOnceTable(at_once, self._compiler.zone(timezone), self.entry, self._compiler)
        return self._at_once[key]

    def of(self, rule: FetchRule) -> Timetable:
        """The timetable of a rule; raises UnknownZone."""
        limits = [(words, limit) for words, limit in self._limits(rule) if limit.closed is not NEVER]
        key = (rule.open, rule.closed, rule.last_start, rule.timezone, *limits)
        if key not in self._made:
            zone = self._compiler.zone(rule.timezone)
            opens = None if rule.open is None else [self.entry(entry, zone) for entry in rule.open]
            closes = [self.entry(entry, zone) for entry in rule.closed]
            self._made[key] = Timetable(rule, zone, opens, closes, limits, self._compiler)
        return self._made[key]

    def _limits(self, rule: FetchRule) -> Iterator[tuple[str, AtOnceTable]]:
        if rule.at_once is not None:
            yield "", self.at_once(rule.at_once, rule.timezone)
        for name in rule.needs:
            yield f"{resource_pool(name)}: ", self.resources[name]

    def entry(self, entry: Entry, zone: Zone) -> Hours:
        """The hours of one line of the file; made once."""
        key = (entry, zone.key)
        if key not in self._hours:
            parts = [self._compiler.hours(line, zone) for line in entry.lines]
            self._hours[key] = self._compiler.union([*parts, Spans(entry.spans)] if entry.spans else parts)
        return self._hours[key]
