"""Places under limits, for one worker: acquired before a job is fetched, bound to it, given back when it has ended.

    places = Places("transfer-1")
    answer = await places.acquire(["dicom"], timeout=0.25)
    if answer.permit is not None:
        ...  # fetch a job from answer.queues, or run a program
        places.bind(answer.permit, "dicom", "job 17")
        ...
        places.done(answer.permit)

Source: gate/io.schedulegate.Fetch.varlink.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gate.errors import GateError
from gate.interface import AcquireIn, AcquireOut, BindIn, HeldPermit, PermitIn, RestoreIn, RestoreOut, Wire
from gate_client.aio import CLOSE_SECONDS, AsyncGate
from gate_client.core import TIMEOUT_SECONDS, new_token, pauses, replied, too_late
from gate_client.link import Asked, Link

ACQUIRE = "io.schedulegate.Fetch.Acquire"
BIND = "io.schedulegate.Fetch.Bind"
RELEASE = "io.schedulegate.Fetch.Release"
RESTORE = "io.schedulegate.Fetch.Restore"

RESTORED_AT_ONCE = 50
"""Permits in one Restore: a message has 64 KiB, and the name of a queue half a KiB."""


class Place(Struct, frozen=True, kw_only=True):
    """What a permit is held for. `queues`: what may be fetched with it while it is not bound, None is all; `queue` and
    `job`: what it is bound to, None while it is between two jobs.
    """

    permit: str
    queues: list[str] | None
    queue: str | None = None
    job: str | None = None


class Reuse(Struct):
    """A place that may serve one job after another. `end`: until when, by the clock of the event loop; `asked` and
    `answer`: the question and the answer that it came of; `idle`: between two jobs; `told`: the Bind that the gate
    knows of, once it is to be told of others at the end only.
    """

    end: float
    asked: list[str] | None
    answer: AcquireOut
    idle: bool = False
    told: BindIn | None = None


class Places:
    """The places of one worker, in one event loop. `session` ties what it acquires to its `Watch`, which is told
    (`place`) when one is kept for a worker that was refused.

    `worker`, `socket`, and the errors are those of the gate's other clients. `timeout`: seconds that an acquire takes
    at most. `late` is called when one is answered after that: it may be worth to ask again.

    A place that the gate gives for more than one job (`reuse`) is kept between them for a moment: an acquire that
    follows `done` in that time has it at once, and the gate is told at the end which job has it then.

    From the first acquire until `close`, a connection of its own is kept up: a lost one is made anew within half a
    second of the gate's return, and tells first of all what is held. Bind and Release get no answer: where one was lost
    with its connection, the next one begins with what it would have changed, and what it does not name is free after
    the gate's grace. Permits belong to the process: a forked child has none.
    """

    def __init__(
        self,
        worker: str,
        *,
        socket: str | os.PathLike[str] | None = None,
        session: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        late: Callable[[], object] | None = None,
    ) -> None:
        self.worker = worker
        self.session = session or new_token()
        self._late = late
        hooks = Hooks(begin=self._begin, greet=self._greet, late=self._answered_late)
        self._connection = Connection(hooks, socket, timeout=timeout)
        self._begin()

    def _begin(self) -> None:
        """Nothing is held: what was held in another event loop or process is not ours."""
        self._process = os.getpid()
        self._held: dict[str, Place] = {}
        self._reuses: dict[str, Reuse] = {}

    # ---- what is held

    @property
    def held(self) -> Mapping[str, Place]:
        """The places that are held now, by permit."""
        return MappingProxyType(self._held if self._process == os.getpid() else {})

    def _place(self, permit: str) -> Place | None:
        return self._held.get(permit) if self._process == os.getpid() else None

    def allows(self, permit: str, queue: str) -> bool:
        """Whether a job of this queue may start with this permit: its connection may have been lost since it was
        acquired, and then it holds a place of one queue only.
        """
        place = self._place(permit)
        return place is not None and (place.queues is None or queue in place.queues)

    async def acquire(self, queues: list[str] | None = None, *, timeout: float | None = None) -> AcquireOut:
        """Ask for a place to run a job of one of these queues, None is all. Without a `permit` in the answer it is
        refused, for its `reason`; with one, a job of its `queues` may be fetched.

        Raises GateUnreachable when there is no answer in time, and InvalidWorker. Whatever comes too late is given
        back, as it is when the call is cancelled.
        """
        loop = self._connection.begin()
        if (kept := self._take_idle(queues, loop.time())) is not None:
            return kept
        permit, asked_at = new_token(), loop.time()
        parameters = AcquireIn(worker=self.worker, queues=queues, session=self.session, permit=permit)
        request = Asked(ACQUIRE, parameters)
        try:
            await self._connection.answer(request, timeout)
            answer = replied(request, AcquireOut)
            if answer.permit is not None:
                self._held[permit] = Place(permit=permit, queues=queues if answer.queues is None else answer.queues)
                if answer.reuse is not None:
                    self._reuses[permit] = Reuse(end=asked_at + answer.reuse, asked=queues, answer=answer)
            return answer
        finally:
            if permit not in self._held and _may_be_granted(request):
                self._give_back(permit)

    def bind(self, permit: str, queue: str, job: str | None = None) -> None:
        """A job of this queue was fetched. Never waits; does nothing for a permit that is not held."""
        if (place := self._place(permit)) is None:
            return
        self._held[permit] = replace(place, queue=queue, job=job)
        reuse = self._reuses.get(permit)
        if reuse is None or reuse.told is None:
            self._connection.tell(BIND, BindIn(permit=permit, queue=queue, job=job))

    def done(self, permit: str) -> bool:
        """Its job has ended: give the place back, or keep it for a moment if it may serve another one, which is True.
        Never waits; does nothing for a permit that is not held.
        """
        place, reuse = self._place(permit), self._reuses.get(permit)
        loop = asyncio.get_running_loop()
        if place is None or place.queue is None or reuse is None or not self._usable(reuse, loop.time()):
            self.release(permit)
            return False
        if reuse.told is None:
            reuse.told = BindIn(permit=permit, queue=place.queue, job=place.job)
            loop.call_at(reuse.end, self._end_reuse, permit, reuse)
        reuse.idle = True
        self._held[permit] = replace(place, job=None)
        return True

    def release(self, permit: str) -> None:
        """Give the place back. Never waits; does nothing for a permit that is not held."""
        if permit in self.held:
            del self._held[permit]
            self._reuses.pop(permit, None)
            self._give_back(permit)

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Release all, and hang up when that is answered, after `timeout` seconds at most."""
        permits = list(self.held)
        self._reuses.clear()
        for permit in permits[:-1]:
            self.release(permit)
        if permits:
            del self._held[permits[-1]]
            with suppress(GateError):  # an answer to the last one says that all before it were read
                await self._connection.call(RELEASE, PermitIn(permit=permits[-1]), timeout=timeout)
        await self._connection.close(timeout)

    # ---- one job after another

    def _take_idle(self, queues: list[str] | None, now: float) -> AcquireOut | None:
        """The answer of a place that is between two jobs, and may be taken by one of these queues."""
        for reuse in self._reuses.values():
            if reuse.idle and reuse.asked == queues and self._usable(reuse, now):
                reuse.idle = False
                return reuse.answer
        return None

    def _usable(self, reuse: Reuse, now: float) -> bool:
        return now < reuse.end and self._connection.up

    def _end_reuse(self, permit: str, reuse: Reuse) -> None:
        """Give back a place that no job took; of one that has another job than the gate knows, it is told."""
        if self._reuses.get(permit) is not reuse:
            return
        del self._reuses[permit]
        place = self._held[permit]
        if reuse.idle:
            self.release(permit)
        elif place.queue is not None and place.job is not None:
            bound = BindIn(permit=permit, queue=place.queue, job=place.job)
            if bound != reuse.told:
                self._connection.tell(BIND, bound)

    # ---- what the gate is told

    def _answered_late(self, request: Asked) -> None:
        """An acquire that was given up is answered, or lost."""
        if isinstance(request.result, AcquireOut) and self._late is not None:
            self._late()

    def _greet(self, link: Link) -> None:
        """Tell first of all what is held. What is not bound yet is held for one queue from now on."""
        idle = [permit for permit, reuse in self._reuses.items() if reuse.idle]
        self._reuses.clear()
        for permit, place in list(self._held.items()):
            if place.queue is None:
                self._held[permit] = replace(place, queues=(place.queues or [])[:1])
        told = [
            HeldPermit(permit=place.permit, queue=queue, job=place.job)
            for place in self._held.values()
            for queue in ([place.queue] if place.queue is not None else place.queues or [])
        ]
        for start in range(0, max(len(told), 1), RESTORED_AT_ONCE):
            permits = told[start : start + RESTORED_AT_ONCE]
            request = Asked(RESTORE, RestoreIn(worker=self.worker, permits=permits, session=self.session))
            request.late = self._restored
            link.write(request)
        for permit in idle:
            self.release(permit)

    def _restored(self, request: Asked) -> None:
        """One that is not taken back belongs to another process."""
        if isinstance(request.parameters, RestoreIn) and isinstance(request.result, RestoreOut):
            for one in request.parameters.permits:
                if one.permit not in request.result.kept:
                    self._held.pop(one.permit, None)

    def _give_back(self, permit: str) -> None:
        self._connection.tell(RELEASE, PermitIn(permit=permit))


def _may_be_granted(request: Asked) -> bool:
    """Whether the gate may hold a place for an acquire that nobody waits for any more."""
    if isinstance(request.result, AcquireOut):
        return request.result.permit is not None
    return request.in_flight or request.astray


class Hooks(NamedTuple):
    """What a connection calls: when it belongs to another event loop or process, when it is made, before anything else
    is written, and when a request that was given up is answered or lost.
    """

    begin: Callable[[], None]
    greet: Callable[[Link], None]
    late: Callable[[Asked], None]


class Connection(AsyncGate):
    """A connection that is kept up from its first call until it is closed."""

    def __init__(self, hooks: Hooks, socket: str | os.PathLike[str] | None, *, timeout: float) -> None:
        super().__init__(socket, timeout=timeout)
        self._hooks = hooks
        self._greeted: Link | None = None

    def begin(self) -> asyncio.AbstractEventLoop:
        """Belong to this event loop and process."""
        return self._bind()

    @property
    def up(self) -> bool:
        """Whether it is made, as far as is known."""
        return self._link is not None and self._link.problem is None

    def _bind(self) -> asyncio.AbstractEventLoop:
        before = self._loop, self._process
        loop = super()._bind()
        if before != (loop, self._process):
            self._heard = asyncio.Event()
            self._heard.set()
            self._hooks.begin()
        return loop

    async def answer(self, request: Asked, timeout: float | None) -> None:
        """Give the request its result, as `call` does. Nothing is asked while one is unanswered that was given up: a
        gate that does not keep up is not to find a heap of calls.
        """
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
                await self._persist(request)
        except TimeoutError:
            request.give_up(too_late(self._where(), seconds))
        finally:
            if request.in_flight:
                self._heard.clear()
                request.late = self._hear_late

    def _hear_late(self, request: Asked) -> None:
        self._heard.set()
        self._hooks.late(request)

    def tell(self, method: str, parameters: Wire) -> None:
        """Write a call that gets no answer, if there is a connection."""
        if self._loop is not None and self._link is not None:
            self._link.tell(method, parameters)

    async def _linked(self) -> Link:
        link = await super()._linked()
        if link is not self._greeted:  # nobody else has run since it was made
            self._greeted = link
            self._hooks.greet(link)
        return link

    def _keep(self) -> None:
        if self._keeper is None and self._loop is not None and not self._loop.is_closed() and not self._closing:
            self._keeper = self._loop.create_task(self._come_back(), name="gate: connect again")

    async def _come_back(self) -> None:
        pause = pauses()
        try:
            while self._link is None:
                with suppress(OSError, GateError):  # the acquires that wait say why
                    await self._linked()
                await asyncio.sleep(next(pause))
        finally:
            self._keeper = None
