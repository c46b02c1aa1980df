"""`gatectl run` as a process, and commands for it that say what happens to them."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.gate_process import PATIENCE, GateProcess
from tests.support.gatectl import COMMAND, ROOT

TRAP = 'trap "echo got $0; exit 7" $0; echo up; for i in $(seq 1000); do sleep 0.01; done; exit 8'
"""For sh -c: says "up", and ends with 7 at the signal that $0 names, or at last with 8."""
UNTIL_READ = "echo up; read line; exit ${line:-0}"
"""For sh -c: says "up", and ends with the code that it is told."""


def shell(script: str, *arguments: str) -> list[str]:
    """The command that runs a script of the shell."""
    return ["sh", "-c", script, *arguments]


def python(program: str) -> list[str]:
    """The command that runs a program of Python."""
    return [sys.executable, "-c", program]


def states(gate: GateProcess, schedule: str) -> list[str]:
    """The states of the occurrences of a schedule, the newest first."""
    with gate.client() as client:
        return [o["state"] for o in client.call("Control.History", schedule=schedule)["occurrences"]]


def eventually(happens: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end, what
        time.sleep(0.005)


class Running:
    """A `gatectl run` with pipes; every wait ends after PATIENCE seconds. `popen`: further arguments of Popen."""

    def __init__(self, socket: Path, *arguments: str, env: Mapping[str, str] | None = None, **popen: Any) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "run", "--socket", str(socket), *arguments], cwd=ROOT, env=os.environ | dict(env or {}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen,
        )  # fmt: skip
        self._read = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line that the command writes."""
        assert self.process.stdout is not None
        end = time.monotonic() + PATIENCE
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], end - time.monotonic())
            assert ready, f"no line within {PATIENCE} s, but {self._read!r}"
            data = os.read(self.process.stdout.fileno(), 65_536)
            assert data, f"it has ended: {self._read!r}, {self.process.communicate()[1]!r}"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def say(self, text: str) -> None:
        """Write a line to the command."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        """Wait until it has ended; gives exit code, what is left of stdout, and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, (self._read + out).decode(), err.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()  # whoever has outlived it may have the other ends


class OnTerminal:
    """`gatectl run` as the only thing on a terminal of its own, as the leader of its session."""

    def __init__(self, socket: Path, *arguments: str) -> None:
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.execv(COMMAND[0], [*COMMAND, "run", "--socket", str(socket), *arguments])

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def until(self, text: bytes) -> bytes:
        """What is written, up to this text."""
        end, seen = time.monotonic() + PATIENCE, b""
        while text not in seen:
            ready, _, _ = select.select([self._terminal], [], [], end - time.monotonic())
            assert ready, f"no {text!r}, but {seen!r}"
            seen += os.read(self._terminal, 65_536)
        return seen

    def close(self) -> None:
        """Hang up."""
        os.close(self._terminal)

    def code(self) -> int:
        """Wait until it has ended; kill it if it does not."""
        end = time.monotonic() + PATIENCE
        while (found := os.waitpid(self.pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
            time.sleep(0.005)
        if found[0] == 0:
            os.kill(self.pid, signal.SIGKILL)
            found = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(found[1])
