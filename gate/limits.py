"""How many at once: `at_once` of a rule or a resource, compiled; the number at an instant, why, and until when."""

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from gate.calendars import Zone
from gate.hours import AtOnce, Entry
from gate.moments import FOREVER, earliest
from gate.windows import ALWAYS, NEVER, Compiler, Hours

HoursOf: TypeAlias = Callable[[Entry, Zone], Hours]


class Number(Struct, frozen=True, kw_only=True):
    """What `at_once` says at an instant. `by`: the deciding entry, or else; None where there is one number only.

    `until`: when the number changes; None if it does not within eight years. Found at `since`, and so until `fresh`:
    then another entry may be the reason.
    """

    number: int
    by: Entry | None
    reason: str
    until: datetime | None
    since: datetime
    fresh: datetime


class AtOnceTable:
    """One `at_once`. `closed`: the hours in which its number is 0. `parts`: when each case decides, in their order."""

    def __init__(self, at_once: AtOnce, zone: Zone, hours_of: HoursOf, compiler: Compiler) -> None:
        self._constant = len(at_once) == 1
        self._cases = [
            (case.number, [(entry, hours_of(entry, zone)) for entry in case.entries or ()]) for case in at_once
        ]
        self.parts = list(zip(at_once, _deciding_hours(self._cases, compiler), strict=True))
        self._hours = {
            number: compiler.union(hours for case, hours in self.parts if case.number == number)
            for number in {case.number for case in at_once}
        }
        self.closed = self._hours.get(0, NEVER)
        self._last: Number | None = None

    def at(self, now: datetime) -> Number:
        """The number at an instant. The last answer is kept for as long as it holds."""
        last = self._last
        if last is None or not last.since <= now < last.fresh:
            last = self._last = self._find(now)
        return last

    def _find(self, now: datetime) -> Number:
        number, by = self._deciding(now)
        until = self._hours[number].next_change(now)
        edges = [until, *(hours.next_change(now) for _, entries in self._cases for _, hours in entries)]
        words = "" if self._constant else f" by {by or 'else'}"
        return Number(
            number=number,
            by=by,
            reason=f"limit {number}{words}",
            until=until,
            since=now,
            fresh=earliest(edges) or FOREVER,
        )

    def _deciding(self, now: datetime) -> tuple[int, Entry | None]:
        """The first case of which an entry holds, else the last one."""
        for number, entries in self._cases:
            for entry, hours in entries:
                if hours.contains(now):
                    return number, entry
        return self._cases[-1][0], None


def _deciding_hours(cases: list[tuple[int, list[tuple[Entry, Hours]]]], compiler: Compiler) -> list[Hours]:
    """The hours of each case, without those of the cases before it."""
    found: list[Hours] = []
    earlier: Hours = NEVER
    for index, (_, entries) in enumerate(cases):
        hours = ALWAYS if index == len(cases) - 1 else compiler.union(hours for _, hours in entries)
        found.append(compiler.minus(hours, earlier))
        earlier = compiler.union([earlier, hours])
    return found
