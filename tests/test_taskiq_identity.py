"""A schedule is the same one in every process and after every restart, and two schedules are two."""

import copy
import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskiq import InMemoryBroker, ScheduledTask
from taskiq.kicker import AsyncKicker
from taskiq.schedule_sources import LabelScheduleSource

from taskiq_gate.identity import base_key, fingerprint, is_random, keys, task_id, title

ROOT = Path(__file__).resolve().parent.parent
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def schedule(**fields: Any) -> ScheduledTask:
    given: dict[str, Any] = {"task_name": "app:job", "labels": {}, "args": [], "kwargs": {}, "cron": "* * * * *"}
    return ScheduledTask(**given | fields)


# ---- ids


@pytest.mark.parametrize("made", [uuid.uuid4().hex, str(uuid.uuid4()), str(uuid.uuid4()).upper()])
def test_an_id_that_taskiq_drew_names_nothing(made: str) -> None:
    assert is_random(made)
    assert base_key("src", schedule(schedule_id=made)).startswith("src:app:job#")


@pytest.mark.parametrize("given", ["nightly", str(uuid.uuid5(uuid.NAMESPACE_URL, "x")), uuid.uuid4().hex + "-eu", ""])
def test_an_id_that_was_given_is_the_name(given: str) -> None:
    assert not is_random(given)
    assert base_key("src", schedule(schedule_id=given)) == f"src:{given}"
    assert base_key("src", schedule(schedule_id=given, cron="0 1 * * *", args=[1])) == f"src:{given}"


def test_sources_keep_the_same_id_apart() -> None:
    assert keys("one", [schedule(schedule_id="nightly")]) != keys("two", [schedule(schedule_id="nightly")])


def test_one_offs_that_are_the_same_have_ordinals_in_the_order_of_the_list() -> None:
    when = {"cron": None, "time": NOON}
    twins = [schedule(**when) for _ in range(3)]
    other = schedule(args=[1], **when)
    found = keys("src", [twins[0], other, *twins[1:]])
    first = base_key("src", twins[0])
    assert [found[twin.schedule_id] for twin in twins] == [first, f"{first}~1", f"{first}~2"]
    assert found[other.schedule_id] == base_key("src", other)


@pytest.mark.parametrize("trigger", [{"cron": "0 1 * * *"}, {"cron": None, "interval": 10}])
def test_others_that_are_the_same_are_one(trigger: dict[str, Any]) -> None:
    """A deployment that adds its schedules anew, under ids that taskiq draws, has not made another one."""
    twins = [schedule(**trigger) for _ in range(3)]
    assert set(keys("src", twins).values()) == {base_key("src", twins[0])}


def test_three_startups_of_a_label_source_give_the_same_keys() -> None:
    """Trap 1: it draws new ids at every startup."""
    broker = InMemoryBroker()
    broker.register_task(lambda: None, "job", schedule=[{"cron": "* * * * *", "args": [{"b", "a"}]}, {"interval": 5}])
    source = LabelScheduleSource(broker)
    seen: list[tuple[set[str], list[str]]] = []

    async def start() -> None:
        await source.startup()
        found = keys("src", await source.get_schedules())
        seen.append((set(found), list(found.values())))

    import asyncio

    for _ in range(3):
        asyncio.run(start())
    assert not seen[0][0] & seen[1][0]
    assert seen[0][1] == seen[1][1] == seen[2][1]
    assert len(set(seen[0][1])) == 2


def test_labels_that_taskiq_adds_change_nothing() -> None:
    """Trap 2: with_labels writes the schedule's id into the labels that all ticks share."""
    one = schedule(labels={"queue": "mail"})
    before = fingerprint(one)
    AsyncKicker(one.task_name, InMemoryBroker(), one.labels).with_labels(schedule_id=one.schedule_id)
    assert one.labels == {"queue": "mail", "schedule_id": one.schedule_id}
    assert fingerprint(one) == before
    one.labels["schedule"] = "[{'cron': '* * * * *'}]"
    assert fingerprint(one) == before


# ---- fingerprints


@pytest.mark.parametrize(
    "change",
    [
        {"task_name": "app:other"},
        {"cron": "*/1 * * * *"},
        {"cron_offset": "Europe/Berlin"},
        {"cron_offset": timedelta(hours=1)},
        {"interval": 60},
        {"time": NOON},
        {"args": [None]},
        {"kwargs": {"a": None}},
        {"labels": {"queue": "mail"}},
    ],
    ids=str,
)
def test_everything_else_counts(change: dict[str, Any]) -> None:
    assert fingerprint(schedule(**change)) != fingerprint(schedule())


def test_what_taskiq_reads_as_the_same_is_the_same() -> None:
    assert fingerprint(schedule(interval=60)) == fingerprint(schedule(interval=timedelta(minutes=1)))
    assert fingerprint(schedule(time=NOON)) == fingerprint(schedule(time=NOON.replace(tzinfo=None)))
    berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert fingerprint(schedule(time=NOON)) == fingerprint(schedule(time=berlin))


@given(plain)
def test_copies_and_other_orders_are_the_same(value: Any) -> None:
    turned = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    expected = fingerprint(schedule(args=[value]))
    assert fingerprint(schedule(args=[copy.deepcopy(value)])) == expected
    assert fingerprint(schedule(args=[turned])) == expected
    assert fingerprint(schedule(args=(value,))) == expected


@given(plain, plain)
def test_different_arguments_are_different(one: Any, two: Any) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert (fingerprint(schedule(args=[one])) == fingerprint(schedule(args=[two]))) == same


ODD = """
import dataclasses, datetime, decimal, enum, functools, pathlib, uuid
import pydantic

class Colour(enum.Enum):
    RED = object()

@dataclasses.dataclass
class Point:
    x: int
    tags: set

class Model(pydantic.BaseModel):
    names: frozenset[str]

class Plain:
    def __init__(self): self.inner = {"a", "b", "c", "d"}; self.made = object()

class Slots:
    __slots__ = ("left",)

class Rude:
    def __repr__(self): raise RuntimeError
    def __getattr__(self, name): raise RuntimeError

cycle = []
cycle.append(cycle)
deep = []
for _ in range(5000): deep = [deep]
slots = Slots()
slots.left = 1
ODD = [
    {"a", "b", "c", "d", "e"}, frozenset({1, 2, ("x", "y"), None}), {(1, 2): "x", 3: "y", None: 0}, b"x", 2**20000, float("nan"),
    "\\ud800", Colour.RED, Point(1, {"q", "r", "s"}), Model(names={"m", "n", "o"}), Plain(), slots, Rude(), Point, len, lambda: 0,
    functools.partial(print, 1), object(), cycle, deep, {str(n) for n in range(30_000)}, [{str(n), n} for n in range(20_000)],
    datetime.date(2026, 1, 1), datetime.timedelta(1, 2, 3), decimal.Decimal("1.10"), uuid.UUID(int=7), pathlib.PurePath("/a"),
    (n for n in [1]), type("Made", (), {}), bytearray(b"y"),
]
"""  # noqa: E501


@pytest.mark.process
def test_other_processes_find_the_same_fingerprint_for_whatever_python_can_pass() -> None:
    """Addresses, hash seeds and orders of sets are different in each."""
    program = ODD + (
        "from types import SimpleNamespace as S\n"
        "from taskiq_gate.identity import fingerprint\n"
        "for value in ODD:\n"
        "    print(fingerprint(S(task_name='t', cron='x', cron_offset=None, interval=None, time=None, args=[value],"
        " kwargs={}, labels={'a': value})))\n"
    )
    seen: set[str] = set()
    for seed in ("0", "1", "2"):
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}", "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=env, check=True, stdout=subprocess.PIPE, text=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    lines = seen.pop().split()
    assert len(lines) == 30
    assert len(set(lines)) == 30


# ---- limits


@pytest.mark.parametrize("character", ["x", "ä", "\U0001f600", "\ud800"])
def test_keys_have_at_most_512_bytes_and_long_ones_stay_apart(character: str) -> None:
    names = [character * 4000, character * 4000 + "2"]
    given = [schedule(schedule_id=name) for name in names]
    once = {"cron": None, "time": NOON}
    tasks = [schedule(task_name=name, **once) for name in names for _ in range(12)]
    found = keys("s" * 128, [*given, *tasks])
    assert all(0 < len(key.encode()) <= 512 for key in found.values())
    assert len(set(found.values())) == 26
    assert all(len(title(task).encode()) <= 200 for task in tasks)


def test_titles_say_task_and_time() -> None:
    assert title(schedule()) == "app:job * * * * *"
    assert title(schedule(cron_offset="Europe/Berlin")) == "app:job * * * * * Europe/Berlin"
    assert title(schedule(cron=None, interval=90)) == "app:job every 90 s"
    assert title(schedule(cron=None, time=NOON)) == "app:job at 2026-11-30T12:00:00+00:00"


def test_task_ids_belong_to_the_occurrence() -> None:
    one = task_id("src:nightly", NOON)
    assert uuid.UUID(one).version == 5
    assert one == uuid.UUID(one).hex == task_id("src:nightly", NOON.astimezone(timezone(timedelta(hours=5))))
    assert len({one, task_id("src:nightly", NOON + timedelta(minutes=1)), task_id("src:other", NOON)}) == 3
