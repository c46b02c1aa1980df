"""Verdicts against plain code that goes through rules, lines and overrides minute by minute."""

from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from itertools import count, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calendars import Days
from gate.config import parse
from gate.fetchrules import FetchRules, Verdict
from gate.interface import Steer
from gate.overrides import NO_OVERRIDES, Override, Overrides
from tests.support import wall_clock
from tests.support.wall_clock import DAY, MINUTE, Case, moments

ZONES = ("Europe/Berlin", "Australia/Lord_Howe")
HOLIDAYS = Days(dates=frozenset(wall_clock.HOLIDAYS), yearly=frozenset(wall_clock.YEARLY))
NAMES = ("a", "ab", "abc", "b", "x")
GLOBS = ("*", "a", "a*", "?b", "b", "[ax]", "*c")
SECOND = timedelta(seconds=1)


class Plain(NamedTuple):
    """A rule as this oracle reads it. `known`: the minutes that were looked at, since plain code is slow."""

    name: str
    workers: list[str]
    queues: list[str]
    open: list[Case] | None
    closed: list[Case]
    last_start: int
    zone: str
    known: dict[datetime, bool]

    def toml(self) -> str:
        keys = [f"name = {self.name!r}", f"workers = {self.workers}", f"queues = {self.queues}"]
        if self.open is not None:
            keys.append(f"open = {[case.text for case in self.open]}")
        if self.closed:
            keys.append(f"closed = {[case.text for case in self.closed]}")
        if self.last_start:
            keys.append(f"last_start = '{self.last_start}m'")
        return "\n".join(["[[fetch]]", *keys, f"timezone = {self.zone!r}", ""])

    def covers(self, worker: str, queue: str) -> bool:
        return any(fnmatchcase(worker, glob) for glob in self.workers) and any(
            fnmatchcase(queue, glob) for glob in self.queues
        )

    def net(self, at: datetime) -> bool:
        if at not in self.known:
            reads = wall_clock.wall(at, ZoneInfo(self.zone))
            is_open = self.open is None or any(case.reads(reads) for case in self.open)
            self.known[at] = is_open and not any(case.reads(reads) for case in self.closed)
        return self.known[at]

    def starts(self, at: datetime) -> bool:
        minute = at.replace(second=0, microsecond=0)
        return all(self.net(minute + n * MINUTE) for n in range(self.last_start + 1))


class World(NamedTuple):
    """A configuration, what was ordered over it, and one question."""

    rules: list[Plain]
    uncovered: bool
    orders: dict[str, Override]
    worker: str
    queues: list[str]

    def compiled(self) -> FetchRules:
        top = f"uncovered = '{'open' if self.uncovered else 'closed'}'\n"
        config = parse((top + "".join(rule.toml() for rule in self.rules)).encode(), "gate.toml")
        return FetchRules(type(config)(fetch=config.fetch, uncovered=config.uncovered, days=HOLIDAYS))

    def open(self, queue: str, at: datetime) -> bool:
        rule = next((rule for rule in self.rules if rule.covers(self.worker, queue)), None)
        if rule is None:
            return self.uncovered
        order = self.orders.get(rule.name)
        if order is not None and at < order.until:
            return order.action is Steer.OPEN
        return rule.starts(at)

    def fetchable(self, at: datetime) -> tuple[str, ...]:
        return tuple(queue for queue in self.queues if self.open(queue, at))

    def instants(self, start: datetime, end: datetime) -> list[datetime]:
        """Every instant in [start, end) at which anything may change, and the last second before the end."""
        whole = start.replace(second=0, microsecond=0)
        minutes = takewhile(lambda at: at < end, (whole + n * MINUTE for n in count(1)))
        ends = (order.until for order in self.orders.values())
        return sorted(at for at in {start, *minutes, *ends, end - SECOND} if start <= at < end)


@st.composite
def rules(draw: st.DrawFn, key: str, number: int) -> Plain:
    lines = wall_clock.lines(key)
    globs = st.lists(st.sampled_from(GLOBS), min_size=1, max_size=2, unique=True)
    return Plain(
        name=f"r{number}",
        workers=draw(st.just(["*"]) | globs),
        queues=draw(globs),
        open=draw(st.none() | st.lists(lines, min_size=1, max_size=3)),
        closed=draw(st.lists(lines, max_size=2)),
        last_start=draw(st.sampled_from([0, 0, 1, 45, 200])),
        zone=key,
        known={},
    )


@st.composite
def orders(draw: st.DrawFn, rule: str, now: datetime) -> Override:
    return Override(
        rule=rule,
        action=draw(st.sampled_from([Steer.OPEN, Steer.CLOSE])),
        until=now + timedelta(seconds=draw(st.integers(-1800, 20_000))),
        note="because",
        by="ops",
        uid=1,
        since=now,
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[datetime]]:
    key = draw(st.sampled_from(ZONES))
    now = draw(moments(key))
    plain = [draw(rules(key, number)) for number in range(draw(st.integers(1, 3)))]
    ordered = [draw(orders(rule.name, now)) for rule in plain if draw(st.booleans())]
    world = World(
        rules=plain,
        uncovered=draw(st.booleans()),
        orders={order.rule: order for order in ordered},
        worker=draw(st.sampled_from(NAMES)),
        queues=draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)),
    )
    later = [now + timedelta(seconds=draw(st.integers(-20_000, 20_000))) for _ in range(2)]
    return world, [now, *later, now]


@pytest.mark.slow
@settings(max_examples=100)
@given(worlds())
def test_an_answer_is_what_plain_code_finds_and_holds_until_it_changes(drawn: tuple[World, list[datetime]]) -> None:
    world, moments_asked = drawn
    compiled, overrides = world.compiled(), Overrides(world.orders)
    for now in moments_asked:  # the clock goes back and forth: what was remembered must not show
        verdict = compiled.answer(world.worker, world.queues, now, overrides)
        expected = world.fetchable(now)
        assert (verdict.open, verdict.queues, verdict.excluded) == (bool(expected), expected, None)
        end = now + DAY / 4 if verdict.until is None else min(verdict.until, now + DAY / 4)
        assert all(world.fetchable(at) == expected for at in world.instants(now, end))
        if verdict.until is not None and verdict.until <= now + DAY / 4:
            assert world.fetchable(verdict.until) != expected


@pytest.mark.slow
@settings(max_examples=100)
@given(worlds())
def test_an_override_is_seen_at_once_and_so_is_its_end(drawn: tuple[World, list[datetime]]) -> None:
    world, (now, *_) = drawn
    compiled = world.compiled()
    for ordered in (world.orders, {}, world.orders):
        table = Overrides(ordered)
        seen = compiled.answer(world.worker, world.queues, now, table).queues
        assert seen == world._replace(orders=ordered).fetchable(now)


def fetched(verdict: Verdict, queue: str) -> bool:
    """Whether a client that goes by the patterns of an answer to "all queues" would fetch from this one."""
    if any(fnmatchcase(queue, glob) for glob in verdict.excluded or ()):
        return False
    return verdict.queues is None or any(fnmatchcase(queue, glob) for glob in verdict.queues)


@pytest.mark.slow
@settings(max_examples=100)
@given(worlds())
def test_the_answer_for_all_queues_lets_nothing_through_and_holds_until_it_changes(
    drawn: tuple[World, list[datetime]],
) -> None:
    world, moments_asked = drawn
    overrides = Overrides(world.orders)
    compiled = world.compiled()
    for now in moments_asked:
        verdict = compiled.answer(world.worker, None, now, overrides)
        for queue in (*NAMES, "none of them"):
            assert not fetched(verdict, queue) or world.open(queue, now)
        if verdict.queues is None and verdict.excluded is None:
            assert all(world.open(queue, now) for queue in NAMES)
        if verdict.until is not None:
            before = world.compiled().answer(world.worker, None, verdict.until - SECOND / 1000, overrides)
            after = compiled.answer(world.worker, None, verdict.until, overrides)
            said = (verdict.open, verdict.queues, verdict.excluded)
            assert (before.open, before.queues, before.excluded) == said or verdict.until - now < SECOND / 1000
            assert (after.open, after.queues, after.excluded) != said


def test_a_literal_name_is_answered_for_all_queues_as_if_it_were_asked_for() -> None:
    """Where no glob stands between, patterns say the same as names."""
    now = datetime.fromisoformat("2026-11-30T12:00:00+00:00")
    text = "".join(f"[[fetch]]\nqueues = ['{name}']\nopen = ['mon 00:00-24:00']\n" for name in "ab")
    text += "[[fetch]]\nqueues = ['c', 'a']\nopen = ['tue 00:00-24:00']\n"
    rules = FetchRules(parse(f"timezone = 'UTC'\nuncovered = 'closed'\n{text}".encode(), "gate.toml"))
    verdict = rules.answer("w", None, now, NO_OVERRIDES)
    assert verdict.queues == rules.answer("w", ["a", "b", "c", "d"], now, NO_OVERRIDES).queues == ("a", "b")
