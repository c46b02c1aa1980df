"""The minutes of one schedule that nobody has sent, as far as they were looked for.

Pure: `now`, the cron and what the ledger knows are given. What is remembered is small however long the outage was:
the newest minutes one by one, and of the older ones the first, the last and how many.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from msgspec import Struct, field

from gate.interface import CatchUp
from taskiq_gate.occurrence import MINUTE, Matches, floor

NEWEST = 100
"""How many missed minutes of one schedule are sent later at most."""


class Span(Struct, frozen=True, kw_only=True):
    """So many minutes, from `first` to `last`."""

    first: datetime
    last: datetime
    count: int


class Missing(Struct):
    """What was found of a schedule that is due by `trigger` (its text).

    Every minute from `start` to before `end` has been looked at.
    """

    trigger: str
    start: datetime
    end: datetime
    newest: list[datetime] = field(default_factory=list[datetime])
    older: Span | None = None

    def look(self, matches: Matches, known: Collection[datetime], until: datetime, most: int) -> int:
        """Look at minutes up to before `until`, and `most` of them; gives how many it were."""
        looked = 0
        while self.end < until and looked < most:
            minute, self.end, looked = self.end, self.end + MINUTE, looked + 1
            if minute not in known and matches(minute):
                self.newest.append(minute)
        self._let_go(len(self.newest) - NEWEST)
        return looked

    def review(self, since: datetime, known: Collection[datetime]) -> None:
        """Take what is known by now out; what is older than `since` is too old to be sent."""
        self.newest = [minute for minute in self.newest if minute not in known]
        self._let_go(sum(minute < since for minute in self.newest))

    def to_offer(self, catch_up: CatchUp) -> list[datetime]:
        """Which minutes shall be sent after all, oldest first."""
        if catch_up is CatchUp.ALL:
            return self.newest
        return self.newest[-1:] if catch_up is CatchUp.LATEST else []

    def to_miss(self, catch_up: CatchUp) -> Span | None:
        """All other minutes."""
        others = self.newest[: len(self.newest) - len(self.to_offer(catch_up))]
        return _joined(self.older, others)

    def missed(self, span: Span) -> None:
        """The ledger knows that these were missed."""
        self.older = None
        self.newest = [minute for minute in self.newest if minute > span.last]

    def _let_go(self, count: int) -> None:
        """The oldest of the newest are no longer remembered one by one."""
        if count > 0:
            self.older = _joined(self.older, self.newest[:count])
            del self.newest[:count]


def begin(before: Missing | None, trigger: str, since: datetime, known: Collection[datetime], now: datetime) -> Missing:
    """Go on with what was found before; from `since` on if that was about something else.

    That is another trigger, an earlier time than was looked at, or a clock that has been set back.
    """
    start = _ceiling(since)
    if before is None or before.trigger != trigger or start < before.start - MINUTE or before.end > floor(now):
        return Missing(trigger, start, start)
    before.start = start
    before.end = max(before.end, start)
    before.review(since, known)
    return before


def _joined(span: Span | None, minutes: list[datetime]) -> Span | None:
    if not minutes:
        return span
    if span is None:
        return Span(first=minutes[0], last=minutes[-1], count=len(minutes))
    return Span(first=span.first, last=minutes[-1], count=span.count + len(minutes))


def _ceiling(instant: datetime) -> datetime:
    return floor(instant + MINUTE - timedelta.resolution)
