"""Rows of tables while they are played, some at a time: each has a gate, schedulers and a timeline of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pytest
from msgspec.structs import replace

from gate.interface import rfc3339
from tests.e2e.rig import (
    COMMAND,
    Clock,
    Entry,
    Events,
    Scheduler,
    Sent,
    add_schedules,
    doubts,
    environment,
    eventually,
    ledger,
    sent,
)
from tests.e2e.settings import Settings
from tests.support.faketime import FakeTime, find_library, remove_leftovers
from tests.support.gate_process import ROOT, GateProcess

T = TypeVar("T")
START = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
"""Five seconds into a minute, so that a row ends within it."""
MINUTE = START.replace(second=0)
SPEED = 0.5
"""Slow, so that a machine that plays several rows at once gets through each within its minute."""
CONFIG = """
[[send]]
schedules = ["*"]
on_doubt = "{policy}"
grace = "{grace}"
"""
"""`rules` of a row may go on with keys of this table, or with others."""


class Row:
    """A gate of its own and a timeline of its own. `folder` is made; its name is that of the queue."""

    def __init__(self, folder: Path, redis: str, library: Path, speed: float = SPEED) -> None:
        folder.mkdir()
        self.folder = folder
        self.log = folder / "schedulers.log"
        self.library = library
        self.timeline: Clock = FakeTime(library, START, speed)
        self.events = Events(folder / "events")
        self.gate = GateProcess(folder / "gate", env=environment(self.timeline))
        self.settings = Settings(
            redis=redis,
            name=folder.name,
            events=str(self.events.path),
            kinds=("random",),
            socket=str(self.gate.socket),
        )
        self._open = ExitStack()
        self._open.callback(self.events.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def start_gate(self, policy: str = "skip", grace: str = "300ms", rules: str = "") -> None:
        """Start it for the first time, by this policy; `grace` is short where nobody comes back.

        `rules`: further lines of its configuration.
        """
        self.start_gate_with(CONFIG.format(policy=policy, grace=grace) + rules)

    def start_gate_with(self, config: str) -> None:
        """Start it for the first time, by this configuration."""
        self.gate.config.write_text(config)
        self._open.enter_context(self.gate)

    def start_gate_again(self) -> None:
        """After it was killed."""
        self.gate.env = environment(self.timeline)
        self.gate.start()

    def move(self, start: datetime, speed: float = 1.0) -> None:
        """Everything that is started from now on lives at another time; a gate that runs is killed and started."""
        self.live_by(FakeTime(self.library, start, speed))

    def live_by(self, timeline: Clock) -> None:
        """The same, by whatever clock."""
        self.timeline = timeline
        self.gate.env = environment(timeline)
        if self.gate.running:
            self.gate.kill()
            self.gate.start()

    def scheduler(self, *arguments: str, command: Sequence[str | Path] = COMMAND, **changes: Any) -> Scheduler:
        """Start one; `changes` are to the settings, `arguments` for the command."""
        settings = replace(self.settings, **changes)
        return self._open.enter_context(Scheduler(settings, self.timeline, self.log, arguments, command))

    def stopped_at(self, point: str, **changes: Any) -> Scheduler:
        """Start a scheduler and wait until it has stopped in its tracks at this point."""
        scheduler = self.scheduler(stop_at=point, **changes)
        self.events.wait("stopped", by=scheduler)
        return scheduler

    def outcome(self, scheduler: Scheduler) -> str:
        """Wait for what became of its ask: "sent" or "refused"."""
        return self.events.wait("sent", "refused", by=scheduler)

    def entry(self) -> Entry:
        """The ledger's record of this minute."""
        entries = self.entries()
        assert len(entries) == 1, entries
        return entries[0]

    def entries(self) -> list[Entry]:
        with self.gate.client() as client:
            return [entry for entry in ledger(client, self.settings.name) if entry.at == MINUTE]

    def becomes(self, state: str) -> None:
        """Wait until the ledger says so."""
        eventually(lambda: self.entry().state == state, f"{self.settings.name} is {state}")

    def status(self) -> dict[str, Any]:
        with self.gate.client() as client:
            return client.call("Control.Status")

    def doubts(self) -> int:
        """How many occurrences of this minute the status lists as in doubt."""
        with self.gate.client() as client:
            return sum(at == MINUTE for _, at in doubts(client, self.settings.name))

    def gatectl(self, *arguments: str) -> int:
        """Run it, and give its exit code."""
        command = [sys.executable, "-m", "gate.ctl", *arguments, "--socket", str(self.gate.socket)]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        return done.returncode

    def resend(self) -> int:
        """`gatectl resend` of the minute."""
        return self.gatectl("resend", self.entry().schedule, rfc3339(MINUTE))

    def sends(self) -> list[Sent]:
        """What was sent; fails if the machine was so slow that the next minute has begun."""
        assert self.timeline.now() < MINUTE + timedelta(minutes=1), "this took a minute: the next one is mixed in"
        return sent(self.settings)

    def copies(self) -> int:
        """How often the minute was sent: each time by the id that is the occurrence's own."""
        found = self.sends()
        assert {one.task_id for one in found} <= {entry.task_id for entry in self.entries()}
        return len(found)

    def add_schedules(self) -> None:
        add_schedules(self.settings)


@contextmanager
def played(
    session: pytest.Session,
    rows: Mapping[str, Callable[[Row], T]],
    file: Path,
    redis: str,
    folder: Path,
    at_a_time: int = 4,
) -> Iterator[dict[str, Future[T]]]:
    """What becomes of those rows that were selected: of which a test in this file has the parameter `name`."""
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")

    def play(name: str) -> T:
        with Row(folder / name.replace(", ", "-").replace(" ", "-"), redis, library) as row:
            return rows[name](row)

    selected = {_row_of(item, file) for item in session.items}
    with ThreadPoolExecutor(at_a_time) as pool:
        yield {name: pool.submit(play, name) for name in rows if name in selected}
        pool.shutdown(cancel_futures=True)
    remove_leftovers()


def _row_of(item: pytest.Item, file: Path) -> str | None:
    """The row that a collected test is about."""
    if not isinstance(item, pytest.Function) or item.path != file or not hasattr(item, "callspec"):
        return None
    return str(item.callspec.params.get("name"))
