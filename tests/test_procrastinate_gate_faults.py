"""The shim when answers are old, and when the gate is away, slow or no gate: a worker fetches nothing that it may not,
and never ends for it. As in test_procrastinate_gate.py, the database is in memory and the test plays the gate.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gate.errors import InvalidWorker, MethodNotFound
from gate.interface import CheckIn
from procrastinate_gate import outage, watching
from tests.support.fake_gate import Drop, Keep
from tests.support.fetch_gate import CHECK, WATCH, FetchGate, says
from tests.support.procrastinate_app import POLL, Bench, Clocks, run, said, settled, watched


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "gate.sock") as fake:
        yield fake


# ---- an answer that is old


def test_a_job_that_blocked_the_loop_is_not_followed_by_one_that_was_closed_meanwhile(gate: FetchGate) -> None:
    """The gate's word is in the socket, and the loop had no time to read it."""

    async def work(bench: Bench) -> None:
        @bench.app.task(name="blocking", queue="a")
        async def blocking() -> None:
            gate.close()
            await bench.defer("after")

        await blocking.defer_async()
        async with bench.worker(concurrency=3, fetch_job_polling_interval=POLL):
            await settled(lambda: gate.only == [])
            await asyncio.sleep(4 * POLL)
            assert not bench.started

    run(work, gate)


def test_an_answer_is_renewed_while_nothing_changes(gate: FetchGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RENEW_SECONDS", 0.05)
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            for _ in range(4):
                clocks.wall += 50
                clocks.boot += 50
                enough = len(gate.asked(CHECK)) + 2
                await gate.when(partial(lambda count: len(gate.asked(CHECK)) >= count, enough))
            await bench.defer("one")
            await bench.until(lambda: bench.started)

    run(work, gate, clocks=clocks)
    assert gate.asked(CHECK)[0] == CheckIn(worker="w", queues=["a"])


def test_after_a_suspend_an_answer_is_renewed_with_the_next_fetch(gate: FetchGate) -> None:
    """The machine's sleep stops the timer that renews, and makes the answer too old."""
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            clocks.wall += 3600
            clocks.boot += 3600
            await bench.defer("one")
            await bench.until(lambda: bench.started)

    run(work, gate, clocks=clocks)
    assert len(gate.asked(CHECK)) == 1


def test_an_answer_that_is_not_renewed_is_trusted_for_sixty_seconds_of_boot_time(
    gate: FetchGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RENEW_SECONDS", 3600.0)
    gate.answers[CHECK] = lambda _: Keep()
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        async with bench.worker(listen_notify=False, fetch_job_polling_interval=POLL):
            await watched(gate)
            clocks.wall += 59
            clocks.boot += 59
            await bench.defer("in time")
            await bench.until(lambda: bench.started)
            clocks.wall += 1
            clocks.boot += 1
            await bench.defer("too late")
            await asyncio.sleep(4 * POLL)
            assert list(bench.started) == ["in time"]

    run(work, gate, clocks=clocks)


def test_no_answer_is_trusted_past_its_until_by_the_wall_clock(gate: FetchGate) -> None:
    clocks = Clocks()
    gate.open(until=1000)

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            clocks.wall += 1000.0
            await bench.defer("over")
            await asyncio.sleep(4 * POLL)
            assert not bench.started
            gate.open(until=5000)
            await bench.until(lambda: bench.started)

    run(work, gate, clocks=clocks)


def test_after_the_wall_clock_was_set_back_the_gate_is_asked_on_a_new_connection(gate: FetchGate) -> None:
    clocks = Clocks()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            gate.answer = lambda question: says([], reason="by the new clock")
            clocks.wall -= 3600.0
            await bench.defer("one")
            await gate.when(lambda: len(gate.asked(WATCH)) == 2)
            await asyncio.sleep(4 * POLL)
            assert not bench.started
            gate.answer = gate.by_queues
            gate.open()
            await bench.until(lambda: bench.started)

    run(work, gate, clocks=clocks)


# ---- a gate that is away


def test_a_gate_that_was_never_there_closes_and_is_said_once(gate: FetchGate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gate.stop()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(fetch_job_polling_interval=0.01) as task:
            await asyncio.sleep(0.4)
            assert not task.done()
            assert not bench.started
            gate.start()
            await bench.until(lambda: bench.started)

    run(work, gate)
    assert len(said(caplog, logging.WARNING)) == 2, "and that an in-memory database cannot be fenced"
    assert len([text for text in said(caplog) if "the gate is back after" in text]) == 1


@pytest.mark.parametrize("opens", [True, False])
def test_what_the_gate_said_last_holds_while_it_is_away_for_a_moment(gate: FetchGate, opens: bool) -> None:
    gate.open() if opens else gate.close()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL) as task:
            await watched(gate)
            gate.stop()
            await bench.defer("one")
            if opens:
                await bench.until(lambda: bench.started)
            else:
                await asyncio.sleep(4 * POLL)
                assert not bench.started
                gate.open()
            gate.start()
            await bench.defer("two")
            await bench.until(lambda: len(bench.started) == 2)
            assert not task.done()

    run(work, gate)


@pytest.mark.parametrize("on_gate_down", ["closed", "open"])
def test_when_the_last_answer_holds_no_more_on_gate_down_decides(
    on_gate_down: str, gate: FetchGate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clocks = Clocks()
    gate.say([] if on_gate_down == "open" else None)

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            gate.stop()
            await settled(lambda: bool(said(caplog, logging.WARNING)))
            clocks.wall += 59.0 - outage.DOWN_SECONDS
            clocks.boot += 59.0 - outage.DOWN_SECONDS
            await asyncio.sleep(2 * POLL)
            assert not [text for text in said(caplog) if "on_gate_down" in text], "the last answer still holds"
            clocks.wall += 1.0 + outage.DOWN_SECONDS
            clocks.boot += 1.0 + outage.DOWN_SECONDS
            await settled(lambda: any("on_gate_down" in text for text in said(caplog)))
            await bench.defer("one")
            if on_gate_down == "open":
                await bench.until(lambda: bench.started)
            else:
                await asyncio.sleep(4 * POLL)
                assert not bench.started

    run(work, gate, clocks=clocks, on_gate_down=on_gate_down)


def test_with_on_gate_down_open_a_gate_that_starts_together_with_the_worker_is_waited_for(gate: FetchGate) -> None:
    gate.stop()
    gate.close()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(fetch_job_polling_interval=POLL):
            await asyncio.sleep(4 * POLL)
            gate.start()
            await watched(gate)
            assert not bench.started

    run(work, gate, on_gate_down="open")


def test_a_gate_that_does_not_answer_delays_a_fetch_by_its_timeout_and_no_stop(gate: FetchGate) -> None:
    """Trap 2."""
    gate.deafen()

    async def work(bench: Bench) -> None:
        async with bench.worker() as task:
            await gate.when(lambda: gate.live)
            begin = time.monotonic()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert time.monotonic() - begin < 1.0
        begin = time.monotonic()
        assert await bench.manager.fetch_job(queues=["a"], worker_id=1) is None
        assert 0.2 < time.monotonic() - begin < 2.5

    run(work, gate)


def test_a_gate_that_answers_after_the_timeout_wakes_the_worker(gate: FetchGate) -> None:
    gate.deafen()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await gate.when(lambda: gate.live)
            await asyncio.sleep(0.4)
            assert not bench.started
            gate.hear()
            await bench.until(lambda: bench.started)

    run(work, gate)


@pytest.mark.parametrize("fault", [MethodNotFound(method=WATCH), InvalidWorker(field="worker", reason="no"), Drop()])
def test_a_fault_of_the_gate_closes_ends_no_worker_and_is_said_once(
    fault: Any, gate: FetchGate, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap 1."""
    watch, check = gate.answers[WATCH], gate.answers[CHECK]
    gate.answers |= {WATCH: lambda _: fault, CHECK: lambda _: fault}

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(fetch_job_polling_interval=POLL) as task:
            await gate.when(lambda: len(gate.asked(WATCH)) >= 3)
            assert not task.done()
            assert not bench.started
            gate.answers |= {WATCH: watch, CHECK: check}
            await bench.until(lambda: bench.started)

    run(work, gate)
    assert len([text for text in said(caplog, logging.WARNING) if "no answer from the gate" in text]) == 1


def test_what_is_no_gate_at_all_closes_and_ends_no_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n\0")
            await writer.drain()
            writer.close()

        fake = FetchGate(tmp_path / "mail.sock")
        server = await asyncio.start_unix_server(babble, fake.path)
        async with server:
            bench = Bench(fake.path)
            async with bench.app.open_async():
                await bench.defer("one")
                async with bench.worker(fetch_job_polling_interval=POLL) as task:
                    await settled(lambda: bool(said(caplog, logging.WARNING)))
                    await asyncio.sleep(4 * POLL)
                    assert not task.done()
                    assert not bench.started

    asyncio.run(main())


def test_a_push_that_comes_with_a_check_is_newer_than_its_answer(
    gate: FetchGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RENEW_SECONDS", 0.1)

    def check(question: CheckIn) -> Any:
        answer = gate.by_queues(question)
        gate.only = []
        for peer, slot in gate.kept:
            peer.say(slot, says([], reason="pushed"), continues=True)
        gate.answers[CHECK] = lambda later: gate.by_queues(later)
        return answer

    gate.answers[CHECK] = check

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=POLL):
            await settled(lambda: gate.only == [])
            await bench.defer("one")
            await asyncio.sleep(4 * POLL)
            assert not bench.started

    run(work, gate)
