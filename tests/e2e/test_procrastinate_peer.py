"""What stopping and starting a worker by the clock does, and a gated worker does not: the comparison of tests/bench."""

import re
import subprocess
import sys

import pytest

from tests.support import tell
from tests.support.gate_process import ROOT
from tests.support.postgres import find_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

SECONDS = 300


def test_the_peer_runs_a_long_job_twice_and_loses_ticks_and_the_gated_worker_does_neither() -> None:
    if find_server() is None:
        pytest.skip("no PostgreSQL server on this machine: apt install postgresql, or run tests/run.py")
    command = [sys.executable, "-m", "tests.bench.peer_worker"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=SECONDS)
    tell(done.stdout)
    delays, runs, lost = (re.split(r"\s{2,}", line)[1:] for line in done.stdout.splitlines()[1:])
    assert all(float(delay.removesuffix(" ms")) > 0 for delay in delays)
    assert runs == ["2", "1"]
    assert [count.startswith("0 of ") for count in lost] == [False, True]
