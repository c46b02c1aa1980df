"""Open minutes as integers: bit i of a mask is minute i of a UTC day. What a line says, and how changes are found.

A line is open whenever the wall clock of its zone reads inside it. So a UTC day is cut where the offset changes, and in
each piece the minutes of the local days are shifted onto the UTC day. No local time is ever converted: times that do
not exist are never read, and those that exist twice are read twice.
"""

from datetime import date, datetime
from typing import NamedTuple

from gate.calendars import DAY, LAST_DAY, DayChoice, Days, DayWord, Weekdays, Zone, instant, minute_of
from gate.cron import Cron
from gate.lines import CronForLine, CronLine, DatesLine, DayLine, Line, SpanLine

FULL = (1 << DAY) - 1
HORIZON_DAYS = 8 * 365 + 3
"""How far changes are looked for: 29 February may be eight years off."""
FOREVER = LAST_DAY

_KEPT_DAYS = 16


class _Known(NamedTuple):
    """The state of hours in [start, end), and the change at `end`; None if `end` is the horizon, and none was found.

    `change` is the answer in [start, sure): until the change, or until the next day, whose horizon lies a day further.
    """

    start: datetime
    state: bool
    end: datetime
    change: datetime | None
    sure: datetime


_NOTHING_KNOWN = _Known(instant(DAY), state=False, end=instant(DAY), change=None, sure=instant(DAY))


class Hours:
    """Open minutes of UTC. `last`: the ordinal of the last day that it names by date, 0 if it names none.

    All instants are aware. A minute is open or not as a whole.
    """

    __slots__ = ("_known", "last")

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self._known = _NOTHING_KNOWN

    def mask(self, day: int) -> int:
        """The open minutes of one UTC day, given as `date.toordinal()`."""
        raise NotImplementedError

    def steady(self, day: int) -> int:
        """A later day, before which nothing changes after the last minute of `day`: what a search need not look at."""
        return day + 1

    def contains(self, at: datetime) -> bool:
        """Whether the minute in which an instant lies is open."""
        known = self._known
        return known.state if known.start <= at < known.end else self._state(minute_of(at))

    def next_change(self, at: datetime) -> datetime | None:
        """When it next opens or closes, strictly after an instant; None if it does not within eight years.

        The eight years begin with `at` or with the last day named by date, whichever is later. What was found is kept
        until then, so that asking again is cheap.
        """
        known = self._known
        if not known.start <= at < known.sure:
            known = self._known = self._look(at)
        return known.change

    def _look(self, at: datetime) -> "_Known":
        minute = minute_of(at)
        start, state, end, *_ = self._known
        if not start <= at < end:
            start, state, end = instant(minute), self._state(minute), instant(minute + 1)
        horizon = min(max(minute // DAY, self.last) + HORIZON_DAYS, LAST_DAY) * DAY
        proven = minute_of(end)
        found = self.search(proven, state, horizon)
        if found is not None:
            return _Known(start, state, end=instant(found), change=instant(found), sure=instant(found))
        return _Known(
            start, state, end=instant(max(proven, horizon)), change=None, sure=instant(minute // DAY * DAY + DAY)
        )

    def search(self, minute: int, state: bool, horizon: int) -> int | None:
        """The first minute from `minute` on which is not in this state; None if there is none before `horizon`.

        The last day is looked at as a whole, so what is found may lie a little beyond the horizon.
        """
        day, bit = divmod(minute, DAY)
        alike = FULL if state else 0
        while day * DAY < horizon:
            if differing := (self.mask(day) ^ alike) >> bit:
                return day * DAY + bit + (differing & -differing).bit_length() - 1
            day, bit = self.steady(day), 0
        return None

    def _state(self, minute: int) -> bool:
        day, bit = divmod(minute, DAY)
        return self.mask(day) >> bit & 1 == 1


class _Constant(Hours):
    __slots__ = ("_mask",)

    def __init__(self, mask: int) -> None:
        super().__init__()
        self._mask = mask

    def mask(self, day: int) -> int:
        return self._mask

    def steady(self, day: int) -> int:
        return FOREVER


ALWAYS: Hours = _Constant(FULL)
NEVER: Hours = _Constant(0)


def bits(start: int, end: int) -> int:
    """Minutes [start, end) of a day; what lies outside it is left out."""
    start, end = max(start, 0), min(end, DAY)
    return (1 << end) - (1 << start) if start < end else 0


def smeared(mask: int, length: int) -> int:
    """Each set bit, and the `length - 1` bits after it."""
    done = 1
    while done < length:
        step = min(done, length - done)
        mask |= mask << step
        done += step
    return mask


# -- the lines


class WallHours(Hours):
    """What the wall clock of a zone says: local days put onto UTC days. The masks of some days are kept."""

    __slots__ = ("_masks", "zone")

    def __init__(self, zone: Zone, last: int = 0) -> None:
        super().__init__(last)
        self.zone = zone
        self._masks: dict[int, int] = {}

    def wall(self, day: int) -> int:
        """The open minutes of one local day, given as `date.toordinal()`."""
        raise NotImplementedError

    def mask(self, day: int) -> int:
        mask = self._masks.get(day)
        if mask is None:
            if len(self._masks) >= _KEPT_DAYS:
                self._masks.clear()
            mask = self.compiled(day)
            self._masks[day] = mask = FULL if mask == FULL else mask
        return mask

    def compiled(self, day: int) -> int:
        """The mask of a UTC day, not kept."""
        mask = 0
        for piece in self.zone.pieces(day):
            mask |= self.shown(day * DAY + piece.start + piece.shift, piece.end - piece.start) << piece.start
        return mask

    def shown(self, minute: int, length: int) -> int:
        """The open ones of `length` local minutes (at most a day), which begin with a local minute."""
        day, first = divmod(minute, DAY)
        mask = self.wall(day) >> first
        if first + length > DAY:
            mask |= self.wall(day + 1) << (DAY - first)
        return mask & ((1 << length) - 1)


class RunHours(WallHours):
    """Runs of minutes which begin on chosen local days; a run goes on through the local days that follow."""

    __slots__ = ("_choice", "_days", "_months", "_runs")

    def __init__(self, zone: Zone, days: Days, choice: DayChoice, months: frozenset[int], run: int) -> None:
        """`run`: the open minutes, counted from the midnight of the local day on which a run begins."""
        super().__init__(zone, _last_of(days) if isinstance(choice, DayWord) else 0)
        self._choice = choice
        self._days = days
        self._months = months
        self._runs = [run >> shift & FULL for shift in range(0, run.bit_length(), DAY)]

    def wall(self, day: int) -> int:
        mask = 0
        for before, run in enumerate(self._runs):
            begun = date.fromordinal(day - before)
            if begun.month in self._months and self._choice.includes(begun, self._days):
                mask |= run
        return mask


class DatesHours(WallHours):
    """Once, from one local minute to another (`date.toordinal() * 1440` and the minutes of that day)."""

    __slots__ = ("_end", "_start")

    def __init__(self, zone: Zone, start: int, end: int) -> None:
        super().__init__(zone, end // DAY)
        self._start = start
        self._end = end

    def wall(self, day: int) -> int:
        return bits(self._start - day * DAY, self._end - day * DAY)

    def steady(self, day: int) -> int:
        # A UTC day shows minutes of its own local day, and of the one before or after it: the edge is on one of three.
        for edge in (self._start // DAY, self._end // DAY):
            if day <= edge:
                return max(day + 1, edge - 1)
        return FOREVER


class StartHours(WallHours):
    """Open for some minutes of elapsed time from each start.

    A fixed start which the wall clock leaves out happens right after the gap; one that it shows twice happens on the
    first pass only. A wildcard start follows the wall clock. So do cronie and vixie cron.
    """

    __slots__ = ("_length", "_starts", "_wildcard")

    def __init__(self, starts: WallHours, length: int, *, wildcard: bool) -> None:
        super().__init__(starts.zone)
        self._starts = starts
        self._length = length
        self._wildcard = wildcard

    def wall(self, day: int) -> int:
        return self._starts.wall(day)

    def compiled(self, day: int) -> int:
        earlier = -(-(self._length - 1) // DAY)
        begun = 0
        for back in range(earlier + 1):
            begun |= self._begun(day - back) << (earlier - back) * DAY
        return smeared(begun, self._length) >> earlier * DAY & FULL

    def _begun(self, day: int) -> int:
        """The starts within a UTC day."""
        begun = self._starts.mask(day)
        change = self.zone.change(day)
        if self._wildcard or change is None:
            return begun
        skipped = change.after - change.before
        if skipped > 0:
            gap = self.shown(day * DAY + change.minute + change.before, skipped)
            return begun | (gap != 0) << change.minute
        # No fold since 1973 goes on beyond midnight UTC.
        return begun & ~bits(change.minute, change.minute - skipped)


# -- from lines


def compiled(line: Line, zone: Zone, days: Days) -> Hours:
    """The hours of one line in a zone."""
    match line:
        case DayLine():
            return RunHours(zone, days, line.days, line.months, (1 << line.end) - (1 << line.start))
        case SpanLine():
            run = (1 << line.start + line.length) - (1 << line.start)
            return RunHours(zone, days, Weekdays(frozenset({line.weekday})), line.months, run)
        case DatesLine():
            start, end = line.first.toordinal() * DAY + line.start, line.last.toordinal() * DAY + line.end
            return DatesHours(zone, start, end)
        case CronLine():
            return _cron(line.cron, zone, days)
        case CronForLine():
            return StartHours(_cron(line.cron, zone, days), line.length, wildcard=line.cron.wildcard)


def _cron(cron: Cron, zone: Zone, days: Days) -> RunHours:
    return RunHours(zone, days, cron.days, cron.months, cron.minutes)


def _last_of(days: Days) -> int:
    return max((day.toordinal() for day in days.dates), default=0)
