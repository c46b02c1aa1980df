"""Real procrastinate workers beside a real gate: overrides, restarts, and clocks that are set while they run."""

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gate.interface import rfc3339
from tests.e2e.procrastinate_rig import WAYS, Rig
from tests.support import tell
from tests.support.faketime import find_library, remove_leftovers
from tests.support.gate_process import GateProcess
from tests.support.postgres import PostgresServer
from tests.support.procrastinate_app import new_database
from tests.support.step_clock import StepClock

pytestmark = [pytest.mark.process, pytest.mark.slow]

TENFOLD = 10
"""A goal is asserted ten times over: the machine may be busy with ten other things."""
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
CONFIG = """
timezone = "UTC"

[[fetch]]
name = "dicom"
workers = ["transfer-*"]
queues = ["a"]
open = [{open}]
"""
NEVER = CONFIG.format(open='"2020-01-01 00:00 .. 2020-01-02 00:00"')
FROM_NOON = CONFIG.format(open='"daily 12:00-12:30"')

MakeGate = Callable[..., GateProcess]


@pytest.fixture
def make_rig(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(gate: GateProcess, **options: Any) -> Rig:
        made.append(Rig(tmp_path, new_database(postgres_server), gate.socket, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


def order(gate: GateProcess, action: str, now: datetime | None = None, seconds: float = 3600.0) -> None:
    until = (now or datetime.now(UTC)) + timedelta(seconds=seconds)
    with gate.client() as client:
        client.call("Control.Override", rule="dicom", action=action, until=rfc3339(until), note="a test")


def watched(rig: Rig, gate: GateProcess) -> None:
    """Until the worker watches, and has its answer."""

    def listed() -> Any:
        with gate.client() as client:
            return client.call("Control.Status")["watchers"]

    rig.until(listed, "the worker asks the gate")
    time.sleep(0.1)


@pytest.mark.parametrize("way", WAYS)
def test_an_override_reaches_a_waiting_worker(way: str, make_gate: MakeGate, make_rig: Callable[..., Rig]) -> None:
    gate = make_gate(config=NEVER).start()
    rig = make_rig(gate)
    rig.worker(way)
    watched(rig, gate)
    delays: list[float] = []
    for number in range(5):
        rig.defer(str(number))
        time.sleep(0.3)
        assert str(number) not in rig.told("start")
        ordered = time.time()
        order(gate, "open")
        delays.append(rig.started(str(number)) - ordered)
        order(gate, "close")
    tell(f"order to start, {way}, median of 5: {statistics.median(delays) * 1000:.1f} ms")
    assert min(delays) > 0
    assert statistics.median(delays) < 0.1 * TENFOLD


def test_an_override_ends_by_itself_and_no_job_starts_after_its_end(
    make_gate: MakeGate, make_rig: Callable[..., Rig]
) -> None:
    gate = make_gate(config=NEVER).start()
    rig = make_rig(gate)
    rig.worker()
    watched(rig, gate)
    end = time.time() + 1.5
    order(gate, "open", seconds=end - time.time())
    for number in range(60):
        rig.defer(str(number))
        time.sleep(0.04)
    time.sleep(0.5)
    starts = rig.told("start").values()
    assert 5 < len(starts) < 60
    assert max(starts) < end
    assert max(starts) > end - 0.5, "and the last did not wait for nothing"


@pytest.mark.parametrize("opens", [True, False])
def test_a_gate_that_is_killed_ends_no_worker_starts_nothing_outside_hours_and_is_found_again(
    opens: bool, make_gate: MakeGate, make_rig: Callable[..., Rig]
) -> None:
    gate = make_gate(config=NEVER).start()
    rig = make_rig(gate)
    worker = rig.worker()
    watched(rig, gate)
    order(gate, "open" if opens else "close")
    time.sleep(0.1)
    gate.kill()
    rig.defer("while away")
    if opens:
        rig.started("while away", 5.0)  # by the last answer
    else:
        time.sleep(1.0)
        assert not rig.told("start")
    gate.start()
    watched(rig, gate)
    order(gate, "open")
    back = time.time()
    rig.defer("when back")
    assert rig.started("when back") - back < 2.0 * TENFOLD
    assert worker.running


# ---- clocks


@pytest.fixture
def clock(tmp_path: Path) -> Iterator[StepClock]:
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    yield StepClock(library, tmp_path / "clock", NOON + timedelta(minutes=10))
    remove_leftovers()


def test_no_job_starts_outside_hours_however_the_clock_is_set(
    clock: StepClock, make_gate: MakeGate, make_rig: Callable[..., Rig]
) -> None:
    gate = make_gate(config=FROM_NOON, env=clock.env()).start()
    rig = make_rig(gate, env=clock.env())
    worker = rig.worker()
    rig.defer("at 12:10")
    rig.started("at 12:10")
    for seconds, opens in ((3600, False), (-3600, True), (-3600, False), (2 * 86400, False), (3600, True)):
        clock.step(seconds)
        key = f"{seconds:+} s, {clock.now():%d %H:%M}"
        rig.defer(key)
        if opens:
            rig.started(key, 20.0)
        else:
            time.sleep(2.0)
            assert key not in rig.told("start")
    assert len(rig.told("start")) == 1 + 5, "what waited has started at the end"
    outside = [at for at in rig.told("start").values() if not in_window(datetime.fromtimestamp(at, UTC))]
    assert outside == []
    assert worker.running


def in_window(at: datetime) -> bool:
    return at.hour == 12 and at.minute < 30


def test_hours_that_begin_with_the_missing_hour_of_a_spring_night_begin_at_the_jump(
    clock: StepClock, make_gate: MakeGate, make_rig: Callable[..., Rig]
) -> None:
    jump = datetime(2026, 3, 29, 1, tzinfo=UTC)  # in Berlin 02:00 becomes 03:00
    config = CONFIG.replace("UTC", "Europe/Berlin").format(open='"daily 02:30-05:00"')
    clock.step((jump - clock.now()).total_seconds() - 600.0)
    gate = make_gate(config=config, env=clock.env()).start()
    rig = make_rig(gate, env=clock.env())
    rig.worker()
    rig.defer("waits")
    watched(rig, gate)
    clock.step((jump - clock.now()).total_seconds() - 2.0)
    late = rig.started("waits", 30.0) - jump.timestamp()
    tell(f"the jump to the start: {late * 1000:.1f} ms")
    assert 0 <= late < 0.1 * TENFOLD


def test_hours_in_the_hour_that_an_autumn_night_has_twice_open_twice(
    clock: StepClock, make_gate: MakeGate, make_rig: Callable[..., Rig]
) -> None:
    def set_to(hour: int, minute: int, second: int = 0) -> None:
        clock.step((midnight.replace(hour=hour, minute=minute, second=second) - clock.now()).total_seconds())

    midnight = datetime(2026, 10, 25, tzinfo=UTC)  # in Berlin 02:00; at 01:00 it is 02:00 again
    config = CONFIG.replace("UTC", "Europe/Berlin").format(open='"daily 02:10-02:20"')
    set_to(0, 5)
    gate = make_gate(config=config, env=clock.env()).start()
    rig = make_rig(gate, env=clock.env())
    rig.worker()
    watched(rig, gate)
    for hour, key in enumerate(("first", "second")):
        rig.defer(key)
        set_to(hour, 5)
        time.sleep(2.0)
        assert key not in rig.told("start")
        set_to(hour, 9, 58)
        at = datetime.fromtimestamp(rig.started(key, 30.0), UTC)
        assert (at.hour, at.minute) == (hour, 10)
        set_to(hour, 30)
