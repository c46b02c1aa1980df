"""Hours by stopping and starting a worker, against hours by the gate: `python -m tests.bench.peer_worker`.

The peer is what people write: `asyncio.wait_for(app.run_worker_async(), seconds_until_closing)`, again at every
opening. Ours is one worker that lives on. Both run on the same PostgreSQL, with procrastinate's intervals cut down:
a heartbeat every 0.2 s (10 s), and a job is stalled after 1 s without one (30 s).
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.fetch_gate import FetchGate
from tests.support.postgres import PostgresServer, find_server
from tests.support.procrastinate_app import Bench, new_database

OPENINGS = 10
LONG_JOB_SECONDS = 3.0
STALLED_SECONDS = 1.0
CLOSED_SECONDS = 5.0
WORKER: dict[str, Any] = {"update_heartbeat_interval": 0.2, "install_signal_handlers": False, "queues": ["a"]}


class Stopped:
    """The peer: while its hours last a worker runs, and then it is stopped."""

    name = "stopped and started"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._closing.clear()
        self._task = asyncio.create_task(self._until_closing())

    async def close(self) -> None:
        self._closing.set()

    async def _until_closing(self) -> None:
        worker = asyncio.create_task(self.bench.app.run_worker_async(**WORKER))
        await self._closing.wait()
        worker.cancel()  # what wait_for does when its time is over; like it, this waits for the jobs that run
        with suppress(asyncio.CancelledError):
            await worker

    async def end(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task


class Gated:
    """Ours: one worker, and a gate that opens and closes."""

    name = "gated"

    def __init__(self, bench: Bench, gate: FetchGate) -> None:
        self.bench = bench
        self._gate = gate
        gate.close()
        self._worker = asyncio.create_task(self.bench.app.run_worker_async(**WORKER))

    async def open(self) -> None:
        self._gate.open()

    async def close(self) -> None:
        self._gate.close()

    async def end(self) -> None:
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)


Way = Stopped | Gated


async def open_to_start(way: Way) -> str:
    """How long after the opening a job starts that waits for it."""
    delays: list[float] = []
    for number in range(OPENINGS):
        key = str(number)
        await way.bench.defer(key)
        await asyncio.sleep(0.2)
        opened = time.time()
        await way.open()
        await way.bench.until(lambda key=key: key in way.bench.ended)  # type: ignore[misc]
        delays.append(way.bench.started[key] - opened)
        await way.close()
        await asyncio.sleep(0.2)
    return f"{statistics.median(delays) * 1000:.1f} ms"


async def runs_of_a_long_job(way: Way) -> str:
    """How often a job runs that outlives its window by more than the stall time, beside a worker of other hours and
    the usual task that tries stalled jobs again.
    """
    await way.open()
    job_id = await way.bench.defer("long", LONG_JOB_SECONDS)
    await way.bench.until(lambda: way.bench.started)
    await way.close()
    async with another_worker(way.bench.dsn) as other:
        end = time.monotonic() + 2 * LONG_JOB_SECONDS
        while time.monotonic() < end:
            for job in await other.manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
                await other.manager.retry_job(job)
            await asyncio.sleep(0.2)
    starts = await way.bench.rows(
        "SELECT count(*) FROM procrastinate_events WHERE type = 'started' AND job_id = %s", job_id
    )
    return str(starts[0][0])


@asynccontextmanager
async def another_worker(dsn: str) -> AsyncIterator[Bench]:
    bench = Bench(None, dsn)
    async with bench.app.open_async(), bench.worker(fetch_job_polling_interval=0.2):
        yield bench


async def ticks_lost(way: Way) -> str:
    """How many of the ticks of a periodic task are never deferred, of those that come while closed."""

    @way.bench.app.periodic(cron="* * * * * *", queue="elsewhere")
    @way.bench.app.task(name="tick")
    async def tick(timestamp: int) -> None: ...

    del tick
    await way.open()
    await asyncio.sleep(1.5)
    closed = time.time()
    await way.close()
    await asyncio.sleep(CLOSED_SECONDS)
    opened = time.time()
    await way.open()
    await asyncio.sleep(1.5)
    rows = await way.bench.rows("SELECT (args->>'timestamp')::bigint FROM procrastinate_jobs WHERE task_name = 'tick'")
    deferred = {timestamp for (timestamp,) in rows}
    due = set(range(int(closed) + 1, int(opened)))
    return f"{len(due - deferred)} of {len(due)}"


MEASURES = {
    "opening to start, median": open_to_start,
    "runs of a job that outlives its window": runs_of_a_long_job,
    "periodic ticks lost while closed": ticks_lost,
}


async def measure(name: str, server: PostgresServer, gate: FetchGate) -> list[str]:
    """One measure of both ways, each with a database of its own."""
    found: list[str] = []
    for gated in (False, True):
        bench = Bench(gate.path if gated else None, new_database(server))
        async with bench.app.open_async():
            way = Gated(bench, gate) if gated else Stopped(bench)
            found.append(await MEASURES[name](way))
            await way.end()
    return found


def main() -> None:
    """Measure, and print."""
    binaries = find_server()
    if binaries is None:
        raise SystemExit("no PostgreSQL server on this machine: apt install postgresql, or run tests/run.py")
    logging.disable(logging.CRITICAL)  # the end of a job's second run cannot be written down, which is said at length
    server = PostgresServer(binaries)
    try:
        server.start()
        with tempfile.TemporaryDirectory(prefix="gate-") as folder, FetchGate(Path(folder) / "gate.sock") as gate:
            print(f"{'':40}{Stopped.name:>22}{Gated.name:>12}")
            for name in MEASURES:
                stopped, gated = asyncio.run(measure(name, server, gate))
                print(f"{name:40}{stopped:>22}{gated:>12}", flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
