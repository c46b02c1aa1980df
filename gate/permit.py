"""One permit, and what is asked, answered and shown about permits."""

from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct

from gate.holders import Record
from gate.pools import Share
from gate.waitlist import Connection, Key, Process, Waiter


class Choice(Struct, frozen=True, kw_only=True):
    """What one rule says of a question: the queues (or globs) that it decides, and the pools that a job of them needs.

    Without pools, no limit applies.
    """

    rule: str
    queues: tuple[str, ...]
    pools: tuple[str, ...] = ()

    def decides(self, queue: str) -> bool:
        return queue in self.queues or any(fnmatchcase(queue, glob) for glob in self.queues)


class Ask(Struct, frozen=True, kw_only=True):
    """A question for a permit. `choices`: those of open rules, in the order of the rules."""

    permit: str
    worker: str
    session: str
    process: Process
    connection: Connection
    choices: tuple[Choice, ...]


class Answer(Struct, frozen=True, kw_only=True):
    """`permit`: None is no. `granted` and `left_out`: the choices that have room, and those that have none.

    `until`: when to ask again at the latest; None if nothing is known but that a place may become free. `reuse`: for
    how many seconds the permit may serve one job after another; None: one only. `record`: to be on disk before this
    answer leaves; then call `recorded`.
    """

    permit: str | None
    granted: tuple[Choice, ...]
    left_out: tuple[Choice, ...]
    reason: str
    until: datetime | None = None
    reuse: float | None = None
    record: Record | None = None


class Permit(Struct, frozen=True, kw_only=True):
    """Places that are taken: one in each of `pools`. Reserved while `queue` is None, else bound to a job of a queue.

    `connection`: None since it closed. `granted` and `left_out`: as they were answered. `session`: None where it was
    taken back from a gate that ran before by a client that names none.
    """

    id: str
    worker: str
    session: str | None
    process: Process
    connection: Connection
    since: datetime
    granted: tuple[Choice, ...]
    left_out: tuple[Choice, ...] = ()
    pools: frozenset[str]
    queue: str | None = None
    job: str | None = None


class Bound(Struct, frozen=True, kw_only=True):
    """`pools`: where the job counts. `granted`: False if its queue was not; the job runs, so it counts all the same."""

    pools: frozenset[str]
    granted: bool
    record: Record | None


class Held(Struct, frozen=True):
    """What a process says it holds."""

    permit: str
    queue: str
    job: str | None = None


class Restorer(Struct, frozen=True, kw_only=True):
    """Who says what it holds. `session`: None where the client does not say; it speaks for its whole process then."""

    worker: str
    session: str | None
    process: Process
    connection: Connection

    def speaks_for(self, permit: Permit) -> bool:
        """Whether it would have named this permit of its process if it still held it."""
        return permit.worker == self.worker if self.session is None else permit.session == self.session


class Restored(Struct, frozen=True):
    """`kept`: the ids that are taken back; those that are missing belong to another process."""

    kept: tuple[str, ...]
    record: Record | None


class Tick(Struct, frozen=True, kw_only=True):
    """What came of all that happened since the last one.

    `woken`: who has been offered places, one each time. `lost`: permits whose grace is over. `gone`: sessions of which
    the disk need not know any more. `next`: when to come back at the latest.
    """

    woken: tuple[Waiter, ...]
    lost: tuple[Permit, ...]
    gone: tuple[Key, ...]
    next: datetime | None


class PoolStatus(Struct, frozen=True, kw_only=True):
    """A pool for people. `taken` counts `holders`, and `unsaid` of processes that have not said yet what they hold.
    `share`: where other gates give places of it too.
    """

    pool: str
    taken: int
    unsaid: int
    promised: int
    holders: tuple[Permit, ...]
    waiters: tuple[Waiter, ...]
    share: Share | None = None


def pools_of(choices: Iterable[Choice]) -> frozenset[str]:
    """All pools that choices need."""
    return frozenset(name for choice in choices for name in choice.pools)
