"""The week of a rule: its spans, overrides included, and its odd days; local days whose clocks jump."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gate.errors import InvalidParameter, NoSuchRule
from gate.interface import Steer, WeekOut
from gate.localdays import Day, hours_in_words, length, local_days, midnight
from tests.support.weeks import BERLIN, QUIET, at, ordered, rule, week_of

BERLIN_ZONE = ZoneInfo("Europe/Berlin")
NOON = "2026-11-30T12:00:00Z"
NIGHT = "daily 20:00-06:00"


def spans(week: WeekOut, index: int = 0) -> list[str]:
    return [f"{span.start:%d %H:%M}-{span.end:%d %H:%M}" for span in week.rules[index].open]


def odd(text: str, now: str = NOON) -> dict[str, str]:
    [found] = week_of(text, now).rules
    return {day.day: day.what for day in found.odd}


# -- local days


def day(zone: str, text: str) -> Day:
    [found] = [d for d in local_days(*around(zone, text), ZoneInfo(zone)) if str(d.date) == text]
    return found


def around(zone: str, text: str) -> tuple[datetime, datetime]:
    first = date.fromisoformat(text)
    return midnight(first, ZoneInfo(zone)), midnight(first + timedelta(days=1), ZoneInfo(zone))


@pytest.mark.parametrize(
    ("zone", "text", "hours", "jump"),
    [
        ("Europe/Berlin", "2026-11-30", 24, 0),
        ("Europe/Berlin", "2026-03-29", 23, 60),
        ("Europe/Berlin", "2026-10-25", 25, -60),
        ("Australia/Lord_Howe", "2026-10-04", 23.5, 30),
        ("Africa/Casablanca", "2026-02-15", 25, -60),
        ("America/Sao_Paulo", "2018-11-04", 23, 60),  # 00:00 does not exist: the day begins at 01:00
        ("America/Sao_Paulo", "2018-02-17", 25, -60),  # 23:00 to 24:00 is read twice
        ("America/Havana", "2024-11-03", 25, -60),  # 00:00 to 01:00 is read twice
    ],
)
def test_a_local_day_is_as_long_as_its_clock_says(zone: str, text: str, hours: float, jump: int) -> None:
    found = day(zone, text)
    assert found.end - found.start == timedelta(hours=hours)
    assert found.jump == jump


def test_a_day_that_a_zone_left_out_is_no_day() -> None:
    days = local_days(at(2011, 12, 29), at(2012, 1, 1), ZoneInfo("Pacific/Apia"))
    assert [str(day.date) for day in days] == ["2011-12-28", "2011-12-29", "2011-12-31", "2012-01-01"]


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "UTC"]


@given(st.sampled_from(ZONES), st.dates(date(1990, 1, 1), date(2060, 1, 1)))
@example("Europe/Berlin", date(2026, 3, 28))
@example("Australia/Lord_Howe", date(2026, 4, 4))
def test_the_pieces_of_days_follow_each_other_and_read_what_the_clock_reads(zone: str, first: date) -> None:
    info = ZoneInfo(zone)
    start = midnight(first, info)
    days = local_days(start, start + timedelta(days=3), info)
    pieces = [(piece, day.date) for day in days for piece in day.pieces]
    assert all(a.end == b.start for (a, _), (b, _) in pairwise(pieces))
    for piece, day_of in pieces:
        for instant in (piece.start, piece.end - timedelta(minutes=1)):
            local = instant.astimezone(info)
            passed = (instant - piece.start) // timedelta(minutes=1)
            assert (local.date(), local.hour * 60 + local.minute) == (day_of, piece.wall + passed)


def test_spans_in_words() -> None:
    normal, fold = day("Europe/Berlin", "2026-11-30"), day("Europe/Berlin", "2026-10-25")
    gap = day("Europe/Berlin", "2026-03-29")

    def words(of: Day, *edges: tuple[float, float]) -> str:
        found = [(of.start + timedelta(hours=a), of.start + timedelta(hours=b)) for a, b in edges]
        return hours_in_words(found, of, BERLIN_ZONE)

    assert words(normal, (0, 6), (20, 24)) == "00:00-06:00, 20:00-24:00"
    assert words(normal, (0, 6), (6, 7)) == "00:00-07:00"
    assert words(normal) == ""
    assert words(gap, (1, 2), (2, 3)) == "01:00-04:00"
    assert words(gap, (1, 2)) == "01:00-02:00", "not 03:00, which no span ends at"
    assert words(fold, (1.5, 2.5), (3, 3.5)) == "01:30-02:30 CEST, 02:00 CET-02:30 CET"
    assert words(fold, (2, 4)) == "02:00 CEST-03:00 CET"
    assert words(normal, *((n / 2, n / 2 + 0.25) for n in range(8))).endswith("02:30-02:45, and 2 more")
    assert [length(minutes) for minutes in (0, 30, 60, 435, 1500)] == ["0h", "30m", "1h", "7h15m", "25h"]


# -- spans


def test_a_week_begins_with_the_present_local_day() -> None:
    late = "2026-11-30T23:30:00Z"  # 00:30 of Tuesday in Berlin
    week = week_of(rule(NIGHT), late)
    assert (week.start, week.end) == (at(2026, 11, 30, 23), at(2026, 12, 7, 23))
    assert week.now == at(2026, 11, 30, 23, 30)
    assert spans(week)[:2] == ["30 23:00-01 05:00", "01 19:00-02 05:00"]
    assert len(week.rules[0].open) == 8
    assert week.rules[0].closed_by == []
    assert week.rules[0].timezone == "Europe/Berlin"


def test_a_week_may_begin_elsewhere_and_be_longer() -> None:
    week = week_of(rule(NIGHT), NOON, start="2026-03-28", days=2)
    assert (week.start, week.end) == (at(2026, 3, 27, 23), at(2026, 3, 29, 22))
    assert spans(week) == ["27 23:00-28 05:00", "28 19:00-29 04:00", "29 18:00-29 22:00"]


@pytest.mark.parametrize("start", ["monday", "2026-02-30", "30.11.2026", "9999-12-31", "0001-01-01", ""])
def test_a_start_that_is_no_day_is_refused(start: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        week_of(rule(NIGHT), NOON, start=start)
    assert refused.value.parameter == "start"


def test_what_closed_lines_and_last_start_take_away() -> None:
    week = week_of(QUIET, "2026-12-01T12:00:00Z", days=1)  # a Tuesday
    assert spans(week) == ["30 23:00-01 00:15", "01 02:15-01 04:15", "01 19:00-01 23:00"]
    [found] = week.rules
    taken = [f"{span.start:%H:%M}-{span.end:%H:%M}" for span in found.closed_by]
    assert taken == ["00:15-02:15", "04:15-05:00"]


def test_rules_are_chosen_by_name_or_glob_and_keep_their_order() -> None:
    text = BERLIN + "".join(f"[[fetch]]\nname='{name}'\nqueues=['{name}']\n" for name in ("b-1", "a", "b-2"))
    assert [r.rule for r in week_of(text, NOON).rules] == ["b-1", "a", "b-2"]
    assert [r.rule for r in week_of(text, NOON, rule="b-*").rules] == ["b-1", "b-2"]
    assert week_of(text, NOON, rule="b-*").rules_total == 2
    with pytest.raises(NoSuchRule):
        week_of(text, NOON, rule="c")


def test_without_rules_there_is_a_week_in_utc() -> None:
    week = week_of("", NOON)
    assert (week.start, week.rules, week.rules_total) == (at(2026, 11, 30), [], 0)


def test_many_rules_are_cut_at_a_hundred_and_many_spans_earlier() -> None:
    many = BERLIN + "".join(f"[[fetch]]\nname='r{n}'\nqueues=['q{n}']\nopen=['{NIGHT}']\n" for n in range(101))
    week = week_of(many, NOON)
    assert (len(week.rules), week.rules_total) == (100, 101)
    minutes = BERLIN + "".join(
        f"[[fetch]]\nname='r{n}'\nqueues=['q{n}']\nopen=['cron */2 * * * *']\n" for n in range(3)
    )
    week = week_of(minutes, NOON, days=31)
    assert (len(week.rules), week.rules_total) == (1, 3)
    assert len(week.rules[0].open) == 31 * 720


# -- overrides


def test_an_open_override_is_part_of_what_is_open() -> None:
    order = ordered(Steer.OPEN, "2026-11-30T19:30:00Z")
    week = week_of(rule(NIGHT), NOON, order=order, since="2026-11-30T11:58:20Z", days=2)
    [found] = week.rules
    assert found.override is not None
    assert (found.override.action, found.override.by) == (Steer.OPEN, "root")
    opened = found.open[1]
    assert (opened.start, opened.end) == (datetime(2026, 11, 30, 11, 58, 20, tzinfo=UTC), at(2026, 12, 1, 5))
    assert len(found.open) == 3, "it goes over into the night that it reaches into"


def test_a_close_override_is_cut_out_also_from_the_middle() -> None:
    order = ordered(Steer.CLOSE, "2026-12-01T01:00:00Z")
    assert spans(week_of(rule(NIGHT), "2026-11-30T22:00:00Z", order=order, days=2)) == [
        "29 23:00-30 05:00",
        "30 19:00-30 22:00",
        "01 01:00-01 05:00",
        "01 19:00-01 23:00",
    ]


def test_an_override_that_has_ended_is_none() -> None:
    order = ordered(Steer.CLOSE, "2026-11-30T11:00:00Z")
    week = week_of(rule(NIGHT), NOON, order=order, since="2026-11-30T10:00:00Z")
    assert week.rules[0].override is None


def test_an_open_override_does_not_beat_a_limit_that_is_0() -> None:
    limit = 'at_once = ["daily 13:00-14:00: 0", "daily 06:00-20:00: 3", "else: 8"]'
    order = ordered(Steer.OPEN, "2026-11-30T14:00:00Z")
    assert spans(week_of(rule(NIGHT, more=limit), "2026-11-30T11:30:00Z", order=order, days=1)) == [
        "29 23:00-30 05:00",
        "30 11:30-30 12:00",
        "30 13:00-30 14:00",
        "30 19:00-30 23:00",
    ]


# -- limits


def test_the_limits_of_a_rule_and_of_what_it_needs_by_what_decides_them() -> None:
    more = """needs = ["pacs", "count"]
at_once = ["daily 06:00-20:00: 3", "else: 8"]
[[resource]]
name = "pacs"
at_once = 5
[[resource]]
name = "count"
at_once = ["sun 00:00-12:00: 0", "else: 4"]
"""
    [found] = week_of(rule(NIGHT, more=more), NOON, days=1).rules
    assert [(span.pool, span.number, span.by, f"{span.start:%H}-{span.end:%H}") for span in found.limits] == [
        ("rule dicom", 8, "else", "23-05"),
        ("rule dicom", 3, "daily 06:00-20:00", "05-19"),
        ("rule dicom", 8, "else", "19-23"),
        ("resource pacs", 5, None, "23-23"),
        ("resource count", 4, "else", "23-23"),
    ]


def test_a_rule_without_limits_has_none() -> None:
    [found] = week_of(rule(NIGHT), NOON).rules
    assert found.limits == []


# -- odd days


def test_clock_changes_that_change_the_hours_are_odd() -> None:
    assert odd(rule(NIGHT)) == {
        "2027-03-28": "clocks go forward 1h at 02:00: open 00:00-06:00, 20:00-24:00 (9h instead of 10h)",
        "2027-10-31": "clocks go back 1h at 03:00: open 00:00-06:00, 20:00-24:00 (11h instead of 10h)",
    }


def test_clock_changes_that_change_nothing_are_not_odd() -> None:
    assert odd(rule("daily 08:00-18:00")) == {}


def test_a_line_inside_the_jump_is_named() -> None:
    assert odd(rule("daily 02:00-03:00")) == {
        "2027-03-28": "clocks go forward 1h at 02:00: closed; usually 02:00-03:00 (0h instead of 1h)",
        "2027-10-31": "clocks go back 1h at 03:00: open 02:00 CEST-03:00 CET; usually 02:00-03:00 (2h instead of 1h)",
    }


def test_a_clock_that_jumps_at_midnight_is_named_too() -> None:
    text = rule(NIGHT).replace("Europe/Berlin", "Africa/Cairo")
    assert odd(text) == {
        "2027-04-30": "clocks go forward 1h at 00:00: open 01:00-06:00, 20:00-24:00; "
        "usually 00:00-06:00, 20:00-24:00 (9h instead of 10h)",
        "2027-10-28": "clocks go back 1h at 24:00: open 00:00-06:00, 20:00-24:00 (11h instead of 10h)",
    }


def test_holidays_that_change_the_hours_are_odd() -> None:
    holidays = ["12-24", "12-25", "2027-01-01", "2027-01-02"]  # the last is a Saturday
    assert odd(rule("workday 08:00-18:00", holidays=holidays)) == {
        "2026-12-24": "holiday: closed; usually 08:00-18:00",
        "2026-12-25": "holiday: closed; usually 08:00-18:00",
        "2027-01-01": "holiday: closed; usually 08:00-18:00",
        "2027-12-24": "holiday: closed; usually 08:00-18:00",
    }


def test_holidays_of_many_weeks_do_not_become_usual() -> None:
    holidays = [str(date(2027, 7, 1) + timedelta(days=n)) for n in range(56)]
    found = odd(rule("workday 08:00-18:00", holidays=holidays))
    assert set(found.values()) == {"holiday: closed; usually 08:00-18:00"}
    assert len(found) == 40


def test_the_morning_after_a_holiday_is_odd_too() -> None:
    assert odd(rule("workday 20:00-06:00", holidays=["2026-12-24"])) == {
        "2026-12-24": "holiday: open 00:00-06:00; usually 00:00-06:00, 20:00-24:00",
        "2026-12-25": "the day after a holiday: open 20:00-24:00; usually 00:00-06:00, 20:00-24:00",
    }


def test_holidays_are_no_reason_for_lines_that_do_not_know_them() -> None:
    text = rule("mon-fri 08:00-18:00", "2026-12-24 18:00 .. 2026-12-24 20:00", holidays=["12-24"])
    assert odd(text) == {
        "2026-12-24": "2026-12-24 18:00 .. 2026-12-24 20:00: open 08:00-20:00; usually 08:00-18:00",
    }


def test_dates_that_close_are_odd_with_their_name() -> None:
    text = f"""{BERLIN}
[hours]
move = ["2027-01-14 18:00 .. 2027-01-15 04:00"]
[[fetch]]
open = ["{NIGHT}"]
closed = ["move"]
"""
    reason = "move (2027-01-14 18:00 .. 2027-01-15 04:00)"
    found = odd(text)
    assert found["2027-01-14"] == f"{reason}: open 00:00-06:00; usually 00:00-06:00, 20:00-24:00"
    assert found["2027-01-15"] == f"{reason}: open 04:00-06:00, 20:00-24:00; usually 00:00-06:00, 20:00-24:00"
    assert len(found) == 4, "and both clock changes"


def test_what_comes_every_month_or_season_is_not_odd() -> None:
    assert odd(rule("first sun 08:00-18:00")) == {}
    assert odd(rule("mon-fri 08:00-18:00 in jun-aug")) == {}


def test_what_is_rare_is_odd() -> None:
    found = odd(rule("day 1 08:00-18:00"))
    assert len(found) == 14
    assert found["2026-12-01"] == "unlike the weeks around: open 08:00-18:00; usually closed"


def test_odd_days_are_those_of_the_next_400() -> None:
    text = rule("workday 08:00-18:00", holidays=["2026-11-27", "2026-11-30", "2028-01-03", "2028-01-04"])
    assert list(odd(text)) == ["2026-11-30", "2028-01-03"]


def test_many_spans_are_cut_in_words() -> None:
    what = odd(rule("cron */2 * * * *"))["2027-03-28"]
    assert what.endswith("and 714 more (11h30m instead of 12h)")
    assert len(what) < 300


def test_overrides_make_no_day_odd() -> None:
    order = ordered(Steer.CLOSE, "2026-12-10T12:00:00Z")
    assert week_of(rule(NIGHT), NOON, order=order).rules[0].odd == week_of(rule(NIGHT), NOON).rules[0].odd
