"""Intervals keep their cadence through restarts, waits and faults: no burst, no drift, no gap of two intervals."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from taskiq import ScheduledTask

from gate_client.core import CLAIM
from tests.support.taskiq_app import Broker, ListSource, scheduled
from tests.support.taskiq_time import START, Scheduler, World, play


class Timed(Broker):
    """Remembers when it sent, in seconds since the start."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.times: list[float] = []

    async def kick(self, message: object) -> None:
        await super().kick(message)  # type: ignore[arg-type]  # passed on as it is
        self.times.append((self.world.now() - START).total_seconds())


def every(seconds: int) -> ScheduledTask:
    return scheduled(interval=timedelta(seconds=seconds), schedule_id="often")


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def nominal(world: World, step: int) -> None:
    """Fails unless the ledger's occurrences are whole steps apart."""
    ats = [each.occurrence.at for each in reversed(world.store.history("a:often", None, 10_000))]
    for earlier, later in pairwise(ats):
        assert (later - earlier) % timedelta(seconds=step) == timedelta(0), "it drifts"


def test_a_restart_waits_for_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: taskiq sends every interval at once when it starts."""

    async def story(world: World) -> None:
        broker = Timed(world)
        for _ in range(40):
            scheduler = Scheduler(world, ListSource(every(10)), broker=broker)
            await asyncio.sleep(7.3)
            await scheduler.kill()
            await asyncio.sleep(0.4)
        assert abs(len(broker.times) - 40 * 7.7 / 10) <= 1
        assert min(gaps(broker.times)) > 7.0
        assert max(gaps(broker.times)) < 14.0
        nominal(world, 10)

    play(story, monkeypatch)


def test_two_schedulers_send_one_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        broker = Timed(world)
        Scheduler(world, ListSource(every(10)), broker=broker)
        await asyncio.sleep(3.7)
        Scheduler(world, ListSource(every(10)), broker=broker)
        await asyncio.sleep(300)
        assert 29 <= len(broker.times) <= 31
        assert max(gaps(broker.times)) < 12.0
        nominal(world, 10)

    play(story, monkeypatch)


@pytest.mark.parametrize("step", [60, 600, 3600])
def test_a_rest_that_is_too_long_to_wait_for_is_offered_when_it_is_over(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """taskiq's next tick would come a whole interval after its start."""

    async def story(world: World) -> None:
        broker = Timed(world)
        first = Scheduler(world, ListSource(every(step)), broker=broker)
        await asyncio.sleep(step * 2.1)
        await first.kill()
        before = len(broker.times)
        await asyncio.sleep(step * 0.3)
        Scheduler(world, ListSource(every(step)), broker=broker)
        await asyncio.sleep(step * 5)
        assert before == 3
        assert 4 <= len(broker.times) - before <= 5
        assert max(gaps(broker.times)) < (step + 62 if step > 60 else 2 * step)
        if step > 100:
            late = [time % step for time in broker.times[before + 1 :]]
            assert max(late) < 62, "at most one listing after its turn"
        nominal(world, step)

    play(story, monkeypatch)


def test_a_turn_that_falls_into_an_outage_of_the_gate_comes_with_the_next_listing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        broker = Timed(world)
        Scheduler(world, ListSource(every(3600)), broker=broker)
        await asyncio.sleep(3500)
        world.away = True
        await asyncio.sleep(200)
        assert len(broker.times) == 1
        world.away = False
        await asyncio.sleep(70)
        assert len(broker.times) == 2
        await asyncio.sleep(4 * 3600)
        assert len(broker.times) == 6
        nominal(world, 3600)

    play(story, monkeypatch)


def test_a_turn_that_the_broker_refused_comes_with_the_next_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        broker = Timed(world)

        async def fault() -> None:
            raise ConnectionError("broker gone")

        broker.fault = fault
        Scheduler(world, ListSource(every(3600)), broker=broker)
        await asyncio.sleep(100)
        broker.fault = None
        await asyncio.sleep(100)
        assert len(broker.times) == 1
        await asyncio.sleep(2 * 3600)
        assert len(broker.times) == 3
        nominal(world, 3600)

    play(story, monkeypatch)


def test_an_interval_that_went_on_after_a_refusal_is_offered_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger goes on listing what was released."""

    async def story(world: World) -> None:
        broker = Timed(world)

        async def fault() -> None:
            raise ConnectionError("broker gone")

        scheduler = Scheduler(world, ListSource(every(25)), broker=broker)
        await asyncio.sleep(25)
        broker.fault = fault
        await asyncio.sleep(25)
        broker.fault = None
        for _ in range(6):
            await asyncio.sleep(60)
        assert len(scheduler.loop.scheduled_tasks[0][1]) == 1
        claims = [method for method, _ in scheduler.gate.asked if method == CLAIM]
        assert len(claims) <= 410 // 25 + 3
        nominal(world, 25)

    play(story, monkeypatch)


def test_an_interval_that_was_down_is_not_filled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        broker = Timed(world)
        first = Scheduler(world, ListSource(every(10)), broker=broker)
        await asyncio.sleep(35)
        await first.kill()
        before = len(broker.times)
        await asyncio.sleep(600)
        second = Scheduler(world, ListSource(every(10)), broker=broker)
        await asyncio.sleep(3)
        assert len(broker.times) - before == 1
        await second.kill()
        nominal(world, 10)

    play(story, monkeypatch)


def test_a_schedule_that_left_its_source_is_offered_no_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        broker, source = Timed(world), ListSource(every(600))
        first = Scheduler(world, source, broker=broker)
        await asyncio.sleep(5)
        await first.kill()
        second = Scheduler(world, source, broker=broker)
        await asyncio.sleep(100)
        ((_, tasks),) = second.loop.scheduled_tasks
        assert len(tasks) == 2
        assert tasks[1].time is not None
        assert abs(tasks[1].time - (START + timedelta(seconds=600))) < timedelta(seconds=2)
        assert isinstance(tasks[1].time, datetime)
        source.schedules.clear()
        await asyncio.sleep(1000)
        assert second.loop.scheduled_tasks[0][1] == []
        assert len(broker.times) == 1
        assert "Traceback" not in caplog.text

    play(story, monkeypatch)
