"""A gate in this process: real sockets, a store in memory, trio's clock. For limits that take seconds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import trio

from gate import sockets
from gate.clock import SystemClock
from gate.engine import Engine
from gate.interface import Tzdata
from gate.reactor import Limits, Reactor
from gate.rules import policies
from gate.server import About, Server, Steering
from gate.stores.memory import MemoryStore
from gate.timers import Timers
from gate.writer import Inline, Work

KEEP = 86_400.0


@asynccontextmanager
async def inline_gate(path: Path, limits: Limits | None = None) -> AsyncIterator[Reactor]:
    """A reactor that serves a socket at `path`. Under a MockClock with autojump its limits cost no time."""
    timers, clock = Timers(), SystemClock()
    store = MemoryStore(clock, KEEP)

    def arrived(works: list[Work]) -> None:
        engine.delivered(works)
        reactor.flush()

    limits = limits or Limits()
    engine = Engine(policies(()), Inline(store, arrived).submit, timers.after)
    about = About("0", 0, datetime.now(UTC), path, None, None, Tzdata(source="none", version=""))
    steering = Steering(frozenset(), frozenset())
    server = Server(about, engine, store, steering, lambda: list(reactor.connections.values()), limits)
    reactor = Reactor(limits, timers, clock.now, server.serve, engine.flush, engine.hung_up)
    with sockets.listen(path) as listener:
        reactor.listen(listener)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timers.run)
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
