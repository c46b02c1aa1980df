"""The methods that stand in front of those of one app and of its job manager."""

import asyncio
from collections.abc import Iterable
from contextvars import ContextVar
from functools import partial
from typing import Any

from procrastinate import App
from procrastinate.jobs import Job
from procrastinate.manager import NotificationCallback

from procrastinate_gate import periodic
from procrastinate_gate.fence import Fence
from procrastinate_gate.settings import Settings
from procrastinate_gate.worker import GatedWorker

_worker: ContextVar[GatedWorker | None] = ContextVar("procrastinate_gate_worker", default=None)
"""The worker that this task belongs to: `fetch_job` is told neither its name nor its options, but all tasks of a
worker are made inside its `run_worker_async`."""
_permit: ContextVar[str | None] = ContextVar("procrastinate_gate_permit", default=None)
"""The permit of the job that this task runs: what was fetched last when the worker made it. A job's id would not do,
since any code may say of any job that it is to be tried again, also while it runs here."""


class Hooks:
    """Installed on `app` and `app.job_manager` by `put`; everything else of both stays as it is.

    The instances are wrapped and not replaced: tasks, deferrers and Django's proxy hold on to them.
    """

    MANAGER = ("fetch_job", "finish_job", "retry_job", "listen_for_jobs", "defer_periodic_job")

    def __init__(self, app: App, settings: Settings) -> None:
        self.settings = settings
        self._app = app
        self._manager = app.job_manager
        self._run_worker_async = app.run_worker_async
        self._finish_job = self._manager.finish_job
        self._retry_job = self._manager.retry_job
        self._listen_for_jobs = self._manager.listen_for_jobs
        self._defer_periodic_job = self._manager.defer_periodic_job
        self._fence = Fence(self._manager, self._manager.fetch_job)

    @classmethod
    def of(cls, app: App) -> "Hooks | None":
        """The hooks that are installed on this app."""
        for name in cls.MANAGER:
            found = getattr(vars(app.job_manager).get(name), "__self__", None)
            if isinstance(found, cls):
                return found
        return None

    def put(self) -> None:
        """Install them."""
        vars(self._app)["run_worker_async"] = self.run_worker_async
        for name in self.MANAGER:
            vars(self._manager)[name] = getattr(self, name)

    # ---- the app

    async def run_worker_async(self, **options: Any) -> None:
        worker = self._new_worker(options.get("name"))
        token = _worker.set(worker)
        try:
            await self._run_worker_async(**options)
        finally:
            _worker.reset(token)
            await worker.close()

    # ---- the job manager

    async def fetch_job(self, queues: Iterable[str] | None, *args: Any, **named: Any) -> Job | None:
        asked = None if queues is None else list(queues)
        worker = self._this_worker()
        worker.waking.fetch_begins()
        try:
            leave = await worker.decide(asked, self._list_queues)
            _permit.set(leave.permit)
            job: Job | None = None
            try:
                if leave.open:
                    allows = partial(worker.still_allows, leave)
                    job = await self._fence.fetch(allows, leave.queues, *args, **named)
            finally:
                worker.permits.fetched(leave, job)
            if job is None:
                await worker.found_nothing(self._list_queues)
            return job
        finally:
            worker.waking.fetch_ends()

    async def finish_job(self, job: Job, *args: Any, **named: Any) -> None:
        try:
            await self._finish_job(job, *args, **named)
        finally:
            _has_ended(job)

    async def retry_job(self, job: Job, *args: Any, **named: Any) -> None:
        try:
            await self._retry_job(job, *args, **named)
        finally:
            _has_ended(job)

    async def listen_for_jobs(self, *, on_notification: NotificationCallback, **named: Any) -> None:
        if (worker := _worker.get()) is not None:
            worker.waking.listen(on_notification)
        await self._listen_for_jobs(on_notification=on_notification, **named)

    async def defer_periodic_job(self, job: Job, periodic_id: str, defer_timestamp: int) -> int | None:
        async def defer() -> int | None:
            return await self._defer_periodic_job(job=job, periodic_id=periodic_id, defer_timestamp=defer_timestamp)

        worker, policy = _worker.get(), self.settings.periodic
        if worker is None or policy == "keep" or not await worker.closed_for(job.queue):
            return await defer()
        if policy == "skip":
            periodic.tell_skipped(job)
            return None  # to procrastinate's deferrer: somebody else has done it
        return await periodic.collapsed(self._manager, job, defer)

    # ---- whose fetch it is

    def _new_worker(self, own_name: str | None) -> GatedWorker:
        name = own_name or self._app.worker_defaults.get("name")
        return GatedWorker(self.settings.name(name), self.settings)

    def _this_worker(self) -> GatedWorker:
        """The worker of the task that fetches. One that was started before we were installed gets its own now, for as
        long as that task lives; how to wake it is not known, so it polls.
        """
        worker = _worker.get()
        if worker is None:
            worker = self._new_worker(None)
            _worker.set(worker)
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(lambda _: _close_soon(worker))
        return worker

    async def _list_queues(self) -> Iterable[dict[str, Any]]:
        return await self._manager.list_queues_async(status="todo")


def _has_ended(job: Job) -> None:
    """The place of a job that ends is free, also when the database cannot be told of it."""
    worker, permit = _worker.get(), _permit.get()
    if worker is not None and permit is not None:
        worker.permits.ended(permit, job)


_closing: set[asyncio.Task[None]] = set()


def _close_soon(worker: GatedWorker) -> None:
    worker.stop()
    task = asyncio.get_running_loop().create_task(worker.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)
