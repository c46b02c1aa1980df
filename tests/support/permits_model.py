"""What permits should do, by plain lists that are searched from the beginning each time: slow, and easy to believe.

Nothing here is shared with gate/. Pools and choices are texts and sets; time is in whole seconds.
"""

from msgspec import Struct
from msgspec.structs import replace

GRACE, AWAY, OFFER = 2, 30, 1

Need = frozenset[str]


class Choice(Struct):
    queue: str
    pools: Need


class Permit(Struct):
    process: str
    connection: str | None
    worker: str
    session: str
    since: int
    granted: list[Choice]
    left_out: list[Choice]
    pools: Need
    bound: bool = False


class Waiter(Struct):
    process: str
    session: str
    connection: str
    permit: str
    needs: set[Need]
    offer: Need | None = None
    until: int = 0
    made: int = 0
    """Which offer it was, counted from the first."""


class Model(Struct):
    """One run of a gate. `numbers`: the limits; `ramp`: count and seconds, for the pools of `slow`."""

    now: int
    numbers: dict[str, int]
    slow: set[str]
    ramp: tuple[int, int]
    opening: int
    permits: dict[str, Permit] = {}
    waiters: list[Waiter] = []
    given: list[tuple[str, int]] = []
    """Pool and time of each place that was reserved and not given back unused."""
    dying: dict[str, int] = {}
    orphans: dict[str, int] = {}
    unsaid: dict[tuple[str, str], dict[str, int]] = {}
    """By process and session."""
    silent: dict[tuple[str, str], int] = {}
    held_until: int = 0
    offers: int = 0

    # -- room

    def taken(self, pool: str) -> int:
        held = sum(pool in permit.pools for permit in self.permits.values())
        return held + sum(marks.get(pool, 0) for marks in self.unsaid.values())

    def promised(self, pool: str) -> int:
        return sum(pool in (waiter.offer or ()) for waiter in self.waiters)

    def free(self, pool: str) -> int:
        """Without those that are promised."""
        free = self.numbers[pool] - self.taken(pool)
        count, every = self.ramp
        slot = (self.now - self.opening) // every
        if pool in self.slow and slot >= 0 and slot * count < self.numbers[pool]:
            start = self.opening + slot * every
            free = min(free, count - sum(p == pool and start <= at < start + every for p, at in self.given))
        return free - self.promised(pool)

    def unheard(self) -> bool:
        return self.now < self.held_until and any(process not in self.dying for process, _ in self.unsaid)

    def waiter(self, process: str, session: str) -> Waiter | None:
        return next((w for w in self.waiters if (w.process, w.session) == (process, session)), None)

    # -- what is asked

    def acquire(
        self, permit: str, worker: str, session: str, process: str, connection: str, choices: list[Choice]
    ) -> tuple[list[str], list[str]]:
        """The queues that are granted, and those that are left out."""
        known = self.permits.get(permit)
        if known is not None:
            if known.process != process and known.process not in self.dying:
                return [], [choice.queue for choice in choices]
            known.process, known.connection = process, connection
            self.dying.pop(process, None)
            self.orphans.pop(permit, None)
            return [c.queue for c in known.granted], [c.queue for c in known.left_out]
        self.dying.pop(process, None)
        mine = self.waiter(process, session)
        kept = Need() if mine is None or mine.offer is None else mine.offer
        fits = [
            not c.pools or (not self.unheard() and all(self.free(p) + (p in kept) > 0 for p in c.pools))
            for c in choices
        ]
        granted = [choice for choice, fit in zip(choices, fits, strict=True) if fit]
        left_out = [choice for choice, fit in zip(choices, fits, strict=True) if not fit]
        self._wait(mine, Waiter(process, session, connection, permit, {choice.pools for choice in left_out}))
        if granted:
            pools = Need().union(*(choice.pools for choice in granted))
            self.permits[permit] = Permit(process, connection, worker, session, self.now, granted, left_out, pools)
            self.given += [(pool, self.now) for pool in pools]
        return [choice.queue for choice in granted], [choice.queue for choice in left_out]

    def _wait(self, before: Waiter | None, waiter: Waiter) -> None:
        place = len(self.waiters)
        if before is not None:
            if waiter.needs <= before.needs:
                place = self.waiters.index(before)
            else:
                place -= 1
            self.waiters.remove(before)
        if waiter.needs:
            self.waiters.insert(place, waiter)

    def bind(self, permit: str, queue: str) -> None:
        known = self.permits[permit]
        self.dying.pop(known.process, None)
        self.orphans.pop(permit, None)
        pools = next((c.pools for c in known.granted + known.left_out if c.queue == queue), known.pools)
        if not known.bound:
            for pool in known.pools - pools:
                self._unused(pool, known.since)
            waiter = self.waiter(known.process, known.session)
            if waiter is not None and waiter.permit == permit:
                self.waiters.remove(waiter)
        known.pools, known.bound = pools, True

    def release(self, permit: str) -> None:
        known = self.permits.pop(permit, None)
        self.orphans.pop(permit, None)
        if known is not None and not known.bound:
            for pool in known.pools:
                self._unused(pool, known.since)

    def _unused(self, pool: str, since: int) -> None:
        self.given.remove((pool, since))

    def restore(
        self, process: str, worker: str, session: str | None, connection: str, held: dict[str, Choice]
    ) -> list[str]:
        self.dying.pop(process, None)
        for key in [key for key in self.unsaid if key[0] == process]:
            if session in (None, key[1]):
                del self.unsaid[key]
                self.silent.pop(key, None)
            else:
                self.silent.setdefault(key, self.now + AWAY)
        kept: list[str] = []
        for permit, choice in held.items():
            known = self.permits.get(permit)
            if known is None:
                self.permits[permit] = Permit(
                    process, connection, worker, session or "", self.now, [choice], [], choice.pools, bound=True
                )
            elif known.process == process or known.process in self.dying:
                known.process, known.connection = process, connection
                self.orphans.pop(permit, None)
                self.bind(permit, choice.queue)
            else:
                continue
            kept.append(permit)
        for permit, known in self.permits.items():
            if (known.process, known.connection) == (process, None) and permit not in held:
                own = known.worker == worker if session is None else known.session == session
                until = self.now + (GRACE if own else AWAY)
                self.orphans[permit] = min(until, self.orphans.get(permit, until))
        return kept

    def close(self, connection: str) -> None:
        self.waiters = [waiter for waiter in self.waiters if waiter.connection != connection]
        for permit in self.permits.values():
            if permit.connection == connection:
                permit.connection = None

    # -- what time does

    def tick(self) -> list[str]:
        """The sessions that are woken."""
        for process in [process for process, until in self.dying.items() if self.now >= until]:
            del self.dying[process]
            self.unsaid = {key: marks for key, marks in self.unsaid.items() if key[0] != process}
            self.silent = {key: until for key, until in self.silent.items() if key[0] != process}
            for permit in [permit for permit, known in self.permits.items() if known.process == process]:
                self.release(permit)
        for permit in [permit for permit, until in self.orphans.items() if self.now >= until]:
            self.release(permit)
        for key in [key for key, until in self.silent.items() if self.now >= until]:
            del self.unsaid[key], self.silent[key]
        self.waiters = [w for w in self.waiters if w.offer is None or self.now < w.until]
        for waiter in sorted(self.waiters, key=lambda one: -one.made):
            if waiter.offer is not None and any(self.free(pool) < 0 for pool in waiter.offer):
                waiter.offer = None
        woken: list[str] = []
        while not self.unheard() and (served := self._next_served()) is not None:
            woken.append(served.session)
        return woken

    def _next_served(self) -> Waiter | None:
        """The first in the order who can use something gets it."""
        for waiter in self.waiters:
            fitting = [need for need in waiter.needs if all(self.free(pool) > 0 for pool in need)]
            if waiter.offer is None and fitting:
                self.offers += 1
                waiter.offer, waiter.until = Need().union(*fitting), self.now + OFFER
                waiter.made = self.offers
                return waiter
        return None

    def restart(self, disk: dict[tuple[str, str], dict[str, int]], ramps: dict[str, tuple[int, int]]) -> "Model":
        """`ramps`: the start of a slot and the places given in it, by pool."""
        return replace(
            self,
            permits={},
            waiters=[],
            given=[(pool, start) for pool, (start, count) in ramps.items() for _ in range(count)],
            dying={},
            orphans={},
            unsaid={key: dict(marks) for key, marks in disk.items()},
            silent={},
            held_until=self.now + GRACE,
        )
