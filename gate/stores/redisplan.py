"""How a ledger lies in Redis: keys, and the commands that write a batch. No I/O.

All keys begin with "{prefix}:", a hash tag, so that a cluster keeps one ledger in one slot and a batch is one script.
Records are fields of three hashes; sorted sets order them for the lists. So a batch takes as many commands as there
are hashes and lists, however many records it writes. Each key has an end, long after `prune` should have emptied it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeAlias

from gate.interface import State
from gate.ledger import Occurrence, Schedule, Token
from gate.starts import is_start
from gate.stores.base import SCHEDULE_DAYS, TOKEN_DAYS
from gate.stores.redisrecord import AnyRecord, member, micros, pack, token_field

Ref: TypeAlias = tuple[bytes, bytes]
"""Where a value is: a hash, and a field in it."""
Command: TypeAlias = list[bytes]
"""Name, key, and what follows the key."""

FORMAT = b"2"
"""Of all that is described here and in redisrecord. A gate of another format does not touch what this one wrote."""
DAY_MS = 86_400_000
NOTE_END_MS = SCHEDULE_DAYS * DAY_MS
END_MS = NOTE_END_MS + 30 * DAY_MS
TOKEN_END_MS = (TOKEN_DAYS + 2) * DAY_MS
MOST_WORDS = 1000
"""In one command: a script can hand over some thousand. Even, since they often come in pairs."""

LISTED = {State.CLAIMED: b"claimed", State.DOUBT: b"doubt", State.MISSED: b"missed"}
"""The sorted sets of occurrences by state."""
UNSENT = frozenset({State.RELEASED, State.DOUBT})


class Keys:
    """The names of all keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.root = f"{{{prefix}}}:"
        root = self.root.encode()
        self.ledger = root + b"epoch"
        """What the ledger as a whole is; a string of this name was that of the first format."""
        self.epoch: Ref = (self.ledger, b"id")
        self.format: Ref = (self.ledger, b"format")
        self.forgotten: Ref = (self.ledger, b"forgotten")
        self.lost: Ref = (self.ledger, b"lost")
        self.version = root + b"version"
        """Counts changes of notes, so that other gates need not read them to know that there are none."""
        self.schedule_records = root + b"s"
        self.occurrence_records = root + b"o"
        self.token_records = root + b"t"
        self.schedules = root + b"schedules"
        self.start_schedules = root + b"start-schedules"
        self.touched = root + b"touched"
        self.start_touched = root + b"start-touched"
        """Starts have lists of their own, which are for `prune` alone."""
        self.of = root + b"of"
        """All occurrences, by schedule and `at`."""
        self.unsent = root + b"unsent"
        """Those that are released or in doubt."""
        self.tokens = root + b"tokens"
        self.owners = root + b"owners"
        """Which gate holds a claim."""
        self.gates = root + b"gates"
        self._states = {state: root + name for state, name in LISTED.items()}
        self._notes = root + b"n:"

    def schedule(self, name: str) -> Ref:
        return self.schedule_records, name.encode()

    def occurrence(self, name: str, at: datetime) -> Ref:
        return self.occurrence_records, member(name, at)

    def token(self, token: str) -> Ref:
        return self.token_records, token_field(token)

    def by_use(self, name: str) -> bytes:
        """The list of schedules that this one is in."""
        return self.start_schedules if is_start(name) else self.schedules

    def by_touch(self, name: str) -> bytes:
        """The list of occurrences that those of this schedule are in."""
        return self.start_touched if is_start(name) else self.touched

    def state(self, state: State) -> bytes:
        return self._states[state]

    def notes(self, kind: str) -> bytes:
        return self._notes + kind.encode()


class Plan:
    """The commands that write records. `gate`: the id of this one, to which claims belong that it grants.

    `written`: the values that are written, and what they are if they are records; `gone`: those that are removed.
    """

    def __init__(self, keys: Keys, gate: str) -> None:
        self._keys = keys
        self._gate = gate.encode()
        self._calls: dict[tuple[bytes, bytes], list[bytes]] = {}
        """What follows each command and key. No list gets and loses the same member, so their order does not matter."""
        self._ends: dict[bytes, int] = {}
        """For how long each key lives on, in milliseconds."""
        self.written: dict[Ref, tuple[bytes, AnyRecord | None]] = {}
        self.gone: list[Ref] = []

    def commands(self) -> list[Command]:
        """All of them. Every key that something is added to lives on for as long again."""
        made = [
            [name, key, *words[start : start + MOST_WORDS]]
            for (name, key), words in self._calls.items()
            for start in range(0, len(words) or 1, MOST_WORDS)
        ]
        return made + [[b"PEXPIRE", key, b"%d" % end] for key, end in self._ends.items()]

    def write(
        self,
        schedules: Iterable[Schedule],
        occurrences: Iterable[tuple[Occurrence, Occurrence | None]],
        tokens: Iterable[Token],
    ) -> None:
        """Write these records, and their places in the lists; with each occurrence, what the server holds of it."""
        for schedule in schedules:
            self.set(self._keys.schedule(schedule.name), pack(schedule), schedule)
            self._add(self._keys.by_use(schedule.name), micros(schedule.touched), schedule.name.encode())
        for occurrence, before in occurrences:
            self._occurrence(occurrence, before)
        for token in tokens:
            ref = self._keys.token(token.token)
            self.set(ref, pack(token), token)
            self._add(self._keys.tokens, micros(token.born), ref[1])

    def forget(self, schedules: Iterable[str], occurrences: Iterable[Occurrence], tokens: Iterable[str]) -> None:
        """Remove records, and their places in the lists."""
        for name in schedules:
            ref = self._keys.schedule(name)
            self._remove(ref)
            self._put(b"ZREM", self._keys.by_use(name), ref[1])
        for one in occurrences:
            ref = self._keys.occurrence(one.schedule, one.at)
            self._remove(ref)
            for key in (self._keys.by_touch(one.schedule), self._keys.of):
                self._put(b"ZREM", key, ref[1])
            self._leave(ref[1], one, None)
        for token in tokens:
            ref = self._keys.token(token)
            self._remove(ref)
            self._put(b"ZREM", self._keys.tokens, ref[1])

    def set(self, ref: Ref, value: bytes, record: AnyRecord | None = None) -> None:
        """Set a value; `record`: the one that it stands for."""
        key, field = ref
        self.written[ref] = value, record
        self._put(b"HSET", key, field, value)
        self._ends[key] = END_MS

    def note(self, key: bytes, changes: Mapping[str, bytes | None]) -> None:
        """Write fields of a hash, and remove those whose value is None."""
        for name, value in changes.items():
            if value is None:
                self._put(b"HDEL", key, name.encode())
            else:
                self._put(b"HSET", key, name.encode(), value)
        self._ends[key] = NOTE_END_MS

    def count(self, key: bytes) -> None:
        """Count one more."""
        self._put(b"INCR", key)
        self._ends[key] = NOTE_END_MS

    def _occurrence(self, one: Occurrence, before: Occurrence | None) -> None:
        ref = self._keys.occurrence(one.schedule, one.at)
        place = ref[1]
        self.set(ref, pack(one), one)
        self._add(self._keys.by_touch(one.schedule), micros(one.touched), place)
        if before is None:
            self._add(self._keys.of, 0, place)
        else:
            self._leave(place, before, one.state)
        if one.state in LISTED and (one.state is State.CLAIMED or not is_start(one.schedule)):
            by = one.until if one.state is State.CLAIMED else one.at
            self._add(self._keys.state(one.state), micros(by), place)
        if one.state in UNSENT:
            self._add(self._keys.unsent, 0, place)
        if one.state is State.CLAIMED:
            self._put(b"HSET", self._keys.owners, place, self._gate)
            self._ends[self._keys.owners] = END_MS

    def _leave(self, place: bytes, before: Occurrence, state: State | None) -> None:
        """Take an occurrence out of the lists in which it is no longer; `state`: its own now, if it is."""
        if before.state in LISTED and before.state is not state:
            self._put(b"ZREM", self._keys.state(before.state), place)
        if before.state in UNSENT and state not in UNSENT:
            self._put(b"ZREM", self._keys.unsent, place)
        if before.state is State.CLAIMED and state is not State.CLAIMED:
            self._put(b"HDEL", self._keys.owners, place)

    def _remove(self, ref: Ref) -> None:
        key, field = ref
        self.gone.append(ref)
        self._put(b"HDEL", key, field)

    def _add(self, key: bytes, score: int, place: bytes) -> None:
        self._put(b"ZADD", key, b"%d" % score, place)
        self._ends[key] = END_MS

    def _put(self, name: bytes, key: bytes, *words: bytes) -> None:
        self._calls.setdefault((name, key), []).extend(words)
