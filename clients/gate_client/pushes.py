"""A connection that the gate pushes answers on, and that can be read at any moment.

The event loop reads it when it has time. A loop that a job blocked for seconds had none: whoever is about to act on
an answer reads what has come meanwhile first. So the socket is ours and not a transport's.
"""

import asyncio
from collections.abc import Callable

from gate.errors import CallError, GateError
from gate.interface import CheckOut, WatchIn
from gate.wire import ClientProtocol
from gate_client.core import GateUnreachable, unreachable
from gate_client.sockets import connect

WATCH = "io.schedulegate.Fetch.Watch"
READ_BYTES = 65_536


class Pushes:
    """One `Watch`, asked when it is made; raises OSError at once when nobody listens.

    `ready` is called by the event loop when there is something to read: `drain` gives it. `problem` says why nothing
    more will come.
    """

    def __init__(self, path: str, question: WatchIn, ready: Callable[[], object]) -> None:
        self.problem: GateError | None = None
        self.path = path
        self._protocol = ClientProtocol()
        self._loop = asyncio.get_running_loop()
        self._sock = connect(path)
        try:
            call = self._protocol.call(WATCH, question, more=True)
            if self._sock.send(call) != len(call):
                raise BlockingIOError("the gate does not read")
            self._loop.add_reader(self._sock, ready)
        except BaseException:
            self._sock.close()
            raise

    def drain(self) -> list[CheckOut]:
        """All answers that have come, oldest first, without waiting."""
        answers: list[CheckOut] = []
        while self.problem is None:
            try:
                data = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self.close(unreachable(self.path, error))
                break
            if not data:
                self.close(GateUnreachable(self.path, "the connection was lost"))
                break
            self._read(data, answers)
        return answers

    def _read(self, data: bytes, answers: list[CheckOut]) -> None:
        try:
            for _, answer, continues in self._protocol.receive(data):
                if isinstance(answer, CheckOut):
                    answers.append(answer)
                if not continues:
                    self.close(answer if isinstance(answer, CallError) else self._ended())
        except CallError as error:  # not Varlink, or an error that nobody asked for: there is no room for us
            self.close(error)

    def _ended(self) -> GateError:
        return GateUnreachable(self.path, "it answered once and watches no more")

    def close(self, problem: GateError | None = None) -> None:
        """Hang up; harmless when it is done already."""
        if self.problem is None:
            self.problem = problem or GateUnreachable(self.path, "this client hung up")
            self._loop.remove_reader(self._sock)
            self._sock.close()
