"""What systemd hands over and wants to hear: sockets (LISTEN_FDS) and notifications (NOTIFY_SOCKET).

Own code, since the libraries are unkept or bring C. Sources: sd_listen_fds(3), sd_notify(3).
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Generator, MutableMapping
from contextlib import contextmanager

from gate.errors import StartError

log = logging.getLogger("gate.daemon")

FIRST_DESCRIPTOR = 3
START_SECONDS = 10.0
"""How much longer a start may take, each time it says that it goes on."""
STARTS_MOST = 60
"""How often it says so: a start that takes ten minutes hangs."""


def listener(environment: MutableMapping[str, str], pid: int) -> socket.socket | None:
    """The socket that systemd listens on for us; None if there is none.

    Takes the variables out of the environment, so that no child takes them for its own. Raises StartError for what is
    no listening Unix stream socket, or more than one.
    """
    given = {name: environment.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")}
    if given["LISTEN_PID"] != str(pid) or not given["LISTEN_FDS"].isdecimal():
        return None
    count = int(given["LISTEN_FDS"])
    if count != 1:
        raise StartError(f"systemd hands over {count} sockets ({given['LISTEN_FDNAMES']}): the gate listens on one")
    os.set_inheritable(FIRST_DESCRIPTOR, False)
    found = socket.socket(fileno=FIRST_DESCRIPTOR)
    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) if found.family == socket.AF_UNIX else 0
    if not listens or found.type != socket.SOCK_STREAM:
        raise StartError("what systemd hands over is no listening Unix stream socket: ListenStream= in gate.socket")
    found.setblocking(False)
    return found


class Notifier:
    """Tells systemd how it goes; does nothing where systemd does not listen.

    `watchdog`: within how many seconds it wants a sign of life; None if it does not.
    """

    def __init__(self, environment: MutableMapping[str, str], pid: int) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        every, owner = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", str(pid))
        self.watchdog = int(every) / 1e6 if every.isdecimal() and owner == str(pid) and address else None

    def tell(self, *lines: str) -> None:
        """Send one message. One that cannot be sent is lost: systemd then acts as if we were stuck, as it should."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.connect(self._address)
                sock.sendall("\n".join(lines).encode())
            except OSError as error:
                log.warning("systemd cannot be told %s: %s", lines[0], error.strerror or error)

    def ready(self, status: str) -> None:
        """The gate serves."""
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again; `ready` ends that."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        """The gate ends."""
        self.tell("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Loop and store go round."""
        self.tell("WATCHDOG=1")

    @contextmanager
    def starting(self) -> Generator[None]:
        """A start may take long, where a large ledger is looked at: while it does, ask for more time."""
        over = threading.Event()

        def ask_for_time() -> None:
            for _ in range(STARTS_MOST):
                if over.wait(START_SECONDS / 2):
                    return
                self.tell(f"EXTEND_TIMEOUT_USEC={int(START_SECONDS * 1e6)}", "STATUS=opening the store")

        if self._address:
            threading.Thread(target=ask_for_time, name="gate-start", daemon=True).start()
        try:
            yield
        finally:
            over.set()
