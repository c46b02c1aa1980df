"""The shim when the gate is away, silent, slow or wrong, and when another scheduler holds the claim."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from taskiq.cli.scheduler.run import send_with_timeout

from gate.errors import InvalidClaim, StoreUnavailable, UnknownToken
from gate.interface import ClaimIn, ClaimOut, Done
from gate_client import AsyncClaim, AsyncGate
from taskiq_gate.asking import Limits, Question, decide
from taskiq_gate.identity import task_id
from taskiq_gate.occurrence import Trigger
from tests.support.fake_gate import CLAIM, CONFIRM, RELEASE, Answer, Drop, FakeGate, Keep, done, grant, reply
from tests.support.gate_process import GateProcess
from tests.support.taskiq_app import App, ListSource, run, scheduled


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


def said(caplog: pytest.LogCaptureFixture, level: int) -> str:
    """What the shim logged at a level."""
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level)


def in_turn(*answers: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Each answer once, then the last one again and again."""
    left = list(answers)
    return lambda parameters: (left.pop(0) if len(left) > 1 else left[0])(parameters)


def held(parameters: ClaimIn) -> ClaimOut:
    return reply("held", parameters, by="another", until=datetime.now(UTC) + timedelta(seconds=30))


async def one_tick(app: App) -> None:
    await app.tick(scheduled())


# ---- away


def test_without_a_gate_nothing_is_sent_and_an_error_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begin = time.monotonic()
    app = run(one_tick, ListSource(), socket=tmp_path / "none.sock", patience=0.1, timeout=0.05)
    assert time.monotonic() - begin < 1.0
    assert not app.broker.sent
    text = said(caplog, logging.ERROR)
    assert "app:nightly at 20" in text
    assert "is not sent: the gate at" in text
    assert "none.sock cannot be reached: no such file" in text


def test_without_a_gate_it_can_be_sent_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = scheduled()

    async def work(app: App) -> None:
        await app.tick(task)
        assert app.inner.seen[1:] == ["pre_send", "post_send"]
        await app.tick(scheduled(interval=10, schedule_id="often"))

    options: dict[str, Any] = {"patience": 0.1, "timeout": 0.05, "on_gate_down": "send"}
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    app = run(work, ListSource(), socket=tmp_path / "none.sock", **options)
    assert app.task_ids[0] in {task_id("app:nightly", before + timedelta(minutes=n)) for n in range(2)}
    assert len(set(app.task_ids)) == 2
    assert "is sent without a claim: the gate at" in said(caplog, logging.WARNING)
    assert not said(caplog, logging.ERROR)


def test_a_gate_that_comes_back_in_time_is_asked(tmp_path: Path) -> None:
    fake = FakeGate(tmp_path / "late.sock")

    async def work(app: App) -> None:
        tick = app.tick(scheduled())
        await asyncio.sleep(0)
        await asyncio.to_thread(fake.start)
        await tick

    try:
        assert len(run(work, ListSource(), socket=fake.path, timeout=0.5).broker.sent) == 1
    finally:
        fake.stop()
    assert len(fake.tokens(CONFIRM)) == 1


def test_a_silent_gate_holds_nobody_and_its_late_grant_is_released(
    fake: FakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    """Like SIGSTOP: it accepts, and never answers. A call without an end would block the schedule for good (L3)."""

    async def work(app: App) -> None:
        fake.deafen()
        begin = time.monotonic()
        await app.tick(scheduled())
        assert time.monotonic() - begin < 1.0
        fake.hear()
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM))

    assert not run(work, ListSource(), socket=fake.path, patience=0.1, timeout=0.1).broker.sent
    assert "no answer within 0.1 s" in said(caplog, logging.ERROR)


def test_a_store_that_comes_back_in_time_is_waited_for(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(lambda p: StoreUnavailable(retry_after=0.05), grant)
    assert len(run(one_tick, ListSource(), socket=fake.path).broker.sent) == 1


def test_a_store_that_stays_away_is_a_gate_away(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    fake.answers[CLAIM] = lambda p: StoreUnavailable(retry_after=0.05)
    assert not run(one_tick, ListSource(), socket=fake.path, patience=0.12, timeout=0.1).broker.sent
    assert 2 <= len(fake.asked(CLAIM)) <= 4
    assert "the ledger cannot be written now" in said(caplog, logging.ERROR)


def test_a_question_that_the_gate_refuses_is_not_repeated(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    fake.answers[CLAIM] = lambda p: InvalidClaim(field="schedule", reason="odd")
    assert not run(one_tick, ListSource(), socket=fake.path).broker.sent
    assert len(fake.asked(CLAIM)) == 1
    assert "is not sent: invalid claim: schedule: odd" in said(caplog, logging.ERROR)


def test_a_fault_of_the_shim_itself_is_logged_and_sends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Trap 3: any other exception out of pre_send would be lost without a word."""

    class Broken(AsyncGate):
        async def claim(self, *args: Any, **options: Any) -> AsyncClaim:
            raise ZeroDivisionError("a fault")

    assert not run(one_tick, ListSource(), gate=Broken("unused"), timeout=0.05).broker.sent
    assert "Traceback" in caplog.text
    assert "is not sent: ZeroDivisionError('a fault')" in said(caplog, logging.ERROR)


def test_a_decision_never_takes_longer_than_all_limits_together(caplog: pytest.LogCaptureFixture) -> None:
    class Endless(AsyncGate):
        async def claim(self, *args: Any, **options: Any) -> AsyncClaim:
            await asyncio.Event().wait()
            raise AssertionError

    begin = time.monotonic()
    run(one_tick, ListSource(), gate=Endless("unused"), patience=0.05, timeout=0.03, max_wait=0.02)
    assert time.monotonic() - begin < 1.0
    assert "is not sent: no decision within 0.1 s" in said(caplog, logging.ERROR)


@pytest.mark.parametrize("policy", ["hold", "send"])
def test_a_tick_that_is_not_due_is_never_given_the_present_minute(
    policy: str, fake: FakeGate, caplog: pytest.LogCaptureFixture
) -> None:
    far = (datetime.now(UTC) + timedelta(hours=12)).hour

    async def work(app: App) -> None:
        await app.tick(scheduled(cron=f"0 {far} * * *"))

    app = run(work, ListSource(), socket=fake.path, on_gate_down=policy)
    assert len(app.broker.sent) == (policy == "send")
    assert not fake.asked(CLAIM)
    assert "no minute of the 10 before" in said(caplog, logging.ERROR if policy == "hold" else logging.WARNING)


def test_a_cron_that_cannot_be_read_ends_nothing(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    async def work(app: App) -> None:
        await app.tick(scheduled(cron="@daily"))

    assert not run(work, ListSource(), socket=fake.path).broker.sent
    assert "Traceback" in caplog.text


# ---- confirming


def test_a_confirmation_that_is_lost_is_repeated_behind_the_schedulers_back(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = in_turn(lambda p: Drop(), lambda p: Drop(), done)

    async def work(app: App) -> None:
        app.source._limits = type(app.source._limits)(max_wait=10, patience=10, timeout=0.001, lease=None)  # noqa: SLF001
        await app.tick(scheduled())
        assert app.inner.seen[-1] == "post_send"
        await fake.when(lambda: len(fake.tokens(CONFIRM)) >= 3)

    run(work, ListSource(), socket=fake.path)
    assert not fake.tokens(RELEASE)


def test_a_gate_that_stays_away_after_the_send_is_reported(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    async def work(app: App) -> None:
        async def stop() -> None:
            await asyncio.to_thread(fake.stop)

        app.broker.fault = stop
        await app.tick(scheduled())
        assert app.inner.seen[-1] == "post_send"

    app = run(work, ListSource(), socket=fake.path, timeout=0.1, patience=0.1)
    assert len(app.broker.sent) == 1
    assert "was sent, but is not confirmed yet" in said(caplog, logging.WARNING)
    assert "was sent, but could not be confirmed, and will be in doubt" in said(caplog, logging.ERROR)


def test_a_claim_that_the_gate_has_forgotten_is_reported(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    fake.answers[CONFIRM] = lambda p: UnknownToken(token=p.token)
    app = run(one_tick, ListSource(), socket=fake.path)
    assert app.inner.seen[-2:] == ["post_send", "shutdown"]
    assert "was sent, but the gate does not know its claim" in said(caplog, logging.ERROR)


def test_a_send_timeout_during_the_confirmation_does_not_undo_the_send(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = in_turn(lambda p: Keep(), done)

    async def work(app: App) -> None:
        tick = app.tick(scheduled())
        await fake.when(lambda: fake.kept)
        tick.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tick
        fake.finish(Done())
        await fake.when(lambda: len(fake.tokens(CONFIRM)) == 2)

    run(work, ListSource(), socket=fake.path)
    assert set(fake.tokens(CONFIRM)) == set(fake.tokens(CLAIM))
    assert not fake.tokens(RELEASE)


# ---- held by another scheduler


@pytest.mark.parametrize(("outcome", "sent"), [("send", 1), ("sent", 0), ("doubt", 0)])
def test_the_outcome_of_another_scheduler_is_waited_for(outcome: str, sent: int, fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)), grant)

    async def work(app: App) -> None:
        tick = app.tick(scheduled())
        await fake.when(lambda: fake.kept)
        fake.finish(reply(outcome, fake.asked(CLAIM)[1]))
        await tick

    assert len(run(work, ListSource(), socket=fake.path).broker.sent) == sent
    assert len(fake.tokens(CONFIRM)) == sent


def test_it_is_not_waited_for_without_end(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)))

    async def work(app: App) -> None:
        begin = time.monotonic()
        await app.tick(scheduled())
        assert time.monotonic() - begin < 1.0
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1])

    assert not run(work, ListSource(), socket=fake.path, max_wait=0.1).broker.sent
    assert "is refused: held by another" in said(caplog, logging.WARNING)


def test_a_send_timeout_ends_the_wait_and_leaves_no_claim(fake: FakeGate) -> None:
    """Trap 6: it cancels pre_send too."""
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)))

    async def work(app: App) -> None:
        await asyncio.create_task(send_with_timeout(app.scheduler, app.source, scheduled(), 0.1))
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1])
        await fake.when(lambda: len(fake.live) == 1)

    assert not run(work, ListSource(), socket=fake.path).broker.sent


# ---- minutes that taskiq's loop steps over


@pytest.mark.parametrize("first", ["send", "sent", "held", "doubt", "late"])
def test_a_minute_that_was_stepped_over_is_asked_for_first(first: str, fake: FakeGate) -> None:
    """L6: taskiq had no tick for it. Unless it can be sent at once, the present one is."""
    now = datetime(2026, 11, 30, 12, 2, tzinfo=UTC)
    before = now - timedelta(minutes=1)
    fake.answers[CLAIM] = in_turn(lambda p: reply(first, p), grant)
    question = Question(key="app:nightly", title="", trigger=Trigger(at=now, overlooked=before))

    async def main() -> None:
        async with AsyncGate(fake.path, timeout=10) as gate:
            about, claim = await decide(gate, question, Limits(max_wait=10, patience=10, timeout=10, lease=None))
            assert claim.granted
            assert about.trigger.at == (before if first == "send" else now)

    asyncio.run(main())
    assert len(fake.asked(CLAIM)) == (1 if first == "send" else 2)


# ---- the real gate


@pytest.mark.process
def test_two_schedulers_send_an_occurrence_once(gate: GateProcess) -> None:
    async def main() -> None:
        one, two = App(ListSource(), socket=gate.socket), App(ListSource(), socket=gate.socket)
        free = asyncio.Event()
        one.broker.fault = free.wait
        first = one.tick(scheduled())
        await one.broker.kicked.wait()
        second = two.tick(scheduled())
        await asyncio.sleep(0.1)
        assert not second.done(), "it waits for the outcome"
        free.set()
        await asyncio.gather(first, second)
        assert (len(one.broker.sent), len(two.broker.sent)) == (1, 0)
        await one.source.shutdown()
        await two.source.shutdown()

    asyncio.run(main())


@pytest.mark.process
def test_the_second_scheduler_takes_over_what_the_first_could_not_send(gate: GateProcess) -> None:
    async def main() -> None:
        one, two = App(ListSource(), socket=gate.socket), App(ListSource(), socket=gate.socket)
        broken = asyncio.Event()

        async def fail() -> None:
            await broken.wait()
            raise ConnectionError

        one.broker.fault = fail
        first = one.tick(scheduled())
        await one.broker.kicked.wait()
        second = two.tick(scheduled())
        await asyncio.sleep(0.1)
        broken.set()
        await asyncio.gather(first, second, return_exceptions=True)
        assert (len(one.broker.sent), len(two.broker.sent)) == (0, 1)
        await one.source.shutdown()
        await two.source.shutdown()

    asyncio.run(main())


@pytest.mark.process
def test_a_gate_killed_between_kick_and_confirmation_hears_of_it(gate: GateProcess) -> None:
    async def work(app: App) -> None:
        async def restart() -> None:
            await asyncio.to_thread(gate.restart)

        app.broker.fault = restart
        await app.tick(scheduled())
        app.broker.fault = None
        await app.tick(scheduled())

    app = run(work, ListSource(), socket=gate.socket)
    assert len(app.task_ids) == len(set(app.task_ids)), "a second send can only be the next minute's"
    with gate.client() as client:
        history = client.call("Control.History", schedule="app:nightly")["occurrences"]
    assert {occurrence["state"] for occurrence in history} == {"sent"}
