"""What processes hold: how many places in which pools, what is on disk about it, and what is assumed until they say."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gate.waitlist import Process


class Record(Struct, frozen=True, kw_only=True):
    """What must be on disk before an answer may leave: the most places that a process ever held, by pool.

    `number` orders records: one that is older than what was forgotten of its process says nothing any more.
    """

    process: Process
    marks: Mapping[str, int]
    number: int


class Holder:
    """One process. `permits`: their ids. `held`: places by pool.

    `marks`: what the disk says. `unsaid`: what it counts with, from the marks of a gate that ran before, until it says
    what it holds; None when it has said so.
    """

    __slots__ = ("born", "held", "marks", "permits", "unsaid")

    def __init__(self, born: int) -> None:
        self.born = born
        self.permits: set[str] = set()
        self.held: Counter[str] = Counter()
        self.marks: dict[str, int] = {}
        self.unsaid: dict[str, int] | None = None


class Holders:
    """All processes that hold places, or once did."""

    def __init__(self) -> None:
        self._holders: dict[Process, Holder] = {}
        self._records = 0

    def get(self, process: Process) -> Holder | None:
        return self._holders.get(process)

    def of(self, process: Process) -> Holder:
        """The process, new if it was not known."""
        holder = self._holders.get(process)
        if holder is None:
            holder = self._holders[process] = Holder(self._records)
        return holder

    def forget(self, process: Process) -> Holder | None:
        """Know it no more. Returns what was known."""
        return self._holders.pop(process, None)

    def silent(self) -> list[Process]:
        """Processes that have not said yet what they hold."""
        return [process for process, holder in self._holders.items() if holder.unsaid is not None]

    def counted(self) -> list[Process]:
        """Processes that hold something, or may."""
        return [name for name, holder in self._holders.items() if holder.permits or holder.unsaid is not None]

    def record(self, process: Process) -> Record | None:
        """What has to be written since a process holds more than the disk says; None if nothing has."""
        holder = self.of(process)
        marks = _highest(holder.marks, holder.held + Counter(holder.unsaid or {}))
        if marks == holder.marks:
            return None
        self._records += 1
        return Record(process=process, marks=marks, number=self._records)

    def recorded(self, record: Record) -> None:
        """A record is on disk."""
        holder = self._holders.get(record.process)
        if holder is not None and record.number > holder.born:
            holder.marks = _highest(holder.marks, record.marks)


def _highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    pools = dict.fromkeys([*one, *other])
    marks = {pool: max(one.get(pool, 0), other.get(pool, 0)) for pool in pools}
    return {pool: mark for pool, mark in marks.items() if mark > 0}
