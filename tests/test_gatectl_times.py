"""gatectl's times: local ones are accepted at the human edge, and nothing without a zone leaves it."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gate.ctl import output, times
from gate.interface import NotAnInstant

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"  # as a POSIX rule: needs no time zone data
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)  # 13:00 in Berlin


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", BERLIN)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00+00:00"),
        ("2026-11-30t12:00:00z", "2026-11-30T12:00:00+00:00"),
        ("2026-11-30T12:00:00.25Z", "2026-11-30T12:00:00.250000+00:00"),
        ("2026-11-30T12:00:00+05:30", "2026-11-30T06:30:00+00:00"),
        ("2026-11-30 12:00Z", "2026-11-30T12:00:00+00:00"),
        ("2026-11-30 12:00", "2026-11-30T11:00:00+00:00"),
        ("2026-11-30T12:00", "2026-11-30T11:00:00+00:00"),
        ("2026-07-01 12:00:30", "2026-07-01T10:00:30+00:00"),
        ("12:00", "2026-11-30T11:00:00+00:00"),
        ("00:00", "2026-11-29T23:00:00+00:00"),
        ("2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T02:30:00+01:00", "2026-10-25T01:30:00+00:00"),
        ("2026-10-25 01:59", "2026-10-24T23:59:00+00:00"),
        ("2026-10-25 03:00", "2026-10-25T02:00:00+00:00"),
        ("2026-03-29 03:00", "2026-03-29T01:00:00+00:00"),
    ],
)
def test_a_time_is_read_in_its_zone_or_in_the_local_one(text: str, expected: str) -> None:
    assert times.moment(text, NOW).isoformat() == expected


@pytest.mark.parametrize(
    "text",
    ["", "noon", "12", "12:60", "24:00", "12:00Z", "2026-11-31 12:00", "2026-11-30", "20261130T120000Z", "1764504000",
     "2026-11-30T12:00:00 CET", "2026-11-30T12:00:61Z", "2026-11-30T12:00Z\n", "٢٠٢٦-11-30 12:00", "0001-01-01 00:00"],
)  # fmt: skip
def test_what_is_no_time_is_refused_and_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"2026-11-30T12:00:00Z|RFC 3339|outside the years"):
        times.moment(text, NOW)


def test_today_is_the_local_day() -> None:
    late = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)
    assert times.moment("00:15", late).isoformat() == "2026-11-30T23:15:00+00:00"


def test_a_local_time_that_exists_twice_is_refused_with_both_candidates() -> None:
    with pytest.raises(NotAnInstant) as refused:
        times.moment("2026-10-25 02:30", NOW)
    text = str(refused.value)
    both = text.rpartition("write ")[2].split(" or ")
    assert both == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]
    first, second = (times.moment(candidate, NOW) for candidate in both)
    assert second - first == timedelta(hours=1)


def test_a_local_time_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotAnInstant, match="does not exist in local time"):
        times.moment("2026-03-29 02:30", NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("13:01", "2026-11-30T12:01:00+00:00"),
        ("13:00", "2026-12-01T12:00:00+00:00"),  # now is not ahead
        ("06:00", "2026-12-01T05:00:00+00:00"),
        ("2026-12-24 18:00", "2026-12-24T17:00:00+00:00"),
        ("2026-11-29 18:00", "2026-11-29T17:00:00+00:00"),  # past: the gate refuses it
        ("2026-11-30T18:00:00Z", "2026-11-30T18:00:00+00:00"),
    ],
)
def test_an_end_without_a_date_is_the_next_such_time(text: str, expected: str) -> None:
    assert times.end(text, NOW).isoformat() == expected


def test_an_end_tomorrow_is_tomorrows_wall_clock() -> None:
    before_the_change = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert times.end("06:00", before_the_change).isoformat() == "2026-03-29T04:00:00+00:00"
    with pytest.raises(NotAnInstant, match="does not exist in local time"):
        times.end("02:30", before_the_change)


@pytest.mark.parametrize("text", ["", "tonight", "2h", "24:00"])
def test_an_end_that_is_no_time_is_refused_and_says_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r'write 18:00 \(the next\), or in local time "2026-11-30 18:00"'):
        times.end(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", "2026-11-30T11:58:30+00:00"),
        ("1h30m", "2026-11-30T10:30:00+00:00"),
        ("7d", "2026-11-23T12:00:00+00:00"),
        ("12:00", "2026-11-30T11:00:00+00:00"),
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00+00:00"),
    ],
)
def test_since_is_a_time_or_a_duration(text: str, expected: str) -> None:
    assert times.since(text, NOW).isoformat() == expected


@pytest.mark.parametrize("text", ["5", "5 minutes", "1y", "99999999w", "yesterday", ""])
def test_a_since_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 2026-11-30T12:00:00Z"):
        times.since(text, NOW)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-11-30T11:59:00+00:00", "12:59"),
        ("2026-11-30T11:59:07+00:00", "12:59:07"),
        ("2026-11-29T22:30:00+00:00", "2026-11-29 23:30"),
        ("2026-10-25T00:30:00+00:00", "2026-10-25 02:30 CEST"),
        ("2026-10-25T01:30:00+00:00", "2026-10-25 02:30 CET"),
    ],
)
def test_a_local_time_is_shown_without_what_is_understood(at: str, expected: str) -> None:
    assert output.clock(datetime.fromisoformat(at), NOW) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.4, "now"), (-0.4, "now"), (1, "1s ago"), (-3, "in 3s"), (192, "3m12s ago"), (3600, "1h ago"), (3659, "1h ago"),
     (5400, "1h30m ago"), (86_399, "23h59m ago"), (90_000, "1d1h ago"), (-90_061, "in 1d1h")],
)  # fmt: skip
def test_how_long_ago(seconds: float, expected: str) -> None:
    assert output.ago(NOW - timedelta(seconds=seconds), NOW) == expected


def test_the_zone_is_named() -> None:
    assert output.zone(NOW) == "CET (UTC+01:00)"
    assert output.zone(datetime(2026, 7, 1, tzinfo=UTC)) == "CEST (UTC+02:00)"
