"""Odd days: local days on which a rule is open at other times than on the same weekday in the weeks around.

Listed are days on which clocks jump, holidays, days of a dated line, and whatever is rare. What every fifth Sunday or a
whole season has is usual.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from itertools import islice, takewhile
from typing import NamedTuple

from gate.calendars import MINUTE, Days, Zone
from gate.hours import Entry
from gate.interface import OddDay
from gate.lines import DatesLine
from gate.localdays import Day, Interval, hours_in_words, in_words, length
from gate.wallclock import DAY
from gate.windows import Hours, intervals

ODD_DAYS_AHEAD = 400
WEEKS_AROUND = 5
_WEEKS = [weeks * 7 * DAY for weeks in range(-WEEKS_AROUND, WEEKS_AROUND + 1) if weeks]
RARE = 5
"""Of some 57 days of one weekday."""


class DayHours(NamedTuple):
    """When a rule is open on a local day. `wall`: the same as minutes of the wall clock, start and end in turn."""

    day: Day
    spans: list[Interval]
    wall: tuple[int, ...]

    @property
    def minutes(self) -> int:
        return sum((end - start) // MINUTE for start, end in self.spans)


def odd_days(hours: Hours, zone: Zone, days: Sequence[Day], holidays: Days, dated: Iterable[Entry]) -> list[OddDay]:
    """The odd ones of `days`, which follow each other, for hours without overrides.

    `dated`: lines and calendar entries that may be the reason.
    """
    found = list(_day_hours(intervals(hours, days[0].start, days[-1].end), days))
    plain = [one for one in found if one.day.jump == 0 and not holidays.holiday(one.day.date)]
    common = Counter((one.day.date.weekday(), one.wall) for one in plain)
    usual = _Usual(plain)
    reasons = _Reasons(holidays, list(dated))
    odd: list[OddDay] = []
    for one in found:
        normal = usual.around(one.day.date)
        if normal is None or (one.wall, one.minutes) == (normal, _minutes(normal)):
            continue
        if (reason := reasons.of(one.day)) is None:
            if common[one.day.date.weekday(), one.wall] > RARE:
                continue
            reason = reasons.weak(one.day)
        odd.append(OddDay(day=one.day.date.isoformat(), what=_words(reason, one, normal, zone)))
    return odd


def _day_hours(spans: list[Interval], days: Iterable[Day]) -> Iterator[DayHours]:
    """Cut spans, which are in order, at the ends of days."""
    first = 0
    for day in days:
        while first < len(spans) and spans[first][1] <= day.start:
            first += 1
        ahead = islice(spans, first, None)
        inside = [(max(start, day.start), min(end, day.end)) for start, end in _before(day.end, ahead)]
        yield DayHours(day, inside, tuple(_wall(inside, day)))


def _before(end: datetime, spans: Iterable[Interval]) -> Iterable[Interval]:
    return takewhile(lambda span: span[0] < end, spans)


def _wall(spans: list[Interval], day: Day) -> Iterator[int]:
    for piece in day.pieces:
        for start, end in spans:
            if start < piece.end and end > piece.start:
                yield piece.wall + (max(start, piece.start) - piece.start) // MINUTE
                yield piece.wall + (min(end, piece.end) - piece.start) // MINUTE


class _Usual:
    """What a weekday has in the weeks around a day."""

    def __init__(self, plain: Iterable[DayHours]) -> None:
        self._by_day = {one.day.date: one.wall for one in plain}

    def around(self, day: date) -> tuple[int, ...] | None:
        """The most frequent hours on this weekday; None if there is nothing to compare with."""
        near = [self._by_day[other] for weeks in _WEEKS if (other := day + weeks) in self._by_day]
        return Counter(near).most_common(1)[0][0] if near else None


class _Reasons:
    """Why a day is odd."""

    def __init__(self, holidays: Days, dated: list[Entry]) -> None:
        self._holidays = holidays
        self._dated = dated

    def of(self, day: Day) -> str | None:
        """The reasons in words; None if there is none but that the lines say so."""
        reasons = [] if day.jump == 0 else [_jump(day)]
        if self._holidays.holiday(day.date):
            reasons.append("holiday")
        reasons += [str(entry) for entry in self._dated if _touches(entry, day)]
        return ", ".join(reasons) or None

    def weak(self, day: Day) -> str:
        """What may be said of a day that is just rare."""
        return "the day after a holiday" if self._holidays.holiday(day.date - DAY) else "unlike the weeks around"


def _touches(entry: Entry, day: Day) -> bool:
    """Whether an entry says something of a date that includes this day."""
    if any(start < day.end and end > day.start for start, end in entry.spans):
        return True
    return any(line.first <= day.date <= line.last for line in entry.lines if isinstance(line, DatesLine))


def _jump(day: Day) -> str:
    first = day.pieces[0]
    at = "00:00" if first.wall else _clock(first.wall + first.minutes)
    return f"clocks go {'forward' if day.jump > 0 else 'back'} {length(abs(day.jump))} at {at}"


def _words(reason: str, one: DayHours, normal: tuple[int, ...], zone: Zone) -> str:
    is_open, usually = hours_in_words(one.spans, one.day, zone.info), _usual_hours(normal)
    words = f"{reason}: open {is_open}" if is_open else f"{reason}: closed"
    if is_open != usually:
        words += f"; usually {usually or 'closed'}"
    if one.day.jump and one.minutes != _minutes(normal):
        words += f" ({length(one.minutes)} instead of {length(_minutes(normal))})"
    return words


def _usual_hours(wall: tuple[int, ...]) -> str:
    spans = [f"{_clock(start)}-{_clock(end)}" for start, end in zip(wall[::2], wall[1::2], strict=True)]
    return in_words(spans)


def _minutes(wall: tuple[int, ...]) -> int:
    return sum(wall[1::2]) - sum(wall[::2])


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
