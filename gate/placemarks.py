"""What the store's notes say of places, so that a restart never gives too many: what workers held and ramps gave."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gate.holders import Record
from gate.pools import Given
from gate.stores.base import Store
from gate.waitlist import Key

NOTES = "place"
"""The kind of these notes; the key of each is that of a process and, after a blank, of a session of it."""
RAMP = "ramp"
"""Or this and, after a blank, the name of a pool; the key of a process has colons."""

Query: TypeAlias = Callable[[Callable[[Store], Any], Callable[[Any], None]], None]
Then: TypeAlias = Callable[[Exception | None], None]


class Noted(NamedTuple):
    """What the notes say. `marks`: of each session, by pool. `given`: by ramps, by pool. `problems`: what cannot be
    read of them, in words.
    """

    marks: dict[Key, dict[str, int]]
    given: dict[str, Given]
    problems: list[str]


def read(notes: Mapping[str, bytes]) -> Noted:
    """Read them all."""
    noted = Noted({}, {}, [])
    for key, note in notes.items():
        head, _, rest = key.partition(" ")
        try:
            if head == RAMP:
                noted.given[rest] = msgspec.json.decode(note, type=Given)
            else:
                noted.marks[head, rest] = msgspec.json.decode(note, type=dict[str, int])
        except msgspec.MsgspecError as error:
            what = f"the ramp of {rest} gave" if head == RAMP else f"process {head} held at most"
            noted.problems.append(f"what {what} is not counted, for it cannot be read: {error}")
    return noted


class PlaceMarks:
    """Writes them. What comes while a write is on its way goes in one transaction after it."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._changes: dict[str, bytes | None] = {}
        self._then: list[Then] = []
        self._writing = False

    def put(self, record: Record, then: Then) -> None:
        """Write a record; `then` gets None when it is on disk, or why it is not."""
        notes: dict[str, bytes | None] = {_key(record.process, record.session): msgspec.json.encode(record.marks)}
        notes |= {_key(RAMP, pool): msgspec.json.encode(given) for pool, given in record.given.items()}
        self._change(notes, then)

    def forget(self, key: Key, then: Then) -> None:
        """Remove what is known of a session."""
        self._change({_key(*key): None}, then)

    def _change(self, notes: Mapping[str, bytes | None], then: Then) -> None:
        self._changes.update(notes)
        self._then.append(then)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        changes, self._changes = self._changes, {}
        waiting, self._then = self._then, []
        self._writing = True
        self._query(lambda store: store.put_notes(NOTES, changes), partial(self._written, waiting))

    def _written(self, waiting: list[Then], outcome: Any) -> None:
        self._writing = False
        if self._then:
            self._write()
        for then in waiting:
            then(outcome if isinstance(outcome, Exception) else None)


def _key(head: str, rest: str) -> str:
    return f"{head} {rest}" if rest else head
