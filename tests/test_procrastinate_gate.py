"""The shim in front of a real procrastinate worker, with a database in memory and a gate that the test plays.

Numbered traps are those that were met with procrastinate 3.10.
"""

import asyncio
import gc
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import procrastinate
import pytest
from procrastinate.testing import InMemoryConnector

import procrastinate_gate
from gate import asked as gates
from gate.interface import WatchIn
from gate.wire import MESSAGE_BYTES
from procrastinate_gate import watching
from procrastinate_gate.answers import Verdict
from procrastinate_gate.hooks import Hooks
from procrastinate_gate.names import QUEUE_BYTES, QUEUES, askable
from procrastinate_gate.settings import Settings
from procrastinate_gate.waking import Waking
from procrastinate_gate.worker import GatedWorker
from tests.support.fetch_gate import CHECK, WATCH, FetchGate, says
from tests.support.procrastinate_app import POLL, Bench, run, said, watched


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "gate.sock") as fake:
        yield fake


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


def test_a_one_shot_worker_of_a_gate_that_does_not_answer_ends_and_says_why(
    gate: FetchGate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.deafen()

    async def work(bench: Bench) -> None:
        await bench.defer("one")
        async with bench.worker(wait=False) as task:
            await asyncio.wait_for(task, 5.0)
        assert not bench.started

    run(work, gate)
    (text,) = said(caplog, logging.WARNING)
    assert f"the gate at {gate.path} cannot be reached: no answer within 0.25 s" in text


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


def test_a_queue_that_is_new_is_no_news_about_hours(
    gate: FetchGate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "procrastinate_gate")
    monkeypatch.setattr("procrastinate_gate.worker.NAMES_SECONDS", 0.0)
    monkeypatch.setattr("procrastinate_gate.worker.NAMES_SHARE", 0.0)
    gate.open("a", "b", "c")

    async def work(bench: Bench) -> None:
        await bench.defer("closed", queue="z")
        async with bench.worker(queues=None, fetch_job_polling_interval=POLL):
            for queue in ("a", "b", "c"):
                await bench.defer(queue, queue=queue)
                await bench.until(lambda queue=queue: queue in bench.started)  # type: ignore[misc]
            gate.close(reason="news")
            await asyncio.sleep(0.1)

    run(work, gate)
    assert said(caplog, logging.INFO) == [
        "worker w: open for a until further notice: opened by the test",
        "worker w: closed until further notice: news",
    ]


@pytest.mark.parametrize("length", [1, QUEUE_BYTES + 1, 100])
def test_queues_that_do_not_fit_into_one_question_leave_the_others_served(
    length: int, gate: FetchGate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.open("a")
    names = [f"q{number:04}".ljust(length, "-") for number in range(QUEUES)]

    async def work(bench: Bench) -> None:
        for name in names:
            await bench.defer(name, queue=name)
        await bench.defer("open", queue="a")
        async with bench.worker(queues=None):
            await bench.until(lambda: "open" in bench.started)

    run(work, gate)
    asked = gate.asked(WATCH)[1].queues
    assert asked is not None
    assert set(asked) <= {"a", *names}
    assert sum("are left out" in text for text in said(caplog, logging.WARNING)) == 1


def test_names_are_cut_as_the_gate_demands() -> None:
    assert (QUEUES, QUEUE_BYTES) == (gates.QUEUES, gates.QUEUE_BYTES)
    assert len(askable(map(str, range(2 * QUEUES)))) == QUEUES
    assert askable(["a", "b" * (QUEUE_BYTES + 1)]) == {"a"}
    assert len(msgspec.json.encode(sorted(askable("\0" * n for n in range(QUEUES))))) <= MESSAGE_BYTES * 0.75 + 2


@pytest.mark.parametrize("opens", [True, False])
def test_an_answer_by_name_that_is_not_needed_is_read_all_the_same(
    opens: bool, gate: FetchGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left unread in a socket calls the event loop again and again."""
    looks: list[GatedWorker] = []
    look = GatedWorker.look

    def counted(worker: GatedWorker) -> Verdict:
        looks.append(worker)
        return look(worker)

    monkeypatch.setattr(GatedWorker, "look", counted)
    gate.open("a")

    async def work(bench: Bench) -> None:
        await bench.defer("any", queue="b")
        async with bench.worker(queues=None):
            await watched(gate, 2)
            looks.clear()
            gate.open() if opens else gate.close()
            await asyncio.sleep(0.1)
            gate.stop()
            await asyncio.sleep(0.1)

    run(work, gate)
    assert len(looks) < 50


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
