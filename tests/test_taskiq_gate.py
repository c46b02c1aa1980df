"""The shim in front of a real taskiq scheduler: claims, hooks, task ids, faults of the broker and of the scheduler.

Numbered traps are those that were met with taskiq 0.13.
"""

import asyncio
import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from taskiq import InMemoryBroker, ScheduledTask
from taskiq.cli.scheduler.run import SchedulerLoop, send_with_timeout
from taskiq.exceptions import ScheduledTaskCancelledError, SendTaskError
from taskiq.schedule_sources import LabelScheduleSource

from gate.interface import ClaimIn, ClaimOut, Decision
from gate_client import AsyncGate
from taskiq_gate.identity import task_id
from tests.support.fake_gate import CLAIM, CONFIRM, RELEASE, FakeGate, Keep, grant, reply
from tests.support.taskiq_app import App, ListSource, run, scheduled

ROOT = Path(__file__).resolve().parent.parent
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


def refuse(decision: str) -> Any:
    return lambda parameters: reply(decision, parameters, by="another", reason="the test says so")


def said(caplog: pytest.LogCaptureFixture, level: int) -> str:
    """What the shim logged at a level."""
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level)


# ---- a send


def test_a_tick_claims_sends_and_confirms(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        await app.tick(scheduled())
        assert app.inner.seen == ["startup", "pre_send", "post_send"]

    before = datetime.now(UTC).replace(second=0, microsecond=0)
    app = run(work, ListSource(scheduled()), socket=fake.path, holder="me", lease=7.0)
    asked = fake.asked(CLAIM)[0]
    at = datetime.fromisoformat(asked.at)
    assert before <= at <= datetime.now(UTC)
    assert asked == ClaimIn(
        schedule="app:nightly", holder="me", at=asked.at, lease=7.0, token=asked.token, title="app:job * * * * *"
    )
    assert fake.tokens(CONFIRM) == [asked.token]
    assert not fake.tokens(RELEASE)
    assert app.task_ids == [task_id("app:nightly", at)]
    assert app.broker.sent[0].labels["schedule_id"] == "nightly"


@pytest.mark.parametrize("decision", ["sent", "doubt", "late", "paused"])
def test_a_refusal_sends_nothing(decision: str, fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fake.answers[CLAIM] = refuse(decision)

    async def work(app: App) -> None:
        await app.tick(scheduled())
        assert "post_send" not in app.inner.seen

    assert not run(work, ListSource(scheduled()), socket=fake.path).broker.sent
    assert len(fake.asked(CLAIM)) == 1
    level = logging.INFO if decision in ("sent", "paused") else logging.WARNING
    assert f"is refused: {decision} by another (the test says so)" in said(caplog, level)


def test_restarts_ask_for_the_same_schedules(fake: FakeGate) -> None:
    """Traps 1 and 2: new ids at every startup, and the id of the last send among the labels."""
    broker = InMemoryBroker()
    broker.register_task(lambda: None, "job", schedule=[{"cron": "* * * * *"}, {"cron": "* * * * *"}], queue="mail")

    async def work(app: App) -> None:
        for _ in range(2):
            for task in await app.source.get_schedules():
                await app.tick(task)

    for _ in range(3):
        run(work, LabelScheduleSource(broker), socket=fake.path)
    asked = [parameters.schedule for parameters in fake.asked(CLAIM)]
    assert asked == [asked[0]] * 6, "two that are the same are one"
    assert asked[0].startswith("app:job#")


def test_a_tick_of_the_sources_own_refusal_asks_nobody(fake: FakeGate) -> None:
    class Refusing(ListSource):
        async def pre_send(self, task: ScheduledTask) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            raise ScheduledTaskCancelledError

    async def work(app: App) -> None:
        await app.tick(scheduled())

    assert not run(work, Refusing(scheduled()), socket=fake.path).broker.sent
    assert not fake.asked(CLAIM)


# ---- task ids


def test_the_shared_task_gets_the_id_of_each_occurrence(fake: FakeGate) -> None:
    """Trap 8: one object for all ticks."""
    minutes = iter([NOON, NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)])

    def at_next_minute(parameters: ClaimIn) -> ClaimOut:
        given = reply(Decision.SEND, parameters)
        return ClaimOut(decision=given.decision, reason="", at=next(minutes), token=given.token, until=given.until)

    async def work(app: App) -> None:
        task = app.inner.schedules[0]
        fake.answers[CLAIM] = at_next_minute
        await app.tick(task)
        await app.tick(task)
        fake.answers[CLAIM] = refuse("sent")
        await app.tick(task)
        assert task.task_id is None, "what is not sent leaves no id behind"
        fake.answers[CLAIM] = at_next_minute
        await app.tick(task)

    app = run(work, ListSource(scheduled()), socket=fake.path)
    assert app.task_ids == [task_id("app:nightly", NOON + timedelta(minutes=n)) for n in range(3)]


def test_an_id_of_the_users_own_stays(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        await app.tick(app.inner.schedules[0])
        await app.tick(app.inner.schedules[0])

    assert run(work, ListSource(scheduled(task_id="mine")), socket=fake.path).task_ids == ["mine", "mine"]


# ---- sends that fail


def test_a_failed_kick_releases_and_says_why(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    """Trap 4: taskiq has no hook for it."""

    async def fault() -> None:
        raise ConnectionError("broker gone")

    async def work(app: App) -> None:
        app.broker.fault = fault
        with pytest.raises(SendTaskError):
            await app.tick(scheduled())
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM))
        app.broker.fault = None
        await app.tick(scheduled())

    app = run(work, ListSource(scheduled()), socket=fake.path)
    assert len(app.broker.sent) == 1
    assert fake.tokens(CONFIRM) == fake.tokens(CLAIM)[1:]
    assert "was not sent: the send failed: Cannot send task to the queue" in said(caplog, logging.ERROR)
    assert "ConnectionError: broker gone" in caplog.text


def test_a_send_timeout_releases(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    """Trap 4: it is swallowed, so that the task ends as if all were well."""

    async def work(app: App) -> None:
        app.broker.fault = asyncio.Event().wait
        await asyncio.create_task(send_with_timeout(app.scheduler, app.source, scheduled(), 0.2))
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM))

    assert not run(work, ListSource(scheduled()), socket=fake.path).broker.sent
    assert "was not sent: the send " in said(caplog, logging.ERROR)


def test_a_cancelled_kick_releases(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        app.broker.fault = asyncio.Event().wait
        tick = app.tick(scheduled())
        await app.broker.kicked.wait()
        tick.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tick
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM))

    run(work, ListSource(scheduled()), socket=fake.path)
    assert not fake.tokens(CONFIRM)


def test_the_end_of_the_event_loop_releases(fake: FakeGate) -> None:
    """Nobody calls shutdown: the loop cancels what is under way, and ends."""

    left_behind: list[Any] = []

    async def main() -> None:
        app = App(ListSource(scheduled()), socket=fake.path)
        app.broker.fault = asyncio.Event().wait
        left_behind.extend([app, app.tick(scheduled())])
        await app.broker.kicked.wait()

    def run_and_forget() -> None:
        asyncio.run(main())
        left_behind.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed"):
        run_and_forget()
    fake.until(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM))
    assert not fake.tokens(CONFIRM)


def test_hooks_called_one_after_another_in_one_task_lose_no_claim(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        task = app.inner.schedules[0]
        await app.source.pre_send(task)
        await app.source.pre_send(task)
        await app.source.post_send(task)
        await fake.when(lambda: fake.tokens(RELEASE))
        await app.source.post_send(task)

    run(work, ListSource(scheduled()), socket=fake.path)
    assert fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1]
    assert fake.tokens(CONFIRM) == fake.tokens(CLAIM)[1:]


# ---- shutting down


def test_shutdown_lets_a_send_end_that_is_under_way(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        free = asyncio.Event()

        async def until_free() -> None:
            await free.wait()

        app.broker.fault = until_free
        app.tick(scheduled())
        await app.broker.kicked.wait()
        asyncio.get_running_loop().call_later(0.05, free.set)

    app = run(work, ListSource(scheduled()), socket=fake.path)
    assert len(app.broker.sent) == 1
    assert fake.tokens(CONFIRM) == fake.tokens(CLAIM)
    assert app.inner.seen[-1] == "shutdown"


@pytest.mark.slow
def test_shutdown_releases_what_was_not_sent(fake: FakeGate) -> None:
    """Trap 7: at SIGINT taskiq shuts its sources down first, and only then cancels the sends."""
    ticks: list[asyncio.Task[None]] = []

    async def work(app: App) -> None:
        app.broker.fault = asyncio.Event().wait
        ticks.append(app.tick(scheduled()))
        await app.broker.kicked.wait()

    run(work, ListSource(scheduled()), socket=fake.path)
    assert fake.tokens(RELEASE) == fake.tokens(CLAIM)
    assert ticks[0].cancelled()


@pytest.mark.slow
def test_shutdown_releases_what_cannot_be_cancelled(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    async def work(app: App) -> None:
        stubborn = asyncio.Event()

        async def never_mind() -> None:
            while not stubborn.is_set():
                with suppress(asyncio.CancelledError):
                    await stubborn.wait()

        app.broker.fault = never_mind
        tick = app.tick(scheduled())
        await app.broker.kicked.wait()
        await app.source.shutdown()
        assert fake.tokens(RELEASE) == fake.tokens(CLAIM)
        stubborn.set()
        await tick

    run(work, ListSource(scheduled()), socket=fake.path)
    assert not fake.tokens(CONFIRM)
    assert "was still being sent when the scheduler stopped" in said(caplog, logging.ERROR)


def test_shutdown_ends_those_who_wait_for_the_gate(fake: FakeGate) -> None:
    fake.answers[CLAIM] = lambda parameters: Keep()
    ticks: list[asyncio.Task[None]] = []

    async def work(app: App) -> None:
        ticks.append(app.tick(scheduled()))
        await fake.when(lambda: fake.kept)

    app = run(work, ListSource(scheduled()), socket=fake.path)
    assert ticks[0].cancelled()
    assert not app.broker.sent


def test_nothing_is_sent_after_shutdown_until_the_next_startup(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        await app.source.shutdown()
        await app.tick(scheduled())
        assert not fake.asked(CLAIM)
        await app.source.startup()
        await app.tick(scheduled())
        assert len(app.broker.sent) == 1

    run(work, ListSource(scheduled()), socket=fake.path)


def test_a_gate_that_was_given_stays_open(fake: FakeGate) -> None:
    async def main() -> None:
        async with AsyncGate(fake.path, timeout=10) as shared:
            app = App(ListSource(scheduled()), gate=shared)
            await app.tick(scheduled())
            await app.source.shutdown()
            await shared.confirm("other")
        assert fake.accepted == 1

    asyncio.run(main())


# ---- one-offs and intervals


def test_a_one_off_is_asked_for_at_its_own_instant(fake: FakeGate) -> None:
    long_ago = datetime(2020, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - taskiq reads a naive time as UTC

    async def work(app: App) -> None:
        await app.tick(scheduled(cron=None, time=long_ago, schedule_id="once"))

    run(work, ListSource(), socket=fake.path)
    asked = fake.asked(CLAIM)[0]
    assert (asked.at, asked.once, asked.every) == ("2020-01-02T03:04:05.678901Z", True, None)


@pytest.mark.parametrize(("decision", "left"), [("sent", 0), ("held", 1), ("doubt", 1), ("paused", 1)])
def test_a_one_off_that_was_sent_before_is_removed(decision: str, left: int, fake: FakeGate) -> None:
    """Trap 9: a cancelled one-off would stay in its source, and come back at every start."""
    fake.answers[CLAIM] = refuse(decision)
    broker = InMemoryBroker()
    broker.register_task(lambda: None, "job", schedule=[{"time": NOON}])

    async def work(app: App) -> None:
        (task,) = await app.source.get_schedules()
        await app.tick(task)
        assert len(await app.source.get_schedules()) == left

    run(work, LabelScheduleSource(broker), socket=fake.path, max_wait=0.05)


def test_a_cron_that_was_sent_before_is_not_removed(fake: FakeGate) -> None:
    fake.answers[CLAIM] = refuse("sent")

    async def work(app: App) -> None:
        await app.tick(scheduled())

    assert "post_send" not in run(work, ListSource(scheduled()), socket=fake.path).inner.seen


def test_a_one_off_whose_removal_fails_is_only_logged(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(ListSource):
        def post_send(self, task: ScheduledTask) -> None:
            raise ConnectionError("redis gone")

    async def work(app: App) -> None:
        fake.answers[CLAIM] = refuse("sent")
        await app.tick(scheduled(time=NOON))

    run(work, Failing(), socket=fake.path)
    assert "could not be removed" in said(caplog, logging.ERROR)


def test_an_interval_is_asked_for_by_its_length(fake: FakeGate) -> None:
    async def work(app: App) -> None:
        await app.tick(scheduled(interval=timedelta(seconds=90)))

    run(work, ListSource(), socket=fake.path)
    asked = fake.asked(CLAIM)[0]
    assert (asked.at, asked.once, asked.every) == (None, None, 90.0)


def waiting(seconds: float) -> Any:
    return lambda parameters: reply("wait", parameters, until=datetime.now(UTC) + timedelta(seconds=seconds))


def test_what_is_due_in_a_moment_is_waited_for(fake: FakeGate) -> None:
    answers = [waiting(0.1), grant]
    fake.answers[CLAIM] = lambda parameters: answers.pop(0)(parameters)

    async def work(app: App) -> None:
        await app.tick(scheduled(interval=10))

    assert len(run(work, ListSource(), socket=fake.path).broker.sent) == 1
    assert len(set(fake.tokens(CLAIM))) == 2, "each question has its own token"


def test_what_is_due_later_is_not(fake: FakeGate) -> None:
    fake.answers[CLAIM] = waiting(60)

    async def work(app: App) -> None:
        await app.tick(scheduled(interval=100))

    assert not run(work, ListSource(), socket=fake.path).broker.sent
    assert len(fake.asked(CLAIM)) == 1


def test_a_clock_that_is_ahead_of_the_gates_is_said_to_be_and_does_not_make_it_ask_without_end(
    fake: FakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    """The gate waits for a moment that has come already by this clock."""
    fake.answers[CLAIM] = waiting(-90)

    async def work(app: App) -> None:
        await app.tick(scheduled())

    assert not run(work, ListSource(), socket=fake.path, max_wait=1.3, patience=0.1, timeout=0.1).broker.sent
    assert len(fake.asked(CLAIM)) == 2, "one a second"
    assert "; by this clock it is: one of the two is wrong)" in said(caplog, logging.WARNING)
    assert not said(caplog, logging.ERROR)


# ---- the scheduler's loop


def test_a_cron_that_would_end_the_loop_is_left_out(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    """pycron divides by the step, and taskiq catches ValueErrors only."""
    source = ListSource(scheduled(cron="*/0 * * * *", schedule_id="deadly"), scheduled())

    async def work(app: App) -> None:
        loop = asyncio.create_task(SchedulerLoop(app.scheduler).run())
        await fake.when(lambda: fake.tokens(CONFIRM))
        assert not loop.done()
        loop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loop

    run(work, source, socket=fake.path)
    assert "has the cron '*/0 * * * *', a step of 0" in said(caplog, logging.ERROR)
    assert {parameters.schedule for parameters in fake.asked(CLAIM)} == {"app:nightly"}


def test_a_schedule_that_waits_delays_no_other(fake: FakeGate) -> None:
    """Trap 5."""
    fake.answers[CLAIM] = lambda parameters: Keep() if parameters.schedule == "app:slow" else grant(parameters)

    async def work(app: App) -> None:
        slow = app.tick(scheduled(schedule_id="slow"))
        await fake.when(lambda: fake.asked(CLAIM))
        fast = [app.tick(scheduled(schedule_id=f"fast{n}")) for n in range(3)]
        await fake.when(lambda: len(fake.asked(CLAIM)) == 4)
        fake.finish(reply("sent", fake.asked(CLAIM)[0]))
        await asyncio.gather(slow, *fast)

    assert len(run(work, ListSource(), socket=fake.path).broker.sent) == 3
