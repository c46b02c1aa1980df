"""The shim as a schedule source like any other: what it passes on, its name, and importing it."""

import asyncio
import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from taskiq import ScheduledTask, ScheduleSource
from taskiq_redis import ListRedisScheduleSource

from taskiq_gate import GatedScheduleSource
from tests.support.fake_gate import FakeGate
from tests.support.taskiq_app import App, ListSource, run, scheduled

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


def said(caplog: pytest.LogCaptureFixture, level: int) -> str:
    """What the shim logged at a level."""
    return "\n".join(r.getMessage() for r in caplog.records if r.name == "taskiq_gate" and r.levelno == level)


# ---- delegation


def test_it_is_a_schedule_source_and_everything_else_of_the_inner_one(fake: FakeGate) -> None:
    """Trap 11."""
    hooks = {name for name, _ in inspect.getmembers(ScheduleSource, inspect.isfunction) if not name.startswith("_")}
    assert hooks <= vars(GatedScheduleSource).keys(), "a hook that taskiq adds must be passed on too"
    inner = ListSource(scheduled())
    source = GatedScheduleSource(inner, socket=fake.path)
    assert isinstance(source, ScheduleSource)
    assert source.seen is inner.seen
    with pytest.raises(AttributeError, match="nonsense"):
        source.nonsense  # noqa: B018

    async def main() -> None:
        await source.startup()
        await source.add_schedule(scheduled(schedule_id="second"))
        assert [task.schedule_id for task in await source.get_schedules()] == ["nightly", "second"]
        await source.delete_schedule("nightly")
        assert [task.schedule_id for task in inner.schedules] == ["second"]
        await source.shutdown()

    asyncio.run(main())
    assert inner.seen == ["startup", "shutdown"]


def test_schedules_keep_their_ids_and_stay_the_same_objects(fake: FakeGate) -> None:
    """Trap 12: sources find them by their ids again."""
    tasks = [scheduled(schedule_id="one"), scheduled(schedule_id="two")]

    async def work(app: App) -> None:
        assert [id(task) for task in await app.source.get_schedules()] == [id(task) for task in tasks]

    run(work, ListSource(*tasks), socket=fake.path)


def test_coroutine_hooks_are_awaited(fake: FakeGate) -> None:
    class Slow(ListSource):
        async def pre_send(self, task: ScheduledTask) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.seen.append("slow pre_send")

        async def post_send(self, task: ScheduledTask) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.seen.append("slow post_send")

    async def work(app: App) -> None:
        await app.tick(scheduled())

    assert run(work, Slow(), socket=fake.path).inner.seen[1:3] == ["slow pre_send", "slow post_send"]


def test_names_come_from_the_class_and_are_numbered() -> None:
    one, two = GatedScheduleSource(ListSource()), GatedScheduleSource(ListSource())
    named = GatedScheduleSource(ListSource(), name="mine")
    assert [one.name, two.name, named.name] == ["ListSource", "ListSource-2", "mine"]
    del two
    assert GatedScheduleSource(ListSource()).name == "ListSource-2"


def test_a_name_in_use_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    one = GatedScheduleSource(ListSource(), name="mine")
    two = GatedScheduleSource(ListSource(), name="mine")
    assert one.name == two.name
    assert "two sources have the name 'mine'" in said(caplog, logging.WARNING)


@pytest.mark.parametrize("wrong", [{"on_gate_down": "hope"}, {"name": ""}, {"name": "x" * 129}])
def test_wrong_arguments_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="allowed"):
        GatedScheduleSource(ListSource(), **wrong)


def test_an_id_in_use_twice_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Trap 10: taskiq never sends the second of two schedules with one id, of whichever sources."""

    async def main() -> None:
        nowhere: dict[str, Any] = {"socket": tmp_path / "none.sock", "timeout": 0.01}
        one = GatedScheduleSource(ListSource(scheduled()), **nowhere)
        two = GatedScheduleSource(ListSource(scheduled()), **nowhere)
        for _ in range(3):
            await one.get_schedules()
            await two.get_schedules()
        both = ListSource(scheduled(schedule_id="a"), scheduled(schedule_id="a", args=[1]))
        twice = GatedScheduleSource(both, **nowhere)
        await twice.get_schedules()

    asyncio.run(main())
    lines = said(caplog, logging.ERROR).splitlines()
    assert sorted(line.split("'")[1] for line in lines) == ["a", "nightly", "nightly"]


def test_schedules_that_are_the_same_are_listed_once_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """taskiq draws an id for each deployment that adds them; one-offs are each a send that somebody asked for."""
    drawn = [uuid4().hex for _ in range(5)]
    alike = [scheduled(schedule_id=id_) for id_ in drawn[:2]] + [scheduled(schedule_id=drawn[2], interval=9)]
    once = [scheduled(schedule_id=id_, time=datetime(2026, 11, 30, tzinfo=UTC)) for id_ in drawn[3:]]

    async def main() -> list[ScheduledTask]:
        source = GatedScheduleSource(ListSource(*alike, *once), socket=tmp_path / "none.sock", timeout=0.01)
        await source.get_schedules()
        return await source.get_schedules()

    listed = asyncio.run(main())
    assert [task.schedule_id for task in listed] == [drawn[0], *drawn[2:]]
    (line,) = said(caplog, logging.ERROR).splitlines()
    assert f"the schedules {drawn[0]} and {drawn[1]} are the same (app:job * * * * *)" in line


@pytest.mark.parametrize("skip", [True, False])
def test_a_source_that_hides_one_offs_is_reported_once(
    skip: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """L12: what it does not list cannot be listed as missed."""

    class Redis(ListRedisScheduleSource):
        async def get_schedules(self) -> list[ScheduledTask]:
            return []

    async def main() -> None:
        inner = Redis("redis://nowhere", skip_past_schedules=skip)
        source = GatedScheduleSource(inner, socket=tmp_path / "none.sock", timeout=0.01)
        for _ in range(2):
            await source.get_schedules()

    asyncio.run(main())
    assert said(caplog, logging.ERROR).count("skip_past_schedules hides one-offs") == int(skip)


# ---- importing

WITHOUT_TASKIQ = """
import sys

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("taskiq", "pycron", "trio", "redis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
import taskiq_gate
assert not {"asyncio", "taskiq", "socket"} & set(sys.modules)
try:
    from taskiq_gate import GatedScheduleSource
except ImportError as error:
    print(error)
"""


@pytest.mark.process
def test_without_taskiq_it_can_be_imported_and_says_what_is_missing() -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TASKIQ], env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout == "taskiq_gate needs taskiq: pip install 'schedule-gate[taskiq]'\n"
