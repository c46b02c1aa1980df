"""Local days, and the wall clock on them: what people read. UTC is what is compared.

A day is cut into pieces of one offset, since its clock may jump.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import NamedTuple, TypeAlias

from gate import wallclock
from gate.calendars import MINUTE
from gate.wallclock import DAY

Interval: TypeAlias = tuple[datetime, datetime]
"""Start and exclusive end, in UTC."""

MOST_SPANS = 6
"""So many are read; of a line such as `cron */2 * * * *` a day has 720."""


class Piece(NamedTuple):
    """A part of a local day with one offset. `wall`: what the wall clock reads at `start`, in minutes since 00:00."""

    start: datetime
    end: datetime
    wall: int

    @property
    def minutes(self) -> int:
        """Its length."""
        return (self.end - self.start) // MINUTE


class Day(NamedTuple):
    """A local day: one piece, or two if clocks jump on it."""

    date: date
    pieces: tuple[Piece, ...]

    @property
    def start(self) -> datetime:
        """Its first instant, in UTC."""
        return self.pieces[0].start

    @property
    def end(self) -> datetime:
        """The first instant of the next day, in UTC."""
        return self.pieces[-1].end

    @property
    def jump(self) -> int:
        """How many minutes clocks go forward on it; negative if they go back."""
        last = self.pieces[-1]
        return last.wall - (last.start - self.start) // MINUTE


def midnight(day: date, zone: tzinfo) -> datetime:
    """The first instant at which the wall clock reads `day` or later: 00:00, or the end of a gap there. In UTC."""
    naive = datetime.combine(day, time())
    after = naive.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if _wall(after, zone) == naive:
        return after
    before = naive.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return _first_minute(before, after, lambda at: _wall(at, zone) >= naive)


def local_days(start: datetime, end: datetime, zone: tzinfo) -> list[Day]:
    """The local days, whole, that [start, end) touches."""
    first, last = start.astimezone(zone).date(), (end - MINUTE).astimezone(zone).date()
    days = (first + n * DAY for n in range((last - first).days + 1))
    return [Day(day, pieces) for day in days if (pieces := tuple(sorted(_pieces(day, zone))))]


def joined(spans: Iterable[Interval]) -> list[Interval]:
    """Spans in order, those that touch as one."""
    found: list[Interval] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def hours_in_words(spans: Iterable[Interval], day: Day, zone: tzinfo) -> str:
    """Spans of a local day as its clock reads them: "00:00-06:00, 20:00-24:00"."""
    shown = [f"{wallclock.time(start.astimezone(zone))}-{_end(end, day, zone)}" for start, end in joined(spans)]
    return in_words(shown)


def length(minutes: int) -> str:
    """Minutes of a day in hours: "7h15m", "24h", "30m", "0h"."""
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest}m" if hours and rest else f"{rest}m" if rest else f"{hours}h"


def in_words(spans: list[str]) -> str:
    """The first few of some spans, and how many more there are."""
    more = [f"and {len(spans) - MOST_SPANS} more"] if len(spans) > MOST_SPANS else []
    return ", ".join(spans[:MOST_SPANS] + more)


def _end(end: datetime, day: Day, zone: tzinfo) -> str:
    """The end of a span, as the clock that read its last minute would go on: not what a clock reads after a jump."""
    if end == day.end:
        return "24:00"
    last = (end - MINUTE).astimezone(zone)
    offset = last.utcoffset()
    assert offset is not None  # it has a zone
    twice = offset != last.replace(fold=1 - last.fold).utcoffset()
    return f"{wallclock.time(end.astimezone(timezone(offset)))}{f' {last:%Z}' if twice else ''}"


def _pieces(day: date, zone: tzinfo) -> Iterator[Piece]:
    """One piece, or two: no zone changes its offset twice within a day."""
    start, end = midnight(day, zone), midnight(day + DAY, zone)
    if start >= end:  # a zone that moves to the other side of the date line leaves out a day
        return
    after = _offset(end - MINUTE, zone)
    jump = end
    if _offset(start, zone) != after:
        jump = _first_minute(start, end, lambda at: _offset(at, zone) == after)
        yield _piece(jump, end, zone)
    yield _piece(start, jump, zone)


def _offset(at: datetime, zone: tzinfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()


def _piece(start: datetime, end: datetime, zone: tzinfo) -> Piece:
    wall = _wall(start, zone)
    return Piece(start, end, wall.hour * 60 + wall.minute)


def _wall(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _first_minute(low: datetime, high: datetime, holds: Callable[[datetime], bool]) -> datetime:
    """The first minute of (low, high] for which something holds that holds for all after it, `high` included."""
    while high - low > MINUTE:
        middle = low + (high - low) // MINUTE // 2 * MINUTE
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
