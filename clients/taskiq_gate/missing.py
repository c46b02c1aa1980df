"""The minutes of one schedule that nobody has sent, as far as they were looked for.

Pure: `now`, the cron and what the ledger knows are given. What is remembered is small however long the outage was:
the newest minutes one by one, and of the older ones the first, the last and how many. What is too old to be sent is
looked at after everything else: it is told of, and nothing waits for that.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

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


class Gap(Struct):
    """Minutes from `start` to before `end` that are too old to be sent. Those before `next` have been looked at, and
    `span` were missed.
    """

    start: datetime
    end: datetime
    next: datetime
    span: Span | None = None

    @property
    def left(self) -> int:
        """How many are still to be looked at."""
        return max(0, (self.end - self.next) // MINUTE)


class Missing(Struct):
    """What was found of a schedule that is due by `trigger` (its text).

    Every minute from `start` to before `end` has been looked at, and those before `start` but for `gaps`.
    """

    trigger: str
    start: datetime
    end: datetime
    newest: list[datetime] = field(default_factory=list[datetime])
    older: Span | None = None
    gaps: list[Gap] = field(default_factory=list[Gap])
    latest: datetime = datetime.min.replace(tzinfo=UTC)
    """The newest that was to be sent: once it is, none before it becomes the latest."""

    @property
    def looked(self) -> datetime:
        """Every minute before this one has been looked at, and is sent or told of."""
        open_ones = [gap.start for gap in self.gaps] + ([] if self.older is None else [self.older.first])
        return min([self.end, *open_ones, *self.newest[:1]])

    def look(self, matches: Matches, known: Collection[datetime], until: datetime, most: int) -> int:
        """Look at minutes up to before `until`, and `most` of them; gives how many it were."""
        looked = max(0, min((until - self.end) // MINUTE, most))
        self.newest += _missed(self.end, looked, matches, known)
        self.end += looked * MINUTE
        self._let_go(len(self.newest) - NEWEST)
        return looked

    @property
    def left_in_gaps(self) -> int:
        """How many minutes of gaps are still to be looked at."""
        return sum(gap.left for gap in self.gaps)

    def look_in_gaps(self, matches: Matches, known: Collection[datetime], most: int) -> int:
        """Look at `most` minutes of the first of them that has any left; gives how many it were."""
        for gap in self.gaps:
            if looked := min(gap.left, most):
                gap.span = _joined(gap.span, _missed(gap.next, looked, matches, known))
                gap.next += looked * MINUTE
                return looked
        return 0

    def review(self, since: datetime, known: Collection[datetime]) -> None:
        """Take what is known by now out; what is older than `since` is too old to be sent."""
        self.newest = [minute for minute in self.newest if minute not in known]
        self._let_go(sum(minute < since for minute in self.newest))

    def to_offer(self, catch_up: CatchUp) -> list[datetime]:
        """Which minutes shall be sent after all, oldest first."""
        if catch_up is CatchUp.ALL:
            return self.newest
        if catch_up is CatchUp.NONE or not self.newest or self.newest[-1] < self.latest:
            return []
        self.latest = self.newest[-1]
        return [self.latest]

    def to_miss(self, catch_up: CatchUp) -> Span | None:
        """All other minutes."""
        others = self.newest[: len(self.newest) - len(self.to_offer(catch_up))]
        return _joined(self.older, others)

    def too_old(self) -> list[Span]:
        """What was found in gaps, once nothing is left in any; those in which nothing was missed are closed."""
        if self.left_in_gaps:
            return []
        self.gaps = [gap for gap in self.gaps if gap.span is not None]
        return [gap.span for gap in self.gaps if gap.span is not None]

    def missed(self, span: Span) -> None:
        """The ledger knows that these were missed."""
        if found := [gap for gap in self.gaps if gap.span == span]:
            self.gaps.remove(found[0])
            return
        self.older = None
        self.newest = [minute for minute in self.newest if minute > span.last]

    def leave_gap(self, start: datetime, end: datetime) -> None:
        """These minutes are still to be looked at, and too old to be sent."""
        if self.gaps and self.gaps[-1].end == start:
            self.gaps[-1].end = end
        elif start < end:
            self.gaps.append(Gap(start, end, start))

    def look_from(self, back: datetime) -> None:
        """Nothing is known of what lies before: it is dealt with, or forgotten."""
        for gap in self.gaps:
            gap.next = max(gap.next, back)

    def _let_go(self, count: int) -> None:
        """The oldest of the newest are no longer remembered one by one."""
        if count > 0:
            self.older = _joined(self.older, self.newest[:count])
            del self.newest[:count]


def begin(
    before: Missing | None,
    trigger: str,
    since: datetime,
    known: Collection[datetime],
    now: datetime,
    back: datetime | None = None,
) -> Missing:
    """Go on with what was found before; anew if that was about something else.

    That is another trigger, an earlier time than was looked at, or a clock that has been set back. What lies from
    `back` to before `since`, and was not looked at, is too old to be sent: a gap.
    """
    start = _ceiling(since)
    first = start if back is None else _ceiling(back)
    if before is None or before.trigger != trigger or start < before.start - MINUTE or before.end > floor(now):
        before = Missing(trigger, start, first)
    before.leave_gap(before.end, start)
    before.look_from(first)
    before.start = start
    before.end = max(before.end, start)
    before.review(since, known)
    return before


def _missed(start: datetime, count: int, matches: Matches, known: Collection[datetime]) -> list[datetime]:
    """Those of so many minutes from `start` on that match and have no record."""
    minutes = (start + number * MINUTE for number in range(count))
    return [minute for minute in minutes if minute not in known and matches(minute)]


def _joined(span: Span | None, minutes: list[datetime]) -> Span | None:
    if not minutes:
        return span
    if span is None:
        return Span(first=minutes[0], last=minutes[-1], count=len(minutes))
    return Span(first=span.first, last=minutes[-1], count=span.count + len(minutes))


def _ceiling(instant: datetime) -> datetime:
    return floor(instant + MINUTE - timedelta.resolution)
