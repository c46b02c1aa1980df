"""Starts and stops the servers and those who ask them; a process that was not started here is never touched."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.frames import Shape, claims, first_minute
from tests.bench.loadgen import AGAIN, Order, Result
from tests.support import redis
from tests.support.gate_process import PATIENCE, ROOT, GateProcess, RawClient

CLAIMS_PER_SECOND = 150_000
"""More than any server grants: claims are made beforehand."""


class Pace(NamedTuple):
    """How long a measurement takes, and how long it is warmed up."""

    seconds: float
    warm_up: float


class Target(NamedTuple):
    """A running server."""

    socket: Path
    pid: int


class Bench:
    """A folder on a disk, and processes in it. `fresh` names a place in it that was not used before."""

    def __init__(self, folder: Path, pace: Pace) -> None:
        self.folder = folder
        self.pace = pace
        self._numbers = count()
        # Byte code is kept, as in an installation: the first start of each program makes it.
        self.env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def fresh(self) -> Path:
        """A path that does not exist yet; short, since the path of a Unix socket has at most 107 bytes."""
        return self.folder / str(next(self._numbers))

    # -- servers

    def make_gate(self, folder: Path | None = None, store: Path | None = None) -> GateProcess:
        """A gate that is not started, on an empty ledger unless `folder` holds one; `store`: the socket of a Redis."""
        place = folder or self.fresh()
        config = None if store is None else f'[store]\nurl = "unix://{store}"\nprefix = "{place.name}"\n'
        return GateProcess(place, config=config, env=self.env, log_level="error")

    @contextmanager
    def gate(self, folder: Path | None = None, store: Path | None = None) -> Iterator[Target]:
        """A gate that has nothing left to do; killed at the end, and its ledger removed unless `folder` was given.

        `store`: the socket of a Redis, in which its ledger is then.
        """
        gate = self.make_gate(folder, store)
        try:
            gate.start()
            with RawClient(gate.socket) as client:
                client.call("Control.Status", limit=0)  # waits behind what the store does at the start
            yield Target(gate.socket, gate.pid)
        finally:
            gate.kill()
            if folder is None:
                shutil.rmtree(gate.state.parent)

    @contextmanager
    def peer(self, kind: str, answer: bytes = b"") -> Iterator[Target]:
        """One of the servers in peers.py, killed at the end."""
        place, path = self.fresh(), self.fresh()
        place.with_suffix(".answer").write_bytes(answer)
        process = self._start("-m", "tests.bench.peers", kind, str(path), str(place))
        try:
            _wait_for(path, process)
            yield Target(path, process.pid)
        finally:
            process.kill()
            process.communicate()
            for left in self.folder.glob(f"{place.name}*"):
                left.unlink()

    @contextmanager
    def redis(self) -> Iterator[Target]:
        """A redis-server that writes nothing to disk."""
        binary = redis.find_server()
        if binary is None:
            raise SystemExit("no redis-server on this machine: apt install redis-server, or run tests/run.py")
        server = redis.RedisServer(binary)
        try:
            server.start()
            yield Target(server.socket, 0)
        finally:
            server.close()

    # -- those who ask

    def check(self, target: Target, shape: Shape, *, storm: int = 0) -> Result:
        """Let the load generator ask for GetInfo."""
        return self._load(target, shape, claims=0, again=True, storm=storm)

    def claim(self, target: Target, shape: Shape, since: datetime | None = None) -> Result:
        """Let it claim, each occurrence once, the minutes beginning with `since`."""
        claims = int((self.pace.seconds + self.pace.warm_up) * CLAIMS_PER_SECOND)
        return self._load(target, shape, claims=claims, since=since)

    def claim_of_echo(self, target: Target, shape: Shape) -> Result:
        """Let it send claims to a server that does not look at them."""
        return self._load(target, shape, claims=AGAIN, again=True)

    def _load(
        self,
        target: Target,
        shape: Shape,
        *,
        claims: int,
        since: datetime | None = None,
        again: bool = False,
        storm: int = 0,
    ) -> Result:
        order = Order(
            socket=str(target.socket),
            connections=shape.connections,
            depth=shape.depth,
            seconds=self.pace.seconds,
            warm_up=self.pace.warm_up,
            claims=claims,
            claims_from=(since or first_minute()).isoformat(),
            again=again,
            server=target.pid,
            storm=storm,
        )
        return self._result("tests.bench.loadgen", json.dumps(order._asdict()))

    def claimer(self, kind: str, target: Target, tasks: int) -> Result:
        """Let an application of claimers.py claim."""
        pace = self.pace
        return self._result(
            "tests.bench.claimers", kind, str(target.socket), str(tasks), str(pace.seconds), str(pace.warm_up)
        )

    def python(self, *arguments: str) -> str:
        """Run Python to its end, and give what it printed."""
        process = self._start(*arguments)
        try:
            out, _ = process.communicate(timeout=300)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
        return out

    def _result(self, module: str, *arguments: str) -> Result:
        found: dict[str, Any] = json.loads(self.python("-m", module, *arguments))
        return Result(**found)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=self.env, stdout=subprocess.PIPE, text=True)


def answer_to(target: Target, call: bytes) -> bytes:
    """What a server answers to one call, as bytes."""
    with RawClient(target.socket) as client:
        client.send_raw(call)
        answer = b""
        while not answer.endswith(b"\0"):
            answer += client.sock.recv(64 * 1024)
        return answer


def answer_to_claim(target: Target) -> bytes:
    """What a gate answers to a claim that it grants."""
    return answer_to(target, claims(1, first_minute())[0])


@contextmanager
def bench(folder: Path, pace: Pace) -> Iterator[Bench]:
    """A Bench in a folder of its own below `folder`, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="gate-bench-", dir=folder) as name:
        yield Bench(Path(name), pace)


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(path)) == 0:
                return
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{process.args!r} did not start")
        time.sleep(0.005)
