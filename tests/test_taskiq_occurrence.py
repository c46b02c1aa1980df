"""The occurrence that is meant is found by taskiq's own cron code, not by the clock."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from taskiq.cli.scheduler.run import is_cron_task_now

from taskiq_gate.occurrence import Asked, Matches, NoOccurrence, Trigger, trigger

MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-30T{text}+00:00")


def cron(expression: str, offset: str | timedelta | None = None) -> Matches:
    return lambda instant: is_cron_task_now(expression, instant, offset)


def minute_of(
    matches: Matches, now: datetime, asked: datetime | None = None, shift: timedelta | None = None
) -> datetime:
    """The minute that a tick at `now` means, if this process asked for the minute `asked` long ago."""
    due = trigger(now, Asked(minute=asked), cron=matches, shift=shift or timedelta(0))
    assert due.at is not None
    assert due.overlooked is None
    return due.at


@pytest.mark.parametrize(
    ("expression", "now", "minute"),
    [
        ("0 12 * * *", "12:00:00.000", "12:00"),
        ("0 12 * * *", "12:00:59.999", "12:00"),
        ("0 12 * * *", "12:01:00.050", "12:00"),  # decided at 12:00:59.95
        ("0 12 * * *", "12:10:59.999", "12:00"),
        ("*/2 * * * *", "12:01:00.050", "12:00"),
        ("* * * * *", "12:00:59.950", "12:00"),
        ("* * * * *", "12:01:00.050", "12:01"),
    ],
)
def test_it_is_the_minute_that_matches_at_or_just_before(expression: str, now: str, minute: str) -> None:
    assert minute_of(cron(expression), at(now)) == at(minute)


def test_nobody_asks_ten_minutes_late() -> None:
    with pytest.raises(NoOccurrence, match="no minute of the 10 before 2026-11-30T12:11:00Z matches"):
        trigger(at("12:11:00"), Asked(), cron=cron("0 12 * * *"))


@pytest.mark.parametrize(
    ("now", "asked", "minute"),
    [
        ("11:59:59.950", "11:59", "12:00"),  # taskiq never ticks a minute twice, so its timer was early
        ("11:59:55.000", "11:59", "12:00"),
        ("11:59:54.900", "11:59", "11:59"),
        ("11:59:59.950", None, "11:59"),
        ("11:59:59.950", "11:58", "11:59"),
        ("12:00:30.000", "12:00", "12:00"),  # the source was away for a moment, and taskiq forgot
    ],
)
def test_an_early_timer_means_the_next_minute(now: str, asked: str | None, minute: str) -> None:
    assert minute_of(cron("* * * * *"), at(now), at(asked) if asked else None) == at(minute)


def test_an_early_timer_means_nothing_where_the_next_minute_does_not_match() -> None:
    assert minute_of(cron("*/2 * * * *"), at("12:00:59.950"), at("12:00")) == at("12:00")


def test_a_clock_set_back_a_little_after_the_decision_changes_nothing() -> None:
    assert minute_of(cron("0 12 * * *"), at("11:59:59.900")) == at("12:00")


@given(
    start=st.floats(0, 59.99),
    lags=st.lists(st.floats(0, 0.4), max_size=5),
    stalls=st.lists(st.floats(1.0, 4.0), max_size=2),
    early=st.floats(0, 0.45),
    seed=st.integers(0, 1000),
)
def test_no_minute_is_asked_for_twice_and_none_is_left_out(
    start: float, lags: list[float], stalls: list[float], early: float, seed: int
) -> None:
    """L6, taskiq's own rule for when to tick (a minute since the last tick, rounded): its loop drifts over the minute's
    end, is early or late or stands still for some seconds, and every minute is asked for, once.
    """
    draw = random.Random(seed)
    tick = at("12:00:00") + timedelta(seconds=start)
    asked, last, seen = Asked(), None, list[datetime]()
    while tick < at("12:12:00"):
        now = tick + timedelta(seconds=draw.choice([*lags, *([0.0] * 20), -early]))
        if draw.random() < 0.05 and stalls:
            now += timedelta(seconds=draw.choice(stalls))
        if is_cron_task_now("* * * * *", now, None, last):
            last = now
            due = trigger(now, asked, cron=cron("* * * * *"))
            minute = due.overlooked or due.at
            asked.note(Trigger(at=minute), now)
            assert minute is not None
            assert timedelta(seconds=-5) <= now - minute < timedelta(minutes=2)
            seen.append(minute)
        tick = max(tick, now.replace(microsecond=0)) + timedelta(seconds=1)
    assert {later - earlier for earlier, later in pairwise(seen)} == {MINUTE}


def test_a_tick_that_comes_a_second_late_means_the_minute_that_it_would_have_left_out() -> None:
    every_minute = cron("* * * * *")
    asked = Asked(minute=at("12:00"), when=at("12:00:59.02"))
    late = trigger(at("12:02:00.02"), asked, cron=every_minute)
    assert late == Trigger(at=at("12:02"), overlooked=at("12:01"))


@pytest.mark.parametrize(
    ("expression", "minute", "when", "now"),
    [
        ("*/2 * * * *", "12:00", "12:00:59.020", "12:02:00.020"),  # does not match between
        ("* * * * *", "12:00", "12:00:00.020", "12:02:00.020"),  # two minutes passed: not a tick that was late
        ("* * * * *", "12:00", "12:00:59.020", "12:02:05.020"),  # not just begun
        ("* * * * *", "12:01", "12:01:00.020", "12:02:00.020"),
        ("* * * * *", "11:59", "12:00:59.020", "12:02:00.020"),
    ],
)
def test_otherwise_nothing_was_overlooked(expression: str, minute: str, when: str, now: str) -> None:
    due = trigger(at(now), Asked(minute=at(minute), when=at(when)), cron=cron(expression))
    assert due == Trigger(at=at("12:02"))


# ---- zones


def test_a_zone_is_the_cron_codes_business() -> None:
    berlin = cron("0 9 * * *", "Europe/Berlin")
    assert minute_of(berlin, at("08:00:30")) == at("08:00")
    with pytest.raises(NoOccurrence):
        minute_of(berlin, at("09:00:30"))


def test_an_hour_that_is_read_twice_has_two_occurrences() -> None:
    """2026-11-01, America/New_York: 01:30 is 05:30Z and 06:30Z."""
    newyork = cron("30 1 * * *", "America/New_York")
    for hour in (5, 6):
        twice = datetime(2026, 11, 1, hour, 30, tzinfo=UTC)
        assert minute_of(newyork, twice + timedelta(seconds=7)) == twice


@pytest.mark.parametrize("hours", [-5, 1, 14])
def test_a_shift_is_added_before_the_cron_code_looks(hours: int) -> None:
    shift = timedelta(hours=hours)
    noon_there = at("12:00") - shift
    assert minute_of(cron("0 12 * * *", shift), noon_there + timedelta(seconds=59), shift=shift) == noon_there


@pytest.mark.parametrize("now", ["11:59:30.000", "11:59:59.000", "12:00:00.000", "12:00:29.999"])
def test_a_shift_within_a_minute_still_names_one_whole_minute(now: str) -> None:
    shift = timedelta(seconds=30)
    assert is_cron_task_now("0 12 * * *", at(now), shift)
    assert minute_of(cron("0 12 * * *", shift), at(now), shift=shift) == at("11:59")


# ---- triggers


def test_each_kind_of_trigger() -> None:
    noon = at("12:00")
    assert trigger(noon, Asked(), cron=cron("* * * * *")) == Trigger(at=noon)
    assert trigger(noon, Asked(), every=10.0) == Trigger(every=10.0)
    long_ago = noon - timedelta(days=400, seconds=1.5)
    assert trigger(noon, Asked(), time=long_ago) == Trigger(at=long_ago, once=True)
    assert trigger(noon, Asked(one_off=True), time=long_ago) == Trigger(at=long_ago, once=True)


def test_a_schedule_with_cron_and_time_is_asked_for_by_both() -> None:
    """D11: the two are independent triggers of one id."""
    asked = Asked()
    one_off = at("11:30:01")
    due = trigger(at("12:00:01"), asked, cron=cron("0 12 * * *"), time=one_off)
    assert due == Trigger(at=at("12:00"))
    asked.note(due, at("12:00:01"))
    due = trigger(at("12:00:02"), asked, cron=cron("0 12 * * *"), time=one_off)
    assert due == Trigger(at=one_off, once=True)
    asked.note(due, at("12:00:01"))
    assert trigger(at("12:00:03"), asked, cron=cron("0 12 * * *"), time=one_off) == Trigger(at=at("12:00"))


def test_an_old_minute_is_not_taken_for_an_interval_or_a_one_off() -> None:
    assert trigger(at("12:05:00"), Asked(), cron=cron("0 12 * * *"), every=10.0) == Trigger(every=10.0)
    one_off = at("12:04:59")
    assert trigger(at("12:05:00"), Asked(), cron=cron("0 12 * * *"), time=one_off) == Trigger(at=one_off, once=True)
