"""Timers on the monotonic clock: a step of the wall clock never ends a lease."""

import heapq
import itertools
import math
from collections.abc import Callable

import trio


class Timer:
    """One call to come; `cancel` takes it back."""

    __slots__ = ("_timers", "call")

    def __init__(self, timers: "Timers", call: Callable[[], None]) -> None:
        self._timers = timers
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call; harmless when it was called already."""
        if self.call is not None:
            self.call = None
            self._timers.cancelled()


class Timers:
    """Calls functions at instants of `trio.current_time()`: one task and one heap, no task per timer."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()
        self._sleep = trio.CancelScope()
        self._dead = 0

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call `call` once, `seconds` from now."""
        timer = Timer(self, call)
        deadline = trio.current_time() + seconds
        heapq.heappush(self._heap, (deadline, next(self._count), timer))
        if deadline < self._sleep.deadline:  # trio does a good deal of work when it is set
            self._sleep.deadline = deadline
        return timer

    def cancelled(self) -> None:
        """A timer was cancelled; once most are, the heap drops them."""
        self._dead += 1
        if self._dead > 1000 and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].call is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else math.inf) as self._sleep:
                await trio.sleep_forever()
            while self._heap and self._heap[0][0] <= trio.current_time():
                timer = heapq.heappop(self._heap)[2]
                call, timer.call = timer.call, None
                if call is None:
                    self._dead -= 1
                else:
                    call()
