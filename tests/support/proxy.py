"""A proxy between a gate and its store that can cut, swallow and slow down what passes. Loopback only."""

import asyncio
import threading
from collections.abc import Coroutine
from enum import Enum
from types import TracebackType
from typing import Any, Self

from tests.support.redis import PATIENCE

CHUNK = 64 * 1024


class Fault(Enum):
    """What is wrong with the way to the store."""

    NONE = "none"
    CUT = "cut"
    """Connections are ended, and new ones too."""
    HALF_OPEN = "half-open"
    """Connections are accepted and stay; nothing passes."""
    DEAF = "deaf"
    """What is asked passes; answers do not."""
    SLOW = "slow"
    """Each answer is late."""


class Proxy:
    """Listens at `port`, passes on to `target`; its loop runs in a thread. `delay`: seconds of SLOW."""

    def __init__(self, target: int, delay: float = 0.2) -> None:
        self.port = 0
        self._target = target
        self._delay = delay
        self._fault = Fault.NONE
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def put(self, fault: Fault) -> None:
        """From now on this is wrong. Whatever was swallowed meanwhile never comes, as its connections are ended."""
        self._do(self._put(fault))

    async def _put(self, fault: Fault) -> None:
        healed = self._fault in (Fault.HALF_OPEN, Fault.DEAF)
        self._fault = fault
        if fault is Fault.CUT or healed:
            for writer in self._writers:
                writer.transport.abort()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault is Fault.CUT:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            ends = (writer, back)
            self._writers.update(ends)
            try:
                await asyncio.gather(self._pass(reader, back, asked=True), self._pass(there, writer, asked=False))
            finally:
                self._writers.difference_update(ends)
                for end in ends:
                    end.transport.abort()
        except OSError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asked: bool) -> None:
        try:
            while data := await reader.read(CHUNK):
                if self._fault is Fault.SLOW and not asked:
                    await asyncio.sleep(self._delay)
                if self._fault is Fault.HALF_OPEN or (self._fault is Fault.DEAF and not asked):
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
