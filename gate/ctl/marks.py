"""A rule's week as stretches of the wall clock, each with a mark: what the pictures draw."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gate.calendars import MINUTE
from gate.interface import RuleWeek, Span, Steer, WeekOut
from gate.localdays import Day, local_days


class Mark(Enum):
    """What a rule says for a while, in words that a legend can use. PARTLY is for drawings that are not exact."""

    OPEN = "open"
    CLOSED = "closed"
    TAKEN = "taken away by `closed` or last_start"
    OPENED = "opened by an override"
    SHUT = "closed by an override"
    PARTLY = "open for a part of it"
    OUTSIDE = "no clock reads it, or nobody asked for it"

    @property
    def opens(self) -> bool:
        """Whether jobs may start."""
        return self in (Mark.OPEN, Mark.OPENED)


class Stretch(NamedTuple):
    """From `start` to `end`, instants in UTC, the wall clock reads `wall` minutes since 00:00 and more.

    `turn`: 1 and 2 for the two times that the clock reads the same because it goes back; else 0.
    """

    start: datetime
    end: datetime
    wall: float
    mark: Mark
    turn: int

    @property
    def wall_end(self) -> float:
        """What the wall clock would read at `end` if it did not jump."""
        return self.wall + (self.end - self.start) / MINUTE


class Row(NamedTuple):
    """A local day and its stretches, in order."""

    day: Day
    stretches: list[Stretch]

    def holds(self, at: datetime) -> bool:
        """Whether an instant is on this day and was asked for."""
        return any(s.start <= at < s.end and s.mark is not Mark.OUTSIDE for s in self.stretches)

    @property
    def open_minutes(self) -> int:
        """For how long jobs may start on this day."""
        return round(sum((s.end - s.start) / MINUTE for s in self.stretches if s.mark.opens))


def rows(rule: RuleWeek, week: WeekOut) -> list[Row]:
    """The local days of a week in the zone of the rule, with a mark for every minute."""
    zone = ZoneInfo(rule.timezone)
    marks = _Marks(rule, week)
    return [Row(day, list(_stretches(day, marks))) for day in local_days(week.start, week.end, zone)]


def wall_minute(row: Row, now: datetime) -> float:
    """What the wall clock reads now, in minutes since 00:00. `row`: today's."""
    stretch = next(stretch for stretch in row.stretches if now < stretch.end)
    return stretch.wall + (now - stretch.start) / MINUTE


def now_open(drawn: list[Row], now: datetime) -> tuple[bool, datetime | None]:
    """Whether jobs may start now, and until when that holds; None if it does not end within these rows."""
    ahead = [stretch for row in drawn for stretch in row.stretches if now < stretch.end]
    is_open = ahead[0].mark.opens
    change = next((s.start for s in ahead if s.mark.opens != is_open and s.mark is not Mark.OUTSIDE), None)
    return is_open, change


class _Marks:
    """Looks up the mark of an instant."""

    def __init__(self, rule: RuleWeek, week: WeekOut) -> None:
        self._window = (week.start, week.end)
        self._order = rule.override
        self._open = _Edges(rule.open)
        self._taken = _Edges(rule.closed_by)
        order = () if rule.override is None else (rule.override.since, rule.override.until)
        self.edges = sorted({*self._window, *order, *self._open.edges, *self._taken.edges})

    def at(self, at: datetime) -> Mark:
        if not self._window[0] <= at < self._window[1]:
            return Mark.OUTSIDE
        order = self._order if self._order is not None and self._order.since <= at < self._order.until else None
        if order is not None and order.action is Steer.CLOSE:
            return Mark.SHUT
        if self._open.hold(at):  # an order to open does not beat a limit that is 0
            return Mark.OPEN if order is None else Mark.OPENED
        return Mark.TAKEN if self._taken.hold(at) else Mark.CLOSED


class _Edges:
    """Spans that are in order and apart, to be asked whether one of them holds an instant."""

    def __init__(self, spans: list[Span]) -> None:
        self.edges = [edge for span in spans for edge in (span.start, span.end)]

    def hold(self, at: datetime) -> bool:
        return bisect_right(self.edges, at) % 2 == 1


def _stretches(day: Day, marks: _Marks) -> Iterator[Stretch]:
    low, high = _read_twice(day)
    for turn, piece in enumerate(day.pieces, start=1):
        turns = (piece.start + (wall - piece.wall) * MINUTE for wall in (low, high))
        inside = marks.edges[bisect_right(marks.edges, piece.start) : bisect_left(marks.edges, piece.end)]
        edges = sorted({piece.start, piece.end, *inside, *(at for at in turns if piece.start < at < piece.end)})
        for start, end in pairwise(edges):
            wall = piece.wall + (start - piece.start) / MINUTE
            yield Stretch(start, end, wall, marks.at(start), turn if low <= wall < high else 0)


def _read_twice(day: Day) -> tuple[int, int]:
    """From where to where the wall clock of a day reads minutes twice."""
    first, last = day.pieces[0], day.pieces[-1]
    return (last.wall, first.wall + first.minutes) if day.jump < 0 else (0, 0)
