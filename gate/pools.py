"""Places that a limit counts: pools such as "rule dicom" or "resource pacs-1", and how many places may be given now."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import ceil, inf
from typing import TypeAlias

from msgspec import Struct

from gate import durations


def rule_pool(name: str) -> str:
    """The pool of a rule."""
    return f"rule {name}"


def resource_pool(name: str) -> str:
    """The pool of a resource."""
    return f"resource {name}"


class Ramp(Struct, frozen=True):
    """A gentle opening: at most `count` new places every `every` seconds, until the limit may be reached."""

    count: int
    every: float

    def __str__(self) -> str:
        return f"{self.count} every {durations.text(self.every)}"


class Limit(Struct, frozen=True, kw_only=True):
    """What holds for a pool at an instant.

    `number`: how many places; 0 gives none, None counts without a limit. `reason`: why this number, such as "limit 8 by
    night". `until`: when it changes; None if nothing is known to change it. `opening`: since when jobs may start, which
    is where a ramp begins.
    """

    number: int | None
    reason: str
    until: datetime | None = None
    ramp: Ramp | None = None
    opening: datetime | None = None


Limits: TypeAlias = Callable[[str], Limit]
"""The limit of a pool, now."""


class Slot(Struct, frozen=True):
    """A part of a ramp: from `start` to `end`, at most `count` new places are given."""

    start: datetime
    end: datetime
    count: int


def slot(limit: Limit, now: datetime) -> Slot | None:
    """The slot of a limit's ramp at `now`; None if it has no ramp, or the ramp is over.

    A ramp lasts as many slots as it takes to give all places. Source: design 5.1.
    """
    ramp, opening = limit.ramp, limit.opening
    if ramp is None or opening is None or limit.number is None or now < opening:
        return None
    every = timedelta(seconds=ramp.every)
    index = (now - opening) // every
    if index >= ceil(limit.number / ramp.count):
        return None
    start = opening + index * every
    return Slot(start, start + every, ramp.count)


class Given(Struct, frozen=True):
    """How many places a ramp has given in the slot that began at `start`; the disk keeps it through a restart."""

    start: datetime
    places: int

    def covers(self, other: "Given") -> bool:
        """Whether one who knows this gives no more in its slot than one who knows the other."""
        return (self.start, self.places) >= (other.start, other.places)


class Share(Struct, frozen=True, kw_only=True):
    """What one of several gates that share a pool may give. `places`: so many may be taken here. `counted`: as many as
    the others take for taken. `elsewhere`: what they count with. `told`: the places that could be used here, as they
    know it. `given`: what the ramp may give here in a slot. `settling`: the others are still to say what they hold.
    `away`: the store was not heard of for so long that none may be given any more.
    """

    places: int
    counted: int = 0
    elsewhere: int = 0
    told: int = 0
    given: Given | None = None
    settling: bool = False
    away: bool = False


NO_SHARE = Share(places=0, settling=True)
"""Of a pool of which the other gates have not been asked yet."""


class Pool:
    """The places of one pool.

    `holders`: the permits that hold one each. `unsaid`: places of processes that have not said yet what they hold.
    `promised`: places offered to those who wait. `given`: in the last slot of a ramp; `on_disk`: what is written of it.
    `share`: what of them may be given here; None where no other gate gives any.
    """

    __slots__ = ("given", "holders", "name", "on_disk", "promised", "share", "unsaid")

    def __init__(self, name: str, share: Share | None = None) -> None:
        self.name = name
        self.share = share
        self.holders: set[str] = set()
        self.unsaid = 0
        self.promised = 0
        self.given: Given | None = None
        self.on_disk: Given | None = None

    @property
    def taken(self) -> int:
        """Places that are not free: jobs run in them, or may."""
        return len(self.holders) + self.unsaid

    def free(self, limit: Limit, now: datetime) -> float:
        """Places that may be given now, those that are promised included; less than 0 where a limit became smaller."""
        if limit.number is None:
            return inf
        number = limit.number if self.share is None else min(limit.number, self.share.places)
        part = slot(limit, now)
        return number - self.taken if part is None else min(number - self.taken, self._left_in(part))

    def give(self, limit: Limit, now: datetime) -> None:
        """A place was reserved: a ramp counts it."""
        part = slot(limit, now)
        if part is not None:
            self.given = Given(part.start, self._given_in(part) + 1)

    def give_back(self, since: datetime) -> None:
        """A place that was reserved at `since` was not used: the ramp may give it once more in the same slot."""
        if self.given is not None and since >= self.given.start:
            self.given = Given(self.given.start, max(0, self.given.places - 1))

    def _left_in(self, part: Slot) -> int:
        """How many places this slot of the ramp may still give here."""
        if self.share is None:
            return part.count - self._given_in(part)
        allowed = self.share.given
        return (allowed.places if allowed is not None and allowed.start == part.start else 0) - self._given_in(part)

    def _given_in(self, part: Slot) -> int:
        return 0 if self.given is None or self.given.start != part.start else self.given.places

    def unwritten(self) -> Given | None:
        """What a ramp has given and the disk does not know: a restart would give it once more in the same slot."""
        known = self.on_disk is not None and self.given is not None and self.on_disk.covers(self.given)
        return None if known else self.given

    def written(self, given: Given) -> None:
        """It is on disk."""
        if self.on_disk is None or not self.on_disk.covers(given):
            self.on_disk = given

    def shortage(self, limit: Limit, now: datetime) -> tuple[str, datetime | None]:
        """Why no place can be given, and until when if that is known."""
        if limit.number == 0:
            return f"{self.name}: {limit.reason}", limit.until
        if limit.number is not None and self.taken >= limit.number:
            return self._all_taken(limit.number, limit.reason), limit.until
        if self.share is not None and self.taken >= self.share.places:
            return self._not_shared(self.share, limit.reason), limit.until
        part = slot(limit, now)
        if part is not None and self._left_in(part) <= 0:
            return f"{self.name} opens slowly, {limit.ramp} (ramp)", part.end
        return f"the free places of {self.name} are offered to those who wait longer", limit.until

    def _not_shared(self, share: Share, reason: str) -> str:
        if share.away:
            return f"{self.name}: what other hosts hold is not known, for the store is away"
        if share.settling:
            return f"{self.name}: what other hosts hold is not known yet"
        here = f"{self.taken} taken here" if self.taken else "none is taken here"
        return f"{self.name}: {reason}, {here}, and {share.elsewhere} held by other hosts"

    def _all_taken(self, number: int, reason: str) -> str:
        by = "" if reason == f"limit {number}" else f", {reason}"
        if self.taken > number:
            return f"{self.taken} places of {self.name} are taken and only {number} may be{by}"
        which = "the only place" if number == 1 else f"all {number} places"
        verb = "is" if number == 1 else "are"
        return f"{which} of {self.name} {verb} taken (until one is free){by}"
