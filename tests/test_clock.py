"""Steps and suspends are noticed, slews are not, and a reading that was interrupted is read again."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.clock import (
    BRACKET_SECONDS,
    LOOK_SECONDS,
    READINGS,
    TOLERANCE_SECONDS,
    ClockWatch,
    Jump,
    Reading,
    SystemClock,
    read_clocks,
)


class Clocks:
    """Three clocks that a test moves."""

    def __init__(self) -> None:
        self.reading = Reading(1.8e9, 5000.0, 4000.0)

    def read(self) -> Reading:
        return self.reading

    def move(self, real: float, boot: float, monotonic: float) -> None:
        self.reading = Reading(*(a + b for a, b in zip(self.reading, (real, boot, monotonic), strict=True)))


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize("seconds", [0.5, 30.0, 86_400.0])
def test_time_that_passes_is_no_jump(clocks: Clocks, seconds: float) -> None:
    watch = ClockWatch(clocks.read)
    assert watch.look() is None
    clocks.move(seconds, seconds, seconds)
    assert watch.look() is None


@pytest.mark.parametrize("step", [3600.0, -3600.0, 172_800.0, 0.11, -0.11])
def test_a_step_is_seen_once_with_its_size(clocks: Clocks, step: float) -> None:
    watch = ClockWatch(clocks.read)
    clocks.move(0.5 + step, 0.5, 0.5)
    assert watch.look() == pytest.approx(Jump(step, 0.0), abs=1e-6)
    clocks.move(0.5, 0.5, 0.5)
    assert watch.look() is None


def test_a_suspend_is_no_step(clocks: Clocks) -> None:
    watch = ClockWatch(clocks.read)
    clocks.move(600.5, 600.5, 0.5)
    assert watch.look() == pytest.approx(Jump(0.0, 600.0))


def test_a_clock_that_is_set_during_a_suspend_is_both(clocks: Clocks) -> None:
    watch = ClockWatch(clocks.read)
    clocks.move(300.5, 600.5, 0.5)
    assert watch.look() == pytest.approx(Jump(-300.0, 600.0))


@given(st.lists(st.floats(-0.1, 0.1), max_size=200))
def test_a_slew_is_never_a_step_however_long_it_goes_on(speeds: list[float]) -> None:
    """The wall clock runs up to 10 % faster or slower: chrony at its fastest."""
    clocks = Clocks()
    watch = ClockWatch(clocks.read)
    for speed in speeds:
        clocks.move(LOOK_SECONDS * (1 + speed), LOOK_SECONDS, LOOK_SECONDS)
        assert watch.look() is None


@given(st.lists(st.floats(-1e6, 1e6).filter(lambda step: abs(step) > TOLERANCE_SECONDS * 1.01), max_size=20))
def test_all_steps_add_up(steps: list[float]) -> None:
    clocks = Clocks()
    watch = ClockWatch(clocks.read)
    seen = 0.0
    for step in steps:
        clocks.move(LOOK_SECONDS + step, LOOK_SECONDS, LOOK_SECONDS)
        jump = watch.look()
        assert jump is not None
        seen += jump.step
    assert seen == pytest.approx(sum(steps), abs=1e-3)


def test_the_clocks_of_this_machine_agree_with_themselves() -> None:
    watch = ClockWatch(read_clocks)
    assert [watch.look() for _ in range(1000)] == [None] * 1000
    assert abs(datetime.now(UTC) - SystemClock().now()) < timedelta(seconds=5)


class Interrupted:
    """Clocks that all go on by `pauses[n]` seconds at the n-th time that one of them is read."""

    def __init__(self, pauses: dict[int, float]) -> None:
        self.pauses = pauses
        self.passed = 0.0
        self.reads = 0

    def clock_gettime(self, clock: int) -> float:
        self.passed += self.pauses.get(self.reads, 0.0)
        self.reads += 1
        start = {time.CLOCK_REALTIME: 1000.0, time.CLOCK_BOOTTIME: 200.0, time.CLOCK_MONOTONIC: 100.0}[clock]
        return start + self.passed


@pytest.mark.parametrize("place", range(12))
def test_a_process_that_is_put_aside_while_it_reads_sees_no_step(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(time, "clock_gettime", Interrupted({place: 3.0}).clock_gettime)
    reading = read_clocks()
    assert reading.real - reading.boot == pytest.approx(800.0)
    assert reading.boot - reading.monotonic == pytest.approx(100.0)


def test_a_machine_that_is_always_busy_does_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Interrupted(dict.fromkeys(range(1000), BRACKET_SECONDS))
    monkeypatch.setattr(time, "clock_gettime", busy.clock_gettime)
    read_clocks()
    assert busy.reads == 4 * READINGS
