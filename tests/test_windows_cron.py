"""Cron lines: what croniter says of naive local minutes; and starts, as a cron daemon makes them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import croniter
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import cron, lines
from gate.calendars import Days
from gate.windows import Compiler, Hours
from tests.support import wall_clock
from tests.support.wall_clock import ZONES

KEYS = st.sampled_from(sorted(ZONES))


def hours(text: str, zone: str = "Europe/Berlin") -> Hours:
    compiler = Compiler(Days())
    return compiler.hours(lines.parse(text), compiler.zone(zone))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# -- expressions


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, names: str = "") -> str:
    """A field of the strict grammar; names in order, such as "jan feb …" for 1, 2, …"""
    known = names.split()

    def value(number: int) -> str:
        named = known[number - low] if number - low < len(known) else ""
        return named if named and draw(st.booleans()) else str(number)

    def step() -> str:
        return f"/{draw(st.integers(1, high))}" if draw(st.booleans()) else ""

    def item() -> str:
        first, last = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
        return value(first) if first == last else f"{value(first)}-{value(last)}{step()}"

    if draw(st.booleans()):
        return f"*{step()}"
    return ",".join(item() for _ in range(draw(st.integers(1, 3))))


@st.composite
def expressions(draw: st.DrawFn) -> str:
    month_day, weekday = draw(fields(1, 31)), draw(fields(0, 7, "sun mon tue wed thu fri sat"))
    if "*" not in (month_day, weekday) and "*" in month_day + weekday:
        weekday = "*"
    months = draw(fields(1, 12, " ".join(wall_clock.MONTHS)))
    return " ".join([draw(fields(0, 59)), draw(fields(0, 23)), month_day, months, weekday])


@pytest.mark.slow
@settings(max_examples=120)
@given(st.data())
def test_a_cron_line_is_open_in_every_local_minute_that_croniter_matches(data: st.DataObject) -> None:
    expression, key = data.draw(expressions()), data.draw(KEYS)
    try:
        found = hours(f"cron {expression}", key)
    except lines.LineError as error:
        assert "names a day that none of its months has" in str(error)  # noqa: PT017 - either is right
        return
    ats = data.draw(st.lists(wall_clock.moments(key), min_size=4, max_size=8))
    changes = [found.next_change(at) for at in ats]
    for at in [*ats, *(change for change in changes if change is not None)]:
        for minute in (at - timedelta(minutes=1), at):
            naive = wall_clock.wall(minute, ZoneInfo(key))
            assert found.contains(minute) == croniter.croniter.match(expression, naive), (expression, minute, naive)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("", "'' has not the five fields of cron"),
        ("* * * *", "'* * * *' has not the five fields of cron"),
        ("0 0 0 * * *", "seconds, years and macros such as @daily are not possible"),
        ("@daily", "has not the five fields of cron"),
        ("0 0 L * *", "day of month 'l': L, W, #, H, R and ? mean different things to different crons"),
        ("0 0 15W * *", "day of month '15w': L, W, #"),
        ("0 0 * * 5#3", "day of week '5#3': L, W, #"),
        ("0 0 * * fri#3", "day of week 'fri#3': L, W, #"),
        ("H * * * *", "minute 'h': L, W, #"),
        ("R * * * *", "minute 'r': L, W, #"),
        ("0 0 ? * *", "day of month '?': L, W, #"),
        ("* 22-6 * * *", "hour '22-6': '22-6' is reversed, which some crons never match: write 22-23,0-6"),
        ("0 0 * * fri-mon", "write fri-6,0-mon"),
        ("0 0 * * sat-sun", "write sat,sun"),
        ("* 5-5 * * *", "hour '5-5': '5-5' means the whole field to some crons: write 5"),
        ("* * * * mon-mon", "means the whole field to some crons: write mon"),
        ("5/15 * * * *", "minute '5/15': '5/15' is not read by every cron: write 5-59/15"),
        ("*,5 * * * *", "minute '*,5': * in a list makes the rest of it useless: write * alone"),
        ("0 0 * * monday", "day of week 'monday': 'monday' is not a value"),
        ("0 0 * march *", "month 'march': 'march' is not a value"),
        ("0 0 * mrz *", "month 'mrz': 'mrz' is not known; allowed are 1-12, jan, feb"),
        ("60 * * * *", "minute '60': 60 is not within 0-59"),
        ("* 24 * * *", "hour '24': 24 is not within 0-23"),
        ("* * 0 * *", "day of month '0': 0 is not within 1-31"),
        ("* * * 13 *", "month '13': 13 is not within 1-12"),
        ("* * * * 8", "day of week '8': 8 is not within 0-7"),
        ("*/0 * * * *", "minute '*/0': step 0 is not within 1-59"),
        ("*/90 * * * *", "minute '*/90': step 90 is not within 1-59"),
        ("10-20/0 * * * *", "minute '10-20/0': step 0 is not within 1-59"),
        ("*-5 * * * *", "minute '*-5': '*-5' is not a range: write 0-59 or *"),
        ("5, * * * *", "minute '5,': '' is not a value"),
        ("1--3 * * * *", "minute '1--3': '1--3' is not a value"),
        ("-1 * * * *", "minute '-1': '-1' is not a value"),
        ("0 0 */2 * 3", "day of month '*/2' with day of week '3': some crons take both, some either"),
        ("0 0 1 * */2", "day of month '1' with day of week '*/2': some crons take both, some either"),
        ("0 0 30 2 *", "'0 0 30 2 *' names a day that none of its months has"),
        ("0 0 31 4,6,9,11 *", "'0 0 31 4,6,9,11 *' names a day that none of its months has"),
        ("\uff10 0 * * *", "has not the five fields of cron"),
        (f"{','.join(['1'] * 130)} * * * *", "267 characters are too many for a cron expression: at most 256"),
    ],
)
def test_what_crons_read_differently_is_refused_with_what_to_write(expression: str, text: str) -> None:
    with pytest.raises(cron.CronError) as caught:
        cron.read(expression)
    assert text in str(caught.value)


@given(st.text(alphabet="0123456789*,-/ lw#?@abjfmosunet", max_size=30))
def test_any_expression_is_read_or_refused(text: str) -> None:
    try:
        assert cron.read(text).minutes > 0
    except cron.CronError as error:
        assert str(error)  # noqa: PT017 - either is right


def test_sunday_is_zero_and_seven_as_in_every_cron() -> None:
    """apscheduler#286, #495, #1102: 0 was Monday there."""
    for expression in ("* * * * 0", "* * * * 7", "* * * * sun"):
        found = hours(f"cron {expression}", "UTC")
        assert found.contains(utc("2026-06-07 12:00"))
        assert not found.contains(utc("2026-06-08 12:00"))


def test_a_29_february_beside_a_weekday_is_possible() -> None:
    assert hours("cron 0 0 30 2 mon", "UTC").next_change(utc("2026-01-31")) == utc("2026-02-02")


def test_croniter_is_not_asked_after_the_line_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """croniter#56: its steps over a fold went back in time; and a match costs up to milliseconds."""
    found = hours("cron * 1-5 * * *")
    monkeypatch.delattr(croniter, "croniter")
    assert found.next_change(utc("2026-10-25 00:00")) == utc("2026-10-25 05:00")
    assert found.next_change(utc("2026-10-25 05:00")) == utc("2026-10-26 00:00")


# -- starts

STARTS: dict[str, Callable[[datetime], bool]] = {
    "30 2 * * *": lambda at: (at.hour, at.minute) == (2, 30),
    "15 1,2 * * *": lambda at: at.hour in (1, 2) and at.minute == 15,
    "0 0 * * *": lambda at: (at.hour, at.minute) == (0, 0),
    "0-10/5 0-4 * * *": lambda at: at.hour <= 4 and at.minute in (0, 5, 10),
    "59 23 * * fri,sat": lambda at: (at.hour, at.minute) == (23, 59) and at.weekday() in (4, 5),
    "*/30 2 * * *": lambda at: at.hour == 2 and at.minute % 30 == 0,
    "45 * * * *": lambda at: at.minute == 45,
    "15 */2 * * *": lambda at: at.hour % 2 == 0 and at.minute == 15,
}


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_starts_happen_as_a_cron_daemon_makes_them(data: st.DataObject) -> None:
    key, expression = data.draw(KEYS), data.draw(st.sampled_from(sorted(STARTS)))
    length = data.draw(st.sampled_from([1, 2, 45, 240, 1440, 1441, 2000]))
    begin = data.draw(wall_clock.moments(key))
    found = hours(f"cron {expression} for {length}m", key)
    fixed = not any(field.startswith("*") for field in expression.split()[:2])
    states = wall_clock.open_after_starts(
        STARTS[expression], length, fixed=fixed, zone=ZoneInfo(key), begin=begin, days=1
    )
    for at, state in zip(wall_clock.minutes(begin, 1), states, strict=True):
        assert found.contains(at) == state, (expression, length, at)


@pytest.mark.parametrize(
    ("text", "at", "opens", "closes"),
    [
        # The gap of 2026-03-29: 02:30 never is, and the clock goes on at 03:00, which is 01:00 UTC.
        ("cron 30 2 * * * for 4h", "2026-03-28 12:00", "2026-03-29 01:00", "2026-03-29 05:00"),
        ("cron */30 2 * * * for 1h", "2026-03-28 12:00", "2026-03-30 00:00", "2026-03-30 01:30"),
        # The fold of 2026-10-25: 02:30 is at 00:30 UTC and again at 01:30.
        ("cron 30 2 * * * for 10m", "2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 00:40"),
        ("cron 30 2 * * * for 10m", "2026-10-25 00:40", "2026-10-26 01:30", "2026-10-26 01:40"),
        ("cron 30 * * * * for 10m", "2026-10-25 00:40", "2026-10-25 01:30", "2026-10-25 01:40"),
        ("cron 0 2 * * sun for 1d", "2026-10-24 12:00", "2026-10-25 00:00", "2026-10-26 00:00"),
        ("cron 0 2 * * sun for 7d", "2026-10-26 12:00", "2026-11-01 01:00", None),
    ],
)
def test_a_start_is_elapsed_time_from_a_local_start(text: str, at: str, opens: str, closes: str | None) -> None:
    found = hours(text)
    if closes is None:
        # Each week begins where the last one ended, but for the hour that the fold adds to one of them.
        assert found.next_change(utc(at)) == utc(opens) - timedelta(hours=1)
        return
    assert found.next_change(utc(at)) == utc(opens)
    assert found.next_change(utc(opens)) == utc(closes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cron 0 2 * * sun for 4", "'4' is not a duration: write a number and a unit"),
        ("cron 0 2 * * sun for 90s", "'90s' is not within 1m to 7d, in whole minutes"),
        ("cron 0 2 * * sun for 0m", "'0m' is not within 1m to 7d"),
        ("cron 0 2 * * sun for 8d", "'8d' is not within 1m to 7d"),
        ("cron 0 2 * * sun for ", "has not the five fields of cron"),
        ("cron for 4h", "has not the five fields of cron"),
        ("cron 0 2 * * for 4h", "has not the five fields of cron"),
        ("cron 0 2 * * sunday for 4h", "day of week 'sunday': 'sunday' is not a value"),
    ],
)
def test_a_length_that_cannot_be_is_refused(text: str, problem: str) -> None:
    with pytest.raises(lines.LineError) as caught:
        lines.parse(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(repr(text))
