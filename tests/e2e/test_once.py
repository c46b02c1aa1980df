"""One start for each occurrence, with real schedulers, workers and brokers, through deaths of all of them."""

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from msgspec.structs import replace

from tests.e2e import once_app_settings as app
from tests.e2e.rig import TASKIQ, RealTime, environment, eventually
from tests.support.gate_process import ROOT, GateProcess
from tests.support.redis import RedisServer, find_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

RESEND = '[[send]]\nschedules = ["*"]\non_doubt = "resend"\ngrace = "300ms"\ncatch_up = "all"\n'
SKIP = '[[send]]\nschedules = ["*"]\ngrace = "300ms"\ncatch_up = "all"\n'
# The long version: GATE_CHAOS_OCCURRENCES=1000, and pytest -o faulthandler_timeout=400.
CHAOS_OCCURRENCES = int(os.environ.get("GATE_CHAOS_OCCURRENCES", "80"))
CHAOS_RATE = float(os.environ.get("GATE_CHAOS_RATE", "15"))


class Rig:
    """A gate, a Redis that keeps what it has through a kill, schedulers and workers."""

    def __init__(self, gate: GateProcess, folder: Path, config: str) -> None:
        binary = find_server()
        if binary is None:
            pytest.skip("no redis-server on this machine: apt install redis-server, or run tests/run.py")
        self._open = ExitStack()
        self.redis = RedisServer(binary, "--appendonly", "yes", "--appendfsync", "always")
        self._open.callback(self.redis.close)
        self.redis.start()
        self.gate = gate
        gate.config.write_text(config)
        gate.start()
        self.log, self.journal = folder / "log", folder / "journal"
        self.journal.touch()
        base = datetime.now(UTC)
        self.settings = app.Settings(
            redis=self.redis.url, socket=str(gate.socket), journal=str(self.journal), base=base
        )

    def run(self, kind: str, **changes: Any) -> subprocess.Popen[bytes]:
        """`taskiq scheduler` or `taskiq worker`; a worker is one process that executes itself."""
        target = "tests.e2e.once_app:" + ("scheduler" if kind == "scheduler" else "broker")
        command: list[str | Path] = [TASKIQ, "scheduler", target, "--update-interval", "1", "--loop-interval", "1"]
        if kind == "worker":
            command = [sys.executable, "-m", "tests.e2e.once_worker"]
        settings = replace(self.settings, **changes)
        env = environment(RealTime()) | {app.VARIABLE: msgspec.json.encode(settings).decode()}
        with self.log.open("ab") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
        self._open.callback(kill, process)
        return process

    def lines(self, event: str) -> list[tuple[int, int]]:
        """(number, pid) of each such line of the journal."""
        words = [line.split() for line in self.journal.read_text().splitlines()]
        return [(int(number), int(pid)) for what, number, pid in words if what == event]

    def wait(self, event: str, count: int, seconds: float = 60.0) -> None:
        eventually(lambda: len(self.lines(event)) >= count, f"{count} times {event}:\n{self.tail()}", seconds)

    def tail(self) -> str:
        return self.log.read_text()[-3000:]

    def poke(self) -> None:
        """Put something into the stream: taskiq-redis looks for what dead workers left only after it got a message."""
        with redis.Redis.from_url(self.redis.url) as client:
            client.xadd("taskiq", {"data": b"no message"})

    def skipped(self) -> int:
        return self.log.read_text().count(" is skipped: ")

    def close(self) -> None:
        self._open.close()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def make_rig(make_gate: Callable[..., GateProcess], tmp_path: Path) -> Iterator[Callable[[str], Rig]]:
    with ExitStack() as made:

        def make(config: str = RESEND) -> Rig:
            rig = Rig(make_gate(), tmp_path, config)
            made.callback(rig.close)
            return rig

        yield make


def two_copies(rig: Rig, **changes: Any) -> None:
    """A scheduler is killed between kick and confirmation, and the next one sends again."""
    first = rig.run("scheduler", stop=True, **changes)
    rig.wait("kicked", 1)
    kill(first)
    rig.run("scheduler", **changes)
    rig.wait("kicked", 2)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "list"])
def test_two_copies_in_the_broker_are_one_start(make_rig: Callable[..., Rig], stream: bool) -> None:
    rig = make_rig()
    two_copies(rig, stream=stream)
    rig.run("worker", stream=stream)
    eventually(lambda: rig.skipped() == 1, "a copy is skipped", 60)
    rig.wait("end", 1)
    assert len(rig.lines("start")) == 1
    if stream:  # both are acknowledged: a message that is not would come again
        eventually(lambda: pending(rig) == 0, "nothing is left unacknowledged", 10)


def pending(rig: Rig) -> int:
    with redis.Redis.from_url(rig.redis.url) as client:
        try:
            found: Any = client.xpending("taskiq", "taskiq")
        except redis.ResponseError as error:  # a broker that was just started again knows no group yet
            if "NOGROUP" not in str(error):
                raise
            return 0
    return int(found["pending"])


def test_a_job_whose_worker_died_runs_again(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    worker = rig.run("worker", seconds=600.0, idle=1.0)
    rig.run("scheduler")
    rig.wait("start", 1)
    kill(worker)
    rig.run("worker", idle=1.0)

    def ended() -> bool:
        rig.poke()
        return len(rig.lines("end")) == 1

    eventually(ended, f"it runs again:\n{rig.tail()}", 30)
    assert len(rig.lines("start")) == 2


def test_a_gate_that_is_killed_while_a_job_runs_still_knows_of_it(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    two_copies(rig)
    rig.run("worker", seconds=4.0)
    rig.wait("start", 1)
    rig.gate.restart()
    rig.wait("end", 1)
    late = rig.run("worker")
    rig.gate.restart()
    eventually(lambda: rig.skipped() == 1, f"the copy is skipped:\n{rig.tail()}", 60)
    assert late.poll() is None
    assert len(rig.lines("start")) == 1


def test_retries_run(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    two_copies(rig, fails=2)
    rig.run("worker", fails=2)
    rig.wait("end", 3)
    eventually(lambda: rig.skipped() == 1, "the copy is skipped", 60)
    assert len(rig.lines("start")) == 3


@pytest.mark.parametrize("policy", ["run", "skip"])
def test_without_a_gate_the_option_decides(make_rig: Callable[..., Rig], policy: str) -> None:
    rig = make_rig()
    rig.run("scheduler")
    rig.wait("kicked", 1)
    rig.gate.kill()
    rig.run("worker", on_gate_down=policy)
    eventually(lambda: f"on_gate_down is {policy}" in rig.log.read_text(), "it has decided", 60)
    if policy == "run":
        rig.wait("end", 1)
    else:
        eventually(lambda: pending(rig) == 0, "it is acknowledged", 10)
        assert rig.lines("start") == []


# ---- chaos


@pytest.mark.parametrize("policy", ["resend", "skip"])
def test_chaos(make_rig: Callable[..., Rig], policy: str) -> None:
    """Everything is killed at random; each occurrence is started once, and again only after its worker's death."""
    rig = make_rig(RESEND if policy == "resend" else SKIP)
    seed = int(os.environ.get("GATE_CHAOS_SEED", str(random.randrange(10**6))))
    dice = random.Random(seed)
    many = CHAOS_OCCURRENCES
    rig.settings = replace(
        rig.settings,
        many=many,
        rate=CHAOS_RATE,
        idle=2.0,
        seconds=0.2,
        slow=0.3,
        base=datetime.now(UTC) + timedelta(seconds=4),
    )
    end = time.monotonic() + 4 + many / CHAOS_RATE
    running = {kind: rig.run(kind.partition(" ")[0]) for kind in ("scheduler", "worker", "worker 2")}
    dead: set[int] = set()
    kills: Counter[str] = Counter()
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.2, 1.5))  # the chaos is in time itself
        what = dice.choice([*running, "scheduler", "gate", "broker"])
        kills[what.partition(" ")[0]] += 1
        if what == "gate":
            rig.gate.restart()
        elif what == "broker":
            rig.redis.stop()
            time.sleep(dice.uniform(0.0, 0.7))
            rig.redis.start()
        else:
            dead.add(running[what].pid)
            kill(running[what])
            running[what] = rig.run(what.partition(" ")[0])

    def over() -> bool:
        for what, process in running.items():
            if process.poll() is not None:
                dead.add(process.pid)
                running[what] = rig.run(what.partition(" ")[0])
        rig.poke()
        return pending(rig) <= 1 and len(ended(rig) | unsent(rig) | cut_short(rig, dead)) == many

    eventually(over, f"all is done:\n{rig.tail()}", 120)
    starts: dict[int, list[int]] = {}
    for number, pid in rig.lines("start"):
        starts.setdefault(number, []).append(pid)
    wrong = {n: pids for n, pids in starts.items() if any(pid not in dead for pid in pids[:-1])}
    again = sum(len(pids) - 1 for pids in starts.values())
    lost = unsent(rig) - set(starts)
    cut = cut_short(rig, dead)
    summary = (
        f"seed {seed}, {policy}: {many} occurrences, {dict(kills)} kills, {len(rig.lines('kicked'))} kicks,"
        f" {rig.skipped()} copies skipped,"
        f" {len(starts)} started, {again} again after a worker's death, {len(lost)} listed as not sent,"
        f" {len(cut)} cut short by a worker's death after a copy was skipped"
    )
    sys.stderr.write(summary + "\n")  # pytest shows it with -s
    assert wrong == {}, f"seed {seed}: started twice though the worker lived"
    assert len(starts) + len(lost) == many
    if policy == "resend":
        assert len(starts) == many
    assert set(starts) == ended(rig) | cut_short(rig, dead), f"seed {seed}"


def ended(rig: Rig) -> set[int]:
    return {number for number, _ in rig.lines("end")}


def cut_short(rig: Rig, dead: set[int]) -> set[int]:
    """The limit that the README states: redelivered while it ran, skipped, and then its worker was killed."""
    log = rig.log.read_text()
    begun = {number for number, pid in rig.lines("start") if pid in dead} - ended(rig)
    return {number for number in begun if re.search(rf"once:job-{number} at [^ ]+ is skipped: held ", log)}


def unsent(rig: Rig) -> set[int]:
    """What the ledger lists as not sent."""
    with rig.gate.client() as client:
        status = client.call("Control.Status")
    listed = [*status["doubts"], *status["missed"]]
    return {int(info["schedule"].rpartition("-")[2]) for info in listed}
