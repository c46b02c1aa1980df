"""Days and zones: which local days a line starts on, and what the wall clock of a zone reads in a minute of UTC.

Days are counted as `date.toordinal()` does. Years before 1973 are left out: since then, every zone of tzdata 2026f
changes its offset on a whole minute, by whole minutes, and never twice within a day.
"""

import zoneinfo
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from typing import Literal, TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Struct

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
ALL_MONTHS = frozenset(range(1, 13))
FIRST_YEAR = 1973
LAST_YEAR = 2199
"""A later year in a configuration is a typing error."""
DAY = 1440
"""Minutes of a day."""
MINUTE = timedelta(minutes=1)

_ORIGIN = datetime(1, 1, 1, tzinfo=UTC)
FIRST_DAY = date(FIRST_YEAR - 1, 1, 1).toordinal()
LAST_DAY = date(LAST_YEAR + 100, 1, 1).toordinal()
"""Beyond them, nothing is asked of a zone: an instant there counts as one at the edge."""

_BLOCK_DAYS = 64
_MOST_BLOCKS = 512
_SATURDAY = 5
_LEAP_YEAR = 2024


class Days(Struct, frozen=True, kw_only=True):
    """The local days that count as holidays. `yearly`: (month, day) of each year."""

    dates: frozenset[date] = frozenset()
    yearly: frozenset[tuple[int, int]] = frozenset()

    def holiday(self, day: date) -> bool:
        return day in self.dates or (day.month, day.day) in self.yearly


# -- which days


class Weekdays(Struct, frozen=True):
    """`mon-fri`; Monday is 0. Holidays change nothing."""

    weekdays: frozenset[int]

    def includes(self, day: date, holidays: Days) -> bool:
        return day.weekday() in self.weekdays


class NthWeekday(Struct, frozen=True):
    """`first sun`: nth is 1 to 5. `last fri`: nth is -1."""

    nth: int
    weekday: int

    def includes(self, day: date, holidays: Days) -> bool:
        if day.weekday() != self.weekday:
            return False
        if self.nth == -1:
            return day.day + 7 > days_of_month(day)
        return (day.day - 1) // 7 + 1 == self.nth


class MonthDay(Struct, frozen=True):
    """`day 1` is the first of the month, `day -1` its last."""

    day: int

    def includes(self, day: date, holidays: Days) -> bool:
        return day.day == (self.day if self.day > 0 else days_of_month(day) + 1 + self.day)


class DayWord(Struct, frozen=True):
    """The words that know holidays: a workday is Monday to Friday and no holiday; every other day is a freeday."""

    word: Literal["workday", "freeday", "holiday"]

    def includes(self, day: date, holidays: Days) -> bool:
        holiday = holidays.holiday(day)
        if self.word == "holiday":
            return holiday
        return (holiday or day.weekday() >= _SATURDAY) == (self.word == "freeday")


class CronDays(Struct, frozen=True, kw_only=True):
    """The days of a cron expression; None: the field is `*`. If both fields are set, either is enough, as cron does."""

    month_days: frozenset[int] | None
    weekdays: frozenset[int] | None

    def includes(self, day: date, holidays: Days) -> bool:
        if self.month_days is None or self.weekdays is None:
            return (self.month_days is None or day.day in self.month_days) and (
                self.weekdays is None or day.weekday() in self.weekdays
            )
        return day.day in self.month_days or day.weekday() in self.weekdays


DayChoice: TypeAlias = Weekdays | NthWeekday | MonthDay | DayWord | CronDays


def days_of_month(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def longest_month(months: frozenset[int]) -> int:
    """The most days that one of these months ever has."""
    return max(monthrange(_LEAP_YEAR, month)[1] for month in months)


# -- minutes of UTC


def minute_of(at: datetime) -> int:
    """The minute in which an aware instant lies; `minute // DAY` is the ordinal of its UTC day."""
    return min(max((at - _ORIGIN) // MINUTE + DAY, FIRST_DAY * DAY), LAST_DAY * DAY)


def instant(minute: int) -> datetime:
    """The UTC instant at which a minute begins."""
    return _ORIGIN + timedelta(minutes=minute - DAY)


# -- zones


class UnknownZone(ValueError):
    """No zone of this name; the text says what is allowed."""


class Piece(Struct, frozen=True):
    """Minutes [start, end) of a UTC day, in which the wall clock is `shift` minutes ahead of UTC."""

    start: int
    end: int
    shift: int


class Change(Struct, frozen=True):
    """The offset of a zone goes from `before` to `after` (minutes ahead of UTC) at `minute` of UTC day `day`."""

    day: int
    minute: int
    before: int
    after: int


class Zone:
    """A time zone by its IANA name; raises UnknownZone.

    It reads tzdata when it is made and never again: whoever notices that tzdata changed makes new ones.
    """

    __slots__ = ("_blocks", "info", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.info = _load(key)
        self._blocks: dict[int, tuple[int, tuple[Change, ...]]] = {}

    def __repr__(self) -> str:
        return f"Zone({self.key!r})"

    def pieces(self, day: int) -> tuple[Piece, ...]:
        """A UTC day cut where the offset changes: one piece on almost every day, else two."""
        shift, changes = self._block(day)
        for change in changes:
            if change.day == day:
                return Piece(0, change.minute, change.before), Piece(change.minute, DAY, change.after)
            if change.day < day:
                shift = change.after
        return (Piece(0, DAY, shift),)

    def change(self, day: int) -> Change | None:
        """The change of offset on a UTC day, if there is one."""
        return next((change for change in self._block(day)[1] if change.day == day), None)

    def _block(self, day: int) -> tuple[int, tuple[Change, ...]]:
        """The offset before the 64 days around a day, and the changes in them."""
        number = day // _BLOCK_DAYS
        block = self._blocks.get(number)
        if block is None:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            first = number * _BLOCK_DAYS
            block = self._blocks[number] = (self._offset(first * DAY - 1), tuple(self._changes(first)))
        return block

    def _changes(self, first: int) -> Iterator[Change]:
        before = self._offset(first * DAY - 1)
        for day in range(first, first + _BLOCK_DAYS):
            after = self._offset(day * DAY + DAY - 1)
            if after != before:
                yield Change(day, self._bisect(day * DAY, before) - day * DAY, before, after)
            before = after

    def _bisect(self, start: int, before: int) -> int:
        """The first minute of the day beginning with `start` whose offset is not `before`."""
        low, high = start, start + DAY - 1
        while low < high:
            middle = (low + high) // 2
            if self._offset(middle) == before:
                low = middle + 1
            else:
                high = middle
        return low

    def _offset(self, minute: int) -> int:
        offset = instant(minute).astimezone(self.info).utcoffset()
        assert offset is not None
        return offset // MINUTE


def _load(key: str) -> ZoneInfo:
    """An IANA name with an area, or UTC. Abbreviations such as CET load too, but are not what people mean by them."""
    area = key.partition("/")[0]
    if key == "UTC" or (area != key and area not in ("posix", "right")):
        try:
            return ZoneInfo.no_cache(key)
        except (KeyError, ValueError, OSError):  # OSError: the name of a folder, or one too long for a file
            pass
    names = sorted(name for name in zoneinfo.available_timezones() if "/" in name)
    near = get_close_matches(key, names, n=1) or [name for name in names if name.lower().endswith(f"/{key.lower()}")]
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UnknownZone(f"{key!r} is not a time zone: write an IANA name, such as Europe/Berlin or UTC{hint}")
