"""A worker's connection to a real gate: it watches, and reads what it is told."""

import socket
import time
from pathlib import Path
from typing import Any, Self

from tests.support.gate_process import PATIENCE, RawClient


class RawWatcher(RawClient):
    """A connection that watches for one worker; `last` is the answer it has."""

    last: dict[str, Any]

    def watch(self, worker: str, queues: list[str] | None = None, session: str = "session") -> Self:
        """Begin to watch, and read the first answer."""
        self.post("Fetch.Watch", more=True, worker=worker, queues=queues, session=session)
        self.next()
        return self

    def next(self, timeout: float | None = None) -> dict[str, Any]:
        """Wait for the next answer; more must follow it."""
        message = self.recv(timeout)
        assert message.get("continues"), message
        self.last = message["parameters"]
        return self.last

    def next_at_once(self) -> dict[str, Any]:
        """The next answer, which must be on the wire already."""
        return self.next(timeout=0.0)

    def is_quiet(self) -> bool:
        """Whether nothing waits to be read."""
        self.sock.setblocking(False)
        try:
            return self.sock.recv(1, socket.MSG_PEEK) is None
        except BlockingIOError:
            return True
        finally:
            self.sock.settimeout(PATIENCE)


def watcher(path: Path, worker: str, queues: list[str] | None = None) -> RawWatcher:
    """Connect and watch; whoever has not connected yet, since the gate is starting, tries again."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return RawWatcher(path).watch(worker, queues)
        except (ConnectionRefusedError, FileNotFoundError):
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
