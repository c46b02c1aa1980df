"""What became of schedules since the start: counts, and the last refusals. And which instant a pause is judged by."""

from datetime import datetime, timedelta

import pytest

from gate import tallies
from gate.interface import Decision
from gate.rules import Paused, SendPolicy
from tests.support.book import NOON
from tests.support.engine import World

S = "nightly"
MINUTE = timedelta(minutes=1)


def counts(world: World, schedule: str = S) -> tuple[int, int, int, int, int]:
    tally = world.engine.tallies.of(schedule)
    return tally.sent, tally.refused, tally.doubt, tally.missed, tally.observed


def test_what_becomes_of_claims_is_counted_by_schedule() -> None:
    world = World(SendPolicy(deadline=3600.0))
    peer = world.peer()
    assert counts(world) == (0, 0, 0, 0, 0)
    peer.claim(S, NOON, "a")
    peer.claim(S, NOON, "b")
    assert counts(world) == (0, 1, 0, 0, 0)
    peer.confirm("a")
    peer.confirm("a")
    assert counts(world) == (1, 1, 0, 0, 0)
    peer.claim(S, NOON + MINUTE, "c", lease=1.0)
    world.move(70)
    peer.claim(S, NOON + MINUTE, "c", lease=1.0)
    world.move(10)
    assert counts(world) == (1, 2, 1, 0, 0)
    peer.claim(S, NOON - timedelta(hours=2))
    assert counts(world) == (1, 3, 1, 1, 0), "what is late is missed"
    assert counts(world, "other") == (0, 0, 0, 0, 0)


def test_refusals_are_remembered_with_who_was_refused_and_why() -> None:
    world = World()
    peer = world.peer()
    peer.claim(S, NOON, "a")
    world.move(1)
    peer.claim(S, NOON, "b", holder="second")
    peer.claim(S, NOON + 9 * MINUTE)
    (refusal,) = world.engine.tallies.refusals(S, NOON)
    assert (refusal.when, refusal.holder, refusal.decision, refusal.observed) == (
        NOON + timedelta(seconds=1),
        "second",
        Decision.HELD,
        False,
    )
    assert [found.decision for found in world.engine.tallies.refusals(S, None)] == [Decision.HELD, Decision.WAIT]
    assert world.engine.tallies.refusals("other", None) == []


def test_what_is_only_observed_is_told_apart() -> None:
    world = World(SendPolicy(mode="observe"))
    peer = world.peer()
    for token in ("a", "b"):
        assert peer.claim(S, NOON, token) == "send"
        peer.confirm(token)
    assert counts(world) == (1, 0, 0, 0, 1)
    assert world.engine.observed == 1
    (refusal,) = world.engine.tallies.refusals(S, NOON)
    assert (refusal.decision, refusal.observed) == (Decision.SENT, True)


def test_no_more_than_a_number_of_schedules_and_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "SCHEDULES", 2)
    monkeypatch.setattr(tallies, "REFUSALS", 2)
    world = World()
    peer = world.peer()
    for name in ("a", "b", "a", "c"):
        peer.claim(name, NOON + MINUTE)
    assert [world.engine.tallies.of(name).refused for name in "abc"] == [2, 0, 1]
    assert [len(world.engine.tallies.refusals(name, None)) for name in "abc"] == [1, 0, 1]


# -- pauses


def test_a_pause_is_judged_by_the_clock_and_what_is_early_by_its_own_time() -> None:
    world = World()
    asked: list[tuple[str, datetime]] = []

    def paused(schedule: str, at: datetime) -> Paused | None:
        asked.append((schedule, at))
        return Paused(reason="backup", until=NOON + MINUTE) if at < NOON + MINUTE else None

    world.engine.paused = paused
    peer = world.peer()
    world.move(30)
    assert peer.claim(S, NOON) == "paused"
    world.move(28)
    assert peer.claim(S, NOON + MINUTE) == "send", "two seconds early"
    assert peer.claim(S, datetime.max.replace(year=8000, second=0, microsecond=0, tzinfo=NOON.tzinfo)) == "wait"
    assert peer.claim("interval", None, every=60.0) == "paused"
    world.move(10)
    assert peer.claim("late", NOON) == "send", "the pause is over"
    now = NOON + timedelta(seconds=58)
    assert asked == [
        (S, NOON + timedelta(seconds=30)),
        (S, NOON + MINUTE),
        (S, now + timedelta(seconds=5)),
        ("interval", now),
        ("late", NOON + timedelta(seconds=68)),
    ]


def test_who_waits_is_paused_when_the_pause_begins_meanwhile() -> None:
    world = World()
    first, second = world.peer(), world.peer()
    first.claim(S, NOON, "a")
    waiting = second.ask(S, NOON, "b", more=True)
    world.engine.paused = lambda schedule, at: Paused(reason="backup", until=None)
    first.release("a")
    assert waiting.said == ["held", "paused"]
