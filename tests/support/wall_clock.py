"""Hours by plain datetime code, minute by minute: what the compiled masks are compared with.

Nothing here is shared with gate/: a case carries the text of a line, and a function of what the wall clock reads.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
WEEKDAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
HOLIDAYS = {date(2026, 4, 6), date(2026, 10, 26), date(2011, 12, 31), date(2025, 2, 24)}
YEARLY = {(3, 29), (12, 25)}

ZONES = {
    "America/New_York": 2026,
    "Europe/Berlin": 2026,
    "Australia/Lord_Howe": 2026,
    "Africa/Casablanca": 2025,
    "Asia/Kathmandu": 1985,
    "Pacific/Apia": 2011,
    "America/Sao_Paulo": 2017,
    "Antarctica/Troll": 2026,
    "UTC": 2026,
}
"""Zones, and the first of two years that are looked at."""

Reads = Callable[[datetime], bool]


class Case(NamedTuple):
    """A line, and whether it is open when the wall clock reads a naive time."""

    text: str
    reads: Reads


def wall(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


@cache
def jumps(key: str) -> list[datetime]:
    """The UTC hours of the two years in which the offset changes."""
    zone, start = ZoneInfo(key), datetime(ZONES[key], 1, 1, tzinfo=UTC)
    hours = [start + timedelta(hours=n) for n in range(731 * 24)]
    offsets = [at.astimezone(zone).utcoffset() for at in hours]
    return [hours[n] for n in range(1, len(hours)) if offsets[n] != offsets[n - 1]]


@st.composite
def moments(draw: st.DrawFn, key: str) -> datetime:
    """A minute of UTC; mostly one within three days of a change of the offset."""
    near = draw(st.integers(0, 3)) > 0
    if near and jumps(key):
        return draw(st.sampled_from(jumps(key))) + timedelta(minutes=draw(st.integers(-3 * 1440, 3 * 1440)))
    return datetime(ZONES[key], 1, 1, tzinfo=UTC) + timedelta(minutes=draw(st.integers(0, 730 * 1440)))


def minutes(start: datetime, days: float) -> Iterator[datetime]:
    return (start + n * MINUTE for n in range(int(days * 1440)))


# -- days


class Choice(NamedTuple):
    text: str
    includes: Callable[[date], bool]


def month_of(day: date) -> list[date]:
    return [found for n in range(1, 32) if (found := day.replace(day=1) + (n - 1) * DAY).month == day.month]


def ring(names: list[str], first: int, last: int) -> set[int]:
    """The numbers from first to last, round the end if need be."""
    found, at = {first}, first
    while at != last:
        at = (at + 1) % len(names)
        found.add(at)
    return found


@st.composite
def rings(draw: st.DrawFn, names: list[str]) -> tuple[str, set[int]]:
    items: list[str] = []
    found: set[int] = set()
    for first, last in draw(st.lists(st.tuples(*[st.integers(0, len(names) - 1)] * 2), min_size=1, max_size=2)):
        items.append(names[first] if first == last else f"{names[first]}-{names[last]}")
        found |= ring(names, first, last)
    return ",".join(items), found


def is_free(day: date) -> bool:
    return day.weekday() >= 5 or is_holiday(day)


def is_holiday(day: date) -> bool:
    return day in HOLIDAYS or (day.month, day.day) in YEARLY


NTH = {"first": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4, "last": -1}


def nth_weekday(word: str, weekday: int) -> Choice:
    def includes(day: date) -> bool:
        such = [other for other in month_of(day) if other.weekday() == weekday]
        return day in (such[NTH[word] :][:1] if NTH[word] >= 0 else such[-1:])

    return Choice(f"{word} {WEEKDAYS[weekday]}", includes)


def month_day(number: int) -> Choice:
    def includes(day: date) -> bool:
        days = month_of(day)
        return abs(number) <= len(days) and days[number - (number > 0)] == day

    return Choice(f"day {number}", includes)


WORDS = [
    Choice("daily", lambda day: True),
    Choice("workday", lambda day: not is_free(day)),
    Choice("freeday", is_free),
    Choice("holiday", is_holiday),
]


@st.composite
def choices(draw: st.DrawFn) -> Choice:
    weekdays = rings(WEEKDAYS).map(lambda ring: Choice(ring[0], lambda day: day.weekday() in ring[1]))
    nths = st.builds(nth_weekday, st.sampled_from(sorted(NTH)), st.integers(0, 6))
    numbers = st.builds(month_day, st.integers(-28, 28).filter(bool))
    choice = draw(st.one_of(st.sampled_from(WORDS), weekdays, nths, numbers))
    if draw(st.integers(0, 4)):
        return choice
    text, months = draw(rings(MONTHS))
    return Choice(f"{choice.text} in {text}", lambda day: day.month - 1 in months and choice.includes(day))


# -- lines

TIMES = st.sampled_from(
    [0, 1, 30, 60, 90, 120, 150, 165, 180, 210, 240, 360, 719, 720, 1200, 1380, 1439]
) | st.integers(0, 1439)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


@st.composite
def day_lines(draw: st.DrawFn) -> Case:
    choice, start, end = draw(choices()), draw(TIMES), draw(TIMES | st.just(1440))
    if start == end:
        end = start + 1

    def reads(at: datetime) -> bool:
        minute = at.hour * 60 + at.minute
        if end > start:
            return start <= minute < end and choice.includes(at.date())
        return (minute >= start and choice.includes(at.date())) or (minute < end and choice.includes(at.date() - DAY))

    return Case(f"{choice.text} {clock(start)}-{clock(end)}", reads)


@st.composite
def span_lines(draw: st.DrawFn) -> Case:
    first, last, start, end = draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(TIMES), draw(TIMES)
    if first == last and start == end:
        last = (first + 1) % 7

    def reads(at: datetime) -> bool:
        # Back to the last start, then on to the first end after it.
        begin = (at - ((at.weekday() - first) % 7) * DAY).replace(hour=start // 60, minute=start % 60)
        begin = begin if begin <= at else begin - 7 * DAY
        until = (begin + ((last - first) % 7) * DAY).replace(hour=end // 60, minute=end % 60)
        return at < (until if until > begin else until + 7 * DAY)

    return Case(f"{WEEKDAYS[first]} {clock(start)} - {WEEKDAYS[last]} {clock(end)}", reads)


@st.composite
def dates_lines(draw: st.DrawFn, key: str) -> Case:
    zone = ZoneInfo(key)
    start, end = sorted((wall(draw(moments(key)), zone), wall(draw(moments(key)), zone) + MINUTE))
    if start == end:
        end += MINUTE
    return Case(f"{start:%Y-%m-%d %H:%M} .. {end:%Y-%m-%d %H:%M}", lambda at: start <= at < end)


def lines(key: str) -> st.SearchStrategy[Case]:
    return st.one_of(day_lines(), day_lines(), span_lines(), dates_lines(key))


# -- starts


def open_after_starts(
    starts: Reads, length: int, *, fixed: bool, zone: ZoneInfo, begin: datetime, days: float
) -> Iterator[bool]:
    """For each minute from `begin`: what a cron daemon would have open that starts something of `length` minutes.

    It looks at its clock each minute. If the clock jumped, fixed starts that were left out are made up for at once; if
    it went back, fixed starts that were already seen are not made again.
    """
    at = begin - timedelta(minutes=length) - 3 * DAY
    seen: set[datetime] = set()
    before = wall(at - MINUTE, zone)
    ends = at
    while at < begin + days * DAY:
        now = wall(at, zone)
        skipped = [before + n * MINUTE for n in range(1, max(0, (now - before) // MINUTE))]
        if (starts(now) and not (fixed and now in seen)) or (fixed and any(map(starts, skipped))):
            ends = at + timedelta(minutes=length)
        seen.add(now)
        before = now
        if at >= begin:
            yield at < ends
        at += MINUTE
