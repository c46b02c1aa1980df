"""Waking at an instant of the wall clock, never before it."""

from collections.abc import Callable
from datetime import datetime

from gate.engine import Timer

LONGEST_HOP_SECONDS = 60.0
"""A wait for an instant is cut into hops, since the wall clock may be slewed meanwhile."""
LAST_HOP_SECONDS = 0.5
SHORTEST_HOP_SECONDS = 0.0005


class WakeUp:
    """One call to come. After a step of the clock it has to be set anew.

    `after`: calls a function so many seconds from now, by the monotonic clock.
    """

    def __init__(
        self,
        now: Callable[[], datetime],
        after: Callable[[float, Callable[[], None]], Timer],
        call: Callable[[], None],
    ) -> None:
        self._now = now
        self._after = after
        self._call = call
        self._timer: Timer | None = None
        self.instant: datetime | None = None
        """When the call comes; None if it does not."""

    def at(self, instant: datetime | None) -> None:
        """Call at this instant, and at no other; None: not at all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.instant = instant
        if instant is not None:
            left = (instant - self._now()).total_seconds()
            hop = min(left / 2, LONGEST_HOP_SECONDS) if left > LAST_HOP_SECONDS else left
            self._timer = self._after(max(hop, SHORTEST_HOP_SECONDS), self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self.instant is not None and self._now() < self.instant:
            self.at(self.instant)
        else:
            self.instant = None
            self._call()
