"""The shim where a limit applies: a place for every job that runs, from its fetch to its end, and none that leaks.

As in test_procrastinate_gate.py, the database is in memory and the test plays the gate.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from procrastinate.jobs import Status
from procrastinate.testing import InMemoryConnector

from gate.errors import InvalidWorker
from gate.interface import BindIn, HeldPermit
from gate_client.places import ACQUIRE, BIND, RELEASE, RESTORE
from procrastinate_gate import outage
from procrastinate_gate.permits import FOLLOW_SECONDS
from tests.support.fetch_gate import says
from tests.support.place_gate import PlaceGate
from tests.support.procrastinate_app import POLL, Bench, Clocks, run, said, settled, watched


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[PlaceGate]:
    with PlaceGate(tmp_path / "gate.sock", limit=1) as fake:
        yield fake


def fetches(bench: Bench) -> int:
    """How many fetches the database has seen."""
    assert isinstance(bench.app.connector, InMemoryConnector)
    return sum(name == "fetch_job" for name, _ in bench.app.connector.queries)


def broken(**_: Any) -> None:
    """A query of a database that is gone."""
    raise ConnectionError("the database is gone")


async def free(gate: PlaceGate) -> None:
    await gate.when(lambda: gate.held == {})


# ---- from the fetch to the end of the job


def test_a_job_has_a_place_while_it_runs_by_its_queue_and_id(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker():
            job_id = await bench.defer("one", seconds=0.2)
            await bench.until(lambda: bench.started)
            await gate.when(lambda: gate.asked(BIND))
            bound = gate.asked(BIND)[0]
            assert bound == BindIn(permit=bound.permit, queue="a", job=str(job_id))
            assert gate.held == {bound.permit: ("a", str(job_id))}
            await bench.until(lambda: bench.ended)
            await free(gate)

    run(work, gate)


def test_two_workers_never_run_more_than_the_limit_and_waste_no_time(gate: PlaceGate) -> None:
    """Trap 5: nothing but the gate wakes a worker when a job of another one ends."""
    gate.limit = 2
    running: list[int] = [0, 0]

    async def work(bench: Bench) -> None:
        @bench.app.task(name="counted", queue="a")
        async def counted() -> None:
            running[0] += 1
            running[1] = max(running)
            await asyncio.sleep(0.02)
            running[0] -= 1
            bench.ended.append("counted")
            async with bench.happened:
                bench.happened.notify_all()

        for _ in range(40):
            await counted.defer_async()
        async with bench.worker(concurrency=4), bench.worker(concurrency=4):
            await bench.until(lambda: len(bench.ended) == 40, 5.0)
            await free(gate)

    run(work, gate)
    assert running == [0, 2]
    assert gate.most == 2


def test_one_place_serves_many_short_jobs_and_is_given_back_when_none_is_left(gate: PlaceGate) -> None:
    gate.reuse = 30.0

    async def work(bench: Bench) -> None:
        for number in range(20):
            await bench.defer(str(number))
        async with bench.worker():
            await bench.until(lambda: len(bench.ended) == 20)
            await free(gate)

    run(work, gate)
    assert (len(gate.asked(ACQUIRE)), len(gate.asked(BIND)), len(gate.asked(RELEASE))) == (1, 1, 1)


def test_a_place_that_has_the_next_job_outlives_the_task_of_the_one_before(gate: PlaceGate) -> None:
    """The place is free for the next fetch when procrastinate is told of the end, which is before the task is done."""
    gate.reuse, gate.limit = 30.0, 1

    async def work(bench: Bench) -> None:
        await bench.defer("first", seconds=2 * FOLLOW_SECONDS)
        await bench.defer("second", seconds=4 * FOLLOW_SECONDS)
        async with bench.worker(concurrency=2):
            await bench.until(lambda: "second" in bench.started)
            await asyncio.sleep(2 * FOLLOW_SECONDS)
            assert len(gate.held) == 1
            await bench.until(lambda: len(bench.ended) == 2)
            await free(gate)

    run(work, gate)
    assert gate.most == 1


def test_no_place_is_asked_for_where_no_limit_applies(gate: PlaceGate) -> None:
    gate.answer = gate.by_queues

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await bench.until(lambda: bench.ended)

    run(work, gate)
    assert gate.asked(ACQUIRE) == gate.asked(RELEASE) == []


def test_a_fetch_takes_only_from_queues_that_have_a_place(gate: PlaceGate) -> None:
    gate.limit = 0
    gate.free_queues = {"b"}

    async def work(bench: Bench) -> None:
        await bench.defer("limited", queue="a")
        await bench.defer("free", queue="b")
        async with bench.worker(queues=["a", "b"]):
            await bench.until(lambda: bench.ended)
            await free(gate)
            assert list(bench.started) == ["free"]
            gate.change(1)
            await bench.until(lambda: "limited" in bench.started)

    run(work, gate)


def test_a_worker_of_all_queues_asks_for_places_by_name(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        await bench.defer("one", queue="a")
        await bench.defer("two", queue="b")
        async with bench.worker(queues=None):
            await bench.until(lambda: len(bench.ended) == 2)
            await free(gate)

    run(work, gate)
    assert {tuple(asked.queues) for asked in gate.asked(ACQUIRE)} == {("a", "b")}
    assert gate.most == 1


# ---- however it ends


async def fails(bench: Bench) -> None:
    @bench.app.task(name="failing", queue="a")
    async def failing() -> None:
        raise ValueError("as it should")

    await failing.defer_async()


async def is_tried_again(bench: Bench) -> None:
    @bench.app.task(name="failing", queue="a", retry=2)
    async def failing() -> None:
        raise ValueError("as it should")

    await failing.defer_async()


async def is_unknown(bench: Bench) -> None:
    await bench.app.configure_task("unknown", queue="a", allow_unknown=True).defer_async()


async def cannot_be_told(bench: Bench) -> None:
    """Trap 9: procrastinate's own log line raises, and the job is never finished."""

    class Odd:
        def __str__(self) -> str:
            raise ValueError("no words")

    @bench.app.task(name="odd", queue="a")
    async def odd() -> Odd:
        return Odd()

    await odd.defer_async()


async def cannot_be_written(bench: Bench) -> None:
    vars(bench.app.connector)["finish_job_run"] = broken
    await bench.defer("one")


async def blocks_a_thread(bench: Bench) -> None:
    @bench.app.task(name="threaded", queue="a")
    def threaded() -> None:
        pass

    await threaded.defer_async()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("job", [fails, is_tried_again, is_unknown, cannot_be_told, cannot_be_written, blocks_a_thread])
def test_the_place_of_a_job_is_free_when_it_has_ended(job: Any, gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        await job(bench)
        async with bench.worker(fetch_job_polling_interval=POLL):
            await gate.when(lambda: gate.asked(BIND))
            await free(gate)
            assert "next" not in bench.started
            await bench.defer("next", queue="a")
            if job is not cannot_be_written:
                await bench.until(lambda: "next" in bench.ended)
            await gate.when(lambda: len(gate.asked(BIND)) >= 2)
            await free(gate)

    run(work, gate)
    assert gate.most == 1


def test_a_job_that_is_aborted_gives_its_place_back(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker(shutdown_graceful_timeout=0.05):
            await bench.defer("long", seconds=60.0)
            await bench.until(lambda: bench.started)
            await gate.when(lambda: gate.jobs)
        await free(gate)

    run(work, gate)


@pytest.mark.parametrize("how", ["finished", "tried again", "not written"])
def test_a_place_is_free_when_the_job_is_said_to_have_ended_whoever_runs_it(how: str, gate: PlaceGate) -> None:
    async def run_it(bench: Bench) -> None:
        await bench.defer("one")
        worker_id = await bench.manager.register_worker()
        job = await bench.manager.fetch_job(queues=["a"], worker_id=worker_id)
        assert job is not None
        await gate.when(lambda: gate.jobs == [str(job.id)])
        if how == "tried again":
            await bench.manager.retry_job(job)
        elif how == "finished":
            await bench.manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
        else:
            vars(bench.app.connector)["finish_job_run"] = broken
            with pytest.raises(ConnectionError):
                await bench.manager.finish_job(job=job, status=Status.SUCCEEDED, delete_job=False)
        await free(gate)

    async def work(bench: Bench) -> None:
        await asyncio.create_task(run_it(bench))
        await gate.when(lambda: not gate.live)

    run(work, gate)


def test_a_running_job_keeps_its_place_when_somebody_else_says_that_it_is_to_be_tried_again(gate: PlaceGate) -> None:
    """As `retry_stalled_jobs` does, in a job of its own or in any other program."""
    gate.limit = 2

    tomorrow = datetime.now(UTC) + timedelta(days=1)

    async def work(bench: Bench) -> None:
        @bench.app.task(name="again", queue="a")
        async def again(job_id: int) -> None:
            await try_again(bench, job_id)
            await asyncio.sleep(0.05)
            bench.ended.append(f"{len(gate.jobs)} have places")

        long = await bench.defer("long", seconds=0.5)
        async with bench.worker(concurrency=2):
            await bench.until(lambda: "long" in bench.started)
            await try_again(bench, long)
            await again.defer_async(job_id=long)
            await settled(lambda: bench.ended == ["2 have places"])
            await gate.when(lambda: len(gate.jobs) == 1)
            assert gate.jobs == [str(long)]

    async def try_again(bench: Bench, job_id: int) -> None:
        job = bench.job.configure(queue="a").job.evolve(id=job_id)
        await bench.manager.retry_job(job, retry_at=tomorrow)

    run(work, gate)


def test_a_place_is_given_back_when_the_fetch_finds_nothing_or_fails(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker():
            await gate.when(lambda: gate.asked(RELEASE))
            assert gate.held == {}
        vars(bench.app.connector)["fetch_job_one"] = broken
        async with bench.worker() as task:
            await asyncio.wait([task], timeout=5.0)
            assert isinstance(task.exception(), ConnectionError)
        await free(gate)

    run(work, gate)
    assert len(gate.asked(ACQUIRE)) == len(gate.asked(RELEASE)) == 2


def test_all_places_are_given_back_when_the_worker_ends(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker() as task:
            permit = await asyncio.wait_for(fetched_outside(bench, gate), 5.0)
            assert permit in gate.held
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await free(gate)

    async def fetched_outside(bench: Bench, gate: PlaceGate) -> str:
        await bench.defer("runs", seconds=0.3)
        await gate.when(lambda: gate.jobs)
        return next(iter(gate.held))

    run(work, gate)


# ---- who waits is woken


def test_a_refused_worker_starts_its_job_when_a_place_is_offered_and_does_not_poll_for_it(gate: PlaceGate) -> None:
    gate.limit = 0

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await gate.when(lambda: gate.waiting)
            await asyncio.sleep(0.1)
            assert fetches(bench) == 0
            gate.change(1)
            await bench.until(lambda: bench.ended, 5.0)
            await free(gate)

    run(work, gate)
    assert gate.pushed == 1


def test_idle_workers_fetch_when_they_poll_and_wake_each_other_for_nothing(gate: PlaceGate) -> None:
    """Trap 6: a place that was given back after an empty fetch is no news."""

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=0.2), bench.worker(fetch_job_polling_interval=0.2):
            await watched(gate, 2)
            await asyncio.sleep(0.9)
        assert fetches(bench) <= 2 * 6
        assert len(gate.asked(ACQUIRE)) <= 2 * 7

    run(work, gate)


def test_a_place_that_is_told_twice_wakes_once_and_one_that_nobody_waits_for_not_at_all(gate: PlaceGate) -> None:
    async def work(bench: Bench) -> None:
        async with bench.worker():
            await gate.when(lambda: gate.asked(RELEASE))
            for _ in range(5):
                gate.say(None)
            await asyncio.sleep(0.1)
            assert len(gate.asked(ACQUIRE)) == 1, "it was given all that it asked for"
            gate.limit = 0
            await bench.defer("one")
            await gate.when(lambda: gate.waiting)
            asked = len(gate.asked(ACQUIRE))
            gate.answer = lambda question: says(question.queues, limited=True, place=True)
            for _ in range(5):
                gate.say(None)
            await gate.when(lambda: len(gate.asked(ACQUIRE)) > asked)
            await asyncio.sleep(0.1)
            assert len(gate.asked(ACQUIRE)) <= asked + 5

    run(work, gate)


def test_an_offer_that_comes_before_the_refusal_is_read_is_not_lost(gate: PlaceGate) -> None:
    """They come over two connections."""
    gate.limit = 0
    gate.keep_acquires()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await gate.when(lambda: gate.waiting)
            gate.answers[ACQUIRE] = gate.acquire
            gate.change(1)
            await asyncio.sleep(0.05)
            gate.finish_acquire()
            await bench.until(lambda: bench.ended, 5.0)

    run(work, gate, timeout=5.0)


def test_a_place_that_came_too_late_is_given_back_and_asked_for_again(gate: PlaceGate) -> None:
    gate.keep_acquires()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await gate.when(lambda: gate.asked(RELEASE))
            gate.answers[ACQUIRE] = gate.acquire
            assert not bench.started
            gate.finish_acquire()
            await bench.until(lambda: bench.ended, 5.0)
            await free(gate)

    run(work, gate, timeout=0.05)


# ---- without a gate


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_where_a_limit_applies_nothing_starts_without_a_gate(
    policy: str, gate: PlaceGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "DOWN_SECONDS", 0.1)
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            gate.stop()
            await bench.defer("one")
            await asyncio.sleep(0.4)
            assert not bench.started
            clocks.boot += 100
            clocks.wall += 100
            await asyncio.sleep(0.4)
            assert not bench.started
            gate.start()
            await bench.until(lambda: bench.started, 5.0)

    run(work, gate, on_gate_down=policy, clocks=clocks, timeout=0.05)


def test_what_runs_is_told_to_a_gate_that_comes_back(gate: PlaceGate) -> None:
    gate.limit = 2

    async def work(bench: Bench) -> None:
        async with bench.worker(concurrency=3):
            ids = [await bench.defer(key, seconds=1.0) for key in ("one", "two", "waits")]
            await bench.until(lambda: len(bench.started) == 2)
            await gate.when(lambda: len(gate.jobs) == 2)
            gate.stop()
            gate.start()
            await gate.when(lambda: gate.asked(RESTORE)[-1].permits)
            told = gate.asked(RESTORE)[-1].permits
            assert [one.job for one in told] == [str(job_id) for job_id in ids[:2]]
            assert all(one == HeldPermit(permit=one.permit, queue="a", job=one.job) for one in told)
            assert list(bench.started) == ["one", "two"]
            await bench.until(lambda: len(bench.ended) == 3)
            await free(gate)

    run(work, gate)


def test_a_worker_that_was_refused_asks_a_gate_that_was_restarted_by_itself(gate: PlaceGate) -> None:
    """The new one knows nothing of those who waited at the old one."""
    gate.limit = 0

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await gate.when(lambda: gate.waiting)
            gate.stop()
            gate.start()
            await gate.when(lambda: gate.waiting)
            gate.change(1)
            await bench.until(lambda: bench.ended, 5.0)

    run(work, gate)


def test_an_error_that_the_gate_answers_is_said_once(gate: PlaceGate, caplog: pytest.LogCaptureFixture) -> None:
    gate.answers[ACQUIRE] = lambda asked: InvalidWorker(field="worker", reason="the test says so")

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(fetch_job_polling_interval=POLL):
            await gate.when(lambda: len(gate.asked(ACQUIRE)) > 2)
        assert not bench.started

    run(work, gate)
    (warning,) = said(caplog, logging.WARNING)
    assert "no place can be had" in warning
    assert "the test says so" in warning
