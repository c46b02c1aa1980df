"""Schedulers as processes, what they tell, and what became of their sends."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import redis
from msgspec import Struct
from taskiq_redis import ListRedisScheduleSource

from taskiq_gate import identity
from tests.e2e import settings as e2e
from tests.e2e.settings import Settings
from tests.support.gate_process import ROOT, RawClient

PATIENCE = 120.0
"""Real seconds after which something that must happen has not."""
APP = "tests.e2e.app:scheduler"
TASKIQ = Path(sys.executable).with_name("taskiq")
COMMAND = (TASKIQ, "scheduler", APP, "--app-dir", ROOT)
MINUTE = 60.0


class Clock(Protocol):
    """A clock that all processes of a scenario share: one of tests.support.faketime, or RealTime."""

    def now(self) -> datetime: ...
    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]: ...


class Timeline(Clock, Protocol):
    """One that runs evenly: FakeTime, or RealTime."""

    start: datetime
    speed: float


class RealTime:
    """The machine's own clock."""

    def __init__(self) -> None:
        self.start = datetime.now(UTC)
        self.speed = 1.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        return dict(os.environ if base is None else base)


def environment(timeline: Clock) -> dict[str, str]:
    """The environment of a process that starts now: it runs this tree, and keeps compiled modules for the next one."""
    env = timeline.env()
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients'}"}


def told(settings: Settings) -> dict[str, str]:
    """The variable by which the application knows them."""
    return {e2e.VARIABLE: msgspec.json.encode(settings).decode()}


class Events:
    """What schedulers tell, through a FIFO at `path`: survives their death, and is waited for without polling."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._text = b""
        self._unread: list[dict[str, Any]] = []

    def take(self, seconds: float) -> None:
        """Wait for something to be told, at most so long; events that nobody waits for are kept."""
        if not select.select([self._fd], [], [], max(seconds, 0.0))[0]:
            return
        *lines, self._text = (self._text + os.read(self._fd, 65_536)).split(b"\n")
        self._unread += [json.loads(line) for line in lines]

    def wait(self, *events: str, by: "Scheduler", seconds: float = PATIENCE) -> str:
        """The first of these events that this scheduler tells and that nobody has waited for yet."""
        end, over = time.monotonic() + seconds, False
        while (found := self._told(events, by.pid)) is None:  # before waiting for more: what was told may soon be over
            if over:
                raise AssertionError(f"no {' or '.join(events)} of {by}")
            left = end - time.monotonic()
            over = left <= 0 or not by.running
            self.take(0.0 if over else min(left, 0.5))
        return found

    def _told(self, events: tuple[str, ...], pid: int) -> str | None:
        """The first of these that is not read yet."""
        for event in self._unread:
            if event["pid"] == pid and event["event"] in events:
                self._unread.remove(event)
                return str(event["event"])
        return None

    def close(self) -> None:
        os.close(self._fd)


class Scheduler:
    """`taskiq scheduler`, or another `command`, in a process of its own. `log` is what it and its like wrote."""

    def __init__(
        self,
        settings: Settings,
        timeline: Clock,
        log: Path,
        arguments: Sequence[str] = (),
        command: Sequence[str | Path] = COMMAND,
    ) -> None:
        self.log = log
        env = environment(timeline) | told(settings)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*command, *arguments], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, bufsize=0
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def go(self) -> None:
        """Let it go on: from the start line, or from the point where it stopped."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send the signal and wait until the process is gone."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it, if it runs."""
        assert self.process.stdin is not None
        self.end()
        self.process.stdin.close()

    def __str__(self) -> str:
        state = "runs" if self.running else f"ended with {self.process.returncode}"
        return f"scheduler {self.pid}, which {state}; the end of its log:\n{self.log.read_text()[-4000:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Sent(Struct, frozen=True):
    """A message in the broker's queue: which schedule it is of, and when and by which process it was sent."""

    task_id: str
    kind: str
    at: datetime
    pid: int


def sent(settings: Settings, *tasks: str) -> list[Sent]:
    """All messages of these tasks that are in the queue, in order; without any, of the task that is gated."""
    with redis.Redis.from_url(settings.redis) as client:
        messages: list[Any] = [json.loads(message) for message in client.lrange(settings.name, 0, -1)]
    return [_sent(message) for message in reversed(messages) if message["task_name"] in (tasks or (e2e.TASK,))]


def _sent(message: dict[str, Any]) -> Sent:
    labels = message["labels"]
    at = datetime.fromtimestamp(float(labels[e2e.SENT_AT]), UTC)
    return Sent(message["task_id"], message["args"][0], at, int(labels[e2e.SENT_BY]))


def add_schedules(settings: Settings, deployment: int = 0) -> None:
    """Add the schedules of a Redis source, as a user does once, or in each deployment."""

    async def add() -> None:
        source = ListRedisScheduleSource(settings.redis, prefix=e2e.source_name(settings.name, "redis"))
        for schedule in e2e.redis_schedules(settings, deployment):
            await source.add_schedule(schedule)
        await source._connection_pool.disconnect()  # noqa: SLF001 - it has no shutdown of its own

    if "redis" in settings.sources:
        asyncio.run(add())


class Entry(Struct, frozen=True):
    """What the ledger says of an occurrence; `task_id` is that of its messages."""

    schedule: str
    at: datetime
    state: str
    grants: int
    task_id: str


def ledger(client: RawClient, name: str) -> list[Entry]:
    """All occurrences of a scenario, oldest first."""
    found = client.call("Control.History", limit=1000)["occurrences"]
    assert len(found) < 1000, "more than one answer holds"
    entries = [_entry(info) for info in found if info["schedule"].startswith(f"{name}-")]
    return sorted(entries, key=lambda entry: (entry.at, entry.schedule))


def doubts(client: RawClient, name: str) -> list[tuple[str, datetime]]:
    """What the status lists as in doubt."""
    listed = client.call("Control.Status")["doubts"]
    return [(info["schedule"], _instant(info["at"])) for info in listed if info["schedule"].startswith(f"{name}-")]


def _entry(info: dict[str, Any]) -> Entry:
    at = _instant(info["at"])
    return Entry(info["schedule"], at, info["state"], info["grants"], identity.task_id(info["schedule"], at))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def eventually(check: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Ask again and again until it is so: for what the gate alone knows and tells nobody."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
