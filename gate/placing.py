"""Acquire, Bind, Release and Restore: permits, processes, what of them is on disk, and who is woken.

Decisions are those of gate/permits.py. A place belongs to a process: while that lives it is kept, whatever becomes of
its connections and of this gate; when it is dead, it is free after a grace.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from secrets import token_hex
from typing import Any, Protocol

from msgspec.structs import replace

from gate import errors, placemarks, poolinfo, processes
from gate.asked import Asked, check_bound, check_names, check_permit, check_session
from gate.engine import Request, Timer
from gate.fetchlimits import FetchLimits
from gate.fetchrules import FetchRules, Verdict
from gate.holders import Record
from gate.interface import AcquireIn, AcquireOut, BindIn, Done, PermitIn, PoolInfo, Reply, RestoreIn, RestoreOut
from gate.leases import Leases
from gate.moments import earliest
from gate.overrides import Overrides
from gate.permit import Answer, Ask, Choice, Held, Permit, Restorer, pools_of
from gate.permits import MOST, Permits
from gate.placemarks import PlaceMarks, Query
from gate.pools import Limit
from gate.waitlist import Key
from gate.waking import WakeUp
from gate.wire import Slot

log = logging.getLogger("gate.fetch")

LOOK_SECONDS = 0.25
"""How often to look whether processes that hold places live."""
LOOKED_AT = 100
"""How many of them are looked at each time, in turn."""


class Client(Protocol):
    """A connection, as this engine sees it."""

    pid: int

    def __hash__(self) -> int: ...

    def never_read(self, slot: Slot) -> bool: ...


class Situation(Protocol):
    """What the hours are now, and how workers are told that a place is kept for them."""

    rules: FetchRules
    overrides: Overrides
    asked: Asked
    shut: str

    def verdict(self, worker: str, queues: Iterable[str] | None, now: datetime) -> Verdict: ...
    def cut_off(self, away: bool) -> None: ...
    def offered(self, sessions: list[tuple[str, str]]) -> None: ...
    def watches(self, process: str, session: str) -> bool: ...


class Placing:
    """Answers Acquire, Bind, Release and Restore.

    `query`: asks the store in its thread; what is given as its second argument gets the outcome, or the exception.
    `failed`: answers a request after the store failed. `lease`: where the store is that of other gates too.
    `problems`: notes that could not be read.
    """

    def __init__(
        self,
        hours: Situation,
        noted: Mapping[str, bytes],
        now: Callable[[], datetime],
        after: Callable[[float, Callable[[], None]], Timer],
        query: Query,
        flush: Callable[[], None],
        failed: Callable[[Request | None, Exception], None],
        *,
        lease: float | None = None,
    ) -> None:
        self._hours = hours
        self._now = now
        self._after = after
        self._flush = flush
        self._failed = failed
        self._marks = PlaceMarks(query)
        self.limits = FetchLimits(hours.rules)
        self.permits = Permits(now(), shared=lease is not None)
        self.leases: Leases | None = None
        """Where other gates give places of the same limits."""
        if lease is not None:
            self.leases = Leases(self.permits, lease, self._pools, self._limit, now, query, self._due, hours.cut_off)
        self._processes: dict[Client, str] = {}
        """The process of each connection that has asked here."""
        self._grants: dict[str, Slot] = {}
        """The answers that gave permits of which nothing was heard since, by permit: they may never have been read."""
        self._connections = Counter[str]()
        """How many connections each of these processes has."""
        self._askers: dict[str, str] = {}
        """By session, processes that cannot be told and have asked for a place: they watch as somebody else."""
        self._wake_up = WakeUp(now, after, self._due)
        self._looking: Timer | None = None
        self._looked_at = 0
        known = placemarks.read(noted)
        self.problems = known.problems
        for pool, given in known.given.items():
            self.permits.ramped(pool, given)
        for (process, session), marks in known.marks.items():
            self.permits.known(process, session, marks)
            if not processes.lives(process):
                self.permits.process_dead(process, now())
        self._look_again()
        self.changed()

    # -- what the hours ask

    def choices(self, worker: str, queues: Sequence[str] | None, now: datetime) -> tuple[Choice, ...]:
        """What is open of a question, with the places that each part needs."""
        if self._hours.shut:
            return ()
        return self.limits.choices(worker, queues, now, self._hours.overrides)

    def place(self, choices: Iterable[Choice], process: str, session: str, now: datetime) -> bool:
        """Whether a session would be granted something of these choices if it asked now."""
        if processes.pid_of(process) == 0:
            process = self._askers.get(session, process)
        return self.permits.peek(choices, process, session, self._limit, now)

    def process_of(self, client: Client) -> str:
        """The process of a connection; one that cannot be told is known by its connection."""
        process = self._processes.get(client)
        if process is None:
            process = self._processes[client] = processes.key_of(client.pid) or f"connection:{token_hex(8)}"
            self._connections[process] += 1
        return process

    def _pools(self) -> list[str]:
        return self.limits.pools

    def _limit(self, pool: str) -> Limit:
        return self.limits.limit(pool, self._now(), self._hours.overrides)

    # -- what workers ask

    def acquire(self, request: Request, asked: AcquireIn) -> None:
        """Answer `io.schedulegate.Fetch.Acquire`; raises InvalidWorker."""
        check_names(asked.worker, asked.queues)
        check_session(asked.session)
        if asked.permit is not None:
            check_permit("permit", asked.permit)
        self._hours.asked.note(asked.worker, asked.queues)
        now, client = self._now(), _client(request)
        process = self.process_of(client)
        if processes.pid_of(process) == 0:
            self._remember_asker(asked.session, process)
        ask = Ask(
            permit=asked.permit or token_hex(16),
            worker=asked.worker,
            session=asked.session,
            process=process,
            connection=client,
            choices=self.choices(asked.worker, asked.queues, now),
        )
        self._acquire(request, asked, ask, may_wait=True)

    def _acquire(self, request: Request, asked: AcquireIn, ask: Ask, *, may_wait: bool) -> None:
        """Answer, or wait for other gates to leave room: then once more."""
        if request.caller.closed:
            return
        if self.leases is not None:
            self.leases.expire()
        now = self._now()
        if not may_wait:
            ask = replace(ask, choices=self.choices(asked.worker, asked.queues, now))
        repeated = self.permits.get(ask.permit) is not None
        answer = self.permits.acquire(ask, self._limit, now)
        if may_wait and answer.permit is None and self.leases is not None:
            again = partial(self._acquire, request, asked, ask, may_wait=False)
            told = self._hours.watches(ask.process, ask.session)
            if self.leases.wait(pools_of(answer.left_out), again, told=told):
                return
        _log(ask, answer)
        verdict = self._hours.verdict(asked.worker, asked.queues, now)
        reply = self._reply(asked, answer, verdict) if answer.permit is not None else _refused(ask, answer, verdict)
        if repeated:
            self._grants.pop(ask.permit, None)
        elif answer.permit is not None:
            self._grants[ask.permit] = request.slot
        self._when_noted(answer.record, request, reply, lambda: self._release(ask.permit))
        self._look_again()
        self.changed()

    def _remember_asker(self, session: str, process: str) -> None:
        """Of those who asked last, as many as may wait."""
        self._askers.pop(session, None)
        self._askers[session] = process
        if len(self._askers) > MOST:
            del self._askers[next(iter(self._askers))]

    def _reply(self, asked: AcquireIn, answer: Answer, verdict: Verdict) -> AcquireOut:
        granted = {choice.rule for choice in answer.granted}
        queues, excluded = self._hours.rules.fetchable(asked.worker, asked.queues, granted)
        return AcquireOut(
            open=True,
            queues=None if queues is None else list(queues),
            excluded=None if excluded is None else list(excluded),
            permit=answer.permit,
            until=verdict.until,
            reason=answer.reason,
            reuse=answer.reuse,
        )

    def bind(self, request: Request, asked: BindIn) -> None:
        """Answer `io.schedulegate.Fetch.Bind`; raises UnknownPermit and InvalidWorker."""
        check_bound("", asked.queue, asked.job)
        permit = self.permits.get(asked.permit)
        if permit is None or permit.process != self.process_of(_client(request)):
            raise errors.UnknownPermit(permit=asked.permit)
        self._grants.pop(asked.permit, None)
        bound = self.permits.bind(asked.permit, asked.queue, asked.job)
        assert bound is not None
        if not bound.granted:
            who = {"worker": permit.worker, "pid": processes.pid_of(permit.process), "job": asked.job}
            log.warning("a job of a queue that was not granted counts all the same: %s", asked.queue, extra=who)
        self._when_noted(bound.record, request, Done(), None)
        self.changed()

    def release(self, request: Request, asked: PermitIn) -> None:
        """Answer `io.schedulegate.Fetch.Release`."""
        permit = self.permits.get(asked.permit)
        if permit is not None and permit.process == self.process_of(_client(request)):
            self._release(asked.permit)
            self.changed()
        request.reply(Done())

    def restore(self, request: Request, asked: RestoreIn) -> None:
        """Answer `io.schedulegate.Fetch.Restore`; raises InvalidWorker."""
        check_names(asked.worker, None)
        for index, one in enumerate(asked.permits):
            check_permit(f"permits[{index}].permit", one.permit)
            check_bound(f"permits[{index}].", one.queue, one.job)
        if asked.session is not None:
            check_session(asked.session)
        client, now = _client(request), self._now()
        held = [Held(one.permit, one.queue, one.job) for one in asked.permits]
        decided_by = partial(self.limits.choice, asked.worker)
        process = self.process_of(client)
        who = Restorer(worker=asked.worker, session=asked.session, process=process, connection=client)
        restored = self.permits.restore(who, held, decided_by, now)
        for name in restored.kept:
            self._grants.pop(name, None)
        self._when_noted(restored.record, request, RestoreOut(kept=list(restored.kept)), None)
        self._look_again()
        self.changed()

    def _when_noted(
        self, record: Record | None, request: Request, reply: Reply, undo: Callable[[], Any] | None
    ) -> None:
        """Answer, once what a restart has to know is on disk; else take back what was given."""
        if record is None:
            request.reply(reply)
            return

        def noted(error: Exception | None) -> None:
            if error is None:
                self.permits.recorded(record)
                request.reply(reply)
                return
            self._failed(request, error)
            if undo is not None:
                undo()
                self.changed()

        self._marks.put(record, noted)

    # -- connections and processes

    def hung_up(self, client: Client) -> None:
        """A connection closed."""
        process = self._processes.pop(client, None)
        if process is None:
            return
        self._give_back_unread(client, self.permits.connection_closed(client))
        self._connections[process] -= 1
        if not self._connections[process]:
            del self._connections[process]
            self._has_no_connection(process)
        else:
            self._forget(self.permits.forget(process, client))
        self.changed()

    def _release(self, permit: str) -> None:
        self._grants.pop(permit, None)
        self.permits.release(permit)

    def _give_back_unread(self, client: Client, permits: Iterable[Permit]) -> None:
        """What was granted and never read runs no job, also where its process lives on and cannot name it."""
        for permit in permits:
            slot = self._grants.pop(permit.id, None)
            if slot is not None and client.never_read(slot):
                self.permits.release(permit.id)

    def _has_no_connection(self, process: str) -> None:
        self._forget(self.permits.forget(process))
        if processes.pid_of(process) == 0:
            self.permits.process_dead(process, self._now())
            for session in [session for session, asker in self._askers.items() if asker == process]:
                del self._askers[session]

    def _look_again(self) -> None:
        """A process that holds places may die, though a child of it keeps its connections open."""
        if self._looking is None and self.permits.alive():
            self._looking = self._after(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._looking = None
        told = [process for process in self.permits.alive() if processes.pid_of(process) != 0]
        first = self._looked_at % len(told) if told else 0
        self._looked_at = first + LOOKED_AT
        dead = [one for one in islice([*told[first:], *told[:first]], LOOKED_AT) if not processes.lives(one)]
        for process in dead:
            self.permits.process_dead(process, self._now())
        if dead:
            self._due()
        if told:
            self._look_again()

    def _forget(self, sessions: Iterable[Key]) -> None:
        for key in sessions:
            self._marks.forget(key, self._forgotten)

    def _forgotten(self, error: Exception | None) -> None:
        if error is not None:
            self._failed(None, error)

    # -- time

    def take(self, rules: FetchRules) -> None:
        """Other rules are in force. Whoever waits for what they do not know is told to ask again."""
        self.limits = FetchLimits(rules)
        missing = self.permits.missing(self.limits.pools)
        for waiter in missing:
            self.permits.leave(waiter.process, waiter.session)
        self._hours.offered([waiter.key for waiter in missing])

    def changed(self) -> None:
        """Something happened to permits, limits or the clock: offer what is free, and end what is over."""
        tick = self.permits.tick(self._limit, self._now())
        for permit in tick.lost:
            self._grants.pop(permit.id, None)
            who = {"worker": permit.worker, "pid": processes.pid_of(permit.process), "job": permit.job}
            log.warning("a place is free again: its process or worker is gone", extra={**who, "since": permit.since})
        self._forget(tick.gone)
        self._wake_up.at(tick.next)
        if tick.woken:
            self._hours.offered([waiter.key for waiter in tick.woken])
        if self.leases is not None:
            self.leases.noticed()

    def _due(self) -> None:
        self.changed()
        self._flush()

    # -- for people

    def pools(self) -> list[PoolInfo]:
        """All limits, and who holds and waits for their places."""
        names = dict.fromkeys([*self.limits.pools, *self.permits.pools()])
        return poolinfo.infos(self.permits, names, self._limit, processes.pid_of)

    def words(self, rule: str, at: datetime | None = None) -> list[str]:
        """What the limits of a rule say, a line for each pool: now, or at another instant."""
        pools = self.limits.pools_of(rule)
        if at is None:
            return [poolinfo.words(self.permits.status(name), self._limit(name).reason) for name in pools]
        ordered = self._hours.overrides.as_of(at, self._now())
        return [f"{name}: {self.limits.limit(name, at, ordered).reason}" for name in pools]


def _log(ask: Ask, answer: Answer) -> None:
    if log.isEnabledFor(logging.DEBUG):
        said = "a place was given" if answer.permit is not None else "no place"
        extra = {"worker": ask.worker, "permit": ask.permit, "pid": processes.pid_of(ask.process)}
        log.debug("%s: %s", said, answer.reason, extra=extra)


def _client(request: Request) -> Client:
    return request.caller


def _refused(ask: Ask, answer: Answer, verdict: Verdict) -> AcquireOut:
    """Closed, or open and without room."""
    reason = answer.reason if ask.choices else verdict.reason
    until = earliest([answer.until, verdict.until])
    return AcquireOut(open=False, queues=[], excluded=None, permit=None, until=until, reason=reason)
