"""When one `[[fetch]]` rule is open, and which of its lines says so."""

from collections.abc import Iterable
from datetime import UTC, datetime

from msgspec import Struct

from gate import durations
from gate.calendars import Zone
from gate.hours import Entry, FetchRule
from gate.wallclock import soon
from gate.windows import ALWAYS, Compiler, Hours, Spans

FOREVER = datetime.max.replace(tzinfo=UTC)


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

    `opens` and `closes`: its lines, each with its hours. `opening`: the open lines together. `net`: without the closed
    ones. `starts`: when jobs may start, so without the last minutes either.
    """

    def __init__(
        self, rule: FetchRule, zone: Zone, opens: list[Hours] | None, closes: list[Hours], compiler: Compiler
    ) -> None:
        self.zone = zone
        self.opening = ALWAYS if opens is None else compiler.union(opens)
        self.opens = list(zip(rule.open or (), opens or (), strict=True))
        self.closes = list(zip(rule.closed, closes, strict=True))
        self._last_start = rule.last_start
        self.net = compiler.minus(self.opening, compiler.union(closes))
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
            fresh=earliest([until, *(hours.next_change(at) for _, hours in (*self.opens, *self.closes))]) or FOREVER,
        )

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

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._made: dict[tuple[object, ...], Timetable] = {}
        self._hours: dict[tuple[Entry, str], Hours] = {}

    def of(self, rule: FetchRule) -> Timetable:
        """The timetable of a rule; raises UnknownZone."""
        key = (rule.open, rule.closed, rule.last_start, rule.timezone)
        if key not in self._made:
            zone = self._compiler.zone(rule.timezone)
            opens = None if rule.open is None else [self._entry(entry, zone) for entry in rule.open]
            closes = [self._entry(entry, zone) for entry in rule.closed]
            self._made[key] = Timetable(rule, zone, opens, closes, self._compiler)
        return self._made[key]

    def _entry(self, entry: Entry, zone: Zone) -> Hours:
        key = (entry, zone.key)
        if key not in self._hours:
            parts = [self._compiler.hours(line, zone) for line in entry.lines]
            self._hours[key] = self._compiler.union([*parts, Spans(entry.spans)] if entry.spans else parts)
        return self._hours[key]


def earliest(instants: Iterable[datetime | None]) -> datetime | None:
    """The first of some instants; None is never."""
    return min((instant for instant in instants if instant is not None), default=None)
