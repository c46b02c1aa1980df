"""Catch-up: what was missed or failed is sent once, as what it was, or listed; by taskiq's loop and the real ledger."""

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from taskiq import InMemoryBroker, ScheduledTask
from taskiq.cli.scheduler.run import is_cron_task_now
from taskiq.schedule_sources import LabelScheduleSource

from gate.errors import StoreUnavailable
from gate.interface import CatchUp
from gate.rules import Paused
from gate_client.core import CLAIM
from taskiq_gate import recovery
from taskiq_gate.identity import task_id
from taskiq_gate.review import MISSED
from tests.support.taskiq_app import ListSource, scheduled
from tests.support.taskiq_time import KEY, Scheduler, World, down_for_ten_minutes, ids, minute, minutes, play


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What the shim logged at a level."""
    return [r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level]


# ---- the three policies


def test_none_sends_nothing_old_and_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world)
        assert second.task_ids == ids("12:11")

    world = play(story, monkeypatch)
    states = {"12:00": "sent", "12:01": "sent", "12:10": "missed", "12:11": "sent"}
    assert world.states(KEY) == states, "minutes that were missed together cost one record"
    reason = "nobody asked for it in its minute; catch_up is none; stands for 9 since 2026-11-30T12:02:00Z"
    assert world.reasons(KEY)["12:10"] == reason


def test_latest_sends_one_in_its_own_name_and_lists_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world)
        assert sorted(second.task_ids) == sorted(ids("12:10", "12:11"))

    world = play(story, monkeypatch, catch_up=CatchUp.LATEST)
    assert world.states(KEY) == {"12:00": "sent", "12:01": "sent", "12:09": "missed", "12:10": "sent", "12:11": "sent"}


def test_all_sends_each_in_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world)
        assert sorted(second.task_ids) == sorted(ids(*minutes("12:02", 10)))
        assert [id_ for id_ in second.task_ids if id_ != ids("12:11")[0]] == ids(*minutes("12:02", 9))
        await world.until("12:14:10")
        assert len(second.task_ids) == len(set(second.task_ids)) == 12

    world = play(story, monkeypatch, catch_up=CatchUp.ALL)
    assert set(world.states(KEY).values()) == {"sent"}


def test_all_is_the_newest_hundred_and_sixty_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:00:30")
        await first.kill()
        await world.until("15:00:30")
        second = Scheduler(world, ListSource(scheduled()))
        counts = []
        for text in ("15:00:40", "15:01:40", "15:02:40"):
            await world.until(text)
            counts.append(len(second.task_ids))
        assert counts == [60 + 1, 100 + 2, 100 + 3]

    world = play(story, monkeypatch, catch_up=CatchUp.ALL, catch_up_within=4 * 3600.0)
    states = world.states(KEY)
    assert [at for at, state in states.items() if state == "missed"] == ["13:19"]
    assert "stands for 79 since 2026-11-30T12:01:00Z" in world.reasons(KEY)["13:19"]
    assert sum(state == "sent" for state in states.values()) == 104


def test_a_new_schedule_and_one_with_a_new_cron_are_not_filled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled(cron="*/2 * * * *")))
        await world.until("12:02:30")
        await first.kill()
        await world.until("12:11:30")
        second = Scheduler(world, ListSource(scheduled(), scheduled(schedule_id="new")))
        await world.until("12:11:40")
        assert sorted(second.task_ids) == sorted([*ids("12:11"), *ids("12:11", key="a:new")])

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_a_cron_with_an_offset_is_caught_up_in_its_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    zoned = scheduled(cron="5-7 17 * * *", cron_offset="Asia/Kolkata", schedule_id="zoned")  # 11:35Z to 11:37Z
    shifted = scheduled(cron="5-7 14 * * *", cron_offset=timedelta(hours=2), schedule_id="shifted")
    late = scheduled(cron="33-35 17 * * *", cron_offset="Asia/Kolkata", schedule_id="late")

    async def story(world: World) -> None:
        await down_for_ten_minutes(world, lambda: ListSource(zoned, shifted, late))

    world = play(story, monkeypatch, catch_up=CatchUp.ALL)
    assert world.states("a:zoned") == {}
    assert world.states("a:shifted") == dict.fromkeys(("12:05", "12:06", "12:07"), "sent")
    assert world.states("a:late") == dict.fromkeys(("12:03", "12:04", "12:05"), "sent")


# ---- what an offer is


class Seeing(ListSource):
    """Its hooks look at the task, and change it."""

    def __init__(self, tasks: list[tuple[str, str, str | None, Any]]) -> None:
        super().__init__(scheduled(args=["original"], labels={"queue": "low"}))
        self.tasks = tasks

    def pre_send(self, task: ScheduledTask) -> None:
        self.tasks.append(("pre", task.schedule_id, task.cron, task.task_id))
        task.labels = {"queue": "high"}
        task.args = ["changed"]

    def post_send(self, task: ScheduledTask) -> None:
        self.tasks.append(("post", task.schedule_id, task.cron, None))


def test_the_sources_hooks_see_the_original_and_what_they_change_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[tuple[str, str, str | None, Any]] = []

    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world, lambda: Seeing(tasks))
        assert set(tasks) == {("pre", "nightly", "* * * * *", None), ("post", "nightly", "* * * * *", None)}
        for message in second.broker.sent:
            assert b'"changed"' in message.message
            assert message.labels["queue"] == "high"

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_each_offer_has_an_id_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault() -> None:
        raise ConnectionError("broker gone")

    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled(cron="0 12 * * *")))
        scheduler.broker.fault = fault
        seen: list[str] = []
        for text in ("12:01:25", "12:02:25", "12:03:25"):
            await world.until(text)
            ((_, tasks),) = scheduler.loop.scheduled_tasks
            seen += [task.schedule_id for task in tasks[1:]]
            assert [task.schedule_id for task in tasks[:1]] == ["nightly"]
        assert len(set(seen)) == 3
        assert all(re.fullmatch(r"nightly@2026-11-30T12:00Z#\d+", id_) for id_ in seen)
        scheduler.broker.fault = None
        await world.until("12:04:25")
        assert scheduler.task_ids == ids("12:00")
        await world.until("12:06:25")
        assert scheduler.task_ids == ids("12:00")

    play(story, monkeypatch)


def test_a_task_id_of_the_users_own_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world, lambda: ListSource(scheduled(task_id="mine")))
        assert set(second.task_ids) == {"mine"}

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_an_offer_that_another_scheduler_has_sent_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world)
        third = Scheduler(world, ListSource(scheduled()))
        await world.until("12:14:35")
        sent = second.task_ids + third.task_ids
        assert sorted(sent) == sorted(ids(*minutes("12:02", 13)))

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_two_schedulers_that_come_back_at_once_send_each_minute_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:00:30")
        await first.kill()
        await world.until("12:10:30")
        both = [Scheduler(world, ListSource(scheduled())) for _ in range(2)]
        await world.until("12:12:10")
        sent = [id_ for scheduler in both for id_ in scheduler.task_ids]
        assert sorted(sent) == sorted(ids(*minutes("12:01", 11)))

    play(story, monkeypatch, catch_up=CatchUp.ALL)


# ---- failed sends


def test_a_minute_that_was_taken_and_not_sent_is_offered_again_where_doubt_is_resent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled(cron="0 12 * * *")))
        first.broker.fault = asyncio.Event().wait
        await world.until("12:00:30")
        await first.kill()
        await world.until("12:01:30")
        second = Scheduler(world, ListSource(scheduled(cron="0 12 * * *")))
        await world.until("12:01:34")
        assert second.task_ids == (ids("12:00") if world.policy.on_doubt == "resend" else [])

    play(story, monkeypatch, on_doubt="resend")
    assert play(story, monkeypatch).states(KEY) == {"12:00": "doubt"}


def test_a_one_off_that_the_broker_refused_is_sent_at_the_next_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: taskiq itself never tries it again, and long ago is no reason not to send it."""
    once = {"schedule_id": "once", "cron": None, "time": datetime(2026, 11, 29, 7, 3, 4, 500_000, UTC)}

    async def fault() -> None:
        raise ConnectionError("broker gone")

    async def story(world: World) -> None:
        broker = InMemoryBroker()
        schedule = {"time": once["time"], "schedule_id": "once"}
        broker.register_task(lambda: None, "job", schedule=[schedule])
        scheduler = Scheduler(world, LabelScheduleSource(broker))
        scheduler.broker.fault = fault
        await world.until("12:01:00")
        scheduler.broker.fault = None
        await world.until("12:01:25")
        at = once["time"]
        assert isinstance(at, datetime)
        assert scheduler.task_ids == [task_id("a:once", at)]
        await world.until("12:04:00")
        assert len(scheduler.task_ids) == 1
        assert scheduler.loop.scheduled_tasks[0][1] == [], "its source has removed it"

    play(story, monkeypatch)


def test_a_one_off_that_another_scheduler_sent_meanwhile_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source knows it by its own id, not by that of the offer."""

    async def fault() -> None:
        raise ConnectionError("broker gone")

    def source() -> LabelScheduleSource:
        broker = InMemoryBroker()
        broker.register_task(lambda: None, "job", schedule=[{"time": minute("12:00"), "schedule_id": "once"}])
        return LabelScheduleSource(broker)

    async def story(world: World) -> None:
        first = Scheduler(world, source())
        first.broker.fault = fault
        await world.until("12:00:40")
        second = Scheduler(world, source())
        await world.until("12:02:30")
        assert (len(first.task_ids), len(second.task_ids)) == (0, 1)
        assert first.loop.scheduled_tasks[0][1] == []

    play(story, monkeypatch)


def test_a_one_off_that_an_operator_allows_again_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    time = datetime(2026, 11, 30, 12, 0, 30, 250_000, UTC)

    async def story(world: World) -> None:
        source = ListSource(scheduled(time=time, schedule_id="once"))
        first = Scheduler(world, source)
        first.broker.fault = asyncio.Event().wait
        await world.until("12:00:40")
        await first.kill()
        second = Scheduler(world, source)
        await world.until("12:02:00")
        assert not second.task_ids
        world.resend("a:once", time)
        await world.until("12:03:10")
        assert second.task_ids == [task_id("a:once", time)]

    play(story, monkeypatch)


def test_what_waits_behind_a_failing_broker_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was offered least often comes first: seventy that fail do not keep an eightieth from being tried."""
    monkeypatch.setattr(recovery, "OFFERS", 2)

    async def fault() -> None:
        raise ConnectionError("broker gone")

    async def story(world: World) -> None:
        schedules = [scheduled(cron="0 12 * * *", schedule_id=f"s{number}") for number in range(5)]
        scheduler = Scheduler(world, ListSource(*schedules))
        scheduler.broker.fault = fault
        offered = set()
        for text in ("12:01:25", "12:02:25", "12:03:25"):
            await world.until(text)
            tasks = scheduler.loop.scheduled_tasks[0][1][5:]
            assert len(tasks) == 2
            offered |= {task.schedule_id.partition("@")[0] for task in tasks}
        assert len(offered) == 5

    play(story, monkeypatch)


def test_offers_that_hang_do_not_become_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        kicks = 0

        async def hang() -> None:
            nonlocal kicks
            kicks += 1
            await asyncio.Event().wait()

        scheduler.broker.fault = hang
        await world.until("12:30:00")
        assert kicks == 2, "the tick that hangs, and one offer beside it"

    play(story, monkeypatch, catch_up=CatchUp.ALL)


# ---- pauses


def test_nothing_is_offered_during_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:01:30")
        await first.kill()
        await world.until("12:05:30")
        world.paused = Paused(reason="backup", until=minute("12:07"))
        second = Scheduler(world, ListSource(scheduled()))
        await world.until("12:07:10")
        assert not second.task_ids
        world.paused = None
        await world.until("12:08:10")
        assert sorted(second.task_ids) == sorted(ids("12:02", "12:03", "12:04", "12:07"))

    world = play(story, monkeypatch, catch_up=CatchUp.ALL)
    assert world.states(KEY)["12:05"] == world.states(KEY)["12:06"] == "missed"
    assert world.reasons(KEY)["12:05"] == "backup"


def test_what_failed_before_a_pause_is_offered_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fault() -> None:
        raise ConnectionError("broker gone")

    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled(cron="0 12 * * *")))
        scheduler.broker.fault = fault
        await world.until("12:00:40")
        scheduler.broker.fault = None
        world.paused = Paused(reason="backup", until=minute("12:05"))
        await world.until("12:05:10")
        assert [method for method, _ in scheduler.gate.asked].count(CLAIM) == 1
        world.paused = None
        await world.until("12:06:30")
        assert scheduler.task_ids == ids("12:00")

    play(story, monkeypatch)


def test_what_is_too_old_after_a_pause_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled(cron="0-3 12 * * *")))
        await world.until("12:01:30")
        await first.kill()
        await world.until("12:05:30")
        world.paused = Paused(reason="backup", until=minute("13:00"))
        second = Scheduler(world, ListSource(scheduled(cron="0-3 12 * * *")))
        await world.until("12:20:00")
        assert not second.task_ids

    world = play(story, monkeypatch, catch_up=CatchUp.ALL, catch_up_within=600.0)
    assert world.states(KEY) == {"12:00": "sent", "12:01": "sent", "12:03": "missed"} | {"12:02": "missed"}


# ---- bounds and faults


def test_a_minute_that_is_being_asked_for_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        await world.until("12:00:57")
        arguments = {"update_interval": timedelta(seconds=2)}
        scheduler = Scheduler(world, ListSource(scheduled()), arguments=arguments)
        await world.until("12:01:50")
        claim = world.methods[CLAIM]
        world.methods[CLAIM] = lambda request, asked: request.fail(StoreUnavailable(retry_after=1.0))
        await world.until("12:02:10")
        world.methods[CLAIM] = claim
        await world.until("12:02:15")
        assert scheduler.task_ids == ids("12:00", "12:01")
        assert MISSED not in [method for method, _ in scheduler.gate.asked]

    play(story, monkeypatch)


def test_the_search_is_bounded_and_goes_on_in_the_next_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LOOKS", 40)
    looks: list[int] = []

    def counted(*arguments: Any) -> bool:
        looks.append(1)
        return is_cron_task_now(*arguments)

    monkeypatch.setattr(recovery, "is_cron_task_now", counted)
    names = [f"s{number}" for number in range(8)]

    async def story(world: World) -> None:
        def source() -> ListSource:
            return ListSource(*(scheduled(cron="*/10 * * * *", schedule_id=name) for name in names))

        first = Scheduler(world, source())
        await world.until("12:00:30")
        await first.kill()
        await world.until("12:30:30")
        second = Scheduler(world, source())
        before = len(looks)
        for listing in range(1, 11):
            await world.until(f"12:{30 + listing}:25")
            assert len(looks) - before <= 40 * listing
        sent = {(name, text) for name in names for text in ("12:10", "12:20", "12:30", "12:40")}
        expected = [id_ for name, text in sent for id_ in ids(text, key=f"a:{name}")]
        assert sorted(second.task_ids) == sorted(expected)

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_however_many_schedules_there_are_the_search_comes_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LOOKS", 1)

    def source() -> ListSource:
        return ListSource(*(scheduled(schedule_id=f"s{number}") for number in range(5)))

    async def story(world: World) -> None:
        await down_for_ten_minutes(world, source)
        await world.until("12:30:00")
        for number in range(5):
            states = world.states(f"a:s{number}")
            assert {states.get(text) for text in minutes("12:00", 29)} == {"sent"}

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_a_cron_that_cannot_be_read_spoils_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def source() -> ListSource:
        return ListSource(scheduled(cron="@daily", schedule_id="odd"), scheduled())

    async def story(world: World) -> None:
        second = await down_for_ten_minutes(world, source)
        assert len(second.task_ids) == 10

    play(story, monkeypatch, catch_up=CatchUp.ALL)
    assert sum("cannot read the cron '@daily' of app:job" in line for line in said(caplog, logging.ERROR)) == 1


def test_a_report_that_the_gate_did_not_take_is_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        take = world.methods[MISSED]

        def gone(request: Any, asked: Any) -> None:
            request.fail(StoreUnavailable(retry_after=1.0))

        world.methods[MISSED] = gone
        await down_for_ten_minutes(world)
        assert "missed" not in world.states(KEY).values()
        world.methods[MISSED] = take
        await world.until("12:12:34")

    world = play(story, monkeypatch)
    assert world.states(KEY)["12:10"] == "missed"
    line = (
        "a:nightly, 9 times from 2026-11-30T12:02:00Z to 2026-11-30T12:10:00Z, was missed: "
        "nobody asked for it in its minute; catch_up is none"
    )
    assert said(caplog, logging.WARNING).count(line) == 1
