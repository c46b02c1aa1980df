"""Permits: who may run a job now, where limits are shared by many processes. Places are reserved, bound, given back.

The state is explicit and nothing here does I/O: time, limits and identities are handed in. After whatever happened,
`tick` says who is to be woken and when to come back. Source: design 3.2 and 5.1.

A permit belongs to its process, not to its connection: when a connection closes, the places stay taken until the
process takes them back (`restore`), or is dead and its grace is over.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from gate.graces import Graces
from gate.holders import Record
from gate.offers import NOTHING, OFFER_SECONDS, Offers
from gate.permit import Answer, Ask, Bound, Choice, Held, Permit, PoolStatus, Restored, Restorer, Tick, pools_of
from gate.places import Places
from gate.pools import Given, Limits, Share, slot
from gate.waitlist import Connection, Key, Process, Waiter

GRACE_SECONDS = 2.0
"""How long places stay taken whose process is dead, cannot be told, or did not name them when it restored."""
AWAY_SECONDS = 30.0
"""How long places stay taken of a worker that does not come back while others of its living process do. It may be busy
in an event loop of its own; procrastinate takes it for stalled after as long."""
REUSE_SECONDS = 0.1
"""How long a permit may serve one job after another. Whoever makes a limit smaller, or begins to wait, meanwhile sees
jobs start for as long as an override may take to be felt (design 5.2)."""
MOST = 10_000
"""How many permits and waiters there may be over all."""
MOST_OF_PROCESS = 1_000
"""How many of them may be of one process."""


class Permits:
    """All permits and all who wait. `started`: when the gate did; `grace` and `offer` in seconds. `shared`: other gates
    give places of the same pools, and nothing is given here but within a share.
    """

    def __init__(
        self, started: datetime, grace: float = GRACE_SECONDS, offer: float = OFFER_SECONDS, *, shared: bool = False
    ) -> None:
        self._grace = timedelta(seconds=grace)
        self._away = timedelta(seconds=AWAY_SECONDS)
        self._held_until = started + self._grace
        self._places = Places(shared=shared)
        self._offers = Offers(self._places, offer)
        self._dying = Graces[Process]()
        self._orphans = Graces[str]()
        """Permits that their process did not name when it restored others."""
        self._silent = Graces[Key]()
        """Sessions that have not said what they hold, while others of their process have."""
        self._lost: list[Permit] = []
        self._gone: list[Key] = []

    # -- asking, and giving back

    def acquire(self, ask: Ask, limits: Limits, now: datetime) -> Answer:
        """Reserve one place in every pool of each choice that has room in all of its pools.

        The same id asked again gets the same answer. Whoever is refused, in all or in part, waits from now on.
        """
        held = self._places.get(ask.permit)
        if held is not None:
            return self._ask_again(held, ask)
        self._dying.stop(ask.process)
        self._settle(limits, now)
        key = (ask.process, ask.session)
        if self._offers.get(key) is None and (full := self._too_many(ask.process)):
            return Answer(permit=None, granted=(), left_out=ask.choices, reason=full)
        mine, unheard = self._offers.promised_to(key), self._unheard(now)
        granted, left_out = list[Choice](), list[Choice]()
        for choice in ask.choices:
            fits = self._fits(choice, mine, unheard, limits, now)
            (granted if fits else left_out).append(choice)
        reason, until = self._offers.shortage(left_out, mine, limits, now)
        if unheard:
            reason, until = _not_said(unheard), self._held_until
        if left_out:
            self._offers.wait(ask, left_out, now)
        else:
            self._offers.leave(key)
        if not granted:
            reason = reason or "no queue was asked for"
            return Answer(permit=None, granted=(), left_out=tuple(left_out), reason=reason, until=until)
        return self._reserve(ask, tuple(granted), tuple(left_out), limits, now)

    def peek(self, choices: Iterable[Choice], process: Process, session: str, limits: Limits, now: datetime) -> bool:
        """Whether somebody who asks now would be granted something."""
        mine, unheard = self._offers.promised_to((process, session)), self._unheard(now)
        return any(self._fits(choice, mine, unheard, limits, now) for choice in choices)

    def _fits(self, choice: Choice, mine: frozenset[str], unheard: int, limits: Limits, now: datetime) -> bool:
        return not choice.pools or (not unheard and self._offers.has_room(choice.pools, mine, limits, now))

    def _too_many(self, process: Process) -> str:
        """Why no more can be remembered; "" if it can."""
        if len(self._places) + len(self._offers) >= MOST:
            return f"{MOST} permits and waiters are known, and no more may be"
        if self._places.held_by(process) + self._offers.waiting_of(process) >= MOST_OF_PROCESS:
            return f"this process has {MOST_OF_PROCESS} permits and waiters: release those that are not used"
        return ""

    def _reserve(
        self, ask: Ask, granted: tuple[Choice, ...], left_out: tuple[Choice, ...], limits: Limits, now: datetime
    ) -> Answer:
        permit = Permit(
            id=ask.permit,
            worker=ask.worker,
            session=ask.session,
            process=ask.process,
            connection=ask.connection,
            since=now,
            granted=granted,
            left_out=left_out,
            pools=pools_of(granted),
        )
        self._places.holders.share(ask.process, ask.session).connection = ask.connection
        for name in permit.pools:
            self._places.pool(name).give(limits(name), now)
        self._places.put(permit)
        return replace(self._granted(permit), reuse=None if left_out else self._reuse(granted, limits, now))

    def _reuse(self, granted: Iterable[Choice], limits: Limits, now: datetime) -> float | None:
        """For how long one job after another may take the same places: while all would count alike, the limits stay
        as they are, no ramp counts starts, and nobody waits to whom a place would be due in between.
        """
        pools, *others = {frozenset(choice.pools) for choice in granted}
        if others or not pools or self._offers.wanted(pools):
            return None
        holding = [limits(name) for name in pools]
        if any(slot(limit, now) is not None for limit in holding):
            return None
        left = [(limit.until - now).total_seconds() for limit in holding if limit.until is not None]
        return max(0.0, min([REUSE_SECONDS, *left]))

    def _granted(self, permit: Permit) -> Answer:
        pools = ", ".join(sorted(pools_of(permit.granted)))
        return Answer(
            permit=permit.id,
            granted=permit.granted,
            left_out=permit.left_out,
            reason=f"a place of {pools}" if pools else "no limit applies",
            record=self._places.record(permit),
        )

    def _ask_again(self, held: Permit, ask: Ask) -> Answer:
        if not self._may_take(held, ask.process):
            reason = f"permit {ask.permit!r} belongs to another process: make a new one for each fetch"
            return Answer(permit=None, granted=(), left_out=ask.choices, reason=reason)
        return self._granted(self._attach(held, ask.process, ask.connection))

    def bind(self, permit_id: str, queue: str, job: str | None) -> Bound | None:
        """A job of a queue was fetched: keep the places that it needs, and give back the others. None: unknown permit.

        Where no choice of the question decides the queue, the job counts in all places that were reserved.
        """
        permit = self._places.get(permit_id)
        if permit is None:
            return None
        self._dying.stop(permit.process)
        asked = (*permit.granted, *permit.left_out)
        choice = next((choice for choice in asked if choice.decides(queue)), None)
        pools = permit.pools if choice is None else frozenset(choice.pools)
        if permit.queue is None:
            self._give_back(permit, permit.pools - pools)
            self._has_work(permit)
        self._orphans.stop(permit_id)
        self._places.replace(permit, replace(permit, queue=queue, job=job, pools=pools))
        return Bound(pools=pools, granted=choice in permit.granted, record=self._places.record(permit))

    def _has_work(self, permit: Permit) -> None:
        """Whoever found a job in what he was granted asks again for the rest, if he has hands left."""
        waiter = None if permit.session is None else self._offers.get((permit.process, permit.session))
        if waiter is not None and waiter.permit == permit.id:
            self._offers.leave(waiter.key)

    def release(self, permit_id: str) -> Permit | None:
        """Give all places back; idempotent. Returns what was held. It needs no limits: nothing can go wrong in it."""
        permit = self._places.get(permit_id)
        if permit is not None:
            if permit.queue is None:
                self._give_back(permit, permit.pools)
            self._orphans.stop(permit_id)
            self._places.take(permit)
        return permit

    def _give_back(self, permit: Permit, pools: Iterable[str]) -> None:
        """Places that were reserved and not used."""
        for name in pools:
            self._places.pool(name).give_back(permit.since)

    def get(self, permit_id: str) -> Permit | None:
        """A permit that is held."""
        return self._places.get(permit_id)

    def knows(self, process: Process) -> bool:
        """Whether a process holds anything, or may."""
        return self._places.holders.get(process) is not None

    # -- processes and connections

    def restore(
        self,
        who: Restorer,
        held: Iterable[Held],
        decided_by: Callable[[str], Choice],
        now: datetime,
    ) -> Restored:
        """A worker says what it runs: that is taken back, even above a limit.

        `decided_by`: the choice that decides a queue now, for permits that the gate does not know. What it held by what
        the gate knew, and does not name, is lost after the grace; what other workers of its process held, whose
        connections are gone, when they have not come back for longer.
        """
        self._dying.stop(who.process)
        self._says(who, now)
        named = {one.permit: one for one in held}
        kept = [name for name, one in named.items() if self._restore(one, who, decided_by, now)]
        for permit in self._places.of_process(who.process):
            if permit.id not in named and permit.connection is None:
                self._orphans.begin(permit.id, now, self._grace if who.speaks_for(permit) else self._away)
        return Restored(tuple(kept), self._places.holders.record(who.process, who.session or "", {}))

    def _says(self, who: Restorer, now: datetime) -> None:
        """What this worker was assumed to hold counts no longer; that of others does, for some time."""
        holders = self._places.holders
        holders.share(who.process, who.session or "").connection = who.connection
        for session in holders.of(who.process).silent():
            if who.session in (None, session):
                self._has_said((who.process, session))
            else:
                self._silent.begin((who.process, session), now, self._away)

    def _has_said(self, key: Key) -> None:
        self._silent.stop(key)
        self._places.has_said(*key)

    def _restore(self, one: Held, who: Restorer, decided_by: Callable[[str], Choice], now: datetime) -> bool:
        known = self._places.get(one.permit)
        if known is None and self._too_many(who.process):
            return False
        if known is None:
            choice = decided_by(one.queue)
            permit = Permit(
                id=one.permit,
                worker=who.worker,
                session=who.session,
                process=who.process,
                connection=who.connection,
                since=now,
                granted=(choice,),
                pools=frozenset(choice.pools),
                queue=one.queue,
                job=one.job,
            )
            self._places.put(permit)
            return True
        if not self._may_take(known, who.process):
            return False
        self._attach(known, who.process, who.connection)
        if (known.queue, known.job) != (one.queue, one.job):
            self.bind(one.permit, one.queue, one.job)
        return True

    def known(self, process: Process, session: str, marks: Mapping[str, int]) -> None:
        """A worker that held places before this gate started, by what the disk says: it counts with all of them.

        Until it has restored or is dead, no limited place is given in the first grace after the start.
        """
        self._places.assume(process, session, dict(marks))

    def ramped(self, name: str, given: Given) -> None:
        """What the ramp of a pool had given before this gate started, by what the disk says."""
        pool = self._places.pool(name)
        pool.given = pool.on_disk = given

    def recorded(self, record: Record) -> None:
        """A record that an answer came with is on disk."""
        self._places.recorded(record)

    def connection_closed(self, connection: Connection) -> list[Permit]:
        """Its permits stay with their process, and are returned; whoever waited over it does not wait any more."""
        self._offers.connection_closed(connection)
        permits = self._places.of_connection(connection)
        for permit in permits:
            self._places.replace(permit, replace(permit, connection=None))
        return permits

    def process_dead(self, process: Process, now: datetime) -> None:
        """It is dead, or cannot be told and its connection closed: its places are lost after the grace."""
        if self._places.holders.get(process) is not None:
            self._dying.begin(process, now, self._grace)

    def alive(self) -> list[Process]:
        """Processes that count with places and are not known to be dead: whether they are is to be looked at."""
        return [process for process in self._places.holders.counted() if process not in self._dying]

    def missing(self, pools: Container[str]) -> list[Waiter]:
        """Those who wait for a pool that is not among these."""
        return [waiter for waiter in self._offers if any(name not in pools for name in waiter.pools)]

    def leave(self, process: Process, session: str) -> None:
        """A session does not wait any more."""
        self._offers.leave((process, session))

    def forget(self, process: Process, connection: Connection | None = None) -> list[Key]:
        """The sessions of a process (None: all, else those of a connection that closed) that hold nothing: what the
        disk says of them may be removed.
        """
        gone = self._places.holders.forget_idle(process, connection)
        if not self.knows(process):
            self._dying.stop(process)
        return gone

    # -- time

    def tick(self, limits: Limits, now: datetime) -> Tick:
        """Do what is due, and offer free places. Call it after each other call, when limits change, and at `next`."""
        self._settle(limits, now)
        lost, gone = tuple(self._lost), tuple(self._gone)
        self._lost.clear()
        self._gone.clear()
        moments = [*self._dying.ends(), *self._orphans.ends(), *self._silent.ends(), *self._offers.moments(limits, now)]
        if self._unheard(now):
            moments.append(self._held_until)
        return Tick(woken=self._offers.take_woken(), lost=lost, gone=gone, next=min(moments, default=None))

    def _settle(self, limits: Limits, now: datetime) -> None:
        self._end_graces(now)
        self._offers.expire(now)
        self._offers.withdraw(limits, now)
        if not self._unheard(now):
            self._offers.serve(limits, now)

    def _unheard(self, now: datetime) -> int:
        """How many processes may still say what they hold, after a start; nothing limited is given meanwhile."""
        if now >= self._held_until:
            return 0
        return sum(process not in self._dying for process in self._places.holders.silent())

    def _end_graces(self, now: datetime) -> None:
        self._held_until = min(self._held_until, now + self._grace)
        for process in self._dying.over(now):
            self._bury(process)
        for permit_id in self._orphans.over(now):
            self._lose(permit_id)
        for key in self._silent.over(now):
            self._has_said(key)

    def _bury(self, process: Process) -> None:
        for permit in self._places.of_process(process):
            self._lose(permit.id)
        for session in self._places.holders.of(process).silent():
            self._has_said((process, session))
        self._gone.extend(self._places.holders.forget(process))

    def _lose(self, permit_id: str) -> None:
        if (permit := self.release(permit_id)) is not None:
            self._lost.append(permit)

    # -- who holds

    def _attach(self, permit: Permit, process: Process, connection: Connection) -> Permit:
        """Its process is back, over another connection."""
        self._dying.stop(process)
        self._orphans.stop(permit.id)
        after = replace(permit, process=process, connection=connection)
        self._places.replace(permit, after)
        return after

    def _may_take(self, permit: Permit, process: Process) -> bool:
        """A process that cannot be told comes back as another one, within the grace of the one that it was."""
        return permit.process == process or permit.process in self._dying

    # -- shares

    def shared(self) -> list[str]:
        """The pools that have been of any concern."""
        return self._places.known()

    def share(self, name: str) -> Share | None:
        """What of a pool may be given here; None where it is not shared."""
        return self._places.pool(name).share

    def set_share(self, name: str, share: Share) -> None:
        """Another share was agreed on."""
        self._places.pool(name).share = share

    def taken(self, name: str) -> int:
        """How many places are taken here."""
        return self._places.pool(name).taken

    def given(self, name: str) -> Given | None:
        """What the ramp of a pool has given here."""
        return self._places.pool(name).given

    def waiting(self, name: str) -> int:
        """How many wait for a place here."""
        return self._offers.waiting_for(name)

    def waiting_since(self, name: str) -> datetime | None:
        """When the one began to wait for a place here who waits longest."""
        return min((waiter.since for waiter in self._offers if name in waiter.pools), default=None)

    def gives(self, name: str, limits: Limits, now: datetime) -> bool:
        """Whether a place of a pool is free here that is promised to nobody."""
        return self._offers.has_room([name], NOTHING, limits, now)

    # -- for people

    def pools(self) -> list[str]:
        """The pools of which somebody holds a place, or waits for one."""
        return sorted({*self._places.taken(), *(name for waiter in self._offers for name in waiter.pools)})

    def status(self, name: str) -> PoolStatus:
        """Who holds places of a pool, longest first, and who waits for one, in order."""
        return self._places.status(name, self._offers)


def _not_said(count: int) -> str:
    who, what = ("1 process has", "it holds") if count == 1 else (f"{count} processes have", "they hold")
    return f"after the restart of the gate {who} not said yet what {what}"
