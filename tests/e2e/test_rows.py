"""Rows of the notes on the send side, each as a story: a real `taskiq scheduler`, Redis and gate, by a fake clock.

Here are those rows that need whole processes: a source that is read at a start, a process that is frozen, two clocks,
the night in which clocks change. tests/test_row_map.py says which test holds which row.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from tests.e2e.rig import APP, Entry, Scheduler, add_schedules, environment, eventually, ledger, sent, told
from tests.e2e.row import MINUTE, START, Row
from tests.e2e.row import played as played_rows
from tests.e2e.settings import Settings
from tests.support.faketime import FakeTime, StepTime
from tests.support.gate_process import ROOT
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.slow]

ALL = 'catch_up = "all"\ncatch_up_within = "3d"\n'
BERLIN = ZoneInfo("Europe/Berlin")
FORWARD, BACK = date(2026, 3, 29), date(2026, 10, 25)
"""When clocks go forward at 02:00, and back at 03:00."""
SPEED = 2.0
"""Leaves 27 s for two starts within a minute."""


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def listed(row: Row) -> list[Entry]:
    with row.gate.client() as client:
        return ledger(client, row.settings.name)


def minutes(row: Row, kind: str = "random") -> list[str]:
    """Which occurrences of the schedules of this kind were sent, once for each message."""
    ats = {entry.task_id: entry.at for entry in listed(row)}
    return sorted(f"{ats[one.task_id]:%H:%M}" for one in sent(row.settings) if one.kind == kind)


def ticks(row: Row, scheduler: Scheduler, count: int = 3) -> None:
    """Let taskiq's loop go round so often."""
    for _ in range(count):
        row.events.wait("tick", by=scheduler)


# ---- sources


def run_by_a_program(row: Row) -> None:
    """D4: a scheduler that a program runs, twice in one minute; it has no --skip-first-run."""
    row.start_gate()
    program = (
        "import asyncio; from taskiq.api.scheduler import run_scheduler_task; from tests.e2e.app import scheduler; "
        "asyncio.run(run_scheduler_task(scheduler, run_startup=True))"
    )
    for expected in ("sent", "refused"):
        scheduler = row.scheduler(command=[sys.executable, "-c", program])
        assert row.outcome(scheduler) == expected
        scheduler.end()
    assert row.copies() == 1


def deployed_thrice(row: Row) -> None:
    """D7, E2: each deployment adds the schedules anew, under ids that taskiq draws; the old ones stay."""
    row.settings = replace(row.settings, sources=("redis",), ticks=True)
    row.start_gate()
    for deployment, expected in enumerate(("sent", "refused")):
        add_schedules(row.settings, deployment)
        scheduler = row.scheduler()
        assert row.outcome(scheduler) == expected
        ticks(row, scheduler)
        scheduler.end()
    add_schedules(row.settings, 2)
    last = row.scheduler()
    assert row.outcome(last) == "refused"
    last.end()
    row.move(MINUTE + timedelta(seconds=65))
    last = row.scheduler()
    assert row.outcome(last) == "sent", "the next minute"
    ticks(row, last)
    assert minutes(row) == ["12:00", "12:01"]
    assert len({entry.schedule for entry in listed(row)}) == 1
    warnings = [line for line in row.log.read_text().splitlines() if "are the same" in line]
    assert len(warnings) == 1 + 2 + 2
    assert len({word for line in warnings for word in line.split() if len(word) == 32}) == 3, "each id is named"


def one_off_not_deleted(row: Row) -> None:
    """D6: killed after the send and before its source deletes it."""
    row.settings = replace(row.settings, sources=("redis",), kinds=("once",), once=START)
    row.add_schedules()
    row.start_gate()
    row.stopped_at("after confirm").end()
    following = row.scheduler(ticks=True)
    assert row.outcome(following) == "refused"
    following.end()
    third = row.scheduler(ticks=True)
    ticks(row, third)
    third.end()
    assert len(sent(row.settings)) == 1
    assert row.log.read_text().count("was sent before: it is removed") == 1


def cron_and_instant(row: Row) -> None:
    """D11: a schedule that has both, at two starts."""
    both = {"cron": "* * * * *", "time": START - timedelta(hours=1)}
    row.settings = replace(row.settings, triggers={"random": both})
    row.start_gate()
    for expected in ("sent", "refused"):
        scheduler = row.scheduler()
        assert {row.outcome(scheduler) for _ in range(2)} == {expected}
        scheduler.end()
    assert minutes(row) == ["11:00", "12:00"]


def source_that_fails(row: Row) -> None:
    """D5, D10, L8: a source that fails sends nothing twice, and no minute is lost meanwhile."""
    row.settings = replace(row.settings, sources=("redis",), ticks=True)
    row.add_schedules()
    row.start_gate()
    first = row.scheduler("--update-interval", "1", failing=(2, 3))
    assert row.outcome(first) == "sent"
    ticks(row, first, 5)
    first.end()
    second = row.scheduler("--update-interval", "1", "--skip-first-run", failing=(1,))
    assert row.outcome(second) == "refused", "nothing was marked as run"
    second.end()
    row.move(MINUTE + timedelta(seconds=65), speed=8.0)
    third = row.scheduler("--update-interval", "1", failing=tuple(range(2, 200)))
    wait_for(row, third, 2)
    first_minute, one, next_one = (entry.at for entry in listed(row) if entry.state == "sent")
    assert first_minute == MINUTE
    assert next_one - one == timedelta(minutes=1)
    assert len(sent(row.settings)) == 3


def dead_crons(row: Row) -> None:
    """L11: crons that taskiq never fires, cannot read or dies of do no harm to others, and lint names each."""
    dead = {
        "sunday": "0 0 * * 7",
        "step": "5/15 * * * *",
        "night": "0 22-2 * * *",
        "month": "0 0 * mar *",
        "zero": "*/0 * * * *",
        "word": "@daily",
        "spaces": "0  0 * * *",
    }
    row.move(START + timedelta(seconds=15), speed=8.0)
    row.settings = replace(
        row.settings,
        ticks=True,
        kinds=("random", *dead),
        triggers={name: {"cron": cron} for name, cron in dead.items()},
    )
    row.start_gate()
    scheduler = row.scheduler("--update-interval", "1")
    for _ in range(2):
        assert row.outcome(scheduler) == "sent"
    ticks(row, scheduler)
    assert minutes(row) == ["12:00", "12:01"]
    assert len(listed(row)) == 2
    log = row.log.read_text()
    assert "has the cron '*/0 * * * *', a step of 0, which would end the scheduler: it is left out" in log
    for cron in ("@daily", "0  0 * * *"):
        assert f"Cannot parse cron: {cron} " in log, "taskiq says so, every second"
    lint = subprocess.run(
        [sys.executable, "-m", "gate.ctl", "lint", "--app", APP],
        cwd=ROOT, env=environment(row.timeline) | told(row.settings), check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert lint.returncode == 1, lint.stderr
    assert [cron for cron in dead.values() if f"cron {cron!r}: " not in lint.stdout] == []


def hidden_one_offs(row: Row) -> None:
    """L12: what skip_past_schedules hides is lost to taskiq; the log says so, and without it the gate sends it once."""
    row.settings = replace(row.settings, sources=("redis",), ticks=True, kinds=("once",), once=START)
    row.start_gate()
    skipping = {"skip_past_schedules": True}
    first = row.scheduler(redis_options=skipping)
    ticks(row, first, 2)
    row.add_schedules()  # in the minute in which it is due
    ticks(row, first, 2)
    first.end()
    row.move(MINUTE + timedelta(seconds=65))
    second = row.scheduler(redis_options=skipping)
    ticks(row, second)
    second.end()
    assert not sent(row.settings)
    assert row.log.read_text().count("skip_past_schedules hides one-offs") == 2
    assert row.outcome(row.scheduler()) == "sent"
    assert minutes(row, "once") == ["12:00"]


# ---- clocks


ZONED = {"half": "*/30 * * * *", "nine": "0 9 * * *", "gap": "30 2 * * *"}


def zoned(row: Row) -> Settings:
    triggers = {kind: {"cron": cron, "cron_offset": "Europe/Berlin"} for kind, cron in ZONED.items()}
    return replace(row.settings, kinds=tuple(ZONED), triggers=triggers)


def of_day(row: Row, day: date) -> dict[str, list[str]]:
    """What was sent of each kind for this day in Berlin, by the wall clock there."""
    ats = {entry.task_id: entry.at.astimezone(BERLIN) for entry in listed(row)}
    assert {entry.state for entry in listed(row)} == {"sent"}, "nothing is listed as missed"
    pairs = sorted((ats[one.task_id].astimezone(UTC), one.kind) for one in sent(row.settings))
    local = [(at.astimezone(BERLIN), kind) for at, kind in pairs]
    return {kind: [f"{at:%H:%M}" for at, of in local if of == kind and at.date() == day] for kind in ZONED}


def wait_for(row: Row, scheduler: Scheduler, count: int) -> None:
    """Let it send so much."""
    for number in range(count):
        assert row.outcome(scheduler) == "sent", f"{number} were sent"


def clocks_go_forward(row: Row) -> None:
    """L10, E30, E31: a time that does not exist is no occurrence: it is not sent, and was not missed."""
    row.settings = replace(zoned(row), ticks=True)
    row.move(instant("2026-03-28 23:00:05"), SPEED)
    row.start_gate(rules=ALL)
    first = row.scheduler()
    wait_for(row, first, 1)
    first.end()
    row.move(instant("2026-03-29 00:59:58"), SPEED)  # 01:59:58; 01:00 is 03:00
    second = row.scheduler()
    wait_for(row, second, 3 + 1)
    second.end()
    row.move(instant("2026-03-30 00:29:58"), SPEED)  # 02:29:58 of the next day
    third = row.scheduler()
    wait_for(row, third, 46 + 1 + 2)
    ticks(row, third)
    found = of_day(row, FORWARD)
    assert len(found["half"]) == 46
    assert found["nine"] == ["09:00"]
    assert found["gap"] == []
    assert of_day(row, FORWARD + timedelta(days=1))["gap"] == ["02:30"]


def clocks_go_back(row: Row) -> None:
    """D9, E30, E31: a time that is read twice is two occurrences, as taskiq's cron code has it; each is sent once."""
    row.settings = replace(zoned(row), ticks=True)
    row.move(instant("2026-10-24 22:00:05"), SPEED)
    row.start_gate(rules=ALL)
    first = row.scheduler()
    wait_for(row, first, 1)
    first.end()
    for begin, count in (("2026-10-25 00:30:05", 4 + 2), ("2026-10-25 01:30:05", 1 + 2)):  # 02:30:05, both times
        row.move(instant(begin), SPEED)
        before = row.scheduler()
        wait_for(row, before, count)
        before.end()
        after = row.scheduler()
        assert {row.outcome(after) for _ in range(2)} == {"refused"}
        after.end()
    row.move(instant("2026-10-25 23:00:05"), SPEED)
    last = row.scheduler()
    wait_for(row, last, 42 + 1 + 1)
    ticks(row, last)
    found = of_day(row, BACK)
    assert len(found["half"]) == 50
    assert found["nine"] == ["09:00"]
    assert found["gap"] == ["02:30", "02:30"]
    assert set(Counter(one.task_id for one in sent(row.settings)).values()) == {1}


def two_clocks(row: Row) -> None:
    """E23: the clock of one scheduler is 90 s ahead of the gate's, that of the other 90 s behind."""
    row.move(START, speed=6.0)
    row.start_gate()
    gates = row.timeline.now
    ahead, behind = (FakeTime(row.library, gates() + timedelta(seconds=offset), 6.0) for offset in (90, -90))
    row.timeline = ahead
    row.scheduler()
    row.timeline = behind
    scheduler = row.scheduler()
    for _ in range(2):
        assert row.outcome(scheduler) == "sent"
    found = minutes(row)
    assert len(found) == len(set(found)) >= 2
    ats = {entry.task_id: entry.at for entry in listed(row)}
    assert all(
        one.at - ats[one.task_id] < timedelta(minutes=1) for one in sent(row.settings) if one.pid == scheduler.pid
    )
    log = row.log.read_text()
    assert "12:01:00Z is refused: wait (not due yet; by this clock it is: one of the two is wrong)" in log
    assert "cannot be reached" not in log


POLICIES = ("none", "latest", "all")


def missed(row: Row) -> set[str]:
    """What the ledger has as missed."""
    return {f"{one.schedule.split(':')[1]} {one.at:%H:%M}" for one in listed(row) if one.state == "missed"}


def frozen(row: Row) -> None:
    """E24, E29, L7, L13: scheduler and gate stand still for two hours; later their clock is set back by minutes."""
    clock = StepTime(row.library, row.folder / "clock")
    clock.step(START - datetime.now(UTC))
    row.live_by(clock)
    rules = "".join(
        f'[[send]]\nschedules = ["*:{policy}"]\ncatch_up = "{policy}"\ncatch_up_within = "10m"\n' for policy in POLICIES
    )
    row.settings = replace(
        row.settings,
        ticks=True,
        kinds=POLICIES,
        triggers={policy: {"cron": "* * * * *", "schedule_id": policy} for policy in POLICIES},
    )
    row.start_gate_with(rules)
    scheduler = row.scheduler("--update-interval", "2")
    wait_for(row, scheduler, 3)
    pids = (scheduler.pid, row.gate.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    clock.step(clock.offset + timedelta(hours=2))
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_for(row, scheduler, 1 + 2 + 10)
    ticks(row, scheduler)
    assert minutes(row, "none") == ["12:00", "14:00"]
    assert minutes(row, "latest") == ["12:00", "13:59", "14:00"]
    assert minutes(row, "all") == ["12:00", *(f"13:{minute}" for minute in range(51, 60)), "14:00"]
    older, newer = {f"{policy} 13:50" for policy in POLICIES}, {"latest 13:58", "none 13:59"}
    eventually(lambda: missed(row) == older | newer, "what was missed is listed, in one record where it is together")
    clock.step(clock.offset - timedelta(minutes=6))
    while scheduler.running and "ll at 2026-11-30T13:54:00Z is refused: sent" not in row.log.read_text():
        row.outcome(scheduler)
    for policy in POLICIES:
        found = minutes(row, policy)
        assert len(found) == len(set(found)), f"{policy} was sent twice"


STORIES: dict[str, Callable[[Row], Any]] = {
    story.__name__.replace("_", " "): story
    for story in (
        clocks_go_back,
        frozen,
        two_clocks,
        clocks_go_forward,
        deployed_thrice,
        source_that_fails,
        dead_crons,
        hidden_one_offs,
        run_by_a_program,
        one_off_not_deleted,
        cron_and_instant,
    )
}
"""The longest first."""


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """The stories that are told side by side."""
    redis_server.start()
    folder = tmp_path_factory.mktemp("stories")
    with played_rows(request.session, STORIES, Path(__file__), redis_server.url, folder, at_a_time=6) as stories:
        yield stories


@pytest.mark.parametrize("name", STORIES)
def test_story(played: dict[str, Future[Any]], name: str) -> None:
    played[name].result()
