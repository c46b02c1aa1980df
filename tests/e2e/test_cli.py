"""What the command line and the operating system can do to a scheduler and its gate."""

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from gate.interface import rfc3339
from tests.e2e.rig import eventually, sent
from tests.e2e.row import MINUTE, Row
from tests.e2e.settings import KINDS, TICK, fixed_id, source_name
from tests.support.faketime import find_library, remove_leftovers

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def row(redis_url: str, tmp_path: Path) -> Iterator[Row]:
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    with Row(tmp_path / "cli", redis_url, library, speed=1.0) as row:
        yield row
    remove_leftovers()


def test_two_sources_of_one_scheduler_are_told_apart_by_their_names(row: Row) -> None:
    row.settings = replace(row.settings, sources=("label", "redis"), kinds=KINDS)
    row.add_schedules()
    row.start_gate()
    for expected in ("sent", "refused"):
        scheduler = row.scheduler()
        for _ in range(2 * len(KINDS)):
            assert row.outcome(scheduler) == expected
    names = [entry.schedule.partition(":")[0] for entry in row.entries()]
    assert sorted(names) == [source_name("cli", "label")] * len(KINDS) + [source_name("cli", "redis")] * len(KINDS)
    assert row.copies() == len({one.task_id for one in row.sends()}) == 2 * len(KINDS)


def test_sigint_releases_the_claim_of_a_send_that_is_under_way(row: Row) -> None:
    row.start_gate(grace="1h")
    following = row.scheduler(held=True)
    scheduler = row.stopped_at("claim to kick")
    assert row.entry().state == "claimed"
    scheduler.end(signal.SIGINT)
    assert row.entry().state == "released"
    following.go()
    assert row.outcome(following) == "sent"
    assert row.copies() == 1


def test_a_send_timeout_that_ends_the_wait_for_another_scheduler_leaves_nothing_behind(row: Row) -> None:
    row.settings = replace(row.settings, kinds=("fixed",))
    row.start_gate()
    schedule = f"{source_name('cli', 'label')}:{fixed_id('cli', 'label')}"
    with row.gate.client() as other:
        token = other.claim(schedule, rfc3339(MINUTE), lease=600.0)["token"]
        scheduler = row.scheduler("--send-timeout", "1", ticks=True)
        eventually(lambda: "timed out after 1.0s" in row.log.read_text(), "taskiq ends the wait")
        row.events.wait("tick", by=scheduler)
        assert row.entry().state == "claimed"
        other.call("Send.Release", token=token)
        assert row.entry().state == "released"
    following = row.scheduler()
    assert row.outcome(following) == "sent"
    assert row.copies() == 1
    assert scheduler.running


def test_a_gate_that_is_stopped_does_not_stop_the_schedulers_loop(row: Row) -> None:
    row.start_gate()
    scheduler = row.stopped_at("before claim", ticks=True)
    row.events.wait("tick", by=scheduler)
    os.kill(row.gate.pid, signal.SIGSTOP)
    try:
        scheduler.go()
        for _ in range(5):
            row.events.wait("tick", by=scheduler)
        assert not row.sends()
    finally:
        os.kill(row.gate.pid, signal.SIGCONT)
    assert row.outcome(scheduler) == "sent"
    assert row.copies() == 1
    ticks = [tick.at for tick in sent(row.settings, TICK)]
    assert max(after - before for before, after in pairwise(ticks)) < timedelta(seconds=10)
