"""Zones and their pieces, days and holidays."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.calendars import (
    DAY,
    DayChoice,
    Days,
    MonthDay,
    NthWeekday,
    UnknownZone,
    Zone,
    instant,
    longest_month,
    minute_of,
)
from gate.lines import DayLine, parse
from tests.support import wall_clock

HINT = ": write an IANA name, such as Europe/Berlin or UTC"


@pytest.mark.parametrize("key", ["Europe/Berlin", "America/Argentina/Buenos_Aires", "UTC", "Etc/UTC", "Asia/Kathmandu"])
def test_a_zone_has_the_name_of_an_area_and_a_city(key: str) -> None:
    assert Zone(key).key == key
    assert Zone(key).info.key == key


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("CET", ""),
        ("EST", ""),
        ("MEZ", ""),
        ("GMT", "; did you mean Etc/GMT?"),
        ("Berlin", "; did you mean Europe/Berlin?"),
        ("Europe/Berln", "; did you mean Europe/Berlin?"),
        ("Europe", ""),
        ("Europe/", ""),
        ("", ""),
        ("../etc/passwd", ""),
        ("/etc/localtime", ""),
        ("right/Europe/Berlin", "; did you mean Europe/Berlin?"),
        ("posix/Europe/Berlin", "; did you mean Europe/Berlin?"),
        ("utc", ""),
        ("Europe/Ber\0lin", ""),
        ("Area/" + "x" * 5000, ""),
    ],
)
def test_what_is_no_zone_is_refused_and_never_read_as_utc(key: str, hint: str) -> None:
    with pytest.raises(UnknownZone) as caught:
        Zone(key)
    assert str(caught.value).startswith(f"{key!r} is not a time zone{HINT}")
    if hint:
        assert str(caught.value) == f"{key!r} is not a time zone{HINT}{hint}"


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_the_pieces_of_a_day_say_what_the_wall_clock_reads(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(wall_clock.ZONES)))
    zone, info = Zone(key), ZoneInfo(key)
    day = data.draw(wall_clock.moments(key)).date()
    pieces = zone.pieces(day.toordinal())
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert pieces[-1].end == DAY
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for piece in pieces:
        for minute in range(piece.start, piece.end):
            at = start + timedelta(minutes=minute)
            assert wall_clock.wall(at, info) == at.replace(tzinfo=None) + timedelta(minutes=piece.shift)


def test_a_change_of_offset_is_found_to_the_minute_and_a_day_without_one_has_none() -> None:
    zone = Zone("Australia/Lord_Howe")
    change = zone.change(date(2026, 4, 4).toordinal())
    assert change is not None
    assert (change.minute, change.before, change.after) == (15 * 60, 660, 630)
    assert zone.change(date(2026, 4, 5).toordinal()) is None


def test_a_zone_reads_its_data_anew_when_it_is_made() -> None:
    assert Zone("Europe/Berlin").info is not Zone("Europe/Berlin").info


@given(st.datetimes(datetime(1973, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001 - hypothesis adds UTC
def test_an_instant_lies_in_its_minute(at: datetime) -> None:
    minute = minute_of(at)
    assert instant(minute) <= at < instant(minute + 1)
    assert minute // DAY == at.toordinal()


@pytest.mark.parametrize("word", [*wall_clock.NTH, -28, -1, 1, 7, 28, 31, "workday", "freeday", "holiday"])
def test_days_are_chosen_as_a_calendar_shows_them(word: str | int) -> None:
    for weekday in range(7) if word in wall_clock.NTH else [0]:
        ours: DayChoice
        if isinstance(word, int):
            ours, theirs = MonthDay(word), wall_clock.month_day(word)
        elif word in wall_clock.NTH:
            ours = NthWeekday(-1 if word == "last" else wall_clock.NTH[word] + 1, weekday)
            theirs = wall_clock.nth_weekday(word, weekday)
        else:
            parsed = parse(f"{word} 00:00-24:00")
            assert isinstance(parsed, DayLine)
            ours, theirs = parsed.days, next(choice for choice in wall_clock.WORDS if choice.text == word)
        for day in (date(2025, 12, 1) + n * wall_clock.DAY for n in range(400)):
            holidays = Days(dates=frozenset(wall_clock.HOLIDAYS), yearly=frozenset(wall_clock.YEARLY))
            assert ours.includes(day, holidays) == theirs.includes(day), (theirs.text, day)


def test_holidays_are_dates_or_days_of_every_year() -> None:
    days = Days(dates=frozenset({date(2026, 5, 15)}), yearly=frozenset({(12, 24)}))
    assert days.holiday(date(2026, 5, 15))
    assert not days.holiday(date(2027, 5, 15))
    assert days.holiday(date(2026, 12, 24))
    assert days.holiday(date(2027, 12, 24))
    assert not Days().holiday(date(2026, 12, 25))


def test_february_may_have_29_days() -> None:
    assert longest_month(frozenset({2})) == 29
    assert longest_month(frozenset({2, 4})) == 30
