"""Real procrastinate workers beside a real gate with a limit: how many jobs run at once, counted by the jobs.

A job appends a line when it starts and one before it ends, and a line this short is written whole: so the file has them
in the order in which they happened, and never counts more jobs than really ran.
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.procrastinate_rig import Rig
from tests.support import tell
from tests.support.gate_process import GateProcess
from tests.support.postgres import PostgresServer
from tests.support.procrastinate_app import new_database

pytestmark = [pytest.mark.process, pytest.mark.slow]

TENFOLD = 10
"""A goal is asserted ten times over: the machine may be busy with ten other things."""
GRACE_SECONDS = 2.0
WAIT_SECONDS = 30.0
CONFIG = """
timezone = "UTC"

[[fetch]]
name = "dicom"
workers = ["transfer-*"]
queues = ["a"]
at_once = {limit}
"""

MakeGate = Callable[..., GateProcess]


class Event(NamedTuple):
    """A line of a job; `running`: how many jobs ran when it was written, by all lines so far."""

    what: str
    key: str
    at: float
    running: int


@pytest.fixture
def gate(make_gate: MakeGate) -> GateProcess:
    return make_gate(config=CONFIG.format(limit=3)).start()


@pytest.fixture
def rig(postgres_server: PostgresServer, gate: GateProcess, tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, new_database(postgres_server), gate.socket) as rig:
        yield rig


def limit(gate: GateProcess, number: int) -> None:
    """Reload with another limit; it is in force when this returns."""
    gate.config.write_text(CONFIG.format(limit=number))
    with gate.client() as client:
        client.call("Control.Reload")


def start_workers(rig: Rig, count: int = 2, concurrency: int = 8) -> list[Any]:
    options = ("--concurrency", str(concurrency), "--fetch-job-polling-interval", "5")
    return [rig.worker("cli", *options, name=f"transfer-{number}") for number in range(count)]


def events(rig: Rig, dead: int | None = None) -> list[Event]:
    """What the jobs told, in order. Those of a process that is `dead` end with the last line that it wrote."""
    lines = [json.loads(line) for line in rig.events.read_text().splitlines()]
    last = max((number for number, line in enumerate(lines) if line["pid"] == dead), default=None)
    running: dict[tuple[str, int], None] = {}
    found: list[Event] = []
    for number, line in enumerate(lines):
        job = line["key"], line["pid"]
        if line["event"] == "start":
            running[job] = None
        else:
            del running[job]
        found.append(Event(line["event"], line["key"], line["at"], len(running)))
        if number == last:
            running = {other: None for other in running if other[1] != dead}
    return found


def most(found: list[Event]) -> int:
    return max(event.running for event in found)


def pool(gate: GateProcess) -> dict[str, Any]:
    with gate.client() as client:
        (found,) = client.call("Control.Status")["pools"]
    return dict(found)


def ended(rig: Rig, count: int, seconds: float = 120.0) -> None:
    rig.until(lambda: rig.events.read_text().count('"end"') >= count, f"{count} jobs end", seconds)


def nothing_is_left(rig: Rig, gate: GateProcess) -> None:
    rig.until(lambda: pool(gate)["taken"] == 0, "every place is free", WAIT_SECONDS)


def test_two_workers_of_eight_run_three_hundred_jobs_three_at_once(rig: Rig, gate: GateProcess) -> None:
    jobs, seconds = 300, 0.1
    for number in range(jobs):
        rig.defer(str(number), seconds)
    start_workers(rig)
    ended(rig, jobs)
    found = events(rig)
    assert most(found) == 3
    took, ideal = found[-1].at - found[0].at, jobs * seconds / 3
    tell(
        f"300 jobs of 0.1 s, 3 at once: {took:.2f} s, {took / ideal - 1:.1%} above the ideal {ideal:.0f} s (goal 15 %)"
    )
    assert took < ideal * (1 + 0.15 * TENFOLD)
    assert set(rig.statuses()) == {"succeeded"}
    nothing_is_left(rig, gate)


def test_a_smaller_limit_waits_for_jobs_to_end_and_a_greater_one_is_used_at_once(rig: Rig, gate: GateProcess) -> None:
    limit(gate, 8)
    for number in range(60):
        rig.defer(str(number), 1.0)
    start_workers(rig)
    rig.until(lambda: len(rig.told("start")) >= 8, "eight run")
    time.sleep(0.5)
    limit(gate, 3)
    smaller = time.time()
    time.sleep(3.0)
    limit(gate, 8)
    greater = time.time()
    rig.until(lambda: events(rig)[-1].running == 8, "eight run again", WAIT_SECONDS)
    found = events(rig)
    assert most(found) == 8
    after = [event for event in found if smaller < event.at < greater]
    assert {event.what for event in after[:5]} == {"end"}, "the first five places that came free were not given again"
    assert max(event.running for event in after if event.what == "start") == 3
    followed = [event.at - greater for event in found if event.what == "start" and event.at > greater][:5]
    tell(f"a limit from 3 to 8: five more jobs started after {max(followed) * 1000:.0f} ms (goal 200 ms)")
    assert max(followed) < 0.2 * TENFOLD
    rig.until(lambda: not pool(gate)["waiting"] and pool(gate)["taken"] == 0, "all have run", 120.0)
    assert set(rig.statuses()) == {"succeeded"}, "no job was killed"


def test_a_worker_that_is_killed_frees_its_places(rig: Rig, gate: GateProcess) -> None:
    for number in range(6):
        rig.defer(str(number), 600.0 if number < 3 else 0.1)
    (doomed,) = start_workers(rig, 1)
    rig.until(lambda: len(rig.told("start")) == 3, "three run")
    options = ("--concurrency", "8", "--fetch-job-polling-interval", "60")
    rig.worker("cli", *options, name="transfer-other")
    rig.until(lambda: pool(gate)["waiting"], "the other one waits")
    killed = time.time()
    doomed.end(signal.SIGKILL)
    ended(rig, 3, WAIT_SECONDS)
    found = events(rig, dead=doomed.pid)
    assert most(found) == 3
    freed = found[3].at - killed
    tell(f"SIGKILL of a worker: its places were used again after {freed:.2f} s (the grace is {GRACE_SECONDS:g} s)")
    assert GRACE_SECONDS - 0.1 < freed < GRACE_SECONDS + 0.5 * TENFOLD
    nothing_is_left(rig, gate)


def test_a_limit_holds_while_the_gate_is_killed_and_started_again(rig: Rig, gate: GateProcess) -> None:
    jobs = 120
    for number in range(jobs):
        rig.defer(str(number), 0.2)
    workers = start_workers(rig)
    for count in (10, 40, 80):
        ended(rig, count)
        gate.restart()
    ended(rig, jobs)
    assert most(events(rig)) == 3
    assert set(rig.statuses()) == {"succeeded"}
    assert all(worker.running for worker in workers)
    nothing_is_left(rig, gate)


def test_a_stopped_worker_keeps_its_places_also_when_the_gate_is_killed(rig: Rig, gate: GateProcess) -> None:
    for number in range(6):
        rig.defer(str(number), 0.5 if number < 3 else 0.1)
    (stopped,) = start_workers(rig, 1)
    rig.until(lambda: len(rig.told("start")) == 3, "three run")
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        start_workers(rig, 1)
        rig.until(lambda: pool(gate)["waiting"], "the other one waits")
        gate.restart()
        time.sleep(GRACE_SECONDS + 1.0)
        assert len(rig.told("start")) == 3
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    ended(rig, 6)
    assert most(events(rig)) == 3
    nothing_is_left(rig, gate)


def test_a_place_that_comes_free_is_used_at_once_by_another_worker(rig: Rig, gate: GateProcess) -> None:
    limit(gate, 1)
    start_workers(rig, 2, concurrency=1)
    for number in range(20):
        rig.defer(str(number), 0.1)
    ended(rig, 20)
    found = events(rig)
    assert most(found) == 1
    gaps = [after.at - before.at for before, after in zip(found[1::2], found[2::2], strict=False)]
    tell(f"a place to its next job, median of 19: {statistics.median(gaps) * 1000:.1f} ms (goal 100 ms)")
    assert statistics.median(gaps) < 0.1 * TENFOLD
    nothing_is_left(rig, gate)


def test_idle_workers_ask_for_places_no_more_often_than_they_poll(rig: Rig, gate: GateProcess) -> None:
    start_workers(rig, 3)
    rig.defer("one")
    ended(rig, 1)
    time.sleep(1.0)
    before = acquires(gate)
    time.sleep(10.0)
    asked = acquires(gate) - before
    tell(f"3 idle workers that poll every 5 s: {asked} asked for a place in 10 s")
    assert asked <= 3 * (10 / 5 + 1)


def acquires(gate: GateProcess) -> int:
    """How often a place was asked for, by the gate's log."""
    words = [line.get("event", line.get("message", "")) for line in gate.log_lines()]
    return sum(str(text).startswith(("a place was given", "no place")) for text in words)


@pytest.mark.skipif("GATE_REAL_MINUTES" not in os.environ, reason="takes two minutes: set GATE_REAL_MINUTES=1")
def test_a_limit_by_the_hour_goes_from_eight_to_three_and_back_under_load(
    postgres_server: PostgresServer, make_gate: MakeGate, tmp_path: Path
) -> None:
    """As a reload above, by the timetable alone: three in the next whole minute, eight before and after it."""
    now = datetime.now(UTC)
    smaller = (now + timedelta(seconds=85)).replace(second=0, microsecond=0)
    greater = smaller + timedelta(minutes=1)
    table = f'["daily {smaller:%H:%M}-{greater:%H:%M}: 3", "else: 8"]'
    gate = make_gate(config=CONFIG.format(limit=table)).start()
    with Rig(tmp_path, new_database(postgres_server), gate.socket) as rig:
        for number in range(800):
            rig.defer(str(number), 1.0)
        start_workers(rig)
        rig.until(lambda: len(rig.told("start")) >= 8, "eight run")
        time.sleep((greater - datetime.now(UTC)).total_seconds() + 2.0)
        found = events(rig)
    begin, end = smaller.timestamp(), greater.timestamp()
    assert max(event.running for event in found if event.at < begin) == 8
    within = [event for event in found if begin < event.at < end]
    assert {event.what for event in within[:5]} == {"end"}, "the first five places that came free were not given again"
    assert max(event.running for event in within if event.what == "start") == 3
    followed = [event.at - end for event in found if event.what == "start" and event.at > end][:5]
    tell(f"a limit from 3 to 8 by the hour: five more jobs started after {max(followed) * 1000:.0f} ms (goal 200 ms)")
    assert max(followed) < 0.2 * TENFOLD
    ends = {event.key for event in found if event.what == "end"}
    started = {event.key for event in found if event.what == "start" and event.at < end - 2.0}
    assert started <= ends, "no job was killed"
