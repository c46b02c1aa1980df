"""Periodic tasks whose queue is closed: `collapse` lets only the newest wait, `skip` none.

procrastinate defers them by night and by day, also while no worker may start them. Which jobs are the same periodic
task's is not written down in the jobs table: those that are alike in everything but their `timestamp` are.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job
from procrastinate.manager import JobManager

log = logging.getLogger("procrastinate_gate")

TIMESTAMP = "timestamp"
"""The argument that procrastinate gives to every periodic job."""

Defer = Callable[[], Awaitable[int | None]]


def tell_skipped(job: Job) -> None:
    """Say that a tick is not deferred."""
    log.info(
        "periodic job %s is skipped: queue %s is closed",
        job.call_string,
        job.queue,
        extra={"action": "gate_periodic_skipped", "task": job.task_name, "queue": job.queue},
    )


async def collapsed(manager: JobManager, job: Job, defer: Defer) -> int | None:
    """Defer, and delete the older jobs of the same periodic task that wait.

    A queueing lock that an older one of them holds is freed first; raises AlreadyEnqueued if another job holds it.
    """
    try:
        job_id = await defer()
    except AlreadyEnqueued:
        if not await _delete_older(manager, job):
            raise
        return await defer()
    if job_id is not None:
        await _delete_older(manager, job)
    return job_id


async def _delete_older(manager: JobManager, job: Job) -> int:
    """Give how many were deleted; one that a worker has just fetched is left alone."""
    waiting = await manager.list_jobs_async(task=job.task_name, queue=job.queue, status="todo")
    older = [other.id for other in waiting if other.id is not None and _is_older(other, job)]
    deleted = [job_id for job_id in older if await manager.cancel_job_by_id_async(job_id, delete_job=True)]
    if deleted:
        log.info(
            "periodic job %s replaces %d older ones that waited for queue %s to open",
            job.call_string,
            len(deleted),
            job.queue,
            extra={"action": "gate_periodic_collapsed", "task": job.task_name, "queue": job.queue, "deleted": deleted},
        )
    return len(deleted)


def _is_older(other: Job, job: Job) -> bool:
    """Whether it is an earlier tick of the same task that never ran."""
    if (other.lock, other.queueing_lock) != (job.lock, job.queueing_lock):
        return False
    if other.attempts or other.scheduled_at is not None:
        return False
    theirs, ours = dict[str, Any](other.task_kwargs), dict[str, Any](job.task_kwargs)
    at = theirs.pop(TIMESTAMP, None)
    return isinstance(at, int) and at < ours.pop(TIMESTAMP) and theirs == ours
