"""What the store's notes say of places: the most that each process held, so that a restart never gives too many."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import msgspec

from gate.holders import Record
from gate.stores.base import Store
from gate.waitlist import Process

NOTES = "place"
"""The kind of these notes; the key of each is that of a process."""

Query: TypeAlias = Callable[[Callable[[Store], Any], Callable[[Any], None]], None]
Then: TypeAlias = Callable[[Exception | None], None]


def read(notes: Mapping[str, bytes]) -> tuple[dict[Process, dict[str, int]], list[str]]:
    """The marks of each process, by pool, and what is wrong with notes that cannot be read."""
    marks: dict[Process, dict[str, int]] = {}
    problems: list[str] = []
    for process, note in notes.items():
        try:
            marks[process] = msgspec.json.decode(note, type=dict[str, int])
        except msgspec.MsgspecError as error:
            problems.append(f"what process {process} held at most is not counted, for it cannot be read: {error}")
    return marks, problems


class PlaceMarks:
    """Writes them. What comes while a write is on its way goes in one transaction after it."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._changes: dict[Process, bytes | None] = {}
        self._then: list[Then] = []
        self._writing = False

    def put(self, record: Record, then: Then) -> None:
        """Write a record; `then` gets None when it is on disk, or why it is not."""
        self._change(record.process, msgspec.json.encode(record.marks), then)

    def forget(self, process: Process, then: Then) -> None:
        """Remove what is known of a process."""
        self._change(process, None, then)

    def _change(self, process: Process, note: bytes | None, then: Then) -> None:
        self._changes[process] = note
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
