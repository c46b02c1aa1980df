"""Wakes a worker as a new job would: through the callback that it listens with.

A worker forgets a wake that comes while it fetches, and it may have ended: so a wake is repeated until a fetch begins.
"""

import asyncio
import inspect
import weakref
from collections.abc import Callable

from procrastinate.manager import NotificationCallback

AGAIN_SECONDS = 0.3
TIMES = 10
"""A worker whose places are all taken does not fetch, and will when one is free: no need to wake it for ever."""


class Waking:
    """The alarm of one worker. Without a callback (`listen_notify=False`) the worker finds out when it polls."""

    def __init__(self) -> None:
        self._callback: Callable[[], NotificationCallback | None] = lambda: None
        self._fetches = 0
        self._fetching = 0
        self._missed = False
        self._task: asyncio.Task[None] | None = None

    def listen(self, callback: NotificationCallback) -> None:
        """The worker listens with this. Kept weakly, and also after the listening has ended: the worker may live on
        without it, and nobody else would wake it then.
        """
        bound = inspect.ismethod(callback)
        self._callback = weakref.WeakMethod(callback) if bound else weakref.ref(callback)

    def fetch_begins(self) -> None:
        self._fetches += 1
        self._fetching += 1

    def fetch_ends(self) -> None:
        """What was missed is made up for as soon as the worker has gone to sleep."""
        self._fetching -= 1
        if self._missed and not self._fetching:
            self._missed = False
            self._start()

    def fetch_knows(self) -> None:
        """The fetch that has begun acts on all that was to wake the worker so far."""
        self._missed = False

    def wake(self) -> None:
        """Make the worker fetch: now, or again if it fetches just now."""
        if self._fetching:
            self._missed = True
        else:
            self._start()

    def _start(self) -> None:
        """Ring anew: an alarm that is ringing ends with the next fetch, which may begin before this wake's reason."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._ring(self._fetches), name="gate: wake the worker")

    async def _ring(self, fetches: int) -> None:
        for _ in range(TIMES):
            callback = self._callback()
            if callback is None or self._fetches != fetches:
                return
            await callback(channel="gate", notification={"type": "job_inserted", "job_id": 0})
            await asyncio.sleep(AGAIN_SECONDS)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
