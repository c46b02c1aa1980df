"""One connection under asyncio."""

import asyncio
from collections import deque
from collections.abc import Callable

from gate.errors import CallError, GateError
from gate.interface import Wire
from gate.wire import PIPELINED_CALLS, ClientProtocol, encode_call
from gate_client.core import GateUnreachable, Request
from gate_client.sockets import connect


class Asked(Request):
    """A request with somebody who waits for it, or who has left."""

    __slots__ = ("late", "link", "waiter")

    def __init__(self, method: str, parameters: Wire, *, more: bool = False) -> None:
        super().__init__(method, parameters, more=more)
        self.waiter: asyncio.Future[None] | None = None
        """Done when the answer has come, or the connection is lost."""
        self.late: Callable[[Asked], None] | None = None
        """Called then, once whoever asked has left."""
        self.link: Link | None = None
        """Where it was written last."""

    def wake(self) -> None:
        """Tell whoever waits, or what is to be done when nobody does."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        if self.late is not None:
            self.late(self)


class Link(asyncio.Protocol):
    """One connection: what is asked is written at once, answers find their requests, a loss wakes everybody."""

    def __init__(self, path: str, lost: Callable[["Link"], None]) -> None:
        self.problem: GateError | None = None
        """Why the connection is of no use any more."""
        self._path = path
        self._lost = lost
        self._protocol = ClientProtocol()
        self._asked: deque[Asked] = deque()
        self._queue: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # ---- asking

    async def ask(self, request: Asked, wanted: Callable[[], bool] = lambda: True) -> None:
        """Write the request when there is room, if it is still `wanted` then, and wait for its last answer.

        After that the request has a result, or a `problem` because the connection was lost.
        """
        while wanted():
            if self.problem is not None:
                request.lost(self.problem)
                return
            if self.write(request):
                assert request.waiter is not None
                await request.waiter
                return
            await self._room()

    def write(self, request: Asked) -> bool:
        """Write the request at once; False if the connection is lost or 64 calls wait on it."""
        if self.problem is not None or self._transport is None or self._protocol.waiting >= PIPELINED_CALLS:
            return False
        data = self._protocol.call(request.method, request.parameters, request, more=request.more)
        self._asked.append(request)
        request.asked()
        request.link = self
        request.waiter = self._loop.create_future()
        self._transport.write(data)
        return True

    def tell(self, method: str, parameters: Wire) -> None:
        """Write a call that gets no answer; it comes to nothing if the connection is lost before it is read."""
        if self.problem is None and self._transport is not None:
            self._transport.write(encode_call(method, parameters, oneway=True))

    async def _room(self) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._queue:
                self._queue.remove(turn)
            elif not turn.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for request, answer, continues in self._protocol.receive(data):
                assert isinstance(request, Asked)
                request.answered(answer, continues=continues)
                if not continues:
                    self._asked.popleft()
                    request.wake()
                    self._next()
        except CallError as error:
            self.close(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(GateUnreachable(self._path, "the connection was lost"))
        if not self._closed.done():
            self._closed.set_result(None)

    # ---- the end

    def close(self, problem: GateError | None = None) -> None:
        """Hang up: every request that waits is lost."""
        if self.problem is not None:
            return
        self.problem = problem or GateUnreachable(self._path, "this client hung up")
        if self._transport is not None:
            self._transport.abort()
        while self._asked:
            request = self._asked.popleft()
            request.lost(self.problem)
            request.wake()
        while self._queue:
            self._next()
        self._lost(self)

    async def settled(self, methods: frozenset[str]) -> None:
        """Wait until no call of these methods waits for its answer."""
        while waiters := [asked.waiter for asked in self._asked if asked.method in methods and asked.waiter]:
            await asyncio.wait(waiters)

    async def gone(self) -> None:
        """Wait until the event loop has given up the connection."""
        await self._closed


async def link_to(path: str, lost: Callable[[Link], None]) -> Link:
    """Connect; raises OSError at once if nobody listens. `lost` is called once, when the connection is of no use."""
    sock = connect(path)
    try:
        _, link = await asyncio.get_running_loop().create_unix_connection(lambda: Link(path, lost), sock=sock)
    except BaseException:
        sock.close()
        raise
    return link
