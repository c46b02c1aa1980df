"""Review and Missed: what a scheduler may have missed, and what it should offer again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gate import errors, review
from gate.interface import CatchUp, ReviewIn, SourceIn, rfc3339
from gate.rules import Paused, SendPolicy
from tests.support.book import KEEP, NOON
from tests.support.engine import FaultyStore, World

S = "nightly"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ALL = SendPolicy(catch_up=CatchUp.ALL)
NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def begin(policy: SendPolicy = ALL) -> tuple[World, Any]:
    """A world in which a peer has listed the schedule at noon."""
    world = World(policy)
    peer = world.peer()
    peer.review(S)
    return world, peer


# -- since


def test_a_new_schedule_begins_now() -> None:
    world = World(ALL)
    world.move(7)
    found = world.peer().review(S)[S]
    assert (found.since, found.catch_up, found.known, found.again) == (world.clock.now(), CatchUp.ALL, [], [])
    assert found.paused is None


def test_what_is_listed_goes_on_from_where_it_began() -> None:
    world, peer = begin()
    world.move(600)
    assert peer.review(S)[S].since == NOON


def test_missed_ones_are_looked_for_no_further_back_than_the_rule_says() -> None:
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    world.move(3600)
    assert peer.review(S)[S].since == NOON + 50 * MINUTE


def test_whoever_looks_for_missed_ones_is_told_where_those_begin_that_are_too_old_to_be_sent() -> None:
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    world.move(3600)
    peer.miss(S, NOON + 55 * MINUTE)
    found = peer.review(S, looked=NEVER)[S]
    assert (found.back, found.since, found.known) == (NOON, NOON + 50 * MINUTE, [NOON + 55 * MINUTE])
    assert peer.review(S, number="2")[S].back is None, "one who does not look is told of none"
    found = peer.review(S, number="3", looked=NOON + 45 * MINUTE)[S]
    assert (found.back, found.since) == (NOON + 45 * MINUTE, NOON + 50 * MINUTE)
    found = peer.review(S, number="4", looked=NOON + 58 * MINUTE)[S]
    assert (found.back, found.since, found.known) == (None, NOON + 58 * MINUTE, [])


def test_how_far_was_looked_survives_a_restart() -> None:
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    world.move(3600)
    peer.review(S, looked=NOON + 45 * MINUTE)
    world.begin()
    found = world.peer().review(S, looked=NEVER)[S]
    assert (found.back, found.since) == (NOON + 45 * MINUTE, NOON + 50 * MINUTE)


def test_what_is_too_old_is_looked_for_no_further_back_than_records_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "KNOWN", 3)
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    world.move(3600)
    for number in (10, 20, 30, 40):
        peer.miss(S, NOON + number * MINUTE)
    found = peer.review(S, looked=NEVER)[S]
    assert (found.back, found.since) == (NOON + 20 * MINUTE, NOON + 50 * MINUTE)


def test_missed_ones_are_looked_for_no_further_back_than_the_ledger_remembers() -> None:
    world = World(SendPolicy(catch_up_within=KEEP * 2))
    peer = world.peer()
    peer.review(S)
    world.move(KEEP + 60)
    assert peer.review(S)[S].since == NOON + MINUTE


def test_a_clock_that_was_ahead_and_is_set_back_hides_nothing() -> None:
    world, peer = begin()
    world.move(3600)
    peer.miss(S, NOON + HOUR, first=rfc3339(NOON), count=61)
    world.move(-3600)
    assert peer.review(S, number="2")[S].since == NOON
    world.move(300)
    assert peer.review(S, number="3")[S].since == NOON


def test_another_trigger_begins_anew() -> None:
    world, peer = begin()
    world.move(600)
    assert peer.review(S, trigger="5 * * * *")[S].since == NOON + 10 * MINUTE


def test_a_schedule_that_was_not_listed_for_a_round_begins_anew() -> None:
    world, peer = begin()
    world.move(60)
    peer.review("other", number="2")
    world.move(60)
    assert peer.review(S, number="3")[S].since == NOON + 2 * MINUTE


def test_an_empty_round_leaves_out_everything() -> None:
    world, peer = begin()
    assert peer.review(number="2") == {}
    world.move(60)
    assert peer.review(S, number="3")[S].since == NOON + MINUTE


def test_a_round_of_several_calls_leaves_out_what_none_of_them_lists() -> None:
    world, peer = begin()
    peer.review("b", number="2", last=False)
    assert peer.review(S, number="2", last=False)[S].since == NOON
    peer.review("c", number="2")
    world.move(60)
    for name in (S, "b", "c"):
        assert peer.review(name, number="3", last=False)[name].since == NOON
    assert peer.review("d", number="3")["d"].since == NOON + MINUTE
    assert peer.review(S, "d", number="4").keys() == {S, "d"}
    assert peer.review("b", number="5", last=False)["b"].since == NOON + MINUTE, "it was left out of round 4"


def test_a_round_of_another_source_leaves_out_nothing() -> None:
    world, peer = begin()
    world.move(60)
    peer.review("x", source="other")
    assert peer.review(S)[S].since == NOON


def test_listings_survive_a_restart() -> None:
    world, _ = begin()
    world.move(60)
    world.begin()
    assert world.peer().review(S)[S].since == NOON


def test_a_round_that_a_restart_cuts_in_two_leaves_out_nothing() -> None:
    world, peer = begin()
    peer.review(S, number="2", last=False)
    world.begin()
    world.move(60)
    world.peer().review("b", number="2")
    assert world.peer().review(S, number="3")[S].since == NOON
    world.begin()
    peer = world.peer()
    peer.review("b", number="2")
    world.move(60)
    assert peer.review(S, number="4")[S].since == NOON + 2 * MINUTE, "round 2 was whole this time"


def test_nothing_is_written_for_a_listing_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, peer = begin()
    written: list[Any] = []
    monkeypatch.setattr(world.store, "put_notes", lambda *note: written.append(note))
    peer.review(S)
    assert written == []


def test_listings_beyond_what_is_remembered_miss_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gate.listings.MOST_LISTED", 1)
    world, peer = begin()
    world.move(60)
    found = peer.review(S, "b")
    assert (found[S].since, found["b"].since) == (NOON, NOON + MINUTE)
    assert found["b"].catch_up is CatchUp.NONE


# -- known


def test_every_occurrence_with_a_record_is_known() -> None:
    world, peer = begin()
    for minute in (0, 1, 3):
        world.move(60)
        peer.claim(S, NOON + minute * MINUTE, f"t{minute}")
    peer.confirm("t0")
    peer.miss(S, NOON + 2 * MINUTE)
    peer.claim("other", NOON)
    assert peer.review(S)[S].known == [NOON + minute * MINUTE for minute in (0, 1, 2, 3)]


def test_what_lies_before_the_known_ones_that_are_named_is_not_called_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "KNOWN", 2)
    world, peer = begin()
    world.move(600)
    for minute in (1, 5, 7):
        peer.claim(S, NOON + minute * MINUTE)
    found = peer.review(S)[S]
    assert (found.since, found.known) == (NOON + 5 * MINUTE, [NOON + 5 * MINUTE, NOON + 7 * MINUTE])


def test_what_a_report_stands_for_is_dealt_with() -> None:
    world, peer = begin()
    world.move(3600)
    peer.miss(S, NOON + 40 * MINUTE, first=rfc3339(NOON), count=41)
    assert peer.review(S)[S].since == NOON + 41 * MINUTE
    world.begin()
    peer = world.peer()
    peer.miss(S, NOON + 20 * MINUTE, first=rfc3339(NOON), count=21)
    assert peer.review(S)[S].since == NOON + 41 * MINUTE, "it never goes back"


def test_a_report_of_one_leaves_those_before_it() -> None:
    world, peer = begin()
    world.move(3600)
    peer.miss(S, NOON + 40 * MINUTE)
    found = peer.review(S)[S]
    assert (found.since, found.known) == (NOON, [NOON + 40 * MINUTE])


# -- again


def again(peer: Any) -> list[tuple[datetime, str]]:
    return [(offered.at, offered.reason) for offered in peer.review(S)[S].again]


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_what_was_released_is_offered_until_it_is_sent(catch_up: CatchUp) -> None:
    world, peer = begin(SendPolicy(catch_up=catch_up))
    peer.claim(S, NOON, "a")
    assert again(peer) == []
    peer.release("a")
    world.move(60)
    assert again(peer) == [(NOON, "released by its holder: not sent")]
    peer.claim(S, NOON, "b")
    assert again(peer) == []
    peer.confirm("b")
    assert again(peer) == []


def test_what_was_released_is_offered_though_later_ones_are_dealt_with() -> None:
    world, peer = begin()
    peer.claim(S, NOON, "a")
    peer.release("a")
    world.move(1800)
    peer.miss(S, NOON + 20 * MINUTE, first=rfc3339(NOON + MINUTE), count=20)
    assert [at for at, _ in again(peer)] == [NOON]


@pytest.mark.parametrize(("on_doubt", "offered"), [("skip", []), ("resend", [NOON])])
def test_a_doubt_is_offered_where_the_rule_says_resend(on_doubt: Any, offered: list[datetime]) -> None:
    world, peer = begin(SendPolicy(on_doubt=on_doubt))
    peer.claim(S, NOON, "a", lease=1.0)
    world.move(60)
    assert [at for at, _ in again(peer)] == offered


def test_what_is_past_its_deadline_or_too_old_is_not_offered() -> None:
    world, peer = begin(SendPolicy(deadline=120.0))
    peer.claim(S, NOON, "a")
    peer.release("a")
    world.move(120)
    assert len(again(peer)) == 1
    world.move(1)
    assert again(peer) == []
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    peer.claim(S, NOON, "a")
    peer.release("a")
    world.move(601)
    assert again(peer) == []


def test_what_was_released_before_the_schedule_began_anew_is_not_offered() -> None:
    world, peer = begin()
    peer.claim(S, NOON, "a")
    peer.release("a")
    world.move(60)
    peer.review(number="2")
    assert again(peer) == []


@pytest.mark.parametrize("kind", ["doubt", "missed"])
def test_what_an_operator_allows_is_offered_however_old_it_is(kind: str) -> None:
    world, peer = begin(SendPolicy(catch_up_within=600.0))
    if kind == "doubt":
        peer.claim(S, NOON, "a", lease=1.0)
    else:
        peer.miss(S, NOON)
    world.move(DAY.total_seconds())
    assert again(peer) == []
    peer.resend(S)
    assert again(peer) == [(NOON, "an operator allowed a new send")]
    world.move(601)
    assert again(peer) == [], "nobody took it"


def test_the_newest_are_offered_first_and_a_number_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "AGAIN", 2)
    world, peer = begin()
    for minute in range(3):
        peer.claim(S, NOON + minute * MINUTE, f"t{minute}")
        peer.release(f"t{minute}")
        world.move(60)
    assert [at for at, _ in again(peer)] == [NOON + MINUTE, NOON + 2 * MINUTE]


# -- paused, observed


def test_a_pause_is_told_with_its_end() -> None:
    world, peer = begin()
    world.engine.paused = lambda schedule, at: Paused(reason="backup", until=at + HOUR) if schedule == S else None
    found = peer.review(S, "other")
    assert (found[S].paused, found["other"].paused) == (NOON + HOUR, None)
    world.engine.paused = lambda schedule, at: Paused(reason="always", until=None)
    paused = peer.review(S)[S].paused
    assert paused is not None
    assert paused > NOON + 8 * 365 * DAY


def test_where_the_gate_only_observes_nothing_is_caught_up() -> None:
    world, peer = begin(SendPolicy(mode="observe", catch_up=CatchUp.ALL))
    world.engine.paused = lambda schedule, at: Paused(reason="backup", until=at + HOUR)
    peer.claim(S, NOON, "a")
    peer.release("a")
    world.move(60)
    found = peer.review(S)[S]
    assert (found.catch_up, found.again, found.paused) == (CatchUp.NONE, [], None)


# -- refused


def test_no_more_than_a_hundred_are_listed_in_a_call() -> None:
    peer = World().peer()
    assert len(peer.review(*map(str, range(100)))) == 100
    with pytest.raises(errors.InvalidClaim, match="schedules: 101 are given, at most 100 are allowed"):
        peer.review(*map(str, range(101)))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("source", {"source": ""}),
        ("source", {"source": "x" * 513}),
        ("round", {"round": ""}),
        ("round", {"round": "x" * 129}),
        (
            "schedules[1].schedule",
            {"schedules": [SourceIn(schedule="a", trigger="t"), SourceIn(schedule="", trigger="t")]},
        ),
        ("schedules[0].schedule", {"schedules": [SourceIn(schedule="x" * 513, trigger="t")]}),
        ("schedules[0].trigger", {"schedules": [SourceIn(schedule="a", trigger="x" * 513)]}),
        ("schedules[0].trigger", {"schedules": [SourceIn(schedule="a", trigger="")]}),
        ("schedules[0].looked", {"schedules": [SourceIn(schedule="a", trigger="t", looked="yesterday")]}),
    ],
)
def test_what_cannot_be_a_listing_is_refused(field: str, fields: dict[str, Any]) -> None:
    world = World()
    good: dict[str, Any] = {"source": "app", "round": "1", "last": True, "schedules": []}
    answer = world.peer().call(world.reviews.review, "Review", ReviewIn(**good | fields))
    assert isinstance(answer, errors.InvalidClaim)
    assert answer.field == field


def test_a_report_that_makes_no_sense_is_refused() -> None:
    world = World()
    answer = world.peer().miss(S, NOON + MINUTE)
    assert isinstance(answer, errors.InvalidClaim)


def test_while_the_store_fails_nothing_is_remembered_or_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(FaultyStore):
        def put_notes(self, kind: str, changes: Any) -> None:
            self.probe()
            super().put_notes(kind, changes)

    base = World(ALL)
    world = World(ALL, store=Full(base.clock, KEEP))
    world.clock = base.clock
    peer = world.peer()
    world.store.fault = "before"
    with pytest.raises(errors.StoreUnavailable):
        peer.review(S)
    assert isinstance(peer.miss(S, NOON), errors.StoreUnavailable)
    world.store.fault = ""
    base.clock.move(60)
    assert peer.review(S)[S].since == NOON + MINUTE


# -- counted


def test_what_was_missed_is_counted_by_schedule() -> None:
    world, peer = begin()
    world.move(3600)
    for _ in range(2):
        peer.miss(S, NOON + 9 * MINUTE, first=rfc3339(NOON), count=10)
    assert world.engine.tallies.of(S).missed == 10
