"""The language of hours: what each line means, and what is said of a text that is none."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import lines
from gate.calendars import ALL_MONTHS, DayWord, MonthDay, NthWeekday, Weekdays
from gate.lines import CronForLine, CronLine, DatesLine, DayLine, LineError, SpanLine
from tests.support import wall_clock

DAILY = Weekdays(frozenset(range(7)))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("daily", DAILY),
        ("mon-fri", Weekdays(frozenset({0, 1, 2, 3, 4}))),
        ("sat,sun", Weekdays(frozenset({5, 6}))),
        ("fri-mon", Weekdays(frozenset({4, 5, 6, 0}))),
        ("mon-wed,sat", Weekdays(frozenset({0, 1, 2, 5}))),
        ("sun", Weekdays(frozenset({6}))),
        ("first sun", NthWeekday(1, 6)),
        ("second mon", NthWeekday(2, 0)),
        ("third tue", NthWeekday(3, 1)),
        ("fourth wed", NthWeekday(4, 2)),
        ("fifth thu", NthWeekday(5, 3)),
        ("last fri", NthWeekday(-1, 4)),
        ("day 1", MonthDay(1)),
        ("day 31", MonthDay(31)),
        ("day -1", MonthDay(-1)),
        ("workday", DayWord("workday")),
        ("freeday", DayWord("freeday")),
        ("holiday", DayWord("holiday")),
    ],
)
def test_days_are_named(text: str, days: object) -> None:
    line = lines.parse(f"{text} 20:00-22:30")
    assert line == DayLine(text=f"{text} 20:00-22:30", days=days, months=ALL_MONTHS, start=1200, end=1350)  # type: ignore[arg-type]  # one of the choices
    assert line.uses_holidays == isinstance(days, DayWord)
    assert line.until is None


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("00:00-24:00", 0, 1440),
        ("06:00-20:00", 360, 1200),
        ("20:00-06:00", 1200, 1800),
        ("20:00-00:00", 1200, 1440),
        ("20:00-24:00", 1200, 1440),
        ("06:00-05:59", 360, 1799),
        ("20:00 - 06:00", 1200, 1800),
    ],
)
def test_an_end_at_or_before_the_start_is_on_the_next_day(text: str, start: int, end: int) -> None:
    line = lines.parse(f"daily {text}")
    assert isinstance(line, DayLine)
    assert (line.start, line.end) == (start, end)


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("daily 20:00-06:00 in jun-aug", {6, 7, 8}),
        ("daily in jun-aug 20:00-06:00", {6, 7, 8}),
        ("daily 20:00-06:00 in nov-feb", {11, 12, 1, 2}),
        ("daily 20:00-06:00 in jan,mar-apr", {1, 3, 4}),
        ("first sun 20:00-06:00 in dec", {12}),
        ("fri 18:00 - mon 08:30 in jul,aug", {7, 8}),
    ],
)
def test_months_may_be_named_after_the_days_or_at_the_end(text: str, months: set[int]) -> None:
    line = lines.parse(text)
    assert isinstance(line, DayLine | SpanLine)
    assert line.months == months


@pytest.mark.parametrize(
    ("text", "weekday", "start", "length"),
    [
        ("fri 18:00 - mon 08:30", 4, 1080, 3 * 1440 - 1080 + 510),
        ("fri 18:00-mon 08:30", 4, 1080, 3750),
        ("mon 08:00 - mon 20:00", 0, 480, 720),
        ("mon 20:00 - mon 08:00", 0, 1200, 7 * 1440 - 720),
        ("sun 22:00 - mon 06:00", 6, 1320, 480),
        ("mon 00:00 - sun 24:00", 0, 0, 7 * 1440),
        ("tue 00:00 - mon 24:00", 1, 0, 7 * 1440),
        ("mon 00:00 - mon 24:00", 0, 0, 1440),
    ],
)
def test_a_span_ends_on_the_first_such_time_after_its_start(text: str, weekday: int, start: int, length: int) -> None:
    line = lines.parse(text)
    assert line == SpanLine(text=text, weekday=weekday, months=ALL_MONTHS, start=start, length=length)
    assert not line.uses_holidays


def test_dates_have_a_last_day() -> None:
    text = "2026-12-24 12:00 .. 2027-01-02 24:00"
    line = lines.parse(text)
    assert line == DatesLine(text=text, first=date(2026, 12, 24), start=720, last=date(2027, 1, 2), end=1440)
    assert line.until == date(2027, 1, 2)


def test_cron_lines_are_matches_or_starts() -> None:
    match, start = lines.parse("cron * 1-5 * * *"), lines.parse("cron 0 2 * * sun for 1h30m")
    assert isinstance(match, CronLine)
    assert isinstance(start, CronForLine)
    assert match.cron.minutes == ((1 << 300) - 1) << 60
    assert start.length == 90
    assert not match.uses_holidays
    assert match.until is None


def test_case_and_blanks_do_not_matter_and_the_text_is_kept() -> None:
    line = lines.parse("  Mon-FRI   20:00-06:00\tin Jun ")
    assert isinstance(line, DayLine)
    assert line.text == "  Mon-FRI   20:00-06:00\tin Jun "
    assert (line.days, line.months) == (Weekdays(frozenset(range(5))), frozenset({6}))
    assert lines.parse("sat, sun 20:00-06:00").days == Weekdays(frozenset({5, 6}))  # type: ignore[union-attr]  # a DayLine


def test_lines_can_be_keys() -> None:
    texts = [
        "daily 20:00-06:00",
        "fri 18:00 - mon 08:30",
        "2026-12-24 12:00 .. 2027-01-02 06:00",
        "cron 0 2 * * * for 4h",
    ]
    assert len({lines.parse(text) for text in texts + texts}) == 4


@pytest.mark.parametrize(("text", "is_name"), [("night", True), ("holiday", True), ("daily 20:00-06:00", False)])
def test_a_line_has_a_space_and_a_name_has_none(text: str, *, is_name: bool) -> None:
    assert lines.is_name(text) is is_name


REFUSED = {
    "holiday": "days alone are no line: write holiday 00:00-24:00",
    "mon-fri": "days alone are no line: write mon-fri 00:00-24:00",
    "first sun": "days alone are no line: write first sun 00:00-24:00",
    "day 1": "days alone are no line: write day 1 00:00-24:00",
    "2026-12-24": "a date alone is no line: write 2026-12-24 00:00 .. 2026-12-24 24:00",
    "7 20:00-06:00": "'7': days are names (mon, tue, wed, thu, fri, sat, sun); digits for days exist only in cron",
    "1-5 08:00-17:00": "'1': days are names (mon, tue, wed, thu, fri, sat, sun); digits for days",
    "monday 08:00-17:00": "unknown days 'monday' (did you mean mon?): allowed are daily, weekdays such as mon-fri",
    "first sunday 08:00-17:00": "after 'first' comes one weekday, such as 'first sun' (did you mean sun?)",
    "first mon-fri 08:00-17:00": "after 'first' comes one weekday, such as 'first sun'",
    "first 08:00-17:00": "'first': after 'first' comes one weekday, such as 'first sun'",
    "mon 10:00-12:00, 14:00-16:00": "a line has one start and one end: write a line for each",
    "mon 10:00-12:00,tue 09:00-10:00": "a line has one start and one end: write a line for each",
    "weekday 08:00-17:00": "unknown days 'weekday' (did you mean mon-fri or workday?)",
    "weekend 08:00-17:00": "unknown days 'weekend' (did you mean sat,sun?)",
    "workdays 08:00-17:00": "unknown days 'workdays' (did you mean workday?)",
    "daly 20:00-06:00": "unknown days 'daly' (did you mean daily?)",
    "xyzzy 20:00-06:00": "unknown days 'xyzzy': allowed are daily",
    "mon tue 20:00-06:00": "unknown days 'mon tue'",
    "workday,sat 20:00-06:00": "'workday' stands alone, without other days: write a line for each",
    "sat,daily 20:00-06:00": "'daily' stands alone, without other days",
    "mon-mon 20:00-06:00": "'mon-mon' begins where it ends: write mon",
    "mon-wed-fri 20:00-06:00": "'mon-wed-fri' has more than two ends: write mon,wed,fri",
    "day 0 20:00-06:00": "day 0 is not a day of a month: write one of day 1 to day 31",
    "day 32 20:00-06:00": "day 32 is not a day of a month",
    "day 1,15 20:00-06:00": "day 1,15 is not a day of a month",
    "day 30 20:00-06:00 in feb": "none of its months has a day 30",
    "day -31 20:00-06:00 in feb,apr": "none of its months has a day -31",
    "daily 20:00-06:00 in june": "unknown month 'june' (did you mean jun?): allowed are jan, feb",
    "daily 20:00-06:00 in jun-jun": "'jun-jun' begins where it ends: write jun",
    "daily in jun 20:00-06:00 in jul": "months are named twice: in jun, and in jul",
    "daily 25:00-06:00": "'25:00' is not a time: times are HH:MM, from 00:00 to 23:59, and 24:00 as an end",
    "daily 20:00-06:60": "'06:60' is not a time",
    "daily 20:00-24:01": "'24:01' is not a time",
    "daily 24:00-06:00": "24:00 can only be an end: write 00:00 of the next day",
    "daily 8:00-17:00": "'8:00' is not a time: write 08:00",
    "daily 20:00:00-06:00": "'20:00:00' has seconds: times are HH:MM",
    "daily 20:00-06:00:30": "'06:00:30' has seconds",
    "daily 8pm-6am": "'8pm' is not a time",
    "daily \u0660\u0668:00-17:00": "is not a time",
    "daily 06:00-06:00": "start and end are both 06:00: write 00:00-24:00 for a whole day",
    "daily 20:00": "no hours: write days and hours, such as 'mon-fri 20:00-06:00'",
    "after 9:00": "no hours: write days and hours",
    "before 14:30": "no hours: write days and hours",
    "20:00-06:00": "no hours: write days and hours",
    "": "no hours: write days and hours",
    "fridy 18:00 - mon 08:30": "a span goes from one weekday to one weekday: unknown days 'fridy' (did you mean fri?)",
    "mon 08:00 - mon 08:00": "start and end are both mon 08:00: daily 00:00-24:00 is always",
    "mon 08:00 - daily 20:00": "a span goes from one weekday to one weekday: 'daily' stands alone",
    "2027-01-02 12:00 .. 2026-12-24 06:00": "it ends before it starts",
    "2026-12-24 12:00 .. 2026-12-24 12:00": "it ends before it starts",
    "2026-02-30 12:00 .. 2026-12-24 12:00": "there is no day 2026-02-30",
    "1972-12-24 12:00 .. 2026-12-24 12:00": "1972-12-24 is not within 1973 to 2199",
    "2026-12-24 12:00 .. 2206-12-24 12:00": "2206-12-24 is not within 1973 to 2199",
    "24.12.2026 12:00 .. 26.12.2026 12:00": "'24.12.2026' is not a date: write YYYY-MM-DD, such as 2026-12-24",
    "2026-12-24 12:00-13:00": "2026-12-24 is a date: write both dates, such as 2026-12-24 00:00 .. 2026-12-24 24:00",
    "cron * 22-5 * * *": "hour '22-5': '22-5' is reversed, which some crons never match: write 22-23,0-5",
    "cron": "has not the five fields of cron",
    "lsf 5:18:30-1:8:30": "unknown days 'lsf'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_is_no_line_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(LineError) as caught:
        lines.parse(text)
    assert str(caught.value).startswith(f"{text!r}: ")
    assert REFUSED[text] in str(caught.value)


def test_a_line_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(LineError, match=r"'aaa.*'…: 301 characters are too many for a line: at most 300"):
        lines.parse("a" * 301)


WORDS = st.sampled_from(
    [
        "daily",
        "mon-fri",
        "sat",
        "sun",
        "first",
        "last",
        "day",
        "-1",
        "15",
        "workday",
        "holiday",
        "in",
        "jun-aug",
        ",",
        "-",
        "..",
        "20:00-06:00",
        "24:00",
        "08:30",
        "fri",
        "18:00",
        "cron",
        "*",
        "*/5",
        "for",
        "4h",
        "2026-12-24",
        "2027-01-02",
        "00:00",
        "99",
        "x",
    ]
)


@given(st.lists(WORDS, max_size=8).map(" ".join) | st.text(max_size=40))
def test_any_text_is_a_line_or_refused(text: str) -> None:
    try:
        assert lines.parse(text).text == text
    except LineError as error:
        assert repr(text) in str(error)  # noqa: PT017 - either is right


@given(wall_clock.lines("Europe/Berlin"))
def test_every_line_of_the_language_is_read_the_same_way_twice(case: wall_clock.Case) -> None:
    assert lines.parse(case.text) == lines.parse(case.text)
