"""What is remembered of missed minutes: every one is sent later or told of as missed, and no other."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.interface import CatchUp
from taskiq_gate.missing import NEWEST, Missing, Span, begin
from taskiq_gate.occurrence import MINUTE

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def after(minutes: int) -> datetime:
    return NOON + minutes * MINUTE


def always(minute: datetime) -> bool:
    return True


def found(minutes: int, catch_up: CatchUp) -> tuple[list[datetime], Span | None]:
    missing = Missing("* * * * *", NOON, NOON)
    missing.look(always, set(), after(minutes), 1_000_000)
    return missing.to_offer(catch_up), missing.to_miss(catch_up)


def test_none_tells_of_all_latest_sends_one_all_sends_the_newest_hundred() -> None:
    assert found(3, CatchUp.NONE) == ([], Span(first=NOON, last=after(2), count=3))
    assert found(3, CatchUp.LATEST) == ([after(2)], Span(first=NOON, last=after(1), count=2))
    assert found(3, CatchUp.ALL) == ([NOON, after(1), after(2)], None)
    offered, missed = found(10_000, CatchUp.ALL)
    assert offered == [after(number) for number in range(9_900, 10_000)]
    assert missed == Span(first=NOON, last=after(9_899), count=9_900)
    assert found(0, CatchUp.LATEST) == ([], None)


@given(
    known=st.sets(st.integers(0, 400)),
    step=st.integers(1, 7),
    ends=st.lists(st.integers(0, 400), min_size=1, max_size=6).map(sorted),
    most=st.integers(1, 400),
    catch_up=st.sampled_from(CatchUp),
    told=st.booleans(),
)
def test_what_was_missed_is_offered_or_told_of_once(
    known: set[int], step: int, ends: list[int], most: int, catch_up: CatchUp, told: bool
) -> None:
    """However the search is cut into pieces, and whether or not the gate takes what it is told."""
    records = {after(number) for number in known}
    missing = Missing("cron", NOON, NOON)
    counted = 0
    for end in ends:
        while missing.look(lambda minute: (minute - NOON) // MINUTE % step == 0, records, after(end), most):
            assert len(missing.newest) <= NEWEST
        if told and (span := missing.to_miss(catch_up)) is not None:
            counted += span.count
            missing.missed(span)
    span = missing.to_miss(catch_up)
    lost = [after(number) for number in range(0, ends[-1], step) if number not in known]
    offered = missing.to_offer(catch_up)
    assert counted + (span.count if span else 0) + len(offered) == len(lost)
    assert offered == lost[len(lost) - len(offered) :]


def test_what_has_a_record_by_now_is_neither_offered_nor_told_of() -> None:
    missing = Missing("cron", NOON, NOON)
    missing.look(always, {after(1)}, after(4), 100)
    missing.review(NOON, {after(2)})
    assert missing.to_offer(CatchUp.ALL) == [NOON, after(3)]


def test_what_has_become_too_old_is_told_of() -> None:
    missing = Missing("cron", NOON, NOON)
    missing.look(always, set(), after(4), 100)
    missing.review(after(2), set())
    assert missing.to_offer(CatchUp.ALL) == [after(2), after(3)]
    assert missing.to_miss(CatchUp.ALL) == Span(first=NOON, last=after(1), count=2)


def test_the_search_goes_on_where_it_was() -> None:
    before = begin(None, "cron", NOON - timedelta(seconds=30), set(), after(5))
    assert (before.start, before.end) == (NOON, NOON)
    before.look(always, set(), after(5), 100)
    again = begin(before, "cron", after(1), set(), after(9))
    assert again is before
    assert (again.end, again.to_miss(CatchUp.ALL)) == (after(5), Span(first=NOON, last=NOON, count=1))
    assert begin(before, "cron", after(60), set(), after(70)).end == after(60)


@pytest.mark.parametrize(
    ("trigger", "since", "now"),
    [
        ("other cron", NOON, after(9)),
        ("cron", NOON - DAY, after(9)),  # the configuration looks further back now
        ("cron", NOON, after(3)),  # the clock was set back
    ],
)
def test_the_search_begins_anew_where_it_was_about_something_else(trigger: str, since: datetime, now: datetime) -> None:
    before = begin(None, "cron", NOON, set(), after(5))
    before.look(always, set(), after(5), 100)
    again = begin(before, trigger, since, set(), now)
    assert (again.start, again.end, again.newest) == (since, since, [])


# ---- what is too old to be sent


@given(
    known=st.sets(st.integers(0, 300)),
    step=st.integers(1, 7),
    listings=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 80), st.integers(0, 60)), min_size=1, max_size=12),
    within=st.integers(1, 90),
)
def test_every_missed_minute_is_told_of_or_still_to_be_sent_however_the_searches_go(
    known: set[int], step: int, listings: list[tuple[int, int, int]], within: int
) -> None:
    """A listing: how many minutes it comes after the one before, and how many are looked at, and of gaps. What comes of
    it is told at once, and the gate takes how far was looked for granted.
    """

    def due(minute: datetime) -> bool:
        return (minute - NOON) // MINUTE % step == 0

    records = {after(number) for number in known}
    missing, now, looked, told = None, 0, NOON, 0
    for later, most, most_in_gaps in [*listings, (1, 10_000, 10_000)]:
        now += later
        since = max(after(now - within), looked)
        missing = begin(missing, "cron", since, records, after(now), looked if looked < since else None)
        missing.look(due, records, after(now), most)
        while missing.look_in_gaps(due, records, most_in_gaps) and most_in_gaps > 1_000:
            pass
        for old in missing.too_old():
            told += old.count
            missing.missed(old)
        if not missing.gaps and (span := missing.to_miss(CatchUp.ALL)) is not None:
            told += span.count
            missing.missed(span)
        assert missing.looked >= looked
        looked = missing.looked
    assert missing is not None
    assert missing.gaps == []
    lost = [after(number) for number in range(0, now, step) if number not in known]
    assert told + len(missing.newest) == len(lost)
    assert missing.newest == lost[told:]
    assert looked == (missing.newest[0] if missing.newest else after(now))


def test_the_latest_that_was_to_be_sent_is_followed_by_none_before_it() -> None:
    missing = Missing("cron", NOON, NOON)
    missing.look(always, set(), after(3), 100)
    assert missing.to_offer(CatchUp.LATEST) == [after(2)]
    missing.review(NOON, {after(2)})
    assert missing.to_offer(CatchUp.LATEST) == []
    assert missing.to_miss(CatchUp.LATEST) == Span(first=NOON, last=after(1), count=2)


def test_nothing_is_known_of_a_gap_before_what_the_gate_remembers() -> None:
    before = begin(None, "cron", after(60), set(), after(70), NOON)
    assert before.left_in_gaps == 60
    again = begin(before, "cron", after(62), set(), after(72), after(50))
    assert again.left_in_gaps == 12
    assert again.look_in_gaps(always, set(), 100) == 12
    assert again.too_old() == [Span(first=after(50), last=after(61), count=12)]
