"""A gate in this process: real sockets, a store in memory, trio's clock. For limits that take seconds."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trio

from gate import sockets
from gate.clock import SystemClock
from gate.control import About
from gate.reactor import Limits, Reactor
from gate.reloader import Reloader
from gate.service import Service
from gate.stores.memory import MemoryStore
from gate.writer import Inline, Work

KEEP = 86_400.0


@asynccontextmanager
async def inline_gate(path: Path, limits: Limits | None = None) -> AsyncIterator[Reactor]:
    """A reactor that serves a socket at `path`. Under a MockClock with autojump its limits cost no time."""
    clock = SystemClock()
    store = MemoryStore(clock, KEEP)

    def arrived(works: list[Work]) -> None:
        service.engine.delivered(works)
        service.flush()

    def aside(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        then(work())

    reloader, inline = Reloader(lambda: None, clock.now), Inline(store, arrived)
    about = About("0", 0, datetime.now(UTC), path, None, [])
    service = Service(about, store, reloader, limits or Limits(), clock.now, inline.submit, aside)
    reactor = service.reactor
    with sockets.listen(path) as listener:
        reactor.listen(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.timers.run)
            nursery.start_soon(reactor.run)
            yield reactor
            nursery.cancel_scope.cancel()
        reactor.close()


class AsyncClient:
    """Speaks to a socket by hand, under trio."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._buffer = b""

    async def recv(self) -> bytes:
        """The next message without its NUL; b"" when the gate hung up."""
        while b"\0" not in self._buffer:
            data = await self.stream.receive_some()
            if not data:
                return b""
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        await self.stream.send_all(data)


@asynccontextmanager
async def connect(path: Path) -> AsyncIterator[AsyncClient]:
    """A connection to `path`."""
    async with await trio.open_unix_socket(str(path)) as stream:
        yield AsyncClient(stream)
