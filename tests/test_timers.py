"""Timers on trio's clock: in order, once, cancelled, and many."""

import gc
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from gate.timers import Timer, Timers


@pytest.fixture
def timers(nursery: trio.Nursery) -> Timers:
    """Timers that run. A test names `autojump_clock` as well (pytest-trio looks for clocks there, and nowhere else):
    time passes by itself when everybody waits.
    """
    made = Timers()
    nursery.start_soon(made.run)
    return made


async def test_calls_come_at_their_time_and_in_its_order(autojump_clock: MockClock, timers: Timers) -> None:
    start, called = trio.current_time(), list[tuple[str, float]]()

    def note(name: str) -> Callable[[], None]:
        return lambda: called.append((name, trio.current_time() - start))

    for seconds, name in ((30.0, "lease"), (2.0, "grace"), (0.0, "now"), (2.0, "grace too"), (0.5, "soon")):
        timers.after(seconds, note(name))
    await trio.sleep(100)
    assert [name for name, _ in called] == ["now", "soon", "grace", "grace too", "lease"]
    assert [at for _, at in called] == pytest.approx([0.0, 0.5, 2.0, 2.0, 30.0], abs=1e-6)


async def test_nothing_is_called_before_the_timers_have_run(autojump_clock: MockClock) -> None:
    timers, called = Timers(), list[int]()
    timers.after(1.0, lambda: called.append(1))
    await trio.sleep(5)
    assert called == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await trio.sleep(0.001)
        assert called == [1]
        nursery.cancel_scope.cancel()


async def test_an_earlier_timer_wakes_a_longer_sleep(autojump_clock: MockClock, timers: Timers) -> None:
    called: list[float] = []
    timers.after(1000.0, lambda: called.append(1000.0))
    await trio.sleep(1)
    timers.after(1.0, lambda: called.append(1.0))
    await trio.sleep(1.5)
    assert called == [1.0]


async def test_a_cancelled_timer_is_not_called_and_may_be_cancelled_again(
    autojump_clock: MockClock, timers: Timers
) -> None:
    called: list[str] = []
    kept = timers.after(1.0, lambda: called.append("kept"))
    gone = timers.after(1.0, lambda: called.append("gone"))
    gone.cancel()
    gone.cancel()
    await trio.sleep(2)
    assert called == ["kept"]
    kept.cancel()
    assert (kept.call, gone.call) == (None, None)


async def test_a_call_may_make_and_cancel_timers(autojump_clock: MockClock, timers: Timers) -> None:
    called: list[str] = []
    victim: list[Timer] = []

    def first() -> None:
        called.append("first")
        victim[0].cancel()
        timers.after(0.0, lambda: called.append("at once"))
        timers.after(1.0, lambda: called.append("later"))

    timers.after(1.0, first)
    victim.append(timers.after(1.0, lambda: called.append("victim")))
    await trio.sleep(1.5)
    assert called == ["first", "at once"]
    await trio.sleep(1)
    assert called == ["first", "at once", "later"]


async def test_leases_that_are_renewed_again_and_again_do_not_pile_up(
    autojump_clock: MockClock, timers: Timers
) -> None:
    def alive() -> int:
        gc.collect()
        return sum(isinstance(found, Timer) for found in gc.get_objects())

    before, called = alive(), list[int]()
    kept = [timers.after(60.0, lambda: called.append(1)) for _ in range(10)]
    for _ in range(50):
        for number, timer in enumerate(kept):
            timer.cancel()
            kept[number] = timers.after(60.0, lambda: called.append(1))
        for _ in range(100):
            timers.after(3600.0, lambda: called.append(99)).cancel()
    assert alive() < before + 2500
    await trio.sleep(4000)
    assert called == [1] * 10
    kept.clear()
    assert alive() <= before + 2, "the one that fired last, and the loop variable of this test"
