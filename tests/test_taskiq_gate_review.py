"""What goes over the wire when schedules are listed: all of them, in portions; what was missed; and an older gate."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gate.errors import GateError, InvalidClaim, MethodNotFound
from gate.interface import MissedIn, ReviewIn, ReviewOut, SourceIn, rfc3339
from gate.wire import MESSAGE_BYTES, encode_call
from gate_client import AsyncGate
from taskiq_gate.missing import Span
from taskiq_gate.occurrence import MINUTE, floor
from taskiq_gate.offers import OfferedTask
from taskiq_gate.review import Loss, tell_missed
from tests.support.fake_gate import CLAIM, MISSED, REVIEW, FakeGate, reviewed
from tests.support.gate_process import GateProcess
from tests.support.taskiq_app import App, ListSource, run, scheduled


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


def said(caplog: pytest.LogCaptureFixture, level: int) -> str:
    """What the shim logged at a level."""
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level)


async def nothing(app: App) -> None:
    """The application lists its schedules when it starts."""


def answering(fake: FakeGate, catch_up: str, minutes: int) -> None:
    """Let the fake say that every schedule is due for a while and has no record."""

    def answer(asked: ReviewIn) -> ReviewOut:
        now = datetime.now(UTC)
        since = floor(now) - minutes * MINUTE
        return ReviewOut(now=now, reviews=[reviewed(each.schedule, since, catch_up) for each in asked.schedules])

    fake.answers[REVIEW] = answer


def test_every_schedule_is_listed_with_its_trigger(fake: FakeGate) -> None:
    at = datetime(2026, 11, 30, 7, 3, 4, 500_000, UTC)
    schedules = [
        scheduled(cron="0 9 * * *", cron_offset="Europe/Berlin", schedule_id="zoned"),
        scheduled(interval=timedelta(seconds=90), schedule_id="often"),
        scheduled(time=at, schedule_id="once"),
        scheduled(cron="* * * * *", time=at, schedule_id="both"),
    ]
    run(nothing, ListSource(*schedules), socket=fake.path)
    (asked,) = fake.asked(REVIEW)
    assert (asked.source, asked.last) == ("app", True)
    assert asked.schedules == [
        SourceIn(
            schedule="app:zoned",
            trigger="0 9 * * * Europe/Berlin",
            title="app:job 0 9 * * * Europe/Berlin",
            looked="1970-01-01T00:00:00Z",
        ),
        SourceIn(schedule="app:often", trigger="every 90 s", title="app:job every 90 s"),
        SourceIn(schedule="app:once", trigger=f"at {at.isoformat()}", title=f"app:job at {at.isoformat()}"),
        SourceIn(
            schedule="app:both",
            trigger=f"* * * * *; at {at.isoformat()}",
            title="app:job * * * * *",
            looked="1970-01-01T00:00:00Z",
        ),
    ]


def test_many_schedules_go_in_portions_of_one_round(fake: FakeGate) -> None:
    schedules = [scheduled(schedule_id=f"s{number}") for number in range(250)]

    async def again(app: App) -> None:
        await app.source.get_schedules()

    run(again, ListSource(*schedules), socket=fake.path)
    asked = fake.asked(REVIEW)
    assert [len(each.schedules) for each in asked] == [100, 100, 50] * 2
    assert [each.last for each in asked] == [False, False, True] * 2
    assert len({each.round for each in asked[:3]}) == len({each.round for each in asked[3:]}) == 1
    assert asked[0].round != asked[3].round
    assert [one.schedule for each in asked[:3] for one in each.schedules] == [f"app:s{n}" for n in range(250)]


def test_long_names_go_in_portions_that_fit_into_a_message(fake: FakeGate) -> None:
    schedules = [scheduled(schedule_id=f'"\\\n{number}' * 150) for number in range(120)]
    run(nothing, ListSource(*schedules), socket=fake.path)
    asked = fake.asked(REVIEW)
    assert sum(len(each.schedules) for each in asked) == 120
    assert all(len(encode_call(REVIEW, each)) < MESSAGE_BYTES for each in asked)
    assert [each.last for each in asked] == [False] * (len(asked) - 1) + [True]


def test_a_source_without_schedules_is_listed_too(fake: FakeGate) -> None:
    run(nothing, ListSource(), socket=fake.path)
    (asked,) = fake.asked(REVIEW)
    assert (asked.schedules, asked.last) == ([], True)


def test_what_will_not_be_sent_is_told_in_one_call(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    answering(fake, "none", 10_000)
    before = floor(datetime.now(UTC))
    run(nothing, ListSource(scheduled()), socket=fake.path, holder="me")
    (told,) = fake.asked(MISSED)
    last = datetime.fromisoformat(told.at)
    assert before - MINUTE <= last <= floor(datetime.now(UTC)) - MINUTE
    assert told == MissedIn(
        schedule="app:nightly",
        holder="me",
        at=rfc3339(last),
        first=rfc3339(last - 9_999 * MINUTE),
        count=10_000,
        reason="nobody asked for it in its minute; catch_up is none",
        title="app:job * * * * *",
    )
    assert "app:nightly, 10000 times from" in said(caplog, logging.WARNING)


def test_one_minute_is_told_as_itself(fake: FakeGate) -> None:
    answering(fake, "none", 1)
    run(nothing, ListSource(scheduled()), socket=fake.path)
    assert [(told.first, told.count) for told in fake.asked(MISSED)] == [(None, None)]


def test_what_will_be_sent_is_offered_for_its_own_minute(fake: FakeGate) -> None:
    answering(fake, "latest", 1)

    async def work(app: App) -> None:
        (_, offer) = await app.source.get_schedules()
        assert isinstance(offer, OfferedTask)
        assert offer.schedule_id.startswith(f"nightly@{offer.offer.trigger.at:%Y-%m-%dT%H:%MZ}#")
        assert (offer.task_name, offer.cron, offer.original.cron) == ("app:job", None, "* * * * *")
        await app.tick(offer)
        asked = fake.asked(CLAIM)[0]
        assert (asked.schedule, asked.title, asked.once) == ("app:nightly", "app:job * * * * *", None)
        assert datetime.fromisoformat(asked.at) == offer.offer.trigger.at

    assert len(run(work, ListSource(scheduled()), socket=fake.path).broker.sent) == 1


def test_what_is_over_by_the_gates_clock_alone_is_not_missed(fake: FakeGate) -> None:
    """The scheduler's own clock is ten minutes late: its tick is still to come."""
    here = datetime.now(UTC)

    def answer(asked: ReviewIn) -> ReviewOut:
        return ReviewOut(
            now=datetime.now(UTC) + 10 * MINUTE, reviews=[reviewed("app:nightly", floor(here) - MINUTE, "none")]
        )

    fake.answers[REVIEW] = answer
    run(nothing, ListSource(scheduled()), socket=fake.path)
    (told,) = fake.asked(MISSED)
    assert datetime.fromisoformat(told.at) <= datetime.now(UTC) - MINUTE


def test_an_older_gate_is_as_good_as_before(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fake.answers[REVIEW] = lambda asked: MethodNotFound(method=REVIEW)

    async def work(app: App) -> None:
        assert len(await app.source.get_schedules()) == 1
        await app.tick(scheduled())

    assert len(run(work, ListSource(scheduled()), socket=fake.path).broker.sent) == 1
    assert said(caplog, logging.INFO).count("what was missed is not known") == 1
    assert not said(caplog, logging.WARNING)


def test_a_report_that_the_gate_refuses_is_not_repeated(fake: FakeGate, caplog: pytest.LogCaptureFixture) -> None:
    answering(fake, "none", 3)
    fake.answers[MISSED] = lambda told: InvalidClaim(field="at", reason="the test says so")

    async def work(app: App) -> None:
        await app.source.get_schedules()

    run(work, ListSource(scheduled()), socket=fake.path)
    assert len(fake.asked(MISSED)) == 1
    assert "was missed, but the gate does not take it: invalid claim: at: the test says so" in said(
        caplog, logging.ERROR
    )


def test_reports_keep_within_what_the_gate_allows(fake: FakeGate) -> None:
    at = floor(datetime.now(UTC)) - MINUTE
    loss = Loss(key="app:nightly", title="job", span=Span(first=at, last=at, count=1), reason="ä" * 1000)

    async def main() -> list[GateError | None]:
        async with AsyncGate(fake.path, timeout=10) as gate:
            return [error for _, error in await tell_missed(gate, [loss], 10)]

    assert asyncio.run(main()) == [None]
    assert len(fake.asked(MISSED)[0].reason.encode()) == 300


@pytest.mark.process
def test_the_real_gate_takes_it_all(gate: GateProcess) -> None:
    """Over its socket, with the message sizes of many schedules."""
    schedules = [scheduled(schedule_id=f"{number:03}" * 60, cron="0 0 1 1 *") for number in range(150)]
    once = datetime(2026, 11, 30, 7, 3, 4, 500_000, UTC)

    async def work(app: App) -> None:
        await app.source.get_schedules()
        await app.tick(scheduled(time=once, schedule_id="once"))

    app = run(work, ListSource(*schedules, scheduled(time=once, schedule_id="once")), socket=gate.socket)
    assert len(app.broker.sent) == 1
    with gate.client() as client:
        at = floor(datetime.now(UTC)) - 5 * MINUTE
        loss = Loss(key="app:nightly", title="job", span=Span(first=at - MINUTE, last=at, count=2), reason="test")

        async def tell() -> None:
            async with AsyncGate(gate.socket, timeout=10) as told:
                assert await tell_missed(told, [loss], 10) == [(loss, None)]

        asyncio.run(tell())
        (info,) = client.call("Control.History", schedule="app:nightly")["occurrences"]
        assert (info["state"], info["reason"]) == ("missed", f"test; stands for 2 since {rfc3339(at - MINUTE)}")
