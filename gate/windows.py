"""Hours made of hours: unions, exceptions, an early end; and the one place where lines become hours."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, timedelta

from gate.calendars import DAY, Days, Zone, instant, minute_of
from gate.lines import Line
from gate.masks import ALWAYS, FOREVER, FULL, NEVER, Hours, bits, compiled

__all__ = ["ALWAYS", "NEVER", "Compiler", "Eroded", "Hours", "Minus", "Spans", "Union", "intervals"]

TICK = timedelta(microseconds=1)


class Union(Hours):
    """Open where any of its parts is."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Hours]) -> None:
        self._parts = tuple(parts)
        super().__init__(max((part.last for part in self._parts), default=0))

    def mask(self, day: int) -> int:
        mask = 0
        for part in self._parts:
            mask |= part.mask(day)
        return mask

    def steady(self, day: int) -> int:
        return min((part.steady(day) for part in self._parts), default=FOREVER)


class Minus(Hours):
    """Open where the first is and the second is not."""

    __slots__ = ("_base", "_without")

    def __init__(self, base: Hours, without: Hours) -> None:
        super().__init__(max(base.last, without.last))
        self._base = base
        self._without = without

    def mask(self, day: int) -> int:
        return self._base.mask(day) & ~self._without.mask(day)

    def steady(self, day: int) -> int:
        return min(self._base.steady(day), self._without.steady(day))


class Eroded(Hours):
    """Its base without the last `minutes` before each end: no start so shortly before it closes.

    An end is where the base closes for a minute at least; where one of its lines goes over into another, there is none.
    """

    __slots__ = ("_base", "_minutes")

    def __init__(self, base: Hours, minutes: int) -> None:
        super().__init__(base.last)
        self._base = base
        self._minutes = minutes

    def mask(self, day: int) -> int:
        mask = self._base.mask(day)
        if mask:
            for later in range(1, self._days_ahead() + 1):
                mask |= self._base.mask(day + later) << later * DAY
            # Open is a minute that is open itself and followed by as many open ones.
            done = 1
            while done <= self._minutes:
                step = min(done, self._minutes + 1 - done)
                mask &= mask >> step
                done += step
        return mask & FULL

    def steady(self, day: int) -> int:
        return max(day + 1, self._base.steady(day) - self._days_ahead())

    def _days_ahead(self) -> int:
        return -(-self._minutes // DAY)


class Spans(Hours):
    """Fixed times of UTC, each [start, end); widened outwards to whole minutes."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, spans: Iterable[tuple[datetime, datetime]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted((minute_of(start), minute_of(end - TICK) + 1) for start, end in spans if start < end):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)
        super().__init__(self._ends[-1] // DAY if self._ends else 0)

    def mask(self, day: int) -> int:
        mask, first = 0, day * DAY
        for index in range(bisect_right(self._ends, first), bisect_left(self._starts, first + DAY)):
            mask |= bits(self._starts[index] - first, self._ends[index] - first)
        return mask

    def steady(self, day: int) -> int:
        after = (day + 1) * DAY
        edges = (
            edges[place] for edges in (self._starts, self._ends) if (place := bisect_left(edges, after)) < len(edges)
        )
        return max(day + 1, min(edges, default=FOREVER * DAY) // DAY)


def intervals(hours: Hours, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The open times within [start, end), cut to it."""
    minute, last = minute_of(start), minute_of(end - TICK) + 1
    found: list[tuple[datetime, datetime]] = []
    while start < end and minute < last:
        opens = hours.search(minute, False, last)
        if opens is None or opens >= last:
            break
        closes = hours.search(opens, True, last)
        minute = last if closes is None else min(closes, last)
        found.append((max(start, instant(opens)), min(end, instant(minute))))
    return found


class Compiler:
    """Makes hours of lines. What is equal is made once, so that thousands of rules may share a few lines.

    It keeps all that it made. A new configuration, other holidays or new tzdata need a new one.
    """

    def __init__(self, days: Days) -> None:
        self._days = days
        self._zones: dict[str, Zone] = {}
        self._made: dict[Hashable, Hours] = {}

    def zone(self, key: str) -> Zone:
        """The zone of this name; raises UnknownZone."""
        if key not in self._zones:
            self._zones[key] = Zone(key)
        return self._zones[key]

    def hours(self, line: Line, zone: Zone) -> Hours:
        """The hours of a line, read by the wall clock of a zone."""
        return self._once((line, zone.key), lambda: compiled(line, zone, self._days))

    def union(self, parts: Iterable[Hours]) -> Hours:
        """Open where any of the parts is; NEVER if there is none."""
        different = frozenset(parts) - {NEVER}
        if ALWAYS in different:
            return ALWAYS
        if len(different) <= 1:
            return next(iter(different), NEVER)
        return self._once(different, lambda: Union(different))

    def minus(self, base: Hours, without: Hours) -> Hours:
        """Open where `base` is and `without` is not."""
        if base is NEVER or without is NEVER:
            return base
        return self._once((base, without), lambda: Minus(base, without))

    def eroded(self, base: Hours, minutes: int) -> Hours:
        """Open where `base` is, but for the last minutes before each of its ends."""
        if minutes == 0:
            return base
        return self._once((base, minutes), lambda: Eroded(base, minutes))

    def _once(self, key: Hashable, make: Callable[[], Hours]) -> Hours:
        hours = self._made.get(key)
        if hours is None:
            hours = self._made[key] = make()
        return hours
