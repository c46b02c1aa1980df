"""What taskiq's scheduler loses or doubles without any crash ends in one send, or is listed as missed with its reason.

By the numbers of the notes on the send side: L1 to L13 are losses, D1 to D11 duplicates.
"""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from taskiq import InMemoryBroker, ScheduledTask, ScheduleSource, TaskiqScheduler
from taskiq.api.scheduler import run_scheduler_task
from taskiq.schedule_sources import LabelScheduleSource

from gate.interface import CatchUp
from taskiq_gate import GatedScheduler, GatedScheduleSource
from taskiq_gate.identity import task_id
from taskiq_gate.listing import STALE_MAX
from tests.support.taskiq_app import Broker, ListSource, scheduled
from tests.support.taskiq_time import KEY, Here, Scheduler, World, ids, play
from tests.support.taskiq_time import minute as at


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What the shim logged at a level."""
    return [r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level]


def all_sent(world: World, first: str, last: str, key: str = KEY) -> None:
    """Fails unless the ledger has each minute of these as sent."""
    states = world.states(key)
    minutes = int((at(last) - at(first)).total_seconds()) // 60 + 1
    expected = [f"{at(first) + timedelta(minutes=number):%H:%M}" for number in range(minutes)]
    assert {text: states.get(text) for text in expected} == dict.fromkeys(expected, "sent")


class Failing(ListSource):
    """Raises in place of some listings, by their number from 1 on."""

    def __init__(self, *failures: int) -> None:
        super().__init__(scheduled())
        self.failures = failures
        self.listed = 0

    async def get_schedules(self) -> list[ScheduledTask]:
        self.listed += 1
        if self.listed in self.failures:
            raise ConnectionError("source gone")
        return await super().get_schedules()


async def refuse() -> None:
    raise ConnectionError("broker gone")


# ---- the broker


def test_l1_a_minute_that_the_broker_refused_is_sent_at_the_next_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        await world.until("12:02:00")
        scheduler.broker.fault = refuse
        await world.until("12:03:00")
        scheduler.broker.fault = None
        await world.until("12:04:00")
        assert sorted(scheduler.task_ids) == sorted(ids("12:00", "12:01", "12:02", "12:03"))

    all_sent(play(story, monkeypatch), "12:00", "12:03")


def test_l1_a_scheduler_of_ours_repeats_it_at_once_under_the_same_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        source = ListSource(scheduled())
        scheduler = Scheduler(world, source, kind=GatedScheduler)
        scheduler.broker.fault = refuse
        await world.until("12:00:24")
        scheduler.broker.fault = None
        await world.until("12:00:28")
        assert scheduler.task_ids == ids("12:00")
        assert source.seen == ["startup", "pre_send", "post_send"]
        claims = [method for method, _ in scheduler.gate.asked if method.endswith("Claim")]
        assert len(claims) == 1

    all_sent(play(story, monkeypatch), "12:00", "12:00")


def test_l1_a_scheduler_of_ours_gives_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()), kind=GatedScheduler)
        scheduler.broker.fault = refuse
        await world.until("12:00:40")
        assert world.states(KEY) == {"12:00": "released"}
        scheduler.broker.fault = None
        await world.until("12:02:00")
        assert sorted(scheduler.task_ids) == sorted(ids("12:00", "12:01"))

    play(story, monkeypatch)


def test_l1_a_scheduler_of_ours_lets_a_source_without_a_gate_be(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        broker = Broker()
        kicks: list[int] = []

        async def count() -> None:
            kicks.append(1)
            raise ConnectionError("broker gone")

        broker.fault = count
        with pytest.raises(Exception, match="Cannot send task"):
            await GatedScheduler(broker, []).on_ready(ListSource(), scheduled())
        assert len(kicks) == 1

    play(story, monkeypatch)


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l3_a_broker_that_hangs_once_costs_no_later_minute(catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """taskiq has no further tick for a schedule whose send never ends."""

    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        scheduler.broker.fault = asyncio.Event().wait
        await world.until("12:00:30")
        scheduler.broker.fault = None
        await world.until("12:10:30")
        assert len(scheduler.task_ids) == (9 if catch_up is CatchUp.ALL else 0)
        states = world.states(KEY)
        assert states.pop("12:00") == "doubt"
        assert len(states) == 9
        assert set(states.values()) == {"sent" if catch_up is CatchUp.ALL else "missed"}

    play(story, monkeypatch, catch_up=catch_up)


def test_l3_a_send_timeout_is_followed_by_one_send(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()), arguments={"send_timeout": 5.0})
        scheduler.broker.fault = asyncio.Event().wait
        await world.until("12:00:30")
        assert world.states(KEY) == {"12:00": "released"}
        scheduler.broker.fault = None
        await world.until("12:05:30")
        assert sorted(scheduler.task_ids) == sorted(ids("12:00", "12:01", "12:02", "12:03", "12:04", "12:05"))

    play(story, monkeypatch)


# ---- the gate


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l2_minutes_without_a_gate_are_dealt_with_when_it_is_back(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        await world.until("12:01:00")
        world.away = True
        await world.until("12:04:00")
        world.away = False
        await world.until("12:06:00")
        assert len(scheduler.task_ids) == len(set(scheduler.task_ids))

    world = play(story, monkeypatch, catch_up=catch_up)
    if catch_up is CatchUp.ALL:
        all_sent(world, "12:00", "12:05")
    else:
        assert world.states(KEY) == {"12:00": "sent", "12:03": "missed", "12:04": "sent", "12:05": "sent"}
        assert "the gate at here cannot be reached: it is away" in world.reasons(KEY)["12:03"]


def test_l2_a_one_off_without_a_gate_is_sent_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    time = datetime(2026, 11, 30, 12, 1, 30, 250_000, UTC)

    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled(time=time, schedule_id="once")))
        await world.until("12:01:00")
        world.away = True
        await world.until("12:04:00")
        world.away = False
        await world.until("12:06:00")
        assert scheduler.task_ids == [task_id("a:once", time)]

    play(story, monkeypatch)


def test_l2_a_wait_for_the_gate_that_a_send_timeout_ends_loses_no_one_off(monkeypatch: pytest.MonkeyPatch) -> None:
    time = datetime(2026, 11, 30, 12, 1, 30, tzinfo=UTC)

    async def story(world: World) -> None:
        source = ListSource(scheduled(time=time, schedule_id="once"))
        scheduler = Scheduler(world, source, arguments={"send_timeout": 3.0})
        await world.until("12:01:00")
        world.away = True
        await world.until("12:02:00")
        world.away = False
        await world.until("12:04:00")
        assert scheduler.task_ids == [task_id("a:once", time)]

    play(story, monkeypatch)


def test_what_was_sent_without_the_gate_is_not_sent_again_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        options: dict[str, Any] = {"on_gate_down": "send", "patience": 2.0, "timeout": 1.0}
        scheduler = Scheduler(world, ListSource(scheduled()), **options)
        await world.until("12:01:00")
        world.away = True
        await world.until("12:04:00")
        world.away = False
        await world.until("12:05:30")
        await scheduler.kill()
        second = Scheduler(world, ListSource(scheduled()), **options)
        await world.until("12:06:00")
        assert scheduler.task_ids == ids("12:00", "12:01", "12:02", "12:03", "12:04", "12:05")
        assert not second.task_ids

    all_sent(play(story, monkeypatch, catch_up=CatchUp.ALL), "12:00", "12:05")


def test_a_gate_that_is_away_changes_nothing_and_is_complained_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        world.away = True
        scheduler = Scheduler(world, ListSource(scheduled(cron="0 0 1 1 *")))
        await world.until("12:10:00")
        ((_, tasks),) = scheduler.loop.scheduled_tasks
        assert [task.schedule_id for task in tasks] == ["nightly"]

    play(story, monkeypatch)
    lines = [line for line in said(caplog, logging.WARNING) if "what was missed is not known" in line]
    assert lines == [
        "a: what was missed is not known: the gate at here cannot be reached: it is away: its log may say why, and "
        "`gatectl status` asks it as well"
    ]


# ---- starts


def test_d1_a_restart_within_a_minute_sends_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        sent: list[str] = []
        for second in (10, 25, 40, 55):
            scheduler = Scheduler(world, ListSource(scheduled()))
            await world.until(f"12:01:{second}")
            await scheduler.kill()
            sent += scheduler.task_ids
        assert sent == ids("12:00", "12:01")

    play(story, monkeypatch)


def test_d2_two_schedulers_send_each_minute_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        both = [Scheduler(world, ListSource(scheduled())) for _ in range(2)]
        await world.until("12:05:30")
        assert sorted(id_ for each in both for id_ in each.task_ids) == sorted(
            ids("12:00", "12:01", "12:02", "12:03", "12:04", "12:05")
        )

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_d4_a_scheduler_that_a_program_runs_is_no_different(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        sent: list[str] = []
        for second in (30, 50):
            broker, gate = Broker(), Here(world)
            source = GatedScheduleSource(ListSource(scheduled()), name="a", gate=gate)
            running = asyncio.create_task(run_scheduler_task(TaskiqScheduler(broker, [source])))
            await world.until(f"12:00:{second}")
            running.cancel()
            await asyncio.wait([running])
            await source.shutdown()
            gate.hang_up()
            sent += [message.task_id for message in broker.sent]
        assert sent == ids("12:00")

    play(story, monkeypatch)


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.LATEST])
def test_l5_a_minute_that_skip_first_run_skips_unsent_is_not_lost(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scheduler dies before its tick; the second takes the whole minute for done."""

    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:01:10")
        await first.kill()
        second = Scheduler(world, ListSource(scheduled()), arguments={"skip_first_run": True})
        await world.until("12:03:05")
        assert (first.task_ids, sorted(second.task_ids)) == (
            ids("12:00"),
            sorted(ids("12:02", "12:03", *([] if catch_up is CatchUp.NONE else ["12:01"]))),
        )

    world = play(story, monkeypatch, catch_up=catch_up)
    assert world.states(KEY)["12:01"] == ("missed" if catch_up is CatchUp.NONE else "sent")


def test_l5_skip_first_run_still_skips_what_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, ListSource(scheduled()))
        await world.until("12:00:30")
        await first.kill()
        second = Scheduler(world, ListSource(scheduled()), arguments={"skip_first_run": True})
        await world.until("12:02:30")
        assert second.task_ids == ids("12:01", "12:02")

    play(story, monkeypatch, catch_up=CatchUp.ALL)


# ---- time


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l6_a_loop_that_ticks_at_the_end_of_its_minutes_leaves_none_out(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        await world.until("12:00:58.900000")
        scheduler = Scheduler(world, ListSource(scheduled()))
        for minute in range(1, 9):
            await world.until(f"12:{minute:02}:58.500000")
            world.shift += timedelta(seconds=1.2)  # one late tick: the loop was busy
        await world.until("12:10:05")
        assert len(scheduler.task_ids) == len(set(scheduler.task_ids))

    world = play(story, monkeypatch, catch_up=catch_up)
    states = world.states(KEY)
    assert set(states) == {f"12:{minute:02}" for minute in range(10)}, "none is unknown"
    if catch_up is CatchUp.ALL:
        assert set(states.values()) == {"sent"}


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l7_a_clock_that_was_wrong_for_a_while_silences_nobody(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """taskiq neither sends nor lists until the time is reached that it had seen: two hours of silence."""

    async def story(world: World) -> None:
        often = scheduled(interval=60, schedule_id="often")
        scheduler = Scheduler(world, ListSource(scheduled(), often))
        await world.until("12:02:00")
        world.shift = timedelta(hours=2)
        await asyncio.sleep(90)
        world.shift = timedelta(0)
        before = list(scheduler.task_ids)
        await world.until("12:20:00")
        assert len(scheduler.task_ids) == len(set(scheduler.task_ids))
        since = set(scheduler.task_ids) - set(before)
        assert len(since - set(ids(*(f"12:{minute:02}" for minute in range(20))))) >= 15, "the interval goes on too"
        await world.until("14:10:00")
        assert len(scheduler.task_ids) == len(set(scheduler.task_ids))

    all_sent(play(story, monkeypatch, catch_up=catch_up), "12:03", "12:18")


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l6_a_tick_at_the_very_end_of_a_minute_loses_and_doubles_none(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided at :59.95 by two schedulers, and asked for in the next minute."""

    class Busy(TaskiqScheduler):
        async def on_ready(self, source: ScheduleSource, task: ScheduledTask) -> None:
            await asyncio.sleep(0.1)
            await super().on_ready(source, task)

    def start(world: World) -> Scheduler:
        return Scheduler(world, ListSource(scheduled(), scheduled(cron="*/2 * * * *", schedule_id="even")), kind=Busy)

    async def story(world: World) -> None:
        first = start(world)
        await world.until("12:00:30")
        await first.kill()
        await world.until("12:02:58.500000")
        both = [start(world) for _ in range(2)]
        await world.until("12:02:58.950000")
        world.shift += timedelta(seconds=0.95)  # so that the tick of 59.0 comes at 59.95
        await world.until("12:06:30")
        sent = [task_id for scheduler in (first, *both) for task_id in scheduler.task_ids]
        assert len(sent) == len(set(sent))

    world = play(story, monkeypatch, catch_up=catch_up)
    all_sent(world, "12:03", "12:05")
    assert world.states(KEY)["12:02"] == ("missed" if catch_up is CatchUp.NONE else "sent")
    even = world.states("a:even")
    assert {text: even[text] for text in ("12:00", "12:02", "12:04")} == dict.fromkeys(
        ("12:00", "12:02", "12:04"), "sent"
    )


def test_l7_a_clock_that_is_set_back_by_seconds_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        await world.until("12:02:30")
        world.shift = timedelta(seconds=-20)
        await world.until("12:06:10")
        assert sorted(scheduler.task_ids) == sorted(ids(*(f"12:{minute:02}" for minute in range(6))))

    play(story, monkeypatch)
    assert not [line for line in said(caplog, logging.WARNING) if "set back" in line]


def test_l13_minutes_in_which_the_process_stood_still_are_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGSTOP, a suspended machine, a source that blocks the loop."""

    async def story(world: World) -> None:
        scheduler = Scheduler(world, ListSource(scheduled()))
        await world.until("12:02:30")
        world.shift += timedelta(minutes=10)
        await world.until("12:15:00")
        assert len(scheduler.task_ids) == len(set(scheduler.task_ids))

    all_sent(play(story, monkeypatch, catch_up=CatchUp.ALL), "12:00", "12:14")


# ---- sources


def test_l8_a_source_that_fails_keeps_its_schedules(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """taskiq takes the failure for an empty list: every minute until the next listing would be lost."""

    async def story(world: World) -> None:
        scheduler = Scheduler(world, Failing(2, 3, 5))
        await world.until("12:06:10")
        assert scheduler.task_ids == ids("12:00", "12:01", "12:02", "12:03", "12:04", "12:05")

    play(story, monkeypatch)
    lines = [line for line in said(caplog, logging.WARNING) if "cannot be listed" in line]
    assert lines == 2 * ["a: the schedules cannot be listed: those that were listed before stay in force"]


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l8_a_source_that_fails_at_the_start_costs_nothing_that_is_not_listed(
    catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        first = Scheduler(world, Failing())
        await world.until("12:01:30")
        await first.kill()
        second = Scheduler(world, Failing(1, 2))
        await world.until("12:06:00")
        assert len(second.task_ids) == len(set(second.task_ids))

    world = play(story, monkeypatch, catch_up=catch_up)
    if catch_up is CatchUp.ALL:
        all_sent(world, "12:00", "12:05")
    else:
        assert list(world.states(KEY).values()).count("missed") == 1


def test_l8_a_source_that_stays_away_has_no_schedules_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        source = Failing(*range(2, 2 + STALE_MAX + 5))
        scheduler = Scheduler(world, source)
        await asyncio.sleep(60 * (STALE_MAX + 1) - 5)
        assert len(scheduler.loop.scheduled_tasks[0][1]) == 1
        await asyncio.sleep(120)
        assert scheduler.loop.scheduled_tasks[0][1] == []

    play(story, monkeypatch)


def test_d5_a_source_that_fails_for_a_moment_sends_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        arguments = {"update_interval": timedelta(seconds=2)}
        scheduler = Scheduler(world, Failing(2, 3, 7), arguments=arguments)
        await world.until("12:02:50")
        assert scheduler.task_ids == ids("12:00", "12:01", "12:02")

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_d10_a_source_that_fails_under_skip_first_run_sends_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is marked as run, so that taskiq sends the minute after all: which is right where nobody has."""

    async def story(world: World) -> None:
        first = Scheduler(world, Failing())
        await world.until("12:00:30")
        await first.kill()
        arguments = {"update_interval": timedelta(seconds=2), "skip_first_run": True}
        second = Scheduler(world, Failing(1), arguments=arguments)
        await world.until("12:01:50")
        assert second.task_ids == ids("12:01")

    play(story, monkeypatch)


@pytest.mark.parametrize("catch_up", [CatchUp.NONE, CatchUp.ALL])
def test_l9_of_two_sources_with_one_id_both_have_their_say(catch_up: CatchUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """taskiq remembers what ran by the id alone, and never sends the second."""

    async def story(world: World) -> None:
        Scheduler(world, ListSource(scheduled()), ListSource(scheduled(args=["other"])))
        await world.until("12:05:30")

    world = play(story, monkeypatch, catch_up=catch_up)
    all_sent(world, "12:00", "12:05")
    states = world.states("b:nightly")
    assert list(states) == ["12:01", "12:02", "12:03", "12:04"]
    assert set(states.values()) == {"sent" if catch_up is CatchUp.ALL else "missed"}


def test_d6_a_one_off_that_was_sent_before_the_kill_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the kick and the hook that removes it from its source."""
    source = ListSource(scheduled(time=datetime(2026, 11, 30, 12, 0, 25, tzinfo=UTC), schedule_id="once"))

    async def story(world: World) -> None:
        sent: list[str] = []
        for _ in range(3):
            scheduler = Scheduler(world, source)
            await asyncio.sleep(70)
            await scheduler.kill()
            sent += scheduler.task_ids
        assert len(sent) == 1

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_d7_schedules_that_each_deployment_adds_anew_are_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under an id that taskiq draws; the old ones stay in the source."""
    drawn = [uuid4().hex for _ in range(3)]

    async def until(world: World, text: str, *listed: str) -> list[str]:
        given = [scheduled(schedule_id=id_) for id_ in listed]
        scheduler = Scheduler(world, ListSource(*given, scheduled(schedule_id="own")))
        await world.until(text)
        await scheduler.kill()
        return scheduler.task_ids

    async def story(world: World) -> None:
        sent: list[str] = []
        for number, text in enumerate(("12:00:40", "12:01:30", "12:02:40")):
            sent += await until(world, text, *drawn[: number + 1])
        sent += await until(world, "12:03:10", *drawn[1:])  # the oldest is deleted at last
        assert len(sent) == len(set(sent)) == 2 * 3, "a minute of the two schedules each"

    play(story, monkeypatch, catch_up=CatchUp.ALL)
    lines = [line for line in said(caplog, logging.ERROR) if "are the same" in line]
    assert [drawn[0] in line for line in lines] == [True] * 3 + [False]
    assert drawn[1] in lines[0]
    assert drawn[2] in lines[-1]


def test_d8_ids_that_taskiq_draws_anew_at_each_start_are_one_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        broker = InMemoryBroker()
        broker.register_task(lambda: None, "job", schedule=[{"cron": "* * * * *"}])
        sent: list[str] = []
        for text in ("12:00:40", "12:01:30", "12:02:40"):
            scheduler = Scheduler(world, LabelScheduleSource(broker))
            await world.until(text)
            await scheduler.kill()
            sent += scheduler.task_ids
        assert len(sent) == len(set(sent)) == 3
        assert world.store.schedules(10)[0] == 1

    play(story, monkeypatch, catch_up=CatchUp.ALL)


def test_d11_a_schedule_with_a_cron_and_a_past_instant_is_sent_by_both_once(monkeypatch: pytest.MonkeyPatch) -> None:
    time = datetime(2026, 11, 30, 11, 30, 1, tzinfo=UTC)

    async def story(world: World) -> None:
        sent: list[str] = []
        for text in ("12:00:40", "12:04:30"):
            scheduler = Scheduler(world, ListSource(scheduled(cron="*/2 * * * *", time=time)))
            await world.until(text)
            await scheduler.kill()
            sent += scheduler.task_ids
        assert sorted(sent) == sorted([*ids("12:00", "12:02", "12:04"), task_id(KEY, time)])

    play(story, monkeypatch, catch_up=CatchUp.ALL)
