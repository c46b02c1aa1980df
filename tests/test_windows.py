"""Hours against the wall clock, minute by minute, most often around the days on which clocks jump."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import lines
from gate.calendars import Days, minute_of
from gate.windows import ALWAYS, NEVER, Compiler, Hours, Spans, intervals
from tests.support import wall_clock
from tests.support.wall_clock import DAY, MINUTE, ZONES, Case

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors/time-vectors.json").read_text())["vectors"]
HOLIDAYS = Days(dates=frozenset(wall_clock.HOLIDAYS), yearly=frozenset(wall_clock.YEARLY))
KEYS = st.sampled_from(sorted(ZONES))


def hours(*texts: str, zone: str = "Europe/Berlin", days: Days = HOLIDAYS) -> Hours:
    compiler = Compiler(days)
    return compiler.union(compiler.hours(lines.parse(text), compiler.zone(zone)) for text in texts)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"))


def scanned(of: Hours, at: datetime, days: float) -> datetime | None:
    """The next change within so many days, found by asking for every minute."""
    at = at.replace(second=0, microsecond=0)
    state = of.contains(at)
    return next((minute for minute in wall_clock.minutes(at, days) if of.contains(minute) != state), None)


# -- vectors


def of_vector(vector: dict[str, Any]) -> Hours:
    compiler = Compiler(Days())
    parts: list[Hours] = []
    for window in vector["windows"]:
        if "start" in window:
            text = f"cron {window['start']} for {window['duration_min']}m"
        elif "cron" in window:
            text = f"cron {window['cron']}"
        else:
            text = f"{','.join(window.get('days', ['daily']))} {'-'.join(window['range'])}"
        part = compiler.hours(lines.parse(text), compiler.zone(vector["zone"]))
        parts.append(compiler.eroded(part, window.get("cutoff_min", 0)))
    return compiler.union(parts)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['id']} {vector['note']}")
def test_every_vector_holds(vector: dict[str, Any]) -> None:
    at, change, then = (datetime.fromisoformat(vector[name]) for name in ("at", "next", "then"))
    found = of_vector(vector)
    assert vector["exclude"] == []
    assert found.contains(at) is vector["open"]
    assert found.next_change(at) == change
    assert found.contains(change) is not vector["open"]
    assert found.next_change(change) == then


# -- the wall clock


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_a_line_is_open_whenever_the_wall_clock_reads_inside_it(data: st.DataObject) -> None:
    key = data.draw(KEYS)
    case: Case = data.draw(wall_clock.lines(key))
    start = data.draw(wall_clock.moments(key))
    zone, found = ZoneInfo(key), hours(case.text, zone=key)
    for at in wall_clock.minutes(start, 1.5):
        assert found.contains(at) == case.reads(wall_clock.wall(at, zone)), (case.text, at, wall_clock.wall(at, zone))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_the_next_change_is_the_first_minute_that_differs(data: st.DataObject) -> None:
    key = data.draw(KEYS)
    cases = data.draw(st.lists(wall_clock.lines(key), min_size=1, max_size=3))
    at = data.draw(wall_clock.moments(key)) + timedelta(seconds=data.draw(st.sampled_from([0, 0.001, 59.999])))
    found, fresh = hours(*(case.text for case in cases), zone=key), hours(*(case.text for case in cases), zone=key)
    change, expected = found.next_change(at), scanned(fresh, at, 9)
    if expected is None:
        assert change is None or change > at + 8 * DAY
    else:
        assert change == expected
        assert change > at


@settings(max_examples=40)
@given(st.data())
def test_what_was_remembered_changes_no_answer(data: st.DataObject) -> None:
    key = data.draw(KEYS)
    text = data.draw(wall_clock.lines(key)).text
    found = hours(text, zone=key)
    for at in data.draw(st.lists(wall_clock.moments(key), min_size=2, max_size=8)):
        fresh = hours(text, zone=key)
        assert found.next_change(at) == fresh.next_change(at)
        assert found.contains(at) == hours(text, zone=key).contains(at)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_over_four_hundred_days_every_edge_fires(zone: str) -> None:
    """rclone#1268: right on day 1, wrong from day 2. Every edge lies on a quarter of an hour."""
    texts = [
        "workday 06:15-20:00",
        "fri 22:30 - mon 02:30",
        "freeday 23:00-04:45",
        "day -1 00:00-24:00",
        "first sun 01:30-02:30",
    ]
    found, clock, start = hours(*texts, zone=zone), ZoneInfo(zone), utc("2026-01-01")
    free = {day.date() for day in (start + n * DAY for n in range(-2, 404)) if wall_clock.is_free(day.date())}

    def is_open(at: datetime) -> bool:
        now = wall_clock.wall(at, clock)
        day, minute, weekday = now.date(), now.hour * 60 + now.minute, now.weekday()
        week = weekday * 1440 + minute
        return (
            (day not in free and 375 <= minute < 1200)
            or week >= 4 * 1440 + 22 * 60 + 30
            or week < 150
            or (day in free and minute >= 1380)
            or (day - DAY in free and minute < 285)
            or (day + DAY).day == 1
            or (weekday == 6 and day.day <= 7 and 90 <= minute < 150)
        )

    quarters = [start + n * timedelta(minutes=15) for n in range(400 * 96)]
    states = [is_open(at) for at in quarters]
    edges = [after for (_, was), (after, now) in pairwise(zip(quarters, states, strict=True)) if was != now]
    walked: list[datetime] = []
    at = found.next_change(start)
    while at is not None and at <= quarters[-1]:
        walked.append(at)
        at = found.next_change(at)
    assert len(edges) > 600
    assert walked == edges


# -- reports of what others got wrong (the number is that of the report)


def test_a_line_belongs_to_the_day_it_starts_on() -> None:
    """kured#204, qbittorrent#19509, zmeventnotificationNg#52, xbvr#950."""
    night = hours("mon-fri 21:00-05:00")
    assert night.contains(berlin("2026-06-05 22:49"))  # a Friday
    assert night.contains(berlin("2026-06-06 00:49"))
    assert night.contains(berlin("2026-06-06 04:59:59.999"))
    assert not night.contains(berlin("2026-06-06 05:00"))
    assert not night.contains(berlin("2026-06-06 22:49"))
    assert not night.contains(berlin("2026-06-08 00:49"))  # the Monday's morning belongs to Sunday: backuppc#321
    assert night.next_change(berlin("2026-06-06 05:00")) == berlin("2026-06-08 21:00")


def test_while_it_is_open_it_closes_later_than_now() -> None:
    """xbvr#950: the end was computed for today."""
    night = hours("daily 19:00-07:00")
    assert night.next_change(berlin("2026-06-05 19:30")) == berlin("2026-06-06 07:00")
    assert night.next_change(berlin("2026-06-06 06:59:59")) == berlin("2026-06-06 07:00")


def test_each_line_carries_its_own_end() -> None:
    """keda#4677: up from Friday to Sunday."""
    week = hours("mon-fri 08:00-22:10")
    assert week.next_change(berlin("2026-06-05 12:00")) == berlin("2026-06-05 22:10")
    assert week.next_change(berlin("2026-06-05 22:10")) == berlin("2026-06-08 08:00")


def test_no_minute_is_lost_at_midnight() -> None:
    """grafana#62849, grafana#73912: a range over midnight, or two that meet there."""
    two, one = hours("daily 22:00-24:00", "daily 00:00-07:00"), hours("daily 22:00-07:00")
    at = berlin("2026-06-05 22:00")
    assert two.next_change(at) == one.next_change(at) == berlin("2026-06-06 07:00")
    assert two.contains(berlin("2026-06-05 23:59:59"))


def test_hours_are_open_in_the_union_of_their_lines() -> None:
    """argo-cd#10425: any inactive window blocked."""
    both = hours("mon-fri 20:00-22:00", "daily 10:00-11:00")
    assert both.contains(berlin("2026-06-05 20:30"))
    assert both.contains(berlin("2026-06-06 10:30"))
    assert not both.contains(berlin("2026-06-06 20:30"))


def test_what_is_taken_away_is_closed_only_inside() -> None:
    """argo-cd#5590: a deny window blocked outside its time."""
    compiler = Compiler(Days())
    zone = compiler.zone("Europe/Berlin")
    night, backup = (compiler.hours(lines.parse(text), zone) for text in ("daily 20:00-06:00", "daily 02:00-03:00"))
    left = compiler.minus(night, backup)
    assert not left.contains(berlin("2026-06-05 02:30"))
    assert left.contains(berlin("2026-06-05 03:00"))
    assert left.next_change(berlin("2026-06-05 20:00")) == berlin("2026-06-06 02:00")
    assert left.next_change(berlin("2026-06-06 02:00")) == berlin("2026-06-06 03:00")


def test_an_edge_keeps_to_the_wall_clock_after_the_offset_changed() -> None:
    """rclone-manager#162: a 20:00 start came at 21:00."""
    night = hours("daily 20:00-06:00")
    assert night.next_change(utc("2026-03-28 12:00")) == utc("2026-03-28 19:00")
    assert night.next_change(utc("2026-03-29 12:00")) == utc("2026-03-29 18:00")


def test_a_line_over_the_jump_is_a_line_as_any_other() -> None:
    """icinga2#2840: a range over the jump was invalid; zincati#301: windows shrink, grow and vanish."""
    gap, fold = utc("2026-03-28 12:00"), utc("2026-10-24 12:00")
    shown = {
        text: [
            [f"{start:%H:%M}-{end:%H:%M}" for start, end in intervals(hours(text), day, day + DAY)]
            for day in (gap, fold)
        ]
        for text in ("daily 22:00-06:00", "daily 02:00-03:00", "daily 02:30-05:00", "daily 01:30-02:30")
    }
    assert shown == {
        "daily 22:00-06:00": [["21:00-04:00"], ["20:00-05:00"]],
        "daily 02:00-03:00": [[], ["00:00-02:00"]],
        "daily 02:30-05:00": [["01:00-03:00"], ["00:30-01:00", "01:30-04:00"]],
        "daily 01:30-02:30": [["00:30-01:00"], ["23:30-00:30", "01:00-01:30"]],
    }


def test_a_minute_is_open_as_a_whole() -> None:
    """rebootmgr#10 started at 06:59:59 for 07:00."""
    day = hours("daily 07:00-08:00", zone="UTC")
    assert not day.contains(utc("2026-06-05 06:59:59.999999"))
    assert day.contains(utc("2026-06-05 07:00"))
    assert day.contains(utc("2026-06-05 07:59:59.999999"))
    assert not day.contains(utc("2026-06-05 08:00"))
    assert day.next_change(utc("2026-06-05 06:59:59.999999")) == utc("2026-06-05 07:00")


# -- ends of the search


@pytest.mark.parametrize(
    "texts",
    [
        ["daily 00:00-24:00"],
        ["daily 00:00-12:00", "daily 12:00-24:00"],
        ["mon 00:00 - sun 24:00"],
        ["tue 00:00 - mon 24:00"],
        ["cron * * * * *"],
    ],
)
def test_always_has_no_change_and_is_remembered(texts: list[str]) -> None:
    found = hours(*texts)
    at = utc("2026-06-05")
    assert found.next_change(at) is None
    _count_masks_from_now_on(found)
    assert [found.next_change(at + n * timedelta(minutes=1)) for n in range(1439)] == [None] * 1439
    assert found.contains(at + timedelta(minutes=500))


class TooMuchWork(Exception):
    """More masks were compiled than a remembered answer needs."""


def _count_masks_from_now_on(found: Hours) -> None:
    """What is remembered needs no mask of any day."""

    def search(minute: int, state: bool, horizon: int) -> int | None:
        raise TooMuchWork

    # Hours have slots: a subclass of the same layout takes the place of the class.
    found.__class__ = type("Watched", (type(found),), {"__slots__": (), "search": staticmethod(search)})


def test_a_change_that_was_found_is_remembered_until_then() -> None:
    found = hours("mon-fri 20:00-06:00")
    change = found.next_change(berlin("2026-06-05 21:00"))
    _count_masks_from_now_on(found)
    assert found.next_change(berlin("2026-06-06 05:59:59")) == change == berlin("2026-06-06 06:00")
    with pytest.raises(TooMuchWork):
        found.next_change(berlin("2026-06-06 06:00"))


def test_never_has_no_change() -> None:
    assert hours("holiday 00:00-24:00", days=Days()).next_change(utc("2026-06-05")) is None
    assert hours("2026-06-01 00:00 .. 2026-06-05 00:00").next_change(utc("2026-06-05")) is None
    assert NEVER.next_change(utc("2026-06-05")) is None
    assert not NEVER.contains(utc("2026-06-05"))
    assert ALWAYS.next_change(utc("2026-06-05")) is None
    assert ALWAYS.contains(utc("2026-06-05"))


def test_a_leap_day_eight_years_off_is_found() -> None:
    found = hours("day 29 00:00-24:00 in feb", zone="UTC")
    assert found.next_change(utc("2096-03-01")) == utc("2104-02-29")


def test_what_was_too_far_off_is_found_when_it_is_nearer() -> None:
    found = hours("fifth sun 00:00-24:00 in feb", zone="UTC")  # 2032, then 2060
    assert found.next_change(utc("2051-06-05")) is None
    assert found.next_change(utc("2052-02-20")) is None
    assert found.next_change(utc("2052-06-05")) == utc("2060-02-29")


def test_the_horizon_begins_with_the_last_day_that_is_named() -> None:
    found = hours("2060-06-01 12:00 .. 2060-06-02 12:00", zone="UTC")
    assert found.next_change(utc("2026-06-05")) == utc("2060-06-01 12:00")
    assert found.next_change(utc("2060-06-01 12:00")) == utc("2060-06-02 12:00")
    holiday = hours("holiday 00:00-24:00", zone="UTC", days=Days(dates=frozenset({utc("2060-06-01").date()})))
    assert holiday.next_change(utc("2026-06-05")) == utc("2060-06-01")


def test_an_edge_of_dates_is_found_from_the_day_of_it() -> None:
    """Far from its edges, a search leaps; it may not leap over one."""
    compiler = Compiler(Days())
    for key in ("America/New_York", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        zone = compiler.zone(key)
        found = compiler.hours(lines.parse("2026-06-10 22:00 .. 2026-08-01 01:00"), zone)
        start, end = (
            datetime.fromisoformat(text).replace(tzinfo=zone.info) for text in ("2026-06-10 22:00", "2026-08-01 01:00")
        )
        early = compiler.eroded(found, 4000)
        outside = compiler.minus(ALWAYS, found)
        for days in range(1, 40):
            assert found.search(minute_of(start - days * DAY), False, minute_of(end)) == minute_of(start)
            assert found.search(minute_of(end - days * DAY), True, minute_of(end + DAY)) == minute_of(end)
            assert outside.search(minute_of(start - days * DAY), True, minute_of(end)) == minute_of(start)
            begin, until = minute_of(start + (days % 7) * DAY), minute_of(end) - 4000
            assert early.search(begin, True, minute_of(end + DAY)) == until
        assert found.next_change(end) is None


@pytest.mark.parametrize("year", ["0001-01-01", "9999-12-31"])
def test_an_instant_far_from_any_calendar_has_an_answer(year: str) -> None:
    for found in (hours("daily 20:00-06:00"), hours("fri 18:00 - mon 08:30"), hours("cron 0 2 * * sun for 4h"), ALWAYS):
        assert found.contains(utc(year)) in (True, False)
        change = found.next_change(utc(year))
        assert change is None or change > utc(year)


def test_a_naive_time_is_no_instant() -> None:
    with pytest.raises(TypeError):
        hours("daily 20:00-06:00").contains(datetime(2026, 6, 5))  # noqa: DTZ001 - the point


# -- what is made of hours


@st.composite
def two(draw: st.DrawFn) -> tuple[str, Compiler, Hours, Hours, datetime]:
    key = draw(KEYS)
    compiler = Compiler(HOLIDAYS)
    made = [compiler.hours(lines.parse(draw(wall_clock.lines(key)).text), compiler.zone(key)) for _ in range(2)]
    return key, compiler, made[0], made[1], draw(wall_clock.moments(key))


@pytest.mark.slow
@settings(max_examples=40)
@given(two())
def test_union_and_minus_are_what_they_say_in_every_minute(drawn: tuple[str, Compiler, Hours, Hours, datetime]) -> None:
    _, compiler, one, other, start = drawn
    either, without = compiler.union([one, other]), compiler.minus(one, other)
    for at in wall_clock.minutes(start, 1):
        assert either.contains(at) == (one.contains(at) or other.contains(at))
        assert without.contains(at) == (one.contains(at) and not other.contains(at))


@pytest.mark.slow
@settings(max_examples=40)
@given(two(), st.sampled_from([1, 45, 60, 1439, 1440, 1441, 4000]))
def test_an_early_end_closes_the_minutes_before_each_end(
    drawn: tuple[str, Compiler, Hours, Hours, datetime], minutes: int
) -> None:
    _, compiler, one, other, start = drawn
    base = compiler.union([one, other])
    eroded = compiler.eroded(base, minutes)
    runs: list[int] = []  # how many minutes are open on end, from each minute backwards
    for at in reversed(list(wall_clock.minutes(start, 2 + minutes / 1440))):
        runs.append(runs[-1] + 1 if runs and base.contains(at) else int(base.contains(at)))
    for at, run in zip(wall_clock.minutes(start, 1), reversed(runs), strict=False):
        assert eroded.contains(at) == (run > minutes)


@pytest.mark.slow
@settings(max_examples=40)
@given(two(), st.sampled_from([1, 45, 1441]))
def test_the_next_change_of_what_is_made_of_hours_is_the_first_that_differs(
    drawn: tuple[str, Compiler, Hours, Hours, datetime], minutes: int
) -> None:
    _, compiler, one, other, at = drawn
    for found in (compiler.union([one, other]), compiler.minus(one, other), compiler.eroded(one, minutes)):
        change, expected = found.next_change(at), scanned(found, at, 4)
        assert change == expected or (expected is None and (change is None or change > at + 3 * DAY))


def test_an_early_end_is_not_at_a_seam_between_lines() -> None:
    compiler = Compiler(Days())
    zone = compiler.zone("UTC")
    parts = [compiler.hours(lines.parse(text), zone) for text in ("daily 20:00-24:00", "daily 00:00-06:00")]
    found = compiler.eroded(compiler.union(parts), 45)
    assert found.next_change(utc("2026-06-05 20:00")) == utc("2026-06-06 05:15")
    assert compiler.eroded(ALWAYS, 45).next_change(utc("2026-06-05")) is None


def test_an_early_end_counts_elapsed_minutes() -> None:
    compiler = Compiler(Days())
    found = compiler.eroded(compiler.hours(lines.parse("daily 20:00-03:30"), compiler.zone("Europe/Berlin")), 60)
    assert found.next_change(utc("2026-03-28 19:00")) == utc(
        "2026-03-29 00:30"
    )  # 03:30 is 01:30 UTC; an hour before: 01:30


def test_what_is_equal_is_made_once() -> None:
    compiler = Compiler(Days())
    zone = compiler.zone("Europe/Berlin")
    one, same = (compiler.hours(lines.parse("daily 20:00-06:00"), zone) for _ in range(2))
    other = compiler.hours(lines.parse("daily 20:00-06:00"), compiler.zone("UTC"))
    assert one is same
    assert one is not other
    assert compiler.zone("Europe/Berlin") is zone
    assert compiler.union([one, other]) is compiler.union([other, one])
    assert compiler.union([one, same, NEVER]) is one
    assert compiler.union([one, ALWAYS]) is ALWAYS
    assert compiler.union([]) is NEVER
    assert compiler.minus(one, NEVER) is one
    assert compiler.minus(NEVER, one) is NEVER
    assert compiler.minus(one, other) is compiler.minus(one, other)
    assert compiler.eroded(one, 0) is one
    assert compiler.eroded(one, 5) is compiler.eroded(one, 5)


# -- spans and pictures


SPANS = st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 3000)), max_size=6)


@pytest.mark.slow
@settings(max_examples=50)
@given(SPANS, st.integers(0, 5000))
def test_spans_are_widened_to_whole_minutes(drawn: list[tuple[int, int]], from_minute: int) -> None:
    start = utc("2026-06-05")
    spans = [(start + timedelta(seconds=20 * a), start + timedelta(seconds=20 * (a + length))) for a, length in drawn]
    found = Spans(spans)
    expected = [any(a < at + MINUTE and at < b for a, b in spans if a < b) for at in wall_clock.minutes(start, 2.5)]
    assert [found.contains(at) for at in wall_clock.minutes(start, 2.5)] == expected
    at = start + from_minute * MINUTE
    assert Spans(spans).next_change(at) == scanned(found, at, 8)


def test_spans_years_apart_are_found() -> None:
    found = Spans([(utc("2026-06-05 10:00"), utc("2026-06-05 11:00")), (utc("2050-01-01"), utc("2050-01-03 00:00:30"))])
    assert found.next_change(utc("2026-06-05 11:00")) == utc("2050-01-01")
    assert found.next_change(utc("2050-01-01")) == utc("2050-01-03 00:01")
    assert found.next_change(utc("2050-01-03 00:01")) is None
    assert found.next_change(utc("2049-12-31 12:00")) == utc("2050-01-01")


@settings(max_examples=40)
@given(st.data())
def test_intervals_are_the_open_times_cut_to_what_was_asked(data: st.DataObject) -> None:
    key = data.draw(KEYS)
    found = hours(data.draw(wall_clock.lines(key)).text, zone=key)
    start = data.draw(wall_clock.moments(key)) + timedelta(seconds=data.draw(st.integers(0, 59)))
    end = start + timedelta(seconds=data.draw(st.integers(0, 200_000)))
    shown = intervals(found, start, end)
    assert all(start <= a < b <= end for a, b in shown)
    assert all(b < c for (_, b), (c, _) in pairwise(shown))
    for n in range(int((end - start).total_seconds() // 30)):
        at = start + n * timedelta(seconds=30)
        assert found.contains(at) == any(a <= at < b for a, b in shown)
