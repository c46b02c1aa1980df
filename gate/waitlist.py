"""Who waits for a place, in order, and to whom a free one is offered.

Those who need the same stand in one line, so that the work of an event grows with the different needs and not with
those who wait. Over all lines, whoever waits longest and can use a place gets the offer.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

Process: TypeAlias = str
"""What identifies a process, such as its pid and start time. One that cannot be told has a key for each connection."""
Connection: TypeAlias = Hashable
"""What identifies a connection."""
Key: TypeAlias = tuple[Process, str]
"""Who waits: a process, and a session of it."""
Needs: TypeAlias = frozenset[frozenset[str]]
"""Sets of pools: a place in each pool of one of them is enough."""


class Offer(Struct, frozen=True):
    """Places that are kept for one who waits until he takes them, or until it is over."""

    pools: frozenset[str]
    until: datetime


class Waiter(Struct, frozen=True, kw_only=True):
    """Somebody who was refused, in all or in part.

    `permit`: the id he asked with last. `number`: his place in the order. `since`: when he was first refused.
    """

    process: Process
    session: str
    worker: str
    permit: str
    connection: Connection
    needs: Needs
    number: int
    since: datetime
    offer: Offer | None = None

    @property
    def key(self) -> Key:
        return self.process, self.session

    @property
    def pools(self) -> list[str]:
        """The pools he waits for."""
        return sorted({pool for pools in self.needs for pool in pools})


class Waitlist:
    """All who wait. A waiter with an offer stands in no line."""

    def __init__(self) -> None:
        self._waiters: dict[Key, Waiter] = {}
        self._lines: dict[Needs, list[tuple[int, Key]]] = {}
        self._offered: dict[Key, Waiter] = {}
        self._of_connection: dict[Connection, set[Key]] = {}
        self._of_process = Counter[Process]()
        self._last = 0

    def get(self, key: Key) -> Waiter | None:
        return self._waiters.get(key)

    def __len__(self) -> int:
        return len(self._waiters)

    def of_process(self, process: Process) -> int:
        """How many sessions of a process wait."""
        return self._of_process[process]

    def __iter__(self) -> Iterator[Waiter]:
        return iter(sorted(self._waiters.values(), key=lambda waiter: waiter.number))

    @property
    def offered(self) -> list[Waiter]:
        """Those who have an offer, in the order in which they got it."""
        return list(self._offered.values())

    def needed(self) -> set[str]:
        """The pools that somebody in a line waits for."""
        return {pool for needs in self._lines for pools in needs for pool in pools}

    def of_pool(self, pool: str) -> int:
        """How many wait for a pool, with an offer or without one."""
        lines = sum(len(line) for needs, line in self._lines.items() if any(pool in pools for pools in needs))
        return lines + sum(pool in waiter.pools for waiter in self._offered.values())

    def join(self, waiter: Waiter) -> None:
        """Wait. Whoever waits already keeps his place, unless he now waits for more than before."""
        before = self.leave(waiter.key)
        if before is not None and waiter.needs <= before.needs:
            waiter = replace(waiter, number=before.number, since=before.since)
        else:
            self._last += 1
            waiter = replace(waiter, number=self._last)
        self._of_connection.setdefault(waiter.connection, set()).add(waiter.key)
        self._of_process[waiter.process] += 1
        self._enter(waiter)

    def leave(self, key: Key) -> Waiter | None:
        """Wait no more, and give up the offer if there is one. Returns who left."""
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return None
        if waiter.offer is None:
            self._leave_line(waiter)
        else:
            del self._offered[key]
        self._of_process[waiter.process] -= 1
        if not self._of_process[waiter.process]:
            del self._of_process[waiter.process]
        keys = self._of_connection[waiter.connection]
        keys.discard(key)
        if not keys:
            del self._of_connection[waiter.connection]
        return waiter

    def of_connection(self, connection: Connection) -> list[Key]:
        """Who asked over a connection."""
        return list(self._of_connection.get(connection, ()))

    def serve(
        self, usable: Callable[[Needs], frozenset[str]], offer: Callable[[Waiter, frozenset[str]], Offer]
    ) -> None:
        """Offer places to those who wait longest, until nobody can use one.

        `usable`: the pools with room that needs could use now; it is asked again after each offer. A line for which
        there is no room is not looked at again, since offers leave less room and never more.
        """
        lines = {needs: line[0][0] for needs, line in self._lines.items()}
        while lines:
            needs = min(lines, key=lambda needs: lines[needs])
            pools = usable(needs)
            if not pools:
                del lines[needs]
                continue
            line = self._lines[needs]
            waiter = self._waiters[line[0][1]]
            self._leave_line(waiter)
            self._waiters[waiter.key] = self._offered[waiter.key] = replace(waiter, offer=offer(waiter, pools))
            if line:
                lines[needs] = line[0][0]
            else:
                del lines[needs]

    def withdraw(self, key: Key) -> None:
        """Take an offer back: its waiter stands where he stood before."""
        self._enter(replace(self._offered.pop(key), offer=None))

    def _enter(self, waiter: Waiter) -> None:
        self._waiters[waiter.key] = waiter
        insort(self._lines.setdefault(waiter.needs, []), (waiter.number, waiter.key))

    def _leave_line(self, waiter: Waiter) -> None:
        line = self._lines[waiter.needs]
        del line[bisect_left(line, (waiter.number, waiter.key))]
        if not line:
            del self._lines[waiter.needs]
