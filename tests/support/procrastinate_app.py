"""A procrastinate application in miniature, its worker in the test's own event loop, and a database of its own."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import procrastinate
import psycopg
import psycopg_pool
import pytest
from procrastinate import PsycopgConnector, schema
from procrastinate.manager import JobManager
from procrastinate.testing import InMemoryConnector

from procrastinate_gate.answers import Reading
from procrastinate_gate.hooks import Hooks
from procrastinate_gate.outage import read_clocks
from procrastinate_gate.settings import Settings
from tests.support.fetch_gate import FetchGate
from tests.support.postgres import PostgresServer

PATIENCE = 20.0
POLL = 0.05
"""How often a worker polls that a test does not want to wait for."""


@cache
def _template(server: PostgresServer) -> str:
    """A database that has procrastinate's tables, to be copied."""
    name = server.new_database()
    with psycopg.connect(server.dsn(name)) as connection:
        connection.execute(schema.SchemaManager.get_schema())
    return name


def new_database(server: PostgresServer) -> str:
    """The address of a database with procrastinate's tables and nothing in them."""
    return server.dsn(server.new_database(_template(server)))


def pool_of(**options: Any) -> psycopg_pool.AsyncConnectionPool:
    """A small pool: the worker's listener has a connection of its own."""
    return psycopg_pool.AsyncConnectionPool(**options | {"min_size": 1, "max_size": 6})


class Bench:
    """One app with a task `job(key, seconds)`, and what became of its jobs. Without `dsn` its database is in memory.

    Without `gate_at`, the gate's socket, its workers are not gated. `options` are those of `install`, and `clocks`.
    """

    def __init__(self, gate_at: Path | None, dsn: str | None = None, **options: Any) -> None:
        self.dsn = dsn or ""
        in_memory = dsn is None
        self.app = procrastinate.App(
            connector=InMemoryConnector() if in_memory else PsycopgConnector(conninfo=dsn, pool_factory=pool_of)
        )
        self.started: dict[str, float] = {}
        """When each job started, by its key."""
        self.ended: list[str] = []
        self.happened = asyncio.Condition()

        @self.app.task(name="job")
        async def job(key: str, seconds: float = 0.0) -> None:
            self.started[key] = time.time()
            await self._note()
            await asyncio.sleep(seconds)
            self.ended.append(key)
            await self._note()

        self.job = job
        if gate_at is not None:
            given: dict[str, Any] = {"socket": gate_at, "worker": "w"} | options
            Hooks(self.app, Settings(**given)).put()

    @property
    def manager(self) -> JobManager:
        return self.app.job_manager

    async def _note(self) -> None:
        async with self.happened:
            self.happened.notify_all()

    async def defer(self, key: str, seconds: float = 0.0, queue: str = "a", **options: Any) -> int:
        return await self.job.configure(queue=queue, **options).defer_async(key=key, seconds=seconds)

    async def until(self, true: Callable[[], Any], seconds: float = PATIENCE) -> None:
        """Wait for a job to have started or ended."""
        async with self.happened:
            await asyncio.wait_for(self.happened.wait_for(true), seconds)

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator["asyncio.Task[None]"]:
        """A worker that runs inside the block, and is stopped at its end."""
        given: dict[str, Any] = {"queues": ["a"], "fetch_job_polling_interval": 60.0} | options
        given["install_signal_handlers"] = False
        task = asyncio.create_task(self.app.run_worker_async(**given))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the database says."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            return await (await connection.execute(query.encode(), parameters)).fetchall()

    async def statuses(self) -> list[str]:
        return [status for (status,) in await self.rows("SELECT status::text FROM procrastinate_jobs ORDER BY id")]


def run(work: Callable[[Bench], Awaitable[Any]], gate: FetchGate, dsn: str | None = None, **options: Any) -> Bench:
    """Open an app, do the work, close it."""

    async def main() -> Bench:
        bench = Bench(gate.path, dsn, **options)
        async with bench.app.open_async():
            await work(bench)
        return bench

    return asyncio.run(main())


def said(caplog: pytest.LogCaptureFixture, level: int | None = None) -> list[str]:
    """What the shim logged, at a level or at all of them."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "procrastinate_gate" and level in (None, record.levelno)
    ]


async def settled(check: Callable[[], Awaitable[bool] | bool], seconds: float = PATIENCE) -> None:
    """Ask again and again until it is so: for what only the database or a log knows."""
    end = time.monotonic() + seconds
    while True:
        answer = check()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert time.monotonic() < end, "never happened"
        await asyncio.sleep(0.01)


class Clocks:
    """Clocks that a test steps."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.boot = 0.0

    def __call__(self) -> Reading:
        now = read_clocks()
        return Reading(now.wall + self.wall, now.boot + self.boot)


async def watched(gate: FetchGate, count: int = 1) -> None:
    """Until the gate has so many watchers, and the worker their answers."""
    await gate.when(lambda: len(gate.watchers()) >= count)
    await asyncio.sleep(0.05)
