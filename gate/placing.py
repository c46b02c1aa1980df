"""Permits in the running gate: who asks over which connection, what is on disk before an answer leaves, who is woken.

Decisions are those of gate/permits.py. A place belongs to a process: while that lives it is kept, whatever becomes of
its connections and of this gate; when it is dead, it is free after a grace.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any, Protocol

import msgspec

from gate import errors, processes
from gate.asked import check_names, check_session
from gate.engine import RETRY_SECONDS, Request, Timer
from gate.fetchlimits import FetchLimits
from gate.fetchrules import FetchRules, Verdict
from gate.globs import EVERYTHING
from gate.holders import Record
from gate.interface import (
    AcquireIn,
    AcquireOut,
    BindIn,
    Done,
    PermitIn,
    PlaceInfo,
    PoolInfo,
    Reply,
    RestoreIn,
    RestoreOut,
    WaitingInfo,
)
from gate.overrides import Overrides
from gate.permit import Answer, Ask, Choice, Held
from gate.permits import Permits
from gate.pools import Limit
from gate.stores.base import Store

log = logging.getLogger("gate.fetch")

NOTES = "place"
"""The kind of the store's notes that say what processes held at most."""
PERMIT_CHARACTERS = 128
PERMITS_OF_ALL = 10_000
PERMITS_OF_ONE = 1_000
LOOK_SECONDS = 0.25
"""How often a process that holds places without a connection is looked at."""
LONGEST_HOP_SECONDS = 60.0
SHORTEST_HOP_SECONDS = 0.0005


class Client(Protocol):
    """A connection, as this engine sees it."""

    pid: int

    def __hash__(self) -> int: ...


class Situation(Protocol):
    """What the hours are now, and how a worker is told that a place is kept for it."""

    rules: FetchRules
    overrides: Overrides

    def offered(self, process: str, session: str) -> None: ...


class Placing:
    """Answers Acquire, Bind, Release and Restore.

    `query`: asks the store in its thread; what is given as its second argument gets the outcome, or the exception.
    """

    def __init__(
        self,
        hours: Situation,
        noted: dict[str, bytes],
        now: Callable[[], datetime],
        after: Callable[[float, Callable[[], None]], Timer],
        query: Callable[[Callable[[Store], Any], Callable[[Any], None]], None],
        flush: Callable[[], None],
    ) -> None:
        self._hours = hours
        self._now = now
        self._after = after
        self._query = query
        self._flush = flush
        self._compiled = FetchLimits(hours.rules)
        self.permits = Permits(now())
        self._processes: dict[Client, str] = {}
        """The process of each connection that has asked here."""
        self._alone: set[str] = set()
        """Processes that may hold places, and have no connection."""
        self._timer: Timer | None = None
        self._looking: Timer | None = None
        for process, marks in noted.items():
            self.permits.known(process, msgspec.json.decode(marks, type=dict[str, int]))
            self._left_alone(process)
        self.changed()

    # -- what the hours ask

    def limited(self, worker: str, queues: Sequence[str] | None, now: datetime) -> bool:
        """Whether a limit applies to what is open of a question."""
        return any(choice.pools for choice in self._choices(worker, queues, now))

    def place(self, worker: str, queues: Sequence[str] | None, now: datetime) -> bool:
        """Whether somebody who asks now would be given something."""
        choices = self._choices(worker, queues, now)
        return not choices or self.permits.has_room(choices, self._limit, now)

    def process_of(self, client: Client) -> str:
        """The process of a connection; one that cannot be told is known by its connection."""
        process = self._processes.get(client)
        if process is None:
            process = self._processes[client] = processes.key_of(client.pid) or f"connection:{token_hex(8)}"
            self._alone.discard(process)
        return process

    def _choices(self, worker: str, queues: Sequence[str] | None, now: datetime) -> tuple[Choice, ...]:
        return self._limits.choices(worker, queues, now, self._hours.overrides)

    @property
    def _limits(self) -> FetchLimits:
        """Those of the rules that are in force."""
        if self._compiled.rules is not self._hours.rules:
            self._compiled = FetchLimits(self._hours.rules)
        return self._compiled

    def _limit(self, pool: str) -> Limit:
        return self._limits.limit(pool, self._now(), self._hours.overrides)

    # -- what workers ask

    def acquire(self, request: Request, asked: AcquireIn) -> None:
        """Answer `io.schedulegate.Fetch.Acquire`; raises InvalidWorker."""
        check_names(asked.worker, asked.queues)
        check_session(asked.session)
        if asked.permit is not None:
            _check_permit(asked.permit)
        now, client = self._now(), _client(request)
        queues = None if asked.queues is None else tuple(asked.queues)
        verdict = self._hours.rules.answer(asked.worker, queues, now, self._hours.overrides)
        choices = self._choices(asked.worker, queues, now)
        process = self.process_of(client)
        ask = Ask(
            permit=asked.permit or token_hex(16),
            worker=asked.worker,
            session=asked.session,
            process=process,
            connection=client,
            choices=choices,
        )
        if not choices:
            request.reply(_refused(verdict.reason, verdict.until))
            return
        if (full := self._full(ask)) is not None:
            request.reply(_refused(full, None))
            return
        answer = self.permits.acquire(ask, self._limit, now)
        self._log(ask, answer)
        reply = _reply(answer, verdict, queues)
        self._when_noted(answer.record, request, reply, lambda: self.permits.release(ask.permit))
        self.changed()

    def _full(self, ask: Ask) -> str | None:
        """Why there is no room for one more, in the gate's memory."""
        if self.permits.get(ask.permit) is not None:
            return None
        if self.permits.held_by(ask.process) >= PERMITS_OF_ONE:
            return f"this process holds {PERMITS_OF_ONE} permits: release those that are not used"
        if self.permits.size >= PERMITS_OF_ALL:
            return f"{PERMITS_OF_ALL} permits are held or waited for, over all processes"
        return None

    def bind(self, request: Request, asked: BindIn) -> None:
        """Answer `io.schedulegate.Fetch.Bind`; raises UnknownPermit."""
        permit = self.permits.get(asked.permit)
        if permit is None or permit.process != self.process_of(_client(request)):
            raise errors.UnknownPermit(permit=asked.permit)
        bound = self.permits.bind(asked.permit, asked.queue, asked.job)
        assert bound is not None
        if not bound.granted:
            log.warning("a job of a queue that was not granted counts all the same: %s", asked.queue)
        self._when_noted(bound.record, request, Done(), None)
        self.changed()

    def release(self, request: Request, asked: PermitIn) -> None:
        """Answer `io.schedulegate.Fetch.Release`."""
        permit = self.permits.get(asked.permit)
        if permit is not None and permit.process == self.process_of(_client(request)):
            self.permits.release(asked.permit)
            self.changed()
        request.reply(Done())

    def restore(self, request: Request, asked: RestoreIn) -> None:
        """Answer `io.schedulegate.Fetch.Restore`; raises InvalidWorker."""
        check_names(asked.worker, [one.queue for one in asked.permits])
        for one in asked.permits:
            _check_permit(one.permit)
        client, now = _client(request), self._now()
        held = [Held(one.permit, one.queue, one.job) for one in asked.permits]
        decided_by = partial(self._limits.choice, asked.worker)
        process = self.process_of(client)
        restored = self.permits.restore(asked.worker, process, client, held, decided_by, now)
        self._when_noted(restored.record, request, RestoreOut(kept=list(restored.kept)), None)
        self.changed()

    def _when_noted(
        self, record: Record | None, request: Request, reply: Reply, undo: Callable[[], Any] | None
    ) -> None:
        """Answer, once what a restart has to know is on disk; else take back what was given."""
        if record is None:
            request.reply(reply)
            return

        def noted(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                if undo is not None:
                    undo()
                log.error("the store failed; no new place is given until it is back: %s", outcome)
                request.fail(errors.StoreUnavailable(retry_after=RETRY_SECONDS))
            else:
                self.permits.recorded(record)
                request.reply(reply)
            self.changed()

        marks = msgspec.json.encode(record.marks)
        self._query(lambda store: store.put_notes(NOTES, {record.process: marks}), noted)

    def _log(self, ask: Ask, answer: Answer) -> None:
        if log.isEnabledFor(logging.DEBUG):
            said = "a place was given" if answer.permit is not None else "no place"
            extra = {"worker": ask.worker, "permit": ask.permit, "pid": processes.pid_of(ask.process)}
            log.debug("%s: %s", said, answer.reason, extra=extra)

    # -- connections and processes

    def hung_up(self, client: Client) -> None:
        """A connection closed."""
        process = self._processes.pop(client, None)
        if process is None:
            return
        self.permits.connection_closed(client)
        if process not in self._processes.values():
            if self.permits.forget(process):
                self._forget([process])
            elif self.permits.knows(process):
                self._left_alone(process)
        self.changed()

    def _left_alone(self, process: str) -> None:
        """Its places stay while it lives; whether it does has to be looked at now and then."""
        if processes.lives(process):
            self._alone.add(process)
            if self._looking is None:
                self._looking = self._after(LOOK_SECONDS, self._look)
        else:
            self.permits.process_dead(process, self._now())

    def _look(self) -> None:
        self._looking = None
        alone, self._alone = self._alone, set()
        for process in alone:
            if process not in self._processes.values():
                self._left_alone(process)
        if len(self._alone) < len(alone):
            self._due()

    def _forget(self, gone: Iterable[str]) -> None:
        changes: dict[str, bytes | None] = dict.fromkeys(gone)
        if changes:
            self._query(lambda store: store.put_notes(NOTES, changes), _forgotten)

    # -- time

    def changed(self) -> None:
        """Something happened to permits, limits or the clock: offer what is free, and end what is over."""
        now = self._now()
        tick = self.permits.tick(self._limit, now)
        for permit in tick.lost:
            who = {"worker": permit.worker, "pid": processes.pid_of(permit.process), "job": permit.job}
            log.warning("a place is free again: its process is gone", extra={**who, "since": permit.since})
        self._forget(tick.gone)
        for waiter in tick.woken:
            self._hours.offered(waiter.process, waiter.session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if tick.next is not None:
            left = (tick.next - now).total_seconds()
            self._timer = self._after(min(max(left, SHORTEST_HOP_SECONDS), LONGEST_HOP_SECONDS), self._due)

    def _due(self) -> None:
        self.changed()
        self._flush()

    # -- for people

    def pools(self) -> list[PoolInfo]:
        """All limits, and who holds and waits for their places."""
        names = dict.fromkeys([*self._limits.pools, *self.permits.pools()])
        return [self._pool(name) for name in names]

    def words(self, rule: str) -> list[str]:
        """What the limits of a rule say, a line for each pool."""
        return [_in_words(self._pool(name)) for name in self._limits.pools_of(rule)]

    def _pool(self, name: str) -> PoolInfo:
        found, limit = self.permits.status(name), self._limit(name)
        return PoolInfo(
            pool=name,
            limit=limit.number,
            reason=limit.reason,
            until=limit.until,
            taken=found.taken,
            places=[
                PlaceInfo(
                    permit=permit.id,
                    worker=permit.worker,
                    queue=permit.queue,
                    job=permit.job,
                    since=permit.since,
                    pid=processes.pid_of(permit.process),
                )
                for permit in found.holders
            ],
            waiting=[
                WaitingInfo(worker=waiter.worker, since=waiter.since, pid=processes.pid_of(waiter.process))
                for waiter in found.waiters
            ],
        )


def _in_words(pool: PoolInfo) -> str:
    waiting = f", {len(pool.waiting)} waiting" if pool.waiting else ""
    return f"{pool.pool}: {pool.reason}, {pool.taken} taken{waiting}"


def _client(request: Request) -> Client:
    return request.caller


def _check_permit(permit: str) -> None:
    if not 1 <= len(permit) <= PERMIT_CHARACTERS:
        reason = f"{len(permit)} characters are given, 1 to {PERMIT_CHARACTERS} are allowed"
        raise errors.InvalidWorker(field="permit", reason=reason)


def _refused(reason: str, until: datetime | None) -> AcquireOut:
    return AcquireOut(open=False, queues=[], excluded=None, permit=None, until=until, reason=reason)


def _reply(answer: Answer, verdict: Verdict, queues: tuple[str, ...] | None) -> AcquireOut:
    if answer.permit is None:
        return _refused(answer.reason, answer.until)
    granted = [queue for choice in answer.granted for queue in choice.queues]
    left_out = [queue for choice in answer.left_out for queue in choice.queues]
    excluded = list(verdict.excluded or ())
    if queues is not None:
        fetchable: list[str] | None = [queue for queue in dict.fromkeys(queues) if queue in set(granted)]
    elif EVERYTHING in granted:
        fetchable, excluded = None, [*excluded, *left_out]
    else:
        fetchable = granted
    return AcquireOut(
        open=True,
        queues=fetchable,
        excluded=excluded or None,
        permit=answer.permit,
        until=verdict.until,
        reason=answer.reason,
    )


def _forgotten(outcome: Any) -> None:
    if isinstance(outcome, Exception):
        log.warning("what a process held could not be removed from the store: %s", outcome)
