"""Waking at an instant of the wall clock."""

from datetime import timedelta

from gate.waking import WakeUp
from tests.support.book import NOON
from tests.support.fetch import FetchWorld

SECOND = timedelta(seconds=1)


class Waked:
    """A wake-up over the two clocks of a world; `times` has the instants at which it called."""

    def __init__(self) -> None:
        self.world = FetchWorld()
        self.times: list[float] = []
        self.wake_up = WakeUp(self.world.clock.now, self.world.after, self._called)

    def _called(self) -> None:
        self.times.append((self.world.clock.now() - NOON).total_seconds())


def test_it_calls_once_at_the_instant() -> None:
    waked = Waked()
    waked.wake_up.at(NOON + 600 * SECOND)
    waked.world.move(599.999)
    assert waked.times == []
    waked.world.move(1000)
    assert waked.times == [600]
    assert waked.wake_up.instant is None


def test_a_clock_that_is_slewed_is_followed() -> None:
    for slew in (0.9, 1.1):
        waked = Waked()
        waked.wake_up.at(NOON + 600 * SECOND)
        waked.world.move(2000, slew=slew)
        assert len(waked.times) == 1
        assert 600 <= waked.times[0] < 600.1


def test_what_is_set_anew_or_cancelled_does_not_call_at_the_instant_before() -> None:
    waked = Waked()
    waked.wake_up.at(NOON + 10 * SECOND)
    waked.wake_up.at(NOON + 20 * SECOND)
    waked.world.move(15)
    assert waked.times == []
    waked.wake_up.at(None)
    waked.world.move(15)
    assert waked.times == []
    assert waked.world.alarms == 0


def test_an_instant_that_has_passed_calls_soon() -> None:
    waked = Waked()
    waked.wake_up.at(NOON - SECOND)
    waked.world.move(0.01)
    assert len(waked.times) == 1
