"""Real procrastinate workers, started by its command line, by `run_worker_async` and by Django, beside a gate that the
test plays. (`test_procrastinate_hours.py` has the real one.)
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.procrastinate_rig import WAYS, Rig
from tests.support import tell
from tests.support.fetch_gate import FetchGate
from tests.support.postgres import PostgresServer
from tests.support.procrastinate_app import new_database

pytestmark = [pytest.mark.process, pytest.mark.slow]

TENFOLD = 10
"""A goal is asserted ten times over: the machine may be busy with ten other things."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "gate.sock") as fake:
        yield fake


@pytest.fixture
def rig(postgres_server: PostgresServer, gate: FetchGate, tmp_path: Path) -> Iterator[Rig]:
    with Rig(tmp_path, new_database(postgres_server), gate.path) as rig:
        yield rig


def watched(rig: Rig, gate: FetchGate) -> None:
    """Until the worker has asked, and has its answer."""
    rig.until(gate.watchers, "the worker asks the gate")
    time.sleep(0.1)


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_starts_no_job_while_closed_runs_at_the_opening_and_stops_at_once(
    way: str, rig: Rig, gate: FetchGate
) -> None:
    gate.close()
    rig.defer("waits")
    worker = rig.worker(way)
    watched(rig, gate)
    assert gate.watchers()[0].worker == "transfer-1"
    time.sleep(1.0)
    assert not rig.told("start")
    opened = time.time()
    gate.open()
    delay = rig.started("waits") - opened
    tell(f"opening to start, {way}: {delay * 1000:.1f} ms")
    assert delay < 0.1 * TENFOLD
    gate.close()
    rig.until(lambda: "end" in rig.events.read_text(), "the job ends")
    time.sleep(0.1)
    code, seconds = worker.end()
    tell(f"SIGTERM of a closed worker, {way}: {seconds * 1000:.0f} ms")
    assert seconds < 1.0 * TENFOLD
    assert code == 0
    assert rig.rows("SELECT count(*) FROM procrastinate_workers") == [(0,)], "it took leave"
    assert "Traceback" not in worker.log.read_text()


def test_twenty_openings(rig: Rig, gate: FetchGate) -> None:
    gate.close()
    rig.worker()
    watched(rig, gate)
    delays: list[float] = []
    for number in range(20):
        rig.defer(str(number))
        time.sleep(0.1)
        opened = time.time()
        gate.open()
        delays.append(rig.started(str(number)) - opened)
        gate.close()
    tell(f"opening to start, median of 20: {statistics.median(delays) * 1000:.1f} ms, most {max(delays) * 1000:.1f} ms")
    assert min(delays) > 0
    assert statistics.median(delays) < 0.1 * TENFOLD


def test_without_listening_a_job_starts_within_one_poll_of_the_opening(rig: Rig, gate: FetchGate) -> None:
    gate.close()
    rig.defer("waits")
    rig.worker("cli", "--no-listen-notify", "--fetch-job-polling-interval", "0.5")
    watched(rig, gate)
    opened = time.time()
    gate.open()
    assert rig.started("waits") - opened < 0.5 * TENFOLD


def test_a_job_that_runs_over_the_closing_ends_and_can_be_aborted(rig: Rig, gate: FetchGate) -> None:
    worker = rig.worker("cli", "--abort-job-polling-interval", "0.2")
    aborted = rig.defer("aborted", 60.0)
    rig.defer("ends", 2.0)
    rig.started("aborted")
    rig.started("ends")
    gate.close()
    rig.defer("waits")
    rig.abort(aborted)
    rig.until(lambda: rig.statuses()[0] == "aborted", "the abort reaches the job", 10.0)
    assert rig.stalled(30.0) == []
    rig.until(lambda: "ends" in rig.told("end"), "the other ends")
    rig.until(lambda: rig.statuses() == ["aborted", "succeeded", "todo"], "and nothing is started")
    assert worker.running


@pytest.mark.parametrize("opens", [True, False])
def test_a_gate_that_is_killed_and_comes_back_ends_no_worker_and_starts_nothing(
    opens: bool, rig: Rig, gate: FetchGate
) -> None:
    gate.open() if opens else gate.close()
    worker = rig.worker()
    watched(rig, gate)
    gate.stop()
    rig.defer("while away")
    if opens:
        rig.started("while away", 5.0)  # by the last answer
    else:
        time.sleep(1.0)
        assert not rig.told("start")
    gate.open()
    back = time.time()
    gate.start()
    rig.defer("when back")
    assert rig.started("when back") - back < 2.0 * TENFOLD
    assert worker.running
    rig.until(lambda: "the gate is back" in worker.log.read_text(), "the worker says so")
    log = worker.log.read_text()
    assert log.count("no answer from the gate") == log.count("the gate is back") == 1


def test_a_blocking_job_keeps_no_closing_from_the_worker(rig: Rig, gate: FetchGate) -> None:
    rig.worker()
    watched(rig, gate)
    rig.defer("blocks", 1.0, task="e2e:blocking")
    rig.started("blocks")
    gate.close()
    rig.defer("waits")
    rig.until(lambda: "blocks" in rig.told("end"), "it ends")
    time.sleep(0.3)
    assert rig.statuses() == ["succeeded", "todo"]


def test_a_job_that_forks_leaves_the_workers_connection_alone(rig: Rig, gate: FetchGate) -> None:
    rig.worker()
    watched(rig, gate)
    rig.defer("forks", 1.0, task="e2e:forking")
    rig.started("forks")
    gate.close()
    rig.defer("waits")
    rig.until(lambda: "forks" in rig.told("end"), "the child ends")
    time.sleep(0.2)
    assert rig.statuses() == ["succeeded", "todo"]
    gate.open()
    rig.started("waits")
    assert gate.accepted == 1


DJANGO = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.e2e.procrastinate_site.settings"
import django
from procrastinate.contrib.django import app
from procrastinate_gate import install
from procrastinate_gate.hooks import Hooks
try:
    install(app)
except TypeError as error:
    print(error)
django.setup()
from procrastinate.contrib.django.procrastinate_app import current_app
print(Hooks.of(current_app).settings.worker)
install(app, worker="by hand")
print(Hooks.of(current_app).settings.worker)
"""


def test_the_stand_in_that_django_code_imports_is_refused_before_the_app_is_ready_and_seen_through_then(
    rig: Rig,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DJANGO],
        env=rig.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    refused, *workers = done.stdout.splitlines()
    assert 'PROCRASTINATE_ON_APP_READY = "procrastinate_gate.install"' in refused
    assert workers == ["None", "by hand"]
