"""The clocks: the time of day as a thing that can be handed in, and how to notice that somebody set it.

A step shows as a difference between CLOCK_REALTIME and CLOCK_BOOTTIME that changes from one look to the next; a suspend
as one between CLOCK_BOOTTIME, which runs on, and CLOCK_MONOTONIC, which stands still. NTP that slews changes them too
little between two looks to count.
"""

import select
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

TOLERANCE_SECONDS = 0.1
"""What may change between two looks and is no step: the fastest slew known (10 %, chrony) changes half of it."""
LOOK_SECONDS = 0.5
"""How often to look."""
BRACKET_SECONDS = 0.005
"""Clocks are read one after the other: a reading that took longer is read again."""
READINGS = 5


class Clock(Protocol):
    """Tells the time of day."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""
        return datetime.now(UTC)


class Reading(NamedTuple):
    """What the three clocks say at one instant, in seconds."""

    real: float
    boot: float
    monotonic: float


class Jump(NamedTuple):
    """What happened between two looks, in seconds. `step` is negative when the clock was set back."""

    step: float
    suspended: float


class ClockWatch:
    """Compares the clocks with those of the last look."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._last = read()

    def look(self) -> Jump | None:
        """What happened since the last look; None when clocks went on as they should."""
        last, self._last = self._last, self._read()
        step = (self._last.real - last.real) - (self._last.boot - last.boot)
        suspended = (self._last.boot - last.boot) - (self._last.monotonic - last.monotonic)
        if abs(step) <= TOLERANCE_SECONDS and suspended <= TOLERANCE_SECONDS:
            return None
        return Jump(
            step=step if abs(step) > TOLERANCE_SECONDS else 0.0,
            suspended=suspended if suspended > TOLERANCE_SECONDS else 0.0,
        )


def watch_clocks(tell: Callable[[Jump], None]) -> None:
    """Look twice a second for as long as the process runs, and tell of every jump; for a thread of its own.

    Waking an event loop so often would cost four times as much, and `poll` sleeps under libfaketime too.
    """
    watch, pause = ClockWatch(read_clocks), select.poll()
    while True:
        pause.poll(LOOK_SECONDS * 1000)
        jump = watch.look()
        if jump is not None:
            tell(jump)


def read_clocks() -> Reading:
    """Read the three clocks at nearly one instant; on a machine that is busy, the best of a few tries."""
    tries: list[tuple[float, Reading]] = []
    while not tries or (tries[-1][0] > BRACKET_SECONDS and len(tries) < READINGS):
        monotonic = time.clock_gettime(time.CLOCK_MONOTONIC)
        real = time.clock_gettime(time.CLOCK_REALTIME)
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        took = time.clock_gettime(time.CLOCK_MONOTONIC) - monotonic
        tries.append((took, Reading(real, boot, monotonic)))
    return min(tries)[1]
