"""The shim in front of a real procrastinate worker on a real PostgreSQL: what only a database can show."""

import asyncio
import logging
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from procrastinate.periodic import PeriodicDeferrer, PeriodicRegistry

from gate.interface import CheckIn
from gate_client.places import ACQUIRE, BIND
from procrastinate_gate import install
from tests.support import tell
from tests.support.fetch_gate import CHECK, FetchGate
from tests.support.place_gate import PlaceGate
from tests.support.postgres import PostgresServer
from tests.support.procrastinate_app import Bench, Clocks, new_database, run, said, settled

pytestmark = pytest.mark.process

ATTEMPTS = "SELECT status::text, attempts, worker_id FROM procrastinate_jobs ORDER BY id"
EVENTS = "SELECT type::text FROM procrastinate_events ORDER BY id"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "gate.sock") as fake:
        yield fake


@pytest.fixture
def places(tmp_path: Path) -> Iterator[PlaceGate]:
    with PlaceGate(tmp_path / "places.sock", limit=2) as fake:
        yield fake


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> str:
    return new_database(postgres_server)


@asynccontextmanager
async def locked_jobs(bench: Bench) -> AsyncIterator[Callable[[], Any]]:
    """Nobody reads the jobs inside the block, until it ends. Gives what waits for a fetch to be stuck at it."""
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'procrastinate_jobs'::regclass"

    async def stuck() -> bool:
        return bool(await bench.rows(waiting))

    async with await psycopg.AsyncConnection.connect(bench.dsn) as connection:
        await connection.execute("LOCK TABLE procrastinate_jobs IN ACCESS EXCLUSIVE MODE")
        yield lambda: settled(stuck)
        await connection.rollback()


# ---- opening


@pytest.mark.slow
def test_a_job_that_waits_starts_within_a_hundred_milliseconds_of_the_opening(gate: FetchGate, dsn: str) -> None:
    gate.close()
    delays: list[float] = []

    async def work(bench: Bench) -> None:
        async with bench.worker():
            for number in range(20):
                key = str(number)
                await bench.defer(key)
                await asyncio.sleep(0.05)
                assert key not in bench.started
                opened = time.time()
                gate.open()
                await bench.until(lambda key=key: key in bench.ended)  # type: ignore[misc]
                delays.append(bench.started[key] - opened)
                gate.close()

    run(work, gate, dsn)
    tell(f"opening to start, median of 20: {statistics.median(delays) * 1000:.1f} ms, most {max(delays) * 1000:.1f} ms")
    assert statistics.median(delays) < 1.0, "the goal is 0.1 s; a busy machine gets ten times that"


def test_an_opening_that_comes_while_a_fetch_is_blocked_is_not_lost(gate: FetchGate, dsn: str) -> None:
    """Trap 4."""
    gate.open("b")

    async def work(bench: Bench) -> None:
        await bench.defer("one", queue="a")
        async with locked_jobs(bench) as stuck:
            task = asyncio.create_task(worker(bench))
            await stuck()
            gate.open("a", "b")
        await task

    async def worker(bench: Bench) -> None:
        async with bench.worker(queues=["a", "b"]):
            await bench.until(lambda: bench.started)

    run(work, gate, dsn)


def test_a_fetch_that_the_database_delays_is_waited_for_and_its_job_is_not_lost(gate: FetchGate, dsn: str) -> None:
    """Trap 3: only the gate's part has a limit."""

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with locked_jobs(bench) as stuck:
            task = asyncio.create_task(worker(bench))
            await stuck()
            await asyncio.sleep(0.5)
        await task

    async def worker(bench: Bench) -> None:
        async with bench.worker(queues=("a",)):
            await bench.until(lambda: bench.ended)
        assert await bench.statuses() == ["succeeded"]

    run(work, gate, dsn)


def test_an_app_with_a_blocking_connector_defers_as_ever(dsn: str) -> None:
    """Trap 18."""
    app = App(connector=SyncPsycopgConnector(conninfo=dsn))
    install(app)
    with app.open():
        assert app.configure_task("job", queue="a").defer(key="one") == 1


# ---- the fence


def test_a_job_that_a_blocked_fetch_takes_after_closing_is_put_back_untouched(
    gate: FetchGate, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap 8."""
    caplog.set_level(logging.INFO)

    async def work(bench: Bench) -> None:
        await bench.defer("one", lock="lock", queueing_lock="queueing")
        async with locked_jobs(bench) as stuck:
            task = asyncio.create_task(worker(bench))
            await stuck()
            gate.close()
        await task

    async def worker(bench: Bench) -> None:
        async with bench.worker():
            await settled(lambda: any("is put back" in text for text in said(caplog)))
            assert await bench.rows(ATTEMPTS) == [("todo", 0, None)]
            assert await bench.rows(EVENTS) == [("deferred",)]
            gate.open()
            await bench.until(lambda: bench.ended)
        assert await bench.rows(EVENTS) == [("deferred",), ("started",), ("succeeded",)]

    run(work, gate, dsn)


def test_the_fence_looks_at_the_wall_clock_too(gate: FetchGate, dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """And holds on a pool whose connections commit every statement by themselves."""
    caplog.set_level(logging.INFO)
    gate.open(until=1000)
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with locked_jobs(bench) as stuck:
            task = asyncio.create_task(bench.manager.fetch_job(queues=["a"], worker_id=await registered(bench)))
            await stuck()
            clocks.wall = 1000.0
        assert await task is None
        assert await bench.rows(ATTEMPTS) == [("todo", 0, None)]
        assert any("is put back" in text for text in said(caplog))

    async def registered(bench: Bench) -> int:
        return await bench.manager.register_worker()

    async def autocommitting(bench: Bench) -> None:
        connector = PsycopgConnector(conninfo=bench.dsn, min_size=1, max_size=6, kwargs={"autocommit": True})
        with bench.app.replace_connector(connector) as app:
            async with app.open_async():
                await work(bench)

    run(autocommitting, gate, dsn, clocks=clocks)


def test_a_worker_of_all_queues_is_put_back_by_the_queue_of_its_job(gate: FetchGate, dsn: str) -> None:
    async def work(bench: Bench) -> None:
        await bench.defer("closes", queue="a", priority=1)
        await bench.defer("stays open", queue="b")
        async with locked_jobs(bench) as stuck:
            task = asyncio.create_task(worker(bench))
            await stuck()
            gate.open("b")
        await task

    async def worker(bench: Bench) -> None:
        async with bench.worker(queues=None, fetch_job_polling_interval=0.1):
            await bench.until(lambda: "stays open" in bench.ended)
            await asyncio.sleep(0.3)
            assert list(bench.started) == ["stays open"]
            assert await bench.rows(ATTEMPTS + " LIMIT 1") == [("todo", 0, None)]

    run(work, gate, dsn)


@asynccontextmanager
async def stuck_worker(bench: Bench, **options: Any) -> AsyncIterator[None]:
    """A worker whose first fetch is stuck inside the block, and goes on after it."""

    async def work() -> None:
        async with bench.worker(**options):
            await bench.until(lambda: bench.ended)

    async with locked_jobs(bench) as stuck:
        task = asyncio.create_task(work())
        await stuck()
        yield
    await task


def test_a_job_that_is_put_back_gives_its_place_back(
    places: PlaceGate, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with stuck_worker(bench):
            assert len(places.held) == 1
            places.close()
            asyncio.get_running_loop().call_later(0.5, places.open)
        assert any("is put back" in text for text in said(caplog))
        assert await bench.rows(EVENTS) == [("deferred",), ("started",), ("succeeded",)]

    run(work, places, dsn)
    assert places.held == {}
    assert len(places.asked(ACQUIRE)) >= 2


def test_a_place_that_was_told_to_another_gate_is_good_for_the_queue_only_that_it_was_told_with(
    places: PlaceGate, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The gate was restarted between the acquire and the fetch: it may have given the place of another queue away."""
    caplog.set_level(logging.INFO)

    async def work(bench: Bench) -> None:
        await bench.defer("one", queue="b")
        async with stuck_worker(bench, queues=["a", "b"], fetch_job_polling_interval=0.1):
            (permit,) = places.held
            places.stop()
            places.start()
            await places.when(lambda: permit in places.held)
            assert places.held[permit] == ("a", None)
            await asyncio.sleep(0.1)
        assert any("is put back" in text for text in said(caplog))

    run(work, places, dsn)


def test_a_limit_that_comes_while_a_fetch_is_stuck_holds_for_it(
    places: PlaceGate, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    places.answer = places.by_queues

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with stuck_worker(bench, fetch_job_polling_interval=0.1):
            assert places.held == {}
            places.answer = places.limited
            places.say(None)
        assert any("is put back" in text for text in said(caplog))
        await places.when(lambda: len(places.asked(BIND)) == 1)

    run(work, places, dsn)


def test_a_database_that_fails_a_fetch_ends_the_worker_as_it_does_without_the_gate(gate: FetchGate, dsn: str) -> None:
    async def work(bench: Bench) -> None:
        async with await psycopg.AsyncConnection.connect(bench.dsn, autocommit=True) as connection:
            await connection.execute("DROP FUNCTION procrastinate_fetch_job_v2")
        async with bench.worker() as task:
            done, _ = await asyncio.wait([task], timeout=10)
            assert done
            assert type(task.exception()).__name__ == "ConnectorException"

    run(work, gate, dsn)


def test_a_pool_that_has_no_connection_left_fails_a_fetch_with_procrastinates_own_error(
    gate: FetchGate, dsn: str
) -> None:
    async def work(bench: Bench) -> None:
        connector = PsycopgConnector(conninfo=bench.dsn, min_size=1, max_size=1, timeout=0.2)
        with bench.app.replace_connector(connector) as app:
            async with app.open_async(), connector.pool.connection():
                with pytest.raises(ConnectorException):
                    await bench.manager.fetch_job(queues=["a"], worker_id=1)

    run(work, gate, dsn)


# ---- running over the closing


def test_a_job_that_runs_over_the_closing_ends_normally_and_is_never_stalled(gate: FetchGate, dsn: str) -> None:
    async def work(bench: Bench) -> None:
        options: dict[str, Any] = {"update_heartbeat_interval": 0.1, "delete_jobs": DeleteJobCondition.NEVER}
        async with bench.worker(concurrency=2, fetch_job_polling_interval=0.1, **options):
            await bench.defer("long", seconds=1.5)
            await bench.until(lambda: bench.started)
            gate.close()
            await bench.defer("closed out")
            heartbeats = set()
            while "long" not in bench.ended:
                heartbeats |= set(await bench.rows("SELECT last_heartbeat FROM procrastinate_workers"))
                assert not list(await bench.manager.get_stalled_jobs(seconds_since_heartbeat=0.6))
                await asyncio.sleep(0.05)
            assert len(heartbeats) > 5
            await settled(lambda: statuses_are(bench, ["succeeded", "todo"]))
        assert list(bench.started) == ["long"]

    run(work, gate, dsn)


async def statuses_are(bench: Bench, expected: list[str]) -> bool:
    return await bench.statuses() == expected


def test_a_job_that_runs_over_the_closing_can_be_aborted(gate: FetchGate, dsn: str) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker(abort_job_polling_interval=0.2, fetch_job_polling_interval=0.1):
            job_id = await bench.defer("long", seconds=60.0)
            await bench.until(lambda: bench.started)
            gate.close()
            begin = time.monotonic()
            assert await bench.manager.cancel_job_by_id_async(job_id, abort=True)
            await settled(lambda: statuses_are(bench, ["aborted"]))
            assert time.monotonic() - begin < 3.0

    run(work, gate, dsn)


# ---- periodic tasks

NIGHT = range(1_800_000_000, 1_800_000_000 + 120 * 300, 300)
"""The ticks of ten hours of `*/5`."""


async def all_night(bench: Bench, **options: Any) -> list[int]:
    """Tick as procrastinate's own deferrer does, in a worker; gives the timestamps of the jobs that wait at the end."""

    @bench.app.task(name="tick")
    async def tick(timestamp: int) -> None:
        raise AssertionError("its queue is closed")

    deferrer = PeriodicDeferrer(registry=PeriodicRegistry())  # type: ignore[no-untyped-call]  # procrastinate's own
    configured: Any = {"queue": "a", **options}
    periodic = deferrer.registry.register_task(tick, "*/5 * * * *", "tick", configured)

    @bench.app.task(name="night", queue="open")
    async def night() -> None:
        await deferrer.defer_jobs([(periodic, timestamp) for timestamp in NIGHT])
        bench.ended.append("night")

    await night.defer_async()
    async with bench.worker(queues=["a", "open"], fetch_job_polling_interval=0.1):
        await settled(lambda: "night" in bench.ended)
    rows = await bench.rows("SELECT args FROM procrastinate_jobs WHERE task_name = 'tick' ORDER BY id")
    return [arguments.get("timestamp") for (arguments,) in rows]


@pytest.mark.parametrize(
    ("policy", "options", "waiting"),
    [
        ("keep", {}, list(NIGHT)),
        ("keep", {"queueing_lock": "tick"}, [NIGHT[0]]),
        ("collapse", {}, [NIGHT[-1]]),
        ("collapse", {"queueing_lock": "tick", "lock": "tick"}, [NIGHT[-1]]),
        ("skip", {}, []),
    ],
)
def test_of_a_closed_night_of_periodic_ticks(
    policy: str, options: dict[str, Any], waiting: list[int], gate: FetchGate, dsn: str
) -> None:
    """Trap 19."""
    gate.open("open")

    async def work(bench: Bench) -> None:
        assert await all_night(bench, **options) == waiting

    run(work, gate, dsn, periodic=policy)


def test_while_the_queue_is_open_or_the_gate_is_away_every_tick_is_deferred(gate: FetchGate, dsn: str) -> None:
    async def work(bench: Bench) -> None:
        @bench.app.task(name="deferring", queue="open")
        async def deferring(name: str) -> None:
            if name == "away":
                gate.stop()
            job = bench.job.configure(queue="b", task_kwargs={"timestamp": 300}).job
            assert await bench.manager.defer_periodic_job(job=job, periodic_id=name, defer_timestamp=300) is not None
            bench.ended.append(name)

        async with bench.worker(queues=["open"], fetch_job_polling_interval=0.1):
            for name in ("open", "away"):
                await deferring.defer_async(name=name)
                await settled(lambda name=name: name in bench.ended)  # type: ignore[misc]

    run(work, gate, dsn, periodic="skip")
    assert gate.asked(CHECK) == [CheckIn(worker="w", queues=["b"])]


def test_collapse_leaves_other_jobs_alone(gate: FetchGate, dsn: str) -> None:
    gate.open("open")
    older, newer = NIGHT[0] - 300, NIGHT[-1] + 300

    async def work(bench: Bench) -> None:
        for options, arguments in (
            ({"queue": "a"}, {}),
            ({"queue": "a"}, {"timestamp": older, "of": "another periodic task"}),
            ({"queue": "b"}, {"timestamp": older}),
            ({"queue": "a", "lock": "another"}, {"timestamp": older}),
            ({"queue": "a", "schedule_in": {"days": 1}}, {"timestamp": older}),
            ({"queue": "a"}, {"timestamp": newer}),
            ({"queue": "a"}, {"timestamp": older}),
        ):
            configured: Any = options
            await bench.app.configure_task("tick", **configured).defer_async(**arguments)
        assert await all_night(bench) == [None, older, older, older, older, newer, NIGHT[-1]]

    run(work, gate, dsn, periodic="collapse")


def test_collapse_respects_a_queueing_lock_that_another_job_holds(gate: FetchGate, dsn: str) -> None:
    gate.open("open")

    async def work(bench: Bench) -> None:
        await bench.app.configure_task("tick", queue="a", queueing_lock="tick").defer_async()
        assert await all_night(bench, queueing_lock="tick") == [None]

    run(work, gate, dsn, periodic="collapse")
