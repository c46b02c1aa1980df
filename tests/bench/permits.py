"""What a place costs: empty jobs, fetched and run one after the other by a real procrastinate worker.

Its PostgreSQL syncs its commits, as users' servers do.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.loadgen import Result
from tests.bench.processes import Bench
from tests.support import postgres
from tests.support.gate_process import GateProcess
from tests.support.procrastinate_app import Bench as App
from tests.support.procrastinate_app import new_database

JOBS_PER_SECOND = 150
"""Jobs are deferred beforehand: as many as a worker runs in the time, or so."""
FEWEST = 30
CONFIG = """
[[fetch]]
name = "limited"
queues = ["a"]
at_once = 1000
"""


class Servers(NamedTuple):
    """A database server, and a gate."""

    database: postgres.PostgresServer
    gate: GateProcess


@contextmanager
def servers(bench: Bench) -> Iterator[Servers]:
    """Both of them, stopped at the end."""
    binaries = postgres.find_server()
    if binaries is None:
        raise SystemExit("no PostgreSQL server on this machine: apt install postgresql, or run tests/run.py")
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    database = postgres.PostgresServer(binaries, synced=True)
    gate = GateProcess(bench.fresh(), config=CONFIG, env=bench.env, log_level="error")
    try:
        database.start()
        gate.start()
        yield Servers(database, gate)
    finally:
        gate.kill()
        database.close()


def measure(running: Servers, queue: str, seconds: float, *, gated: bool = True) -> Result:
    """From start to start of jobs of a queue. The limit is that of queue "a"; not `gated`, nobody is asked."""
    socket = running.gate.socket if gated else None
    count = max(int(seconds * JOBS_PER_SECOND), FEWEST)
    return asyncio.run(_run(socket, new_database(running.database), queue, count))


async def _run(socket: Path | None, dsn: str, queue: str, count: int) -> Result:
    app = App(socket, dsn)
    async with app.app.open_async():
        jobs: list[dict[str, Any]] = [{"key": str(number)} for number in range(count)]
        await app.job.configure(queue=queue).batch_defer_async(*jobs)
        cpu = time.process_time()
        async with app.worker(queues=[queue]):
            await app.until(lambda: len(app.ended) == count)
            cpu = time.process_time() - cpu
    starts = sorted(app.started.values())
    taken = sorted((after - before) * 1e6 for before, after in pairwise(starts))
    return Result(
        len(taken), starts[-1] - starts[0], taken[len(taken) // 2], taken[int(len(taken) * 0.99)], cpu * 1e6 / count
    )
