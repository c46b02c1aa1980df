"""The processes of `gatectl demo`: a gate and two schedulers, in a temporary folder, ended by their pids."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from gate.errors import GateError
from gate.interface import HistoryIn, HistoryOut, State, StatusIn, StatusOut
from gate_client.sync import Gate
from taskiq_gate.identity import task_id

PATIENCE_SECONDS = 20.0
LOOK_EVERY_SECONDS = 0.02
OURS = ("GATE_SOCKET", "GATE_CONFIG", "STATE_DIRECTORY", "NOTIFY_SOCKET")


class StageError(Exception):
    """A process of the demo did not do what the demo needs; the text has the end of its log."""


class Process:
    """One process, started and killed at will."""

    def __init__(self, folder: Path, name: str, arguments: list[str], env: dict[str, str]) -> None:
        self.name = name
        self._folder = folder
        self._command = [sys.executable, "-m", *arguments]
        self._env = _environment() | env
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def check(self, problem: str | None = None) -> None:
        """Raise StageError if it has ended, or because of `problem`."""
        ended = None if self._process is None else self._process.poll()
        if ended is not None:
            problem = f"it ended with exit code {ended}"
        if problem is not None:
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise StageError(f"{self.name}: {problem}; its log ends with:\n{last}")


class Scheduler(Process):
    """A `taskiq scheduler`, and the file of what it sent."""

    def __init__(self, folder: Path, name: str, env: dict[str, str]) -> None:
        self._record = folder / f"{name}.jsonl"
        env = env | {"GATE_DEMO_RECORD": str(self._record)}
        super().__init__(folder, name, ["taskiq", "scheduler", f"gate.ctl.demo_app:{name}"], env)

    def sent(self) -> list[tuple[datetime, str]]:
        """When it sent what: instants and task ids."""
        if not self._record.exists():
            return []
        lines = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [(datetime.fromisoformat(line["sent"]), line["task_id"]) for line in lines]


class Stage:
    """A gate on SQLite, a scheduler that asks it and one that does not."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "gate.sock"
        config = folder / "gate.toml"
        config.touch()
        where = ["--socket", str(self.socket), "--state", str(folder / "state"), "--config", str(config)]
        self._gate = Process(folder, "gate", ["gate", *where], {})
        env = {"GATE_SOCKET": str(self.socket)}
        self.ungated = Scheduler(folder, "ungated", env)
        self.gated = Scheduler(folder, "gated", env)
        self._client = Gate(self.socket, timeout=PATIENCE_SECONDS)

    def open(self) -> StatusOut:
        """Start the gate and wait until it answers."""
        self._gate.start()
        self._wait("it does not listen", self._gate, self.socket.exists)
        return self.status()

    def close(self) -> None:
        """Kill what runs."""
        self._client.close()
        for process in (self.ungated, self.gated, self._gate):
            process.kill()

    def status(self) -> StatusOut:
        try:
            return self._client.call("io.schedulegate.Control.Status", StatusIn(), StatusOut)
        except GateError as error:
            raise StageError(f"the gate gives no status: {error}") from error

    def play(self) -> Counter[str]:
        """Start both schedulers and wait until each has sent or was refused; gives what the gate answered."""
        sent, before = len(self.ungated.sent()), _answers(self.status())
        self.ungated.start()
        self.gated.start()
        self._wait("it sent nothing", self.ungated, lambda: len(self.ungated.sent()) > sent)
        self._wait("it did not ask the gate", self.gated, lambda: self._settled(before))
        return _answers(self.status()) - before

    def kill(self) -> None:
        """Kill both schedulers."""
        self.ungated.kill()
        self.gated.kill()

    def _settled(self, before: Counter[str]) -> bool:
        status = self.status()
        return _answers(status) != before and all(known.state is not State.CLAIMED for known in status.schedules)

    def _wait(self, problem: str, process: Process, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            process.check()
            if time.monotonic() > end:
                process.check(f"{problem} within {PATIENCE_SECONDS:g} s")
            time.sleep(LOOK_EVERY_SECONDS)

    def minutes_ungated(self) -> Counter[datetime]:
        """How often each minute was sent without the gate."""
        return Counter(at.replace(second=0, microsecond=0) for at, _ in self.ungated.sent())

    def minutes_gated(self) -> Counter[datetime]:
        """How often each minute that was asked for was sent with the gate; a task id says which minute it is of."""
        reply = self._client.call("io.schedulegate.Control.History", HistoryIn(), HistoryOut)
        sent = Counter(name for _, name in self.gated.sent())
        return Counter({known.at: sent[task_id(known.schedule, known.at)] for known in reply.occurrences})


def _answers(status: StatusOut) -> Counter[str]:
    return Counter({name: getattr(status.counts, name) for name in status.counts.__struct_fields__})


def _environment() -> dict[str, str]:
    """Ours, without what names another gate; the processes import what this one does."""
    env = {name: value for name, value in os.environ.items() if name not in OURS}
    return env | {"PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}


@contextmanager
def staged() -> Generator[Stage, None, None]:
    """A stage in a temporary folder; both are gone afterwards, also when this process is asked to end."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, end))
        folder = stack.enter_context(TemporaryDirectory(prefix="gate-demo-", ignore_cleanup_errors=True))
        stage = Stage(Path(folder))
        stack.callback(stage.close)
        yield stage
