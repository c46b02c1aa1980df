"""What sources list: a schedule begins when it is listed first, and a whole round forgets what it leaves out."""

from datetime import timedelta

import pytest

from gate import listings
from gate.interface import SourceIn, rfc3339
from gate.listings import Listing, Rounds
from tests.support.book import NOON

MINUTE = timedelta(minutes=1)


def asked(*names: str, trigger: str = "0 3 * * *") -> list[SourceIn]:
    return [SourceIn(schedule=name, trigger=trigger) for name in names]


def listing(source: str = "app", trigger: str = "0 3 * * *") -> Listing:
    return Listing(source=source, trigger=trigger, since=NOON, looked=NOON)


def test_a_schedule_begins_when_it_is_listed_first() -> None:
    assert listings.listed({}, "app", asked("a", "b"), NOON) == {"a": listing(), "b": listing()}


def test_a_schedule_that_is_listed_again_changes_nothing() -> None:
    assert listings.listed({"a": listing()}, "app", asked("a"), NOON + MINUTE) == {}


def test_another_trigger_begins_anew() -> None:
    changed = listings.listed({"a": listing()}, "app", asked("a", trigger="0 4 * * *"), NOON + MINUTE)
    later = NOON + MINUTE
    assert changed == {"a": Listing(source="app", trigger="0 4 * * *", since=later, looked=later)}


def test_a_schedule_that_moves_to_another_source_goes_on() -> None:
    assert listings.listed({"a": listing()}, "new", asked("a"), NOON + MINUTE) == {"a": listing("new")}


def test_what_a_source_leaves_out_is_forgotten_and_that_of_others_stays() -> None:
    known = {"a": listing(), "b": listing(), "c": listing("other")}
    assert listings.left_out(known, "app", {"a"}) == {"b": None}
    assert listings.left_out(known, "app", {"a", "b"}) == {}


def test_no_more_than_a_number_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MOST_LISTED", 2)
    known = {"a": listing()}
    assert set(listings.listed(known, "app", asked("b", "c"), NOON)) == {"b"}
    full = {"a": listing(), "b": listing()}
    assert set(listings.listed(full, "app", asked("a", "b", "c", trigger="new"), NOON)) == {"a", "b"}


def test_what_is_dealt_with_moves_on_and_never_back() -> None:
    moved = listing().dealt_with(NOON + MINUTE)
    assert (moved.since, moved.looked) == (NOON, NOON + 2 * MINUTE)
    assert moved.dealt_with(NOON) == moved


def test_how_far_a_scheduler_has_looked_is_remembered_in_steps_and_never_beyond_now() -> None:
    def after_looking(minutes: int, now: int) -> listings.Listing | None:
        looked = rfc3339(NOON + minutes * MINUTE)
        schedule = SourceIn(schedule="a", trigger="0 3 * * *", looked=looked)
        return listings.listed({"a": listing()}, "app", [schedule], NOON + now * MINUTE).get("a")

    assert after_looking(9, now=60) is None
    assert after_looking(-9, now=60) is None
    moved = after_looking(11, now=60)
    assert moved is not None
    assert (moved.since, moved.looked) == (NOON, NOON + 11 * MINUTE)
    ahead = after_looking(600, now=60)
    assert ahead is not None
    assert ahead.looked == NOON + 60 * MINUTE


def test_notes_are_read_as_they_were_written_and_others_are_left_out() -> None:
    notes = listings.to_notes({"a": listing(), "b": None})
    assert notes["b"] is None
    assert notes["a"] is not None
    assert listings.from_notes({"a": notes["a"], "bad": b"{", "worse": b"{}"}) == {"a": listing()}


# -- rounds


def test_a_round_is_whole_with_its_last_call() -> None:
    rounds = Rounds()
    assert rounds.add("r", ["a", "b"], NOON, last=False) is None
    assert "r" in rounds
    assert rounds.add("other", ["x"], NOON, last=True) == {"x"}
    assert rounds.add("r", ["b", "c"], NOON, last=True) == {"a", "b", "c"}
    assert "r" not in rounds


def test_a_round_whose_beginning_another_gate_has_heard_is_never_whole() -> None:
    rounds = Rounds(["r"])
    assert rounds.add("r", ["c"], NOON, last=True) is None
    assert rounds.add("s", ["c"], NOON, last=True) == {"c"}


@pytest.mark.parametrize("later", [timedelta(minutes=11), timedelta(minutes=-1)])
def test_a_round_that_takes_too_long_is_not_whole(later: timedelta) -> None:
    rounds = Rounds()
    rounds.add("r", ["a"], NOON, last=False)
    rounds.add("other", ["a"], NOON + later, last=False)
    assert rounds.add("r", ["b"], NOON + later, last=True) is None
    assert rounds.add("other", ["b"], NOON + later, last=True) == {"a", "b"}


def test_rounds_take_no_more_than_a_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MOST_IN_ROUNDS", 10)
    monkeypatch.setattr(listings, "MOST_DROPPED", 3)
    rounds = Rounds()
    for number in range(5):
        rounds.add(f"r{number}", map(str, range(11)), NOON, last=False)
        assert f"r{number}" not in rounds
    assert rounds.add("r4", ["a"], NOON, last=True) is None
    assert rounds.add("r0", ["a"], NOON, last=True) == {"a"}, "so long ago that it is not remembered"
