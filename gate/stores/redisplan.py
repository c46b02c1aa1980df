"""How records lie in Redis: keys, values, and the commands that write a batch. No I/O.

All keys begin with "{prefix}:", a hash tag, so that a cluster keeps one ledger in one slot and a batch is one script.
Records are strings; sorted sets order them for the lists; each key has an end, long after `prune` should have taken it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

import msgspec

from gate.interface import State
from gate.ledger import Occurrence, Schedule, Token
from gate.starts import is_start
from gate.stores.base import SCHEDULE_DAYS, TOKEN_DAYS

Record = TypeVar("Record", Schedule, Occurrence, Token)
Command: TypeAlias = tuple[str, str, list[bytes | str | int]]
"""Name, key, and what follows the key."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.msgpack.Encoder().encode
DAY_MS = 86_400_000
NOTE_END_MS = SCHEDULE_DAYS * DAY_MS
END_MS = NOTE_END_MS + 30 * DAY_MS
TOKEN_END_MS = (TOKEN_DAYS + 2) * DAY_MS

LISTED = {State.CLAIMED: "claimed", State.DOUBT: "doubt", State.MISSED: "missed"}
"""The sorted sets of occurrences by state."""
UNSENT = frozenset({State.RELEASED, State.DOUBT})


def micros(instant: datetime) -> int:
    """Microseconds since 1970: exact as a score, which is a double."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def instant(value: float) -> datetime:
    """The instant of so many microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=int(value))


def pack(record: Schedule | Occurrence | Token) -> bytes:
    """A record as it is stored."""
    return _encode(record)


def unpack(value: bytes, kind: type[Record]) -> Record:
    """The record of a stored value; raises msgspec.MsgspecError for what is none."""
    return msgspec.msgpack.decode(value, type=kind)


class Keys:
    """The names of all keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.root = f"{{{prefix}}}:"
        self.epoch = self.root + "epoch"
        self.forgotten = self.root + "forgotten"
        self.lost = self.root + "lost"
        self.version = self.root + "version"
        """Counts changes of notes, so that other gates need not read them to know that there are none."""
        self.schedules = self.root + "schedules"
        self.start_schedules = self.root + "start-schedules"
        self.touched = self.root + "touched"
        self.start_touched = self.root + "start-touched"
        """Starts have lists of their own, which are for `prune` alone."""
        self.tokens = self.root + "tokens"
        self.owners = self.root + "owners"
        """Which gate holds a claim."""
        self.gates = self.root + "gates"

    def schedule(self, name: str) -> str:
        return f"{self.root}s:{name}"

    def occurrence(self, name: str, at: datetime) -> str:
        return f"{self.root}o:{member(name, at)}"

    def token(self, token: str) -> str:
        return f"{self.root}t:{token}"

    def of(self, name: str) -> str:
        """The occurrences of a schedule by `at`."""
        return f"{self.root}of:{name}"

    def unsent(self, name: str) -> str:
        """Those that are released or in doubt."""
        return f"{self.root}un:{name}"

    def by_use(self, name: str) -> str:
        """The list of schedules that this one is in."""
        return self.start_schedules if is_start(name) else self.schedules

    def by_touch(self, name: str) -> str:
        """The list of occurrences that those of this schedule are in."""
        return self.start_touched if is_start(name) else self.touched

    def state(self, state: State) -> str:
        return self.root + LISTED[state]

    def notes(self, kind: str) -> str:
        return f"{self.root}n:{kind}"


def member(name: str, at: datetime) -> str:
    """An occurrence in a sorted set."""
    return f"{name}\0{micros(at)}"


def parted(value: bytes) -> tuple[str, datetime]:
    """Schedule and `at` of such a member."""
    name, _, at = value.decode().rpartition("\0")
    return name, instant(int(at))


class Plan:
    """The commands that write records. `gate`: the id of this one, to which claims belong that it grants."""

    def __init__(self, keys: Keys, gate: str) -> None:
        self._keys = keys
        self._gate = gate
        self._ends: dict[str, int] = {}
        """For how long each key without an end of its own lives on, in milliseconds."""
        self.commands: list[Command] = []

    def write(self, schedules: Iterable[Schedule], occurrences: Iterable[Occurrence], tokens: Iterable[Token]) -> None:
        """Write these records, and their places in the lists."""
        for schedule in schedules:
            self._set(self._keys.schedule(schedule.name), pack(schedule), END_MS)
            self._add(self._keys.by_use(schedule.name), micros(schedule.touched), schedule.name)
        for occurrence in occurrences:
            self._occurrence(occurrence)
        for token in tokens:
            self._set(self._keys.token(token.token), pack(token), TOKEN_END_MS)
            self._add(self._keys.tokens, micros(token.born), token.token)

    def forget(self, schedules: Iterable[str], occurrences: Iterable[Occurrence], tokens: Iterable[str]) -> None:
        """Remove records, and their places in the lists."""
        for name in schedules:
            self._put("DEL", self._keys.schedule(name))
            self._put("ZREM", self._keys.by_use(name), name)
        for one in occurrences:
            place = member(one.schedule, one.at)
            self._put("DEL", self._keys.occurrence(one.schedule, one.at))
            self._put("ZREM", self._keys.by_touch(one.schedule), place)
            self._put("ZREM", self._keys.of(one.schedule), micros(one.at))
            self.leave(one, None)
        for token in tokens:
            self._put("DEL", self._keys.token(token))
            self._put("ZREM", self._keys.tokens, token)

    def set(self, key: str, value: bytes | str) -> None:
        """Set a plain value."""
        self._set(key, value, END_MS)

    def note(self, key: str, changes: Mapping[str, bytes | None]) -> None:
        """Write fields of a hash, and remove those whose value is None."""
        for name, value in changes.items():
            if value is None:
                self._put("HDEL", key, name)
            else:
                self._put("HSET", key, name, value)
        self._ends[key] = NOTE_END_MS

    def count(self, key: str) -> None:
        """Count one more."""
        self._put("INCR", key)
        self._ends[key] = NOTE_END_MS

    def ends(self) -> list[Command]:
        """What keeps all that has no end of its own alive for as long again."""
        return [("PEXPIRE", key, [end]) for key, end in sorted(self._ends.items())]

    def _occurrence(self, one: Occurrence) -> None:
        place = member(one.schedule, one.at)
        self._set(self._keys.occurrence(one.schedule, one.at), pack(one), END_MS)
        self._add(self._keys.by_touch(one.schedule), micros(one.touched), place)
        self._add(self._keys.of(one.schedule), micros(one.at), micros(one.at))
        if one.state in LISTED and (one.state is State.CLAIMED or not is_start(one.schedule)):
            by = one.until if one.state is State.CLAIMED else one.at
            self._add(self._keys.state(one.state), micros(by), place)
        if one.state in UNSENT:
            self._add(self._keys.unsent(one.schedule), micros(one.at), micros(one.at))
        if one.state is State.CLAIMED:
            self._put("HSET", self._keys.owners, place, self._gate)
            self._ends[self._keys.owners] = END_MS
            end = micros(one.until) // 1000 + TOKEN_END_MS  # a claim is settled by its token, which stays as long
            self._put("PEXPIREAT", self._keys.token(one.token), end)

    def leave(self, before: Occurrence, after: Occurrence | None) -> None:
        """Take an occurrence out of the lists in which it is no longer; `after`: what it is now, if it is."""
        place, state = member(before.schedule, before.at), None if after is None else after.state
        if before.state in LISTED and before.state is not state:
            self._put("ZREM", self._keys.state(before.state), place)
        if before.state in UNSENT and state not in UNSENT:
            self._put("ZREM", self._keys.unsent(before.schedule), micros(before.at))
        if before.state is State.CLAIMED and state is not State.CLAIMED:
            self._put("HDEL", self._keys.owners, place)

    def _set(self, key: str, value: bytes | str, end: int) -> None:
        self._put("SET", key, value, "PX", end)

    def _add(self, key: str, score: int, place: str | int) -> None:
        self._put("ZADD", key, score, place)
        self._ends[key] = END_MS

    def _put(self, name: str, key: str, *rest: bytes | str | int) -> None:
        self.commands.append((name, key, list(rest)))
