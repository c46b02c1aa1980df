"""A scheduler that is restarted or killed at will, or doubled, sends each minute once.

The scenes run side by side, in minutes of 15 s; with GATE_REAL_MINUTES=1 they take their time, each source has its
own, each beside what happens without a gate, and print a table (-v prints that of the short scenes):

    GATE_REAL_MINUTES=1 .venv/bin/python -m pytest tests/e2e/test_restarts.py
"""

import faulthandler
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.e2e.rig import RealTime, Timeline, environment
from tests.e2e.scenes import CONFIG, END, MINUTES, Played, Scene, hard_scenes, play, scenes_of
from tests.e2e.settings import EVERY, KINDS
from tests.support import redis as redis_support
from tests.support.faketime import FakeTime, find_library, remove_leftovers
from tests.support.gate_process import GateProcess

pytestmark = [pytest.mark.process, pytest.mark.slow]

REAL = os.environ.get("GATE_REAL_MINUTES") == "1"
START = datetime(2026, 11, 30, 11, 59, 1, tzinfo=UTC)
SPEED = 4.0

if REAL:
    GATED = [scene for source in ("label", "redis") for scene in [*scenes_of(source, gated=True), *hard_scenes(source)]]
    BARE = [scene for source in ("label", "redis") for scene in scenes_of(source, gated=False)]
else:
    GATED = [*scenes_of("both", gated=True), *hard_scenes("both")]
    BARE = scenes_of("label", gated=False)[1:3]
ROWS = [scene for scene in GATED if not scene.in_send]
"""Those of the table."""


@pytest.fixture(scope="module")
def timeline() -> Timeline:
    if REAL:
        return RealTime()
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    return FakeTime(library, START, SPEED)


@pytest.fixture(scope="module")
def played(
    timeline: Timeline,
    redis_server: redis_support.RedisServer,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, Played]:
    """All scenes, after they were played."""
    faulthandler.cancel_dump_traceback_later()  # pytest's own, which takes a minute for a hang
    redis_server.start()
    folder = tmp_path_factory.mktemp("scenes")
    with GateProcess(folder / "gate", config=CONFIG, env=environment(timeline)) as gate:
        found = play([*GATED, *BARE], redis_server.url, gate, timeline, folder)
    remove_leftovers()
    if REAL or request.config.get_verbosity() > 0:
        plugins = request.config.pluginmanager
        with plugins.getplugin("capturemanager").global_and_fixture_disabled():
            for line in table(found):
                plugins.getplugin("terminalreporter").write_line(line)
    return found


def table(found: dict[str, Played]) -> Iterator[str]:
    """What became of each scene; a span where its schedules differ. `often` and `once`: sends of one of them."""
    sends_of = f"sends of {MINUTES}"
    head = f"\n{'scene':<24} {'starts':>6} {sends_of:>10} {'twice':>6} {'missing':>8} {'in doubt':>9}"
    yield f"{head} {'often':>6} {'once':>5} {'late':>5}"
    for name, scene in found.items():
        counts = scene.counts.values()
        sends = _span(sum(each) for each in counts)
        twice = _span(sum(max(count - 1, 0) for count in each) for each in counts)
        missing = _span(each.count(0) for each in counts)
        doubt = len(scene.doubts) if scene.scene.gated else "-"
        sources = len(scene.scene.sources)
        often, once = scene.turns / sources, len(scene.of_kind("once")) / sources
        line = f"{name:<24} {scene.starts:>6} {sends:>10} {twice:>6} {missing:>8} {doubt:>9}"
        yield f"{line} {often:>6g} {once:>5g} {scene.late:>4.1f}s"


def _span(values: Iterator[int]) -> str:
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]}..{found[-1]}"


def each(scenes: list[Scene]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [scene.name for scene in scenes])


@each(BARE)
def test_without_a_gate_the_very_same_restarts_send_minutes_twice_or_never(
    played: dict[str, Played], name: str
) -> None:
    for kind, counts in played[name].counts.items():
        wrong = counts.count(0) if name.endswith("-skip") else sum(max(count - 1, 0) for count in counts)
        assert wrong > 0, f"{kind}: this rig proves nothing"


@each(GATED)
def test_every_schedule_is_known_by_one_name_through_all_restarts(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    by_task = {entry.task_id: entry.schedule for entry in scene.entries}
    names = {(one.kind, by_task[one.task_id]) for one in scene.sends}
    assert len(names) == len({schedule for _, schedule in names}) == len(scene.scene.kinds) * len(scene.scene.sources)
    assert {entry.schedule for entry in scene.entries} == set(by_task.values()) == {schedule for _, schedule in names}


@each(GATED)
def test_no_minute_is_sent_twice(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    for entry in scene.entries:
        allowed = entry.grants if name.startswith("resend") else 1
        assert len(scene.copies(entry)) <= allowed, entry


@each(GATED)
def test_no_minute_is_missing_but_one_that_is_listed_in_doubt(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    states = {(entry.schedule, entry.at): entry.state for entry in scene.entries}
    assert len(scene.counts) == len(KINDS) * len(scene.scene.sources)
    for schedule, counts in scene.counts.items():
        for minute, count in zip(scene.minutes, counts, strict=True):
            if count == 0:
                assert states.get((schedule, minute)) == "doubt", f"{schedule} lost {minute}"
                assert (schedule, minute) in scene.doubts
            if name.startswith("resend") or scene.scene.number is None:
                assert count >= 1, f"{schedule} lost {minute}"


@each(GATED)
def test_the_ledger_says_of_each_message_what_the_clock_says(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    ats = {entry.task_id: entry.at for entry in scene.entries}
    for one in scene.sends:
        assert timedelta(seconds=-5) <= one.at - ats[one.task_id] < timedelta(seconds=90), one
    for entry in scene.entries:
        if entry.at in scene.minutes:  # the last kill may come while a later one is asked for
            assert entry.state in ("sent", "doubt"), entry
        assert entry.state != "sent" or scene.copies(entry), f"confirmed, but not sent: {entry}"
    doubts = [(entry.schedule, entry.at) for entry in scene.entries if entry.state == "doubt"]
    assert sorted(scene.doubts) == sorted(doubts)


@each([scene for scene in GATED if scene.in_send])
def test_the_kills_did_catch_schedulers_in_the_middle_of_a_send(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    if name.startswith("resend"):
        assert any(entry.grants > 1 for entry in scene.entries), "nothing was taken over: this rig proves nothing"
    else:
        assert scene.doubts, "nothing was in doubt: this rig proves nothing"


@each(ROWS)
def test_an_interval_keeps_its_cadence_through_all_restarts(played: dict[str, Played], name: str) -> None:
    """No burst, no drift, and no gap of two intervals, unless a kill left the turn between them in doubt."""
    scene = played[name]
    step = timedelta(seconds=EVERY)
    often = {one.task_id: one.at for one in scene.sends if one.kind == "often"}
    turns = [entry for entry in scene.entries if entry.task_id in often]
    schedules = {entry.schedule for entry in turns}
    assert len(schedules) == len(scene.scene.sources)
    for schedule in schedules:
        sent = [(entry.at, often[entry.task_id]) for entry in turns if entry.schedule == schedule]
        doubts = {at for found, at in scene.doubts if found == schedule}
        unsent = doubts - {at for at, _ in sent}
        end = scene.first + timedelta(seconds=END)
        counted = sum(scene.first <= when < end for when in [*(when for _, when in sent), *unsent])
        assert abs(counted - END / EVERY) <= 1.5
        for (before, earlier), (at, later) in pairwise(sent):
            assert (at - before) % step == timedelta(0), "it drifts"
            between = {before + number * step for number in range(1, (at - before) // step)}
            assert between <= doubts, f"nothing was sent between {before} and {at}"
            assert later - earlier < 2 * step or between, f"{later - earlier} between two turns"


@each(ROWS)
def test_a_one_off_is_sent_once_through_all_restarts(played: dict[str, Played], name: str) -> None:
    scene = played[name]
    ids = [one.task_id for one in scene.sends if one.kind == "once"]
    assert len(ids) == len(set(ids)) == len(scene.scene.sources)
