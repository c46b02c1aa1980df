"""When nothing is sent: hours that pause a schedule, and what operators ordered over schedules, until an end."""

from collections.abc import Mapping
from datetime import datetime
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct

from gate.config import Config
from gate.errors import InvalidPause, NoSuchPause
from gate.hours import Entry
from gate.interface import Halt, PauseIn, PauseInfo
from gate.moments import FOREVER
from gate.overrides import KNOWN_SHOWN, end_of, note_of
from gate.rules import Paused, SendRule, covering
from gate.timetable import Timetables
from gate.wallclock import soon
from gate.windows import Compiler, Hours

MOST_ORDERS = 1_000
GLOB_BYTES = 512


# -- hours


class PauseTable(Struct, frozen=True):
    """When one `[[send]]` pauses: its lines, each with its hours, and all of them together."""

    entries: tuple[tuple[Entry, Hours], ...]
    hours: Hours


class PauseHours:
    """The `pause` lines of a configuration, compiled; raises UnknownZone. Read by the zone of the file."""

    def __init__(self, config: Config) -> None:
        compiler = Compiler(config.days)
        made = Timetables(compiler)
        self.zone = compiler.zone(config.timezone)
        self._rule = covering(config.send)
        self._tables: dict[tuple[Entry, ...], PauseTable] = {}
        for rule in config.send:
            if rule.pause:
                entries = tuple((entry, made.entry(entry, self.zone)) for entry in rule.pause)
                self._tables[rule.pause] = PauseTable(entries, compiler.union(hours for _, hours in entries))

    def of(self, rule: SendRule) -> PauseTable | None:
        """The pauses of a rule; None if it has none."""
        return self._tables.get(rule.pause) if rule.pause else None

    def paused(self, schedule: str, at: datetime) -> Paused | None:
        """Which line pauses a schedule at an instant: of those that hold, the one that holds longest."""
        table = self.of(self._rule(schedule)) if self._tables else None
        if table is None or not table.hours.contains(at):
            return None
        holding = [(entry, hours.next_change(at) or FOREVER) for entry, hours in table.entries if hours.contains(at)]
        entry, _ = max(holding, key=lambda held: held[1])
        until = table.hours.next_change(at)
        end = "" if until is None else f" until {soon(until, at, self.zone.info)} {self.zone.key}"
        return Paused(reason=f"paused by {entry}{end}", until=until)


# -- orders


class Pause(Struct, frozen=True, kw_only=True):
    """One order. `schedule`: a name or a glob. `by` and `uid`: the user, as the socket knows him."""

    schedule: str
    until: datetime
    note: str
    by: str
    uid: int
    since: datetime

    def info(self) -> PauseInfo:
        """As it goes over the wire."""
        return PauseInfo(schedule=self.schedule, until=self.until, note=self.note, by=self.by, since=self.since)

    def covers(self, schedule: str) -> bool:
        """Whether it pauses a schedule."""
        return schedule == self.schedule or fnmatchcase(schedule, self.schedule)


class Pauses(Struct, frozen=True):
    """All orders, by their name or glob. Never changed: each change gives a new table."""

    table: Mapping[str, Pause] = {}

    def in_force(self, now: datetime) -> list[Pause]:
        """All orders that hold at `now`."""
        return [pause for _, pause in sorted(self.table.items()) if now < pause.until]

    def paused(self, schedule: str, at: datetime) -> Paused | None:
        """The order that pauses a schedule at an instant: of several, the one that ends last."""
        holding = [pause for pause in self.table.values() if at < pause.until and pause.covers(schedule)]
        if not holding:
            return None
        pause = max(holding, key=lambda held: held.until)
        return Paused(reason=f"paused by {pause.by}: {pause.note}", until=pause.until)

    def order(self, asked: PauseIn, by: str, uid: int, now: datetime) -> "Pauses":
        """Take an order in, and forget those that have ended. Raises InvalidPause and NoSuchPause."""
        if not 1 <= (size := len(asked.schedule.encode())) <= GLOB_BYTES:
            raise InvalidPause(field="schedule", reason=f"has {size} bytes: 1 to {GLOB_BYTES} are allowed")
        kept = {pause.schedule: pause for pause in self.in_force(now)}
        if asked.action is Halt.RESUME:
            return Pauses(_resumed(kept, asked))
        until, note = end_of(asked.until, now, InvalidPause), note_of(asked.note, InvalidPause)
        kept[asked.schedule] = Pause(schedule=asked.schedule, until=until, note=note, by=by, uid=uid, since=now)
        if len(kept) > MOST_ORDERS:
            raise InvalidPause(field="schedule", reason=f"there are {MOST_ORDERS} pauses already: use a glob")
        return Pauses(kept)


NO_PAUSES = Pauses()


def _resumed(kept: Mapping[str, Pause], asked: PauseIn) -> dict[str, Pause]:
    """Without the orders whose name or glob is the one that is asked for, or matches it."""
    if asked.until is not None:
        raise InvalidPause(field="until", reason="resume ends a pause now: leave it out")
    gone = {asked.schedule} & kept.keys() or {name for name in kept if fnmatchcase(name, asked.schedule)}
    if not gone:
        raise NoSuchPause(schedule=asked.schedule, known=list(kept)[:KNOWN_SHOWN])
    return {name: pause for name, pause in kept.items() if name not in gone}


# -- the store, which keeps one note per name or glob


def changes(before: Pauses, after: Pauses) -> dict[str, bytes | None]:
    """What the store must write so that it holds `after` where it held `before`: None to forget."""
    written: dict[str, bytes | None] = {name: None for name in before.table if name not in after.table}
    for name, pause in after.table.items():
        if before.table.get(name) != pause:
            written[name] = msgspec.json.encode(pause)
    return written


def from_notes(notes: Mapping[str, bytes]) -> tuple[Pauses, list[str]]:
    """Read what the store keeps; and a line for each note that cannot be read, which is left out."""
    table: dict[str, Pause] = {}
    problems: list[str] = []
    for name, note in notes.items():
        try:
            table[name] = msgspec.json.decode(note, type=Pause)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            problems.append(f"the pause of {name} cannot be read and is left out: {error}")
    return Pauses(table), problems


def paused(hours: PauseHours, orders: Pauses, schedule: str, at: datetime) -> Paused | None:
    """Why nothing of a schedule is sent at an instant: of an order and hours, the one that ends last."""
    holding = [found for found in (orders.paused(schedule, at), hours.paused(schedule, at)) if found is not None]
    return max(holding, key=lambda found: found.until or FOREVER) if holding else None
