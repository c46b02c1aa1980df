"""The load generator: one process, one epoll, a closed loop on every connection. All servers are asked by this one.

Calls are made beforehand, answers are counted and not decoded: nothing here should be slower than any server.
Started as `python -m tests.bench.loadgen ORDER`, an Order as JSON; prints a Result as JSON.
"""

import gc
import json
import select
import socket
import sys
import time
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tests.bench import frames

AGAIN = 1000
READ_BYTES = 64 * 1024
EVENTS_MAX = 1024
PATIENCE = 30.0


class Order(NamedTuple):
    """What to do for `seconds` after `warm_up`: `connections`, and on each `depth` calls at once."""

    socket: str
    connections: int
    depth: int
    seconds: float
    warm_up: float
    claims: int
    """So many claims at most; 0: GetInfo instead."""
    claims_from: str
    """The first of their minutes."""
    again: bool
    """When the claims are used up, they are asked again: for servers that do not look at them."""
    server: int
    """Its process id: whose CPU is counted."""
    storm: int = 0
    """So many connections more are made, all at once, after the warm-up; the result is their time alone."""


class Result(NamedTuple):
    """What was measured. Latencies and CPU in microseconds; `seconds`: how long it took."""

    calls: int
    seconds: float
    p50: float
    p99: float
    cpu: float

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


class Refused(Exception):
    """The server hung up, or did not grant a claim."""


class Connection:
    """A connection, and when each call that waits on it was made."""

    __slots__ = ("asked", "once", "rest", "sock")

    def __init__(self, path: str, *, once: bool = False) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.asked: deque[float] = deque()
        self.rest = b""
        self.once = once
        try:
            self.sock.setblocking(not once)
            self.sock.connect(path)
            self.sock.setblocking(False)
        except OSError:
            self.sock.close()
            raise


class Load:
    """The connections of one order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        if order.claims:
            start = datetime.fromisoformat(order.claims_from)
            self._calls, self._good = frames.claims(order.claims, start), frames.GRANTED
        else:
            self._calls, self._good = [frames.GET_INFO] * AGAIN, b""
        self._next = 0
        self._waiting = 0
        self._latencies: list[float] = []
        self._storm = 0
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        for _ in range(order.connections):
            self._add(Connection(order.socket))

    def run(self) -> Result:
        """Ask, and give what came of it."""
        for connection in self._connections.values():
            self._ask(connection, self._order.depth)
        # A server that remembers schedules knows them all before it is measured.
        known = frames.SCHEDULES if self._order.claims and not self._order.again else 1
        self._loop(time.perf_counter() + self._order.warm_up, known)
        self._latencies.clear()
        cpu, start = cpu_seconds(self._order.server), time.perf_counter()
        if self._order.storm:
            self._weather(start + PATIENCE)
        else:
            self._loop(start + self._order.seconds, 1)
        seconds, cpu = time.perf_counter() - start, cpu_seconds(self._order.server) - cpu
        found = sorted(self._latencies)
        if not found:
            raise Refused("nothing was answered in time")
        self._finish(time.perf_counter() + PATIENCE)
        p50, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
        return Result(len(found), seconds, p50 * 1e6, p99 * 1e6, cpu / len(found) * 1e6)

    def _add(self, connection: Connection) -> None:
        self._connections[connection.sock.fileno()] = connection
        self._epoll.register(connection.sock.fileno(), select.EPOLLIN)

    def _ask(self, connection: Connection, count: int) -> None:
        if self._order.again and self._next + count > len(self._calls):
            self._next = 0
        calls = self._calls[self._next : self._next + count]
        if calls:
            self._next += len(calls)
            self._waiting += len(calls)
            connection.asked.extend([time.perf_counter()] * len(calls))
            connection.sock.sendall(b"".join(calls))

    def _loop(self, end: float, least: int) -> None:
        """Ask again whatever is answered, until `end` and `least` answers, or until all calls are used up."""
        while self._order.again or self._next < len(self._calls):
            if time.perf_counter() > end + (0 if len(self._latencies) >= least else PATIENCE):
                return
            for fd, _ in self._epoll.poll(0.05, EVENTS_MAX):
                connection = self._connections[fd]
                self._ask(connection, self._read(connection))

    def _finish(self, end: float) -> None:
        """Take the answers that are still to come: nobody hangs up on the server in the middle."""
        while self._waiting:
            if time.perf_counter() > end:
                raise Refused(f"{self._waiting} calls were not answered within {PATIENCE:g} s")
            for fd, _ in self._epoll.poll(0.05, EVENTS_MAX):
                self._read(self._connections[fd])

    def _read(self, connection: Connection) -> int:
        data = connection.sock.recv(READ_BYTES)
        if not data:
            raise Refused("the server hung up")
        data = connection.rest + data
        end = data.rfind(b"\0") + 1
        data, connection.rest = data[:end], data[end:]
        count = data.count(b"\0")
        if self._good and data.count(self._good) != count:
            raise Refused(f"not every claim was granted: {data[:1000]!r}")
        now = time.perf_counter()
        self._waiting -= count
        self._latencies += [now - connection.asked.popleft() for _ in range(count)]
        return count

    def _weather(self, end: float) -> None:
        """Many connect at once, as after a restart, ask one thing and are answered, while the others go on."""
        to_connect = to_answer = self._order.storm
        while to_answer and time.perf_counter() < end:
            to_connect -= self._connect(to_connect)
            for fd, _ in self._epoll.poll(0.001 if to_connect else 0.05, EVENTS_MAX):
                connection = self._connections[fd]
                count = self._read(connection)
                if connection.once:
                    to_answer -= count
                else:
                    self._ask(connection, count)

    def _connect(self, wanted: int) -> int:
        for done in range(wanted):
            try:
                connection = Connection(self._order.socket, once=True)
            except BlockingIOError:  # the server's queue is full
                return done
            self._add(connection)
            self._ask(connection, 1)
        return wanted


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process took so far, all its living threads together."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def main() -> None:
    load = Load(Order(**json.loads(sys.argv[1])))
    gc.disable()
    print(json.dumps(load.run()._asdict()))


if __name__ == "__main__":
    main()
