"""The shim in front of a real procrastinate worker, with a database in memory and a gate that the test plays.

Numbered traps are those that were met with procrastinate 3.10.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import procrastinate
import pytest
from procrastinate.testing import InMemoryConnector

import procrastinate_gate
from gate.errors import InvalidWorker, MethodNotFound
from gate.interface import CheckIn, WatchIn
from procrastinate_gate import outage, watching
from procrastinate_gate.answers import Reading
from procrastinate_gate.hooks import Hooks
from procrastinate_gate.outage import read_clocks
from procrastinate_gate.settings import Settings
from procrastinate_gate.waking import Waking
from tests.support.fake_gate import Drop, Keep
from tests.support.fetch_gate import CHECK, WATCH, FetchGate, says
from tests.support.procrastinate_app import Bench, run, said, settled

POLL = 0.05


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "gate.sock") as fake:
        yield fake


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


# ---- installing


def app_of() -> procrastinate.App:
    return procrastinate.App(connector=InMemoryConnector())


def test_installing_twice_wraps_once_and_takes_the_later_settings() -> None:
    app = app_of()
    procrastinate_gate.install(app, worker="first")
    wrapped = app.job_manager.fetch_job, app.run_worker_async
    procrastinate_gate.install(app, worker="second", periodic="skip")
    assert (app.job_manager.fetch_job, app.run_worker_async) == wrapped
    installed = Hooks.of(app)
    assert installed is not None
    assert (installed.settings.worker, installed.settings.periodic) == ("second", "skip")


def test_it_is_known_as_installed_behind_a_wrapper_of_somebody_else() -> None:
    app = app_of()
    procrastinate_gate.install(app)
    mine = app.job_manager.fetch_job
    vars(app.job_manager)["fetch_job"] = lambda **named: mine(**named)
    procrastinate_gate.install(app)
    assert vars(app.job_manager)["fetch_job"].__name__ == "<lambda>"


@pytest.mark.parametrize("what", [None, "app", procrastinate.Blueprint(), InMemoryConnector()])
def test_what_is_no_app_is_refused_with_the_way_to_do_it_in_django(what: Any) -> None:
    with pytest.raises(TypeError, match=r'PROCRASTINATE_ON_APP_READY = "procrastinate_gate\.install"'):
        procrastinate_gate.install(what)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"on_gate_down": "maybe"}, "on_gate_down is 'maybe': 'closed' and 'open' are allowed"),
        ({"periodic": "never"}, "periodic is 'never': 'keep' and 'collapse' and 'skip' are allowed"),
        ({"timeout": 0}, "timeout is 0: it must be above 0 s"),
    ],
)
def test_a_setting_that_is_not_allowed_is_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        procrastinate_gate.install(app_of(), **settings)


def test_a_worker_is_known_by_our_argument_the_environment_its_own_name_or_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GATE_WORKER", raising=False)
    assert Settings().name(None)
    assert Settings().name("own") == "own"
    monkeypatch.setenv("GATE_WORKER", "env")
    assert Settings().name("own") == "env"
    assert Settings(worker="argument").name("own") == "argument"
    assert Settings(worker="é" * 200).name(None) == "é" * 128


def test_replace_connector_keeps_the_gate_and_with_connector_makes_an_app_without_it() -> None:
    """Trap 14."""
    app = app_of()
    procrastinate_gate.install(app)
    other = InMemoryConnector()
    with app.replace_connector(other) as replaced:
        assert Hooks.of(replaced) is not None
        assert replaced.job_manager.connector is other
    assert Hooks.of(app.with_connector(other)) is None


# ---- open and closed


def test_nothing_starts_while_closed_and_the_opening_wakes_the_worker(gate: FetchGate) -> None:
    """Trap 17 as well: the listener of this connector ends at once, and the worker is woken all the same."""
    gate.close()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker():
            await watched(gate)
            gc.collect()
            assert not bench.started
            gate.open()
            await bench.until(lambda: "one" in bench.started)

    run(work, gate)
    assert gate.asked(WATCH) == [WatchIn(worker="w", queues=["a"], session=gate.asked(WATCH)[0].session)]


def test_without_a_listener_the_worker_finds_out_when_it_polls(gate: FetchGate) -> None:
    gate.close()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(listen_notify=False, fetch_job_polling_interval=0.3):
            await watched(gate)
            opened = time.time()
            gate.open()
            await bench.until(lambda: "one" in bench.started)
            assert bench.started["one"] - opened < 3.0

    run(work, gate)


def test_an_open_worker_asks_once_and_pays_no_round_trip_for_its_fetches(gate: FetchGate) -> None:
    async def work(bench: Bench) -> None:
        for number in range(50):
            await bench.defer(f"job {number}")
        async with bench.worker():
            await bench.until(lambda: len(bench.ended) == 50)

    run(work, gate)
    assert [name for name, _ in gate.calls] == [WATCH]


def fetches(bench: Bench) -> int:
    """How many fetches the database has seen."""
    assert isinstance(bench.app.connector, InMemoryConnector)
    return sum(name == "fetch_job" for name, _ in bench.app.connector.queries)


def test_a_renewed_answer_wakes_nobody(gate: FetchGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RENEW_SECONDS", 0.02)

    async def work(bench: Bench) -> None:
        async with bench.worker():
            await gate.when(lambda: len(gate.asked(CHECK)) > 10)
            assert fetches(bench) == 1

    run(work, gate)


def test_a_fetch_after_a_worker_of_the_same_task_has_ended_asks_anew(gate: FetchGate) -> None:
    async def work(bench: Bench) -> None:
        await bench.app.run_worker_async(queues=["a"], wait=False)
        await bench.defer("one")
        worker_id = await bench.manager.register_worker()
        assert await bench.manager.fetch_job(queues=["a"], worker_id=worker_id) is not None

    run(work, gate)
    assert len(gate.asked(WATCH)) == 2


@pytest.mark.parametrize("opens", [True, False])
def test_an_idle_worker_fetches_when_it_polls_and_a_closed_one_not_even_then(opens: bool, gate: FetchGate) -> None:
    """Trap 6."""
    gate.open() if opens else gate.close()

    async def work(bench: Bench) -> None:
        async with bench.worker(fetch_job_polling_interval=0.2):
            await watched(gate)
            await asyncio.sleep(0.5)
        assert fetches(bench) in ({3, 4} if opens else {0})

    run(work, gate)


def test_only_the_open_ones_of_a_workers_queues_are_fetched_from(gate: FetchGate) -> None:
    gate.open("b")

    async def work(bench: Bench) -> None:
        await bench.defer("closed", queue="a")
        await bench.defer("open", queue="b")
        async with bench.worker(queues=["a", "b"], fetch_job_polling_interval=POLL):
            await bench.until(lambda: "open" in bench.started)
            await asyncio.sleep(4 * POLL)
            assert list(bench.started) == ["open"]
            gate.open("a", "b")
            await bench.until(lambda: "closed" in bench.started)

    run(work, gate)


def test_a_gate_that_says_all_means_all_that_were_asked_for(gate: FetchGate) -> None:
    gate.answer = lambda question: says(None)

    async def work(bench: Bench) -> None:
        await bench.defer("another's", queue="b")
        await bench.defer("ours", queue="a")
        async with bench.worker(fetch_job_polling_interval=POLL):
            await bench.until(lambda: "ours" in bench.started)
            await asyncio.sleep(4 * POLL)
            assert list(bench.started) == ["ours"]

    run(work, gate)


def test_two_workers_of_one_app_have_their_own_names_and_hours(gate: FetchGate) -> None:
    gate.answer = lambda question: says([] if question.worker == "night" else question.queues)

    async def work(bench: Bench) -> None:
        await bench.defer("for night", queue="n")
        await bench.defer("for day", queue="d")
        async with (
            bench.worker(name="night", queues=["n"], fetch_job_polling_interval=POLL),
            bench.worker(name="day", queues=["d"], fetch_job_polling_interval=POLL),
        ):
            await bench.until(lambda: "for day" in bench.started)
            await watched(gate, 2)
            assert list(bench.started) == ["for day"]

    run(work, gate, worker=None)
    assert {(question.worker, *question.queues) for question in gate.asked(WATCH)} == {("night", "n"), ("day", "d")}


def test_a_one_shot_worker_that_is_closed_ends_at_once_and_says_until_when(
    gate: FetchGate, caplog: pytest.LogCaptureFixture
) -> None:
    """Trap 12."""
    caplog.set_level(logging.INFO)
    gate.close(until=3600)

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(wait=False) as task:
            await asyncio.wait_for(task, 2.0)
        assert not bench.started

    run(work, gate)
    assert [text for text in said(caplog) if text.startswith("worker w: closed until 2")]


def test_stopping_a_closed_worker_takes_no_time_and_leaves_nothing_behind(gate: FetchGate) -> None:
    gate.close()

    async def work(bench: Bench) -> None:
        async with bench.worker() as task:
            await watched(gate)
            begin = time.monotonic()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert time.monotonic() - begin < 1.0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work, gate)
    gate.until(lambda: not gate.live)


def test_a_worker_that_runs_when_the_gate_is_installed_is_gated_by_polling(gate: FetchGate) -> None:
    """Trap 15."""
    gate.close()

    async def main() -> None:
        bench = Bench(gate.path)
        vars(bench.app).pop("run_worker_async")
        async with bench.app.open_async(), bench.worker(fetch_job_polling_interval=POLL):
            await watched(gate)
            await bench.defer("one")
            await asyncio.sleep(4 * POLL)
            assert not bench.started
            gate.open()
            await bench.until(lambda: bench.started)

    asyncio.run(main())
    gate.until(lambda: not gate.live)


# ---- a worker of all queues


def test_a_worker_of_all_queues_asks_for_them_by_name_only_where_some_are_closed(gate: FetchGate) -> None:
    """Trap 16."""

    async def work(bench: Bench) -> None:
        await bench.defer("first", queue="b")
        async with bench.worker(queues=None, fetch_job_polling_interval=POLL):
            await bench.until(lambda: "first" in bench.started)
            assert [question.queues for question in gate.asked(WATCH)] == [None]
            gate.open("a")
            await bench.defer("closed", queue="b")
            await bench.defer("open", queue="a")
            await bench.until(lambda: "open" in bench.started)
            await asyncio.sleep(4 * POLL)
            assert list(bench.started) == ["first", "open"]
            gate.open()
            await bench.until(lambda: "closed" in bench.started)

    run(work, gate)
    assert gate.asked(WATCH)[1].queues == ["a", "b"]


def test_the_first_job_of_a_new_queue_is_found_while_others_are_closed(
    gate: FetchGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("procrastinate_gate.worker.NAMES_AFTER_NONE_SECONDS", 0.1)
    gate.open("a", "new")

    async def work(bench: Bench) -> None:
        await bench.defer("closed", queue="b")
        async with bench.worker(queues=None, fetch_job_polling_interval=0.15):
            await watched(gate, 2)
            await bench.defer("new", queue="new")
            await bench.until(lambda: "new" in bench.started)
            assert "closed" not in bench.started

    run(work, gate)


def test_a_worker_of_all_queues_lists_none_while_all_are_closed_and_seldom_otherwise(gate: FetchGate) -> None:
    gate.close()

    async def work(bench: Bench) -> None:
        def listed() -> int:
            return sum(name == "list_queues" for name, _ in bench.app.connector.queries)  # type: ignore[attr-defined]

        await bench.defer("one", queue="b")
        async with bench.worker(queues=None, fetch_job_polling_interval=0.01):
            await watched(gate)
            await asyncio.sleep(0.2)
            assert listed() == 0
            gate.open("a")
            await watched(gate, 2)
            await asyncio.sleep(0.2)
            assert listed() == 1

    run(work, gate)


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


# ---- waking


class Sleeper:
    """What a worker listens with."""

    def __init__(self) -> None:
        self.wakes = 0

    async def __call__(self, *, channel: str, notification: Any) -> None:
        assert notification["type"] == "job_inserted"
        self.wakes += 1

    async def method(self, *, channel: str, notification: Any) -> None:
        self.wakes += 1


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_wake_that_comes_while_the_worker_fetches_is_made_up_for_when_it_has_ended() -> None:
    """Trap 4: the worker forgets it."""

    async def main() -> None:
        waking, sleeper = Waking(), Sleeper()
        waking.listen(sleeper.method)
        waking.fetch_begins()
        waking.wake()
        await turns()
        assert sleeper.wakes == 0
        waking.fetch_ends()
        assert sleeper.wakes == 0, "not before the worker has gone to sleep"
        await turns()
        assert sleeper.wakes == 1
        await waking.close()

    asyncio.run(main())


def test_a_wake_is_repeated_until_a_fetch_begins_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("procrastinate_gate.waking.AGAIN_SECONDS", 0.0)

    async def main() -> None:
        waking, sleeper = Waking(), Sleeper()
        waking.listen(sleeper.method)
        waking.wake()
        await turns(50)
        assert sleeper.wakes == 10
        waking.wake()
        await turns(4)
        waking.fetch_begins()
        before = sleeper.wakes
        await turns(20)
        assert 10 < sleeper.wakes == before < 20
        await waking.close()

    asyncio.run(main())


def test_a_wake_soon_after_another_wakes_as_well() -> None:
    async def main() -> None:
        waking, sleeper = Waking(), Sleeper()
        waking.listen(sleeper.method)
        for wakes in (1, 2):
            waking.wake()
            await turns()
            assert sleeper.wakes == wakes
            waking.fetch_begins()
            waking.fetch_ends()
        await waking.close()

    asyncio.run(main())


def test_a_worker_that_is_gone_is_neither_woken_nor_kept() -> None:
    async def main() -> None:
        waking, sleeper = Waking(), Sleeper()
        waking.listen(sleeper.method)
        del sleeper
        gc.collect()
        waking.wake()
        await turns()
        kept = Sleeper()
        waking.listen(kept)
        waking.wake()
        await turns()
        assert kept.wakes == 1
        await waking.close()

    asyncio.run(main())


def test_what_cannot_be_fenced_is_served_with_one_warning(gate: FetchGate, caplog: pytest.LogCaptureFixture) -> None:
    async def work(bench: Bench) -> None:
        await bench.defer("one")
        await bench.defer("two")
        async with bench.worker():
            await bench.until(lambda: len(bench.ended) == 2)

    run(work, gate)
    assert said(caplog, logging.WARNING) == [
        "a job that a slow fetch takes after its hours ended cannot be put back:"
        " InMemoryConnector has no pool of psycopg connections"
    ]
