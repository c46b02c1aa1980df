"""One blocking connection and its deadline."""

import time
from collections import deque
from collections.abc import Sequence
from select import POLLIN, POLLOUT, poll

from gate.wire import PIPELINED_CALLS, ClientProtocol
from gate_client.core import Request
from gate_client.sockets import connect

READ_BYTES = 65_536


class Deadline:
    """How long the next result may take."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        self._end = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds; never below 0."""
        return max(self._end - time.monotonic(), 0.0)

    def sleep(self, seconds: float) -> bool:
        """Sleep, but not past the deadline; gives whether there is time left."""
        time.sleep(min(seconds, self.left))
        return self.left > 0


class Line:
    """One connection. Raises OSError from every method when it is of no use (any more)."""

    __slots__ = ("_out", "_poll", "_protocol", "_sock")

    def __init__(self, path: str) -> None:
        self._sock = connect(path)
        self._protocol = ClientProtocol()
        self._out = bytearray()
        self._poll = poll()
        self._poll.register(self._sock)

    def ask(self, requests: Sequence[Request], deadline: Deadline) -> None:
        """Write all and read until each has its last answer; at most 64 wait at once.

        Raises TimeoutError at the deadline, OSError when the connection is lost, and the CallError that the gate
        said without being asked.
        """
        queue = deque(requests)
        while queue or self._protocol.waiting:
            self._fill(queue)
            self._flush()
            self._read(deadline)

    def post(self, requests: Sequence[Request]) -> None:
        """Write, as far as there is room, without waiting for anything; the answers are read with the next ask."""
        self._fill(deque(requests))
        self._flush()

    def close(self) -> None:
        self._sock.close()

    def _fill(self, queue: deque[Request]) -> None:
        while queue and self._protocol.waiting < PIPELINED_CALLS:
            request = queue.popleft()
            self._out += self._protocol.call(request.method, request.parameters, request, more=request.more)
            request.asked()

    def _flush(self) -> None:
        if self._out:
            try:
                del self._out[: self._sock.send(self._out)]
            except BlockingIOError:
                pass
            except (BrokenPipeError, ConnectionResetError):
                self._out.clear()  # what the gate said before it hung up is still there to be read

    def _read(self, deadline: Deadline) -> None:
        self._poll.modify(self._sock, POLLIN | POLLOUT if self._out else POLLIN)
        ready = self._poll.poll(deadline.left * 1000)
        if not ready:
            raise TimeoutError(f"no answer within {deadline.seconds:.3g} s")
        if ready[0][1] == POLLOUT:
            return
        data = self._sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("the gate closed the connection")
        for request, answer, continues in self._protocol.receive(data):
            assert isinstance(request, Request)
            request.answered(answer, continues=continues)
            if request.result is not None:
                deadline.renew()
