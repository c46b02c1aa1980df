"""The place that a command runs in: waited for, bound to its process, given back however it ends."""

import asyncio
import os
from datetime import UTC, datetime, timedelta

from gate.ctl.claimed import happens
from gate.interface import AcquireOut, WatchIn
from gate_client.core import TRANSIENT, GateUnreachable, pauses, socket_path, unreachable
from gate_client.line import Deadline
from gate_client.places import Places
from gate_client.pushes import Pushes

START = timedelta(milliseconds=50)
"""A start takes a moment: hours that end sooner are taken to have ended."""


class Placed:
    """A place of `worker` for one job of `queue`."""

    def __init__(self, worker: str, queue: str, socket: str | os.PathLike[str] | None) -> None:
        self._worker = worker
        self._queue = queue
        self._socket = socket
        self._places = Places(worker, socket=socket)
        self._heard = asyncio.Event()
        self._permit = ""

    async def take(self, wait: Deadline) -> AcquireOut:
        """Take a place, now or when the gate says that there is one; without `permit`, the answer is a refusal.

        Raises InvalidWorker; GateUnreachable when the gate is away, at first or when the wait is over.
        """
        answer = await self._acquire()
        pause = pauses()
        while answer.permit is None and wait.left:
            try:
                answer = await self._watch(wait)
            except (GateUnreachable, *TRANSIENT):
                if not wait.left:
                    raise
                await asyncio.sleep(min(next(pause), wait.left))
        self._permit = answer.permit or ""
        return answer

    async def _watch(self, wait: Deadline) -> AcquireOut:
        """Ask once a watch stands, and again when the gate pushes something, until the wait is over."""
        pushes = self._pushes()
        try:
            answer = await self._acquire()
            while answer.permit is None and await happens(self._heard, wait.left):
                self._heard.clear()
                told = pushes.drain()
                if pushes.problem is not None:
                    raise pushes.problem
                if told and told[-1].open:
                    answer = await self._acquire()
            return answer
        finally:
            pushes.close()

    def _pushes(self) -> Pushes:
        path = socket_path(self._socket)
        question = WatchIn(worker=self._worker, queues=[self._queue], session=self._places.session)
        try:
            return Pushes(path, question, self._heard.set)
        except OSError as error:
            raise unreachable(path, error) from error

    async def _acquire(self) -> AcquireOut:
        """Ask; what would be allowed for a moment only is given back, and asked for again after that."""
        while True:
            answer = await self._places.acquire([self._queue])
            now = datetime.now(UTC)
            if answer.permit is None or not ends_soon(answer.until, now):
                return answer
            self._places.release(answer.permit)
            assert answer.until is not None
            await asyncio.sleep((answer.until - now).total_seconds())

    async def not_started(self) -> None:
        """The command could not be started."""
        await self._places.close()

    def started(self, job: str) -> None:
        """The command has started; `job` is what people shall read."""
        self._places.bind(self._permit, self._queue, job)

    async def ended(self, _: int) -> None:
        """The command has ended."""
        await self._places.close()


def ends_soon(until: datetime | None, now: datetime) -> bool:
    """Whether what is allowed until then would end while something starts."""
    return until is not None and timedelta() <= until - now < START
