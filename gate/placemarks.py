"""What the store's notes say of places: the most that each worker held, so that a restart never gives too many."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec

from gate.holders import Record
from gate.stores.base import Store
from gate.waitlist import Key

NOTES = "place"
"""The kind of these notes; the key of each is that of a process and, after a blank, of a session of it."""

Query: TypeAlias = Callable[[Callable[[Store], Any], Callable[[Any], None]], None]
Then: TypeAlias = Callable[[Exception | None], None]


def read(notes: Mapping[str, bytes]) -> tuple[dict[Key, dict[str, int]], list[str]]:
    """The marks of each session, by pool, and what is wrong with notes that cannot be read."""
    marks: dict[Key, dict[str, int]] = {}
    problems: list[str] = []
    for key, note in notes.items():
        process, _, session = key.partition(" ")
        try:
            marks[process, session] = msgspec.json.decode(note, type=dict[str, int])
        except msgspec.MsgspecError as error:
            problems.append(f"what process {process} held at most is not counted, for it cannot be read: {error}")
    return marks, problems


class PlaceMarks:
    """Writes them. What comes while a write is on its way goes in one transaction after it."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._changes: dict[str, bytes | None] = {}
        self._then: list[Then] = []
        self._writing = False

    def put(self, record: Record, then: Then) -> None:
        """Write a record; `then` gets None when it is on disk, or why it is not."""
        self._change((record.process, record.session), msgspec.json.encode(record.marks), then)

    def forget(self, key: Key, then: Then) -> None:
        """Remove what is known of a session."""
        self._change(key, None, then)

    def _change(self, key: Key, note: bytes | None, then: Then) -> None:
        process, session = key
        self._changes[f"{process} {session}" if session else process] = note
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
