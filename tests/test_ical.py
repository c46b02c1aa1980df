"""iCalendar files, as people have them and as nobody should."""

import sys
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gate import ical
from gate.calendars import Days, Zone
from gate.ical import Calendar, CalendarError
from gate.lines import parse
from gate.windows import Compiler, Spans

BERLIN = Zone("Europe/Berlin")
START, END = date(2026, 10, 1), date(2027, 10, 1)


def file(*events: str, head: str = "") -> bytes:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//test//EN", *filter(None, [head])]
    for number, event in enumerate(events):
        lines += ["BEGIN:VEVENT", *event.split("\n"), f"SUMMARY:event {number}"]
        lines += [] if "UID:" in event else [f"UID:{number}"]
        lines += ["END:VEVENT"]
    return "\r\n".join([*lines, "END:VCALENDAR", ""]).encode()


def read(*events: str, **options: Any) -> Calendar:
    return ical.read(file(*events, **options), "feiertage.ics", BERLIN, START, END)


def refusal(data: bytes) -> str:
    with pytest.raises(CalendarError) as caught:
        ical.read(data, "feiertage.ics", BERLIN, START, END)
    assert str(caught.value).startswith("feiertage.ics: ")
    return str(caught.value).removeprefix("feiertage.ics: ")


def days(*texts: str) -> frozenset[date]:
    return frozenset(date.fromisoformat(text) for text in texts)


def spans(*pairs: tuple[str, str]) -> tuple[tuple[datetime, datetime], ...]:
    return tuple((_utc(start), _utc(end)) for start, end in pairs)


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# -- days


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227", ["2026-12-24", "2026-12-25", "2026-12-26"]),
        ("DTSTART;VALUE=DATE:20261224", ["2026-12-24"]),
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261224", ["2026-12-24"]),
        ("DTSTART;VALUE=DATE:20261224\nDURATION:P2D", ["2026-12-24", "2026-12-25"]),
        ("DTSTART;VALUE=DATE:20201225\nRRULE:FREQ=YEARLY", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:20201225\nRRULE:FREQ=YEARLY;UNTIL=20251225", []),
        (
            "DTSTART;VALUE=DATE:20261001\nRRULE:FREQ=WEEKLY;COUNT=3\nEXDATE;VALUE=DATE:20261008",
            ["2026-10-01", "2026-10-15"],
        ),
        ("DTSTART;VALUE=DATE:20261001\nRDATE;VALUE=DATE:20261103", ["2026-10-01", "2026-11-03"]),
        ("DTSTART;VALUE=DATE:20201126\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", ["2026-11-26"]),
        ("DTSTART;VALUE=DATE:20260930\nDTEND;VALUE=DATE:20261002", ["2026-10-01"]),
        ("DTSTART;VALUE=DATE:20270930\nDTEND;VALUE=DATE:20271003", ["2027-09-30"]),
    ],
)
def test_an_all_day_event_is_days_and_its_end_is_not_one_of_them(event: str, found: list[str]) -> None:
    assert read(event).days == days(*found)
    assert read(event).spans == ()


# -- spans


@pytest.mark.parametrize(
    ("event", "found"),
    [
        ("DTSTART:20261224T120000Z\nDTEND:20261224T130030Z", [("2026-12-24 12:00", "2026-12-24 13:00:30")]),
        (
            "DTSTART;TZID=America/New_York:20261224T120000\nDTEND;TZID=America/New_York:20261224T130000",
            [("2026-12-24 17:00", "2026-12-24 18:00")],
        ),
        (
            "DTSTART;TZID=W. Europe Standard Time:20261224T120000\nDURATION:PT1H",
            [("2026-12-24 11:00", "2026-12-24 12:00")],
        ),
        ("DTSTART:20261224T120000\nDTEND:20261224T130000", [("2026-12-24 11:00", "2026-12-24 12:00")]),
        ("DTSTART:20261224T120000Z", []),
        (
            "DTSTART:20261224T120000Z\nDURATION:PT1H\nRDATE;VALUE=PERIOD:20261226T120000Z/PT3H",
            [("2026-12-24 12:00", "2026-12-24 13:00"), ("2026-12-26 12:00", "2026-12-26 15:00")],
        ),
        (
            "DTSTART;TZID=Europe/Berlin:20261024T220000\nDTEND;TZID=Europe/Berlin:20261025T060000\n"
            "RRULE:FREQ=DAILY;COUNT=3\nEXDATE;TZID=Europe/Berlin:20261025T220000",
            [("2026-10-24 20:00", "2026-10-25 05:00"), ("2026-10-26 21:00", "2026-10-27 05:00")],
        ),
    ],
)
def test_a_timed_event_is_a_span_of_utc(event: str, found: list[tuple[str, str]]) -> None:
    assert read(event).spans == spans(*found)
    assert read(event).days == frozenset()


def test_a_repetition_that_was_moved_or_cancelled_is_not_where_it_was() -> None:
    found = read(
        "UID:w\nDTSTART:20261201T120000Z\nDTEND:20261201T130000Z\nRRULE:FREQ=WEEKLY;COUNT=3",
        "UID:w\nRECURRENCE-ID:20261208T120000Z\nDTSTART:20261209T150000Z\nDTEND:20261209T160000Z",
        "UID:w\nRECURRENCE-ID:20261215T120000Z\nDTSTART:20261215T120000Z\nDTEND:20261215T130000Z\nSTATUS:CANCELLED",
    )
    assert found.spans == spans(("2026-12-01 12:00", "2026-12-01 13:00"), ("2026-12-09 15:00", "2026-12-09 16:00"))


@pytest.mark.parametrize("field", ["STATUS:CANCELLED", "TRANSP:TRANSPARENT", "STATUS:cancelled"])
def test_what_is_cancelled_or_transparent_says_nothing(field: str) -> None:
    found = read(f"DTSTART;VALUE=DATE:20261224\n{field}", f"DTSTART:20261224T120000Z\nDURATION:PT1H\n{field}")
    assert (found.days, found.spans) == (frozenset(), ())


@pytest.mark.parametrize("field", ["STATUS:CONFIRMED", "STATUS:TENTATIVE", "TRANSP:OPAQUE"])
def test_what_is_neither_counts(field: str) -> None:
    assert read(f"DTSTART;VALUE=DATE:20261224\n{field}").days == days("2026-12-24")


def test_a_zone_that_the_file_defines_is_known() -> None:
    zone = (
        "BEGIN:VTIMEZONE\r\nTZID:Ours\r\nBEGIN:STANDARD\r\nDTSTART:19700101T000000\r\nTZOFFSETFROM:+0300\r\n"
        "TZOFFSETTO:+0300\r\nTZNAME:X\r\nEND:STANDARD\r\nEND:VTIMEZONE"
    )
    found = read("DTSTART;TZID=Ours:20261224T120000\nDURATION:PT1H", head=zone)
    assert found.spans == spans(("2026-12-24 09:00", "2026-12-24 10:00"))


def test_the_last_day_that_is_named_is_known_even_if_it_is_over() -> None:
    assert read("DTSTART;VALUE=DATE:20241224", "DTSTART;VALUE=DATE:20231224").last == date(2024, 12, 24)
    assert read("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227").last == date(2026, 12, 26)
    # 23:30 UTC is the next day in Berlin, and midnight itself belongs to the day before.
    assert read("DTSTART:20261224T220000Z\nDTEND:20261224T233000Z").last == date(2026, 12, 25)
    assert read("DTSTART:20261224T220000Z\nDTEND:20261224T230000Z").last == date(2026, 12, 24)
    assert read().last is None


def test_several_calendars_in_a_file_are_all_read() -> None:
    both = file("DTSTART;VALUE=DATE:20261224") + file("DTSTART;VALUE=DATE:20261231")
    assert ical.read(both, "f", BERLIN, START, END).days == days("2026-12-24", "2026-12-31")


def test_days_and_spans_become_hours() -> None:
    found = read("DTSTART;VALUE=DATE:20261224", "DTSTART:20261210T120000Z\nDURATION:PT90S")
    compiler = Compiler(Days(dates=found.days))
    holiday = compiler.hours(parse("holiday 00:00-24:00"), compiler.zone("Europe/Berlin"))
    assert holiday.next_change(_utc("2026-12-01")) == _utc("2026-12-23 23:00")
    assert Spans(found.spans).next_change(_utc("2026-12-10 12:00")) == _utc("2026-12-10 12:02")


# -- what is refused


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (
            "DTSTART;TZID=Nowhere/Land:20261224T120000",
            "event 'event 0': DTSTART has the unknown time zone Nowhere/Land",
        ),
        (
            "DTSTART:20261224T120000Z\nDTEND;TZID=Nowhere:20261224T130000",
            "event 'event 0': DTEND has the unknown time zone Nowhere",
        ),
        (
            "DTSTART:20261224T120000Z\nRRULE:FREQ=DAILY\nEXDATE;TZID=Nowhere:20261224T130000",
            "event 'event 0': EXDATE has the unknown time zone Nowhere",
        ),
        (
            "DTSTART:20261224T120000Z\nRDATE;TZID=Nowhere;VALUE=PERIOD:20261226T120000/PT3H",
            "event 'event 0': RDATE has the unknown time zone Nowhere",
        ),
        (
            "DTSTART:20261224T120000Z\nRRULE:FREQ=SECONDLY",
            "event 'event 0': FREQ is SECONDLY; allowed are DAILY, WEEKLY, MONTHLY, YEARLY",
        ),
        ("DTSTART:20261224T120000Z\nRRULE:FREQ=MINUTELY", "event 'event 0': FREQ is MINUTELY"),
        ("DTSTART:20261224T120000Z\nRRULE:FREQ=HOURLY;COUNT=2", "event 'event 0': FREQ is HOURLY"),
        ("DTSTART:20261224T120000Z\nRRULE:COUNT=2", "event 'event 0': FREQ is nothing"),
        (
            "DTSTART:20261224T120000Z\nRRULE:FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,30",
            "event 'event 0': it repeats within a day (BYHOUR, BYMINUTE), which is not possible here",
        ),
        ("DTSTART:20261224T120000Z\nRRULE:FREQ=DAILY;INTERVAL=0", "event 'event 0': INTERVAL and COUNT are at least 1"),
        (
            "DTSTART:20261224T120000Z\nRRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
            "event 'event 0': it repeats on a day that none of its months has",
        ),
        (
            "DTSTART;VALUE=DATE:18991231\nRRULE:FREQ=DAILY",
            "event 'event 0': it repeats since 1899; 1900 is the first year possible",
        ),
        ("DTSTART:20261224T120000Z\nDTEND:20261224T110000Z", "event 'event 0': it ends before it starts"),
        ("DTSTART;VALUE=DATE:20261301", "event 'event 0': DTSTART cannot be read: Wrong date format 20261301"),
        ("DESCRIPTION:none", "event 'event 0': DTSTART is missing"),
        (
            "DTSTART;VALUE=DATE:20261224\nDTEND:20261224T120000Z",
            "not an iCalendar file that can be read: DTSTART and DTEND",
        ),
    ],
)
def test_what_would_be_misread_or_would_not_end_is_refused(event: str, problem: str) -> None:
    assert refusal(file(event)).startswith(problem)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it holds no calendar"),
        (b"hello", "not an iCalendar file that can be read: Content line could not be parsed"),
        (b"\xff\xfe\x00", "not an iCalendar file that can be read"),
        (b"BEGIN:VCALENDAR\r\n", "it holds no calendar"),
        (b"BEGIN:VEVENT\r\nEND:VEVENT\r\n", "it begins with VEVENT, not with VCALENDAR"),
        (b" " * (ical.MOST_BYTES + 1), "1048577 bytes are too large: at most 1048576"),
        (
            file(head="X-WR-TIMEZONE:No/Where"),
            "not an iCalendar file that can be read: 'No time zone found with key No/Where",
        ),
    ],
)
def test_what_is_no_calendar_is_refused(data: bytes, problem: str) -> None:
    assert refusal(data).startswith(problem)


@pytest.mark.slow
def test_work_is_bounded() -> None:
    event = "DTSTART;VALUE=DATE:20261224"
    assert refusal(file(*[event] * (ical.MOST_EVENTS + 1))) == "5001 events are too many: at most 5000"
    daily = "DTSTART:20200101T120000Z\nDURATION:PT1H\nRRULE:FREQ=DAILY"
    assert refusal(file(*[daily] * 30)) == "more than 10000 occurrences from 2026-10-01 to 2027-10-01"
    # A hundred years of every event cost no more than the year that is asked for.
    assert len(read(*["DTSTART;VALUE=DATE:19800101\nDTEND;VALUE=DATE:20800101"] * 500).days) == 365


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)
    assert refusal(file()) == "icalendar is missing: pip install 'schedule-gate[ical]'"
