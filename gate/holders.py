"""What processes hold: how many places in which pools, what is on disk about it, and what is assumed until they say."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from gate.pools import Given
from gate.waitlist import Connection, Key, Process


class Record(Struct, frozen=True, kw_only=True):
    """What must be on disk before an answer may leave: the most places that a session ever held, by pool; and what
    ramps have given, by pool, where that is news.

    `number` orders records: one that is older than what was forgotten of its session says nothing any more.
    """

    process: Process
    session: str
    marks: Mapping[str, int]
    given: Mapping[str, Given]
    number: int


class Share:
    """What one session of a process holds; "" is a process that restores without naming a session. `held`: by pool.

    A process may run several workers, and they say one by one what they hold: so each counts by itself.

    `marks`: what the disk says. `unsaid`: what it counts with, from the marks of a gate that ran before, until it says
    what it holds; None when it has said so. `connection`: over which it asked last.
    """

    __slots__ = ("born", "connection", "held", "marks", "unsaid")

    def __init__(self, born: int) -> None:
        self.born = born
        self.held: Counter[str] = Counter()
        self.marks: dict[str, int] = {}
        self.unsaid: dict[str, int] | None = None
        self.connection: Connection = None

    @property
    def idle(self) -> bool:
        """Whether it holds nothing in any pool, and is not assumed to."""
        return self.unsaid is None and not any(self.held.values())


class Holder:
    """One process. `permits`: their ids. `shares`: by session."""

    __slots__ = ("permits", "shares")

    def __init__(self) -> None:
        self.permits: set[str] = set()
        self.shares: dict[str, Share] = {}

    def silent(self) -> list[str]:
        """Its sessions that have not said yet what they hold."""
        return [session for session, share in self.shares.items() if share.unsaid is not None]


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
            holder = self._holders[process] = Holder()
        return holder

    def share(self, process: Process, session: str) -> Share:
        """A session of it, new if it was not known."""
        shares = self.of(process).shares
        share = shares.get(session)
        if share is None:
            share = shares[session] = Share(self._records)
        return share

    def forget(self, process: Process) -> list[Key]:
        """Know it no more. Returns the sessions that were known."""
        holder = self._holders.pop(process, None)
        return [] if holder is None else [(process, session) for session in holder.shares]

    def forget_idle(self, process: Process, connection: Connection | None) -> list[Key]:
        """Know no more those of its sessions that hold nothing and asked over this connection last; None: any."""
        holder = self._holders.get(process)
        if holder is None:
            return []
        idle = [
            session
            for session, share in holder.shares.items()
            if share.idle and (connection is None or share.connection == connection)
        ]
        for session in idle:
            del holder.shares[session]
        if not holder.shares and not holder.permits:
            del self._holders[process]
        return [(process, session) for session in idle]

    def silent(self) -> list[Process]:
        """Processes of which a session has not said yet what it holds."""
        return [process for process, holder in self._holders.items() if holder.silent()]

    def counted(self) -> list[Process]:
        """Processes that hold something, or may."""
        return [name for name, holder in self._holders.items() if holder.permits or holder.silent()]

    def record(self, process: Process, session: str, given: Mapping[str, Given]) -> Record | None:
        """What has to be written since a session holds more than the disk says, or ramps gave so much; else None."""
        share = self.share(process, session)
        marks = _highest(share.marks, share.held + Counter(share.unsaid or {}))
        if marks == share.marks and not given:
            return None
        self._records += 1
        return Record(process=process, session=session, marks=marks, given=given, number=self._records)

    def recorded(self, record: Record) -> None:
        """A record is on disk."""
        holder = self._holders.get(record.process)
        share = None if holder is None else holder.shares.get(record.session)
        if share is not None and record.number > share.born:
            share.marks = _highest(share.marks, record.marks)


def _highest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    pools = dict.fromkeys([*one, *other])
    marks = {pool: max(one.get(pool, 0), other.get(pool, 0)) for pool in pools}
    return {pool: mark for pool, mark in marks.items() if mark > 0}
