"""What is too old to be sent late is listed, by taskiq's loop and the real ledger."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from gate.errors import StoreUnavailable
from gate.interface import CatchUp
from taskiq_gate.review import MISSED
from tests.support.taskiq_app import ListSource, scheduled
from tests.support.taskiq_time import KEY, Scheduler, World, down_for_ten_minutes, ids, minutes, play

TOO_OLD = "nobody asked for it in its minute; it is older than catch_up_within"


def test_what_is_older_than_catch_up_within_is_listed_and_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world)
        assert sorted(second.task_ids) == sorted(ids("12:09", "12:10", "12:11"))

    world = play(story, monkeypatch, catch_up=CatchUp.ALL, catch_up_within=150.0)
    assert [at for at, state in world.states(KEY).items() if state == "missed"] == ["12:08"]
    assert world.reasons(KEY)["12:08"] == f"{TOO_OLD}; stands for 7 since 2026-11-30T12:02:00Z"


def test_one_that_is_due_once_a_day_and_was_missed_hours_ago_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def source() -> ListSource:
        return ListSource(scheduled(cron="30 12 * * *"))

    async def story(world: World) -> None:
        first = Scheduler(world, source())
        await world.until("12:10:30")
        await first.kill()
        await world.until("16:00:30")
        second = Scheduler(world, source())
        await world.until("16:00:35")
        assert not second.task_ids

    world = play(story, monkeypatch, catch_up=CatchUp.LATEST)
    assert world.states(KEY) == {"12:30": "missed"}
    assert world.reasons(KEY)["12:30"] == TOO_OLD


def test_a_scheduler_that_is_killed_before_it_told_of_old_ones_is_followed_by_one_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:01:30")
        await first.kill()
        take = world.methods.pop(MISSED)
        world.methods[MISSED] = lambda request, asked: request.fail(StoreUnavailable(retry_after=1.0))
        await world.until("14:00:30")
        second = Scheduler(world, ListSource(scheduled()))
        await world.until("14:15:30")  # long enough for it to say how far it has looked
        await second.kill()
        world.methods[MISSED] = take
        await world.until("14:16:30")
        Scheduler(world, ListSource(scheduled()))
        await world.until("14:16:40")

    world = play(story, monkeypatch, catch_up=CatchUp.LATEST, catch_up_within=600.0)
    states = world.states(KEY)
    assert [at for at, state in states.items() if state == "sent" and "12:01" < at < "14:00"] == ["13:59"]
    old = [reason for reason in world.reasons(KEY).values() if reason.startswith(TOO_OLD)]
    assert old == [f"{TOO_OLD}; stands for 117 since 2026-11-30T12:02:00Z"]


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_whatever_is_not_sent_is_told_of_once_by_the_schedulers_that_follow(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    async def story(world: World) -> None:
        take = world.methods[MISSED]

        def counted(request: Any, asked: Any) -> None:
            first = datetime.fromisoformat(asked.first or asked.at)
            told.extend(minutes(f"{first:%H:%M}", asked.count or 1))
            take(request, asked)

        world.methods[MISSED] = counted
        for start, end in (("12:01:00", "12:03:30"), ("15:00:30", "15:01:30"), ("15:01:40", "15:40:30")):
            await world.until(start)
            scheduler = Scheduler(world, ListSource(scheduled()))
            await world.until(end)
            await scheduler.kill()
        await world.until("18:00:30")
        Scheduler(world, ListSource(scheduled()))
        await world.until("18:01:50")

    world = play(story, monkeypatch, catch_up=catch_up, catch_up_within=600.0)
    sent = [at for at, state in world.states(KEY).items() if state == "sent"]
    assert sorted([*told, *sent]) == minutes("12:01", 6 * 60 + 1)


def test_a_scheduler_that_was_stopped_for_hours_lists_what_it_slept_through(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        Scheduler(world, ListSource(scheduled()))
        await world.until("12:05:30")
        world.shift = timedelta(hours=3)
        await world.until("15:07:10")

    world = play(story, monkeypatch, catch_up=CatchUp.NONE, catch_up_within=600.0)
    states, reasons = world.states(KEY), world.reasons(KEY)
    assert [at for at, state in states.items() if state == "missed"] == ["14:55", "15:04"]
    assert reasons["14:55"] == f"{TOO_OLD}; stands for 170 since 2026-11-30T12:06:00Z"
    assert "stands for 9 since 2026-11-30T14:56:00Z" in reasons["15:04"]
    assert states["15:05"] == "sent"
