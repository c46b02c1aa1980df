"""The permits of one worker: one for each fetch where a limit applies, kept while the job runs that came of it."""

import asyncio
import logging
import os
from functools import partial
from typing import Any

from msgspec import Struct
from procrastinate.jobs import Job

from gate.errors import CallError, GateError
from gate.interface import AcquireOut
from gate_client import Places
from procrastinate_gate.answers import Verdict, narrowed
from procrastinate_gate.waking import Waking

log = logging.getLogger("procrastinate_gate")


FOLLOW_SECONDS = 0.05
"""After this, or twice as long, a job's task is looked for; most short jobs have ended before."""


class Leave(Struct, frozen=True, kw_only=True):
    """What one fetch may take: of these queues, None is all and [] none. `permit`: the place that is kept for it, where
    a limit applies.
    """

    queues: list[str] | None
    permit: str | None = None

    @property
    def open(self) -> bool:
        return self.queues is None or bool(self.queues)


NONE = Leave(queues=[])


class Permits:
    """What a worker holds, and whether it waits for more."""

    def __init__(self, worker: str, socket: str | os.PathLike[str] | None, waking: Waking) -> None:
        self._worker = worker
        self._waking = waking
        self._places = Places(worker, socket=socket, late=waking.wake)
        self._jobs: dict[str, Job] = {}
        """What was fetched with each permit, until it is said to have ended."""
        self._fetched: dict[str, Job] = {}
        self._to_follow: dict[str, Job] = {}
        """What was fetched lately, and what is to be followed next: a timer for each job would cost too much."""
        self._following: asyncio.TimerHandle | None = None
        self._waits = False
        """Whether the gate may keep a place for this worker later on, since it was not given all that it asked for."""
        self._problem = ""
        """What the gate answered to the last acquire, if that was an error."""

    @property
    def session(self) -> str:
        return self._places.session

    async def acquire(self, queues: list[str] | None, seconds: float) -> Leave:
        """A place for a job of these queues, or none, after so many seconds at most."""
        self._waits = True
        try:
            answer = await self._places.acquire(queues, timeout=seconds)
        except GateError as error:
            self._tell(error)
            return NONE
        self._problem = ""
        if answer.permit is None:
            log.debug("worker %s: no place: %s", self._worker, answer.reason)
            return NONE
        if _whole(queues, answer):
            self._waits = False
        return Leave(queues=narrowed(queues, answer.queues), permit=answer.permit)

    def place_told(self) -> None:
        """A place may be had: wake the worker if it waits for one."""
        if self._waits:
            self._waking.wake()

    def allow(self, leave: Leave, queue: str, verdict: Verdict) -> bool:
        """Whether the job that a fetch has taken from this queue has a place, or needs none."""
        if leave.permit is None:
            return not verdict.limited
        return self._places.allows(leave.permit, queue)

    def fetched(self, leave: Leave, job: Job | None) -> None:
        """What came of the fetch. The place of a job is kept until it has `ended`, or the task is done that runs it."""
        if leave.permit is None:
            return
        if job is None:
            self._places.release(leave.permit)
        else:
            self._places.bind(leave.permit, job.queue, str(job.id))
            self._jobs[leave.permit] = job
            self._fetched[leave.permit] = job
            if self._following is None:
                self._follow_soon()

    def ended(self, permit: str, job: Job) -> None:
        """A job is finished, or is to be tried again, says the task to which this permit was given for some job."""
        mine = self._jobs.get(permit)
        if mine is not None and mine.id == job.id:
            del self._jobs[permit]
            if self._places.done(permit):
                self.place_told()

    def _follow_soon(self) -> None:
        self._following = asyncio.get_running_loop().call_later(FOLLOW_SECONDS, self._follow)

    def _follow(self) -> None:
        """Jobs that still run, or were never said to have ended: procrastinate says nothing of one whose result cannot
        be written to the log. With its task a job ends, whatever happens in it.
        """
        running = {permit: job for permit, job in self._to_follow.items() if self._jobs.get(permit) is job}
        tasks = {task.get_name(): task for task in asyncio.all_tasks()} if running else {}
        for permit, job in running.items():
            task = tasks.get(f"process job {job.task_name}[{job.id}]")
            if task is None:
                self._task_ended(permit, job)
            else:
                task.add_done_callback(partial(self._task_done, permit, job))
        self._to_follow, self._fetched, self._following = self._fetched, {}, None
        if self._to_follow:
            self._follow_soon()

    def _task_done(self, permit: str, job: Job, _: asyncio.Task[Any]) -> None:
        self._task_ended(permit, job)

    def _task_ended(self, permit: str, job: Job) -> None:
        """The place may have another job by now: one that was fetched while the task of this one came to its end."""
        if self._jobs.get(permit) is job:
            del self._jobs[permit]
            self._places.release(permit)

    def _tell(self, error: GateError) -> None:
        """That the gate is away is said by others; an error that it answers is said once."""
        if isinstance(error, CallError) and self._problem != str(error):
            self._problem = str(error)
            log.warning("worker %s: no place can be had: %s", self._worker, error)

    async def close(self) -> None:
        """The worker has ended, and so have its jobs."""
        if self._following is not None:
            self._following.cancel()
        await self._places.close()


def _whole(queues: list[str] | None, answer: AcquireOut) -> bool:
    """Whether a place was given for each of the queues."""
    if queues is None or answer.queues is None:
        return answer.queues is None and not answer.excluded
    return set(queues) <= set(answer.queues)
