"""What a place costs: empty jobs, fetched and run one after the other by a real procrastinate worker.

Its PostgreSQL syncs its commits, as users' servers do.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.loadgen import Result
from tests.bench.processes import Bench
from tests.support import postgres
from tests.support.gate_process import GateProcess
from tests.support.procrastinate_app import Bench as App
from tests.support.procrastinate_app import new_database

JOBS_PER_SECOND = 300
"""As many as a worker runs in the time, or so."""
START_SECONDS = 1.0
"""A worker that begins may miss that a job was deferred during its first fetch, and polls once a minute."""
A_TURN = 100
"""Jobs that a worker runs before it is the next one's turn."""
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


def measure(running: Servers, seconds: float) -> dict[str, Result]:
    """From start to start of jobs, by kind of worker: with a limit, with hours only, and without a gate.

    All three live on one database and take turns of a tenth of a second or so, so that what else the machine does
    counts for all of them.
    """
    turns = max(int(seconds * JOBS_PER_SECOND / A_TURN), 2)
    return asyncio.run(_measure(running.gate.socket, new_database(running.database), turns))


async def _measure(socket: Path, dsn: str, turns: int) -> dict[str, Result]:
    queues = {"limited": "a", "gated": "b", "no gate": "c"}
    apps = {kind: App(None if kind == "no gate" else socket, dsn) for kind in queues}
    taken: dict[str, list[float]] = {kind: [] for kind in queues}
    cpu = dict.fromkeys(queues, 0.0)
    async with AsyncExitStack() as stack:
        for kind, app in apps.items():
            await stack.enter_async_context(app.app.open_async())
            await stack.enter_async_context(app.worker(queues=[queues[kind]]))
        await asyncio.sleep(START_SECONDS)
        for turn in range(turns + 1):
            for (
                kind,
                app,
            ) in apps.items():  # nobody twice in a row: a job that comes during an empty fetch waits a minute
                begin = time.process_time()
                found = await _take_turn(app, queues[kind])
                if turn:  # the first one warms up
                    taken[kind] += found
                    cpu[kind] += time.process_time() - begin
    return {kind: _result(sorted(found), cpu[kind]) for kind, found in taken.items()}


async def _take_turn(app: App, queue: str) -> list[float]:
    """Microseconds from start to start of empty jobs."""
    app.started.clear()
    app.ended.clear()
    jobs: list[dict[str, Any]] = [{"key": str(number)} for number in range(A_TURN)]
    await app.job.configure(queue=queue).batch_defer_async(*jobs)
    await app.until(lambda: len(app.ended) == A_TURN)
    return [(after - before) * 1e6 for before, after in pairwise(sorted(app.started.values()))]


def _result(taken: list[float], cpu: float) -> Result:
    count = len(taken)
    return Result(count, sum(taken) / 1e6, taken[count // 2], taken[int(count * 0.99)], cpu * 1e6 / count)
