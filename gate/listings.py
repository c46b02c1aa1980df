"""What the sources of schedulers list, and since when: a schedule that is new begins now, and is never back-filled.

A listing is kept for each schedule, and written only when something changes. A scheduler lists all schedules of a
source in one round, which may take several calls.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gate.interface import SourceIn, instant

MOST_LISTED = 100_000
"""How many schedules are remembered: of further ones, nothing is ever called missed."""
MOST_IN_ROUNDS = 200_000
"""How many names of rounds that are not complete are remembered."""
MOST_DROPPED = 10_000
"""How many rounds are remembered that were seen in part."""
LOOKED_STEP = timedelta(minutes=10)
"""How far a scheduler's search has to come for it to be written down."""
ROUND_LASTS = timedelta(minutes=10)
"""A round that takes longer is forgotten."""


class Listing(Struct, frozen=True, kw_only=True):
    """A schedule that its source lists. `trigger`: its cron expression, interval or instant, as text.

    `since`: when it was listed first, or afresh with another trigger. `looked`: what was missed before that instant is
    dealt with.
    """

    source: str
    trigger: str
    since: datetime
    looked: datetime

    def dealt_with(self, at: datetime) -> "Listing":
        """What was missed up to a minute was reported."""
        return replace(self, looked=max(self.looked, at + timedelta(minutes=1)))


Listings = Mapping[str, Listing]
"""By schedule."""


def listed(known: Listings, source: str, schedules: Iterable[SourceIn], now: datetime) -> dict[str, Listing]:
    """What a call of a round changes."""
    changes: dict[str, Listing] = {}
    for schedule in schedules:
        name, before = schedule.schedule, known.get(schedule.schedule)
        if before is None or before.trigger != schedule.trigger:
            if before is not None or len(known) + len(changes) < MOST_LISTED:
                changes[name] = Listing(source=source, trigger=schedule.trigger, since=now, looked=now)
            continue
        # The clock may have been ahead and set back: what is missed from now on counts, though that time is dealt with.
        looked = min(before.looked, now)
        if schedule.looked is not None:
            searched = min(instant(schedule.looked), now)
            looked = searched if searched >= looked + LOOKED_STEP else looked
        after = replace(before, source=source, since=min(before.since, now), looked=looked)
        if after != before:
            changes[name] = after
    return changes


def left_out(known: Listings, source: str, names: set[str]) -> dict[str, None]:
    """What a source does not list any more. It is forgotten: listed again, it begins anew."""
    return {name: None for name, listing in known.items() if listing.source == source and name not in names}


class Rounds:
    """Rounds that are not complete yet, by a key for each: which schedules each has listed so far."""

    def __init__(self, in_part: Iterable[str] = ()) -> None:
        """`in_part`: rounds of which a gate before this one has heard the beginning."""
        self._names: dict[str, tuple[datetime, set[str]]] = {}
        self._in_part = dict.fromkeys(in_part)

    def __contains__(self, key: str) -> bool:
        return key in self._names

    def add(self, key: str, names: Iterable[str], now: datetime, *, last: bool) -> set[str] | None:
        """Take a call of a round in; all its names if that completes it and none of its calls was missed, else None."""
        _, seen = self._names.setdefault(key, (now, set()))
        seen.update(names)
        if last:
            del self._names[key]
            return None if key in self._in_part else seen
        self._drop(now)
        return None

    def _drop(self, now: datetime) -> None:
        """Forget rounds that take too long, or take too much: what comes of them later is known in part."""
        much = sum(len(seen) for _, seen in self._names.values()) + len(self._names) > MOST_IN_ROUNDS
        old = [key for key, (begun, _) in self._names.items() if much or not now - ROUND_LASTS <= begun <= now]
        for key in old:
            del self._names[key]
            self._in_part[key] = None
        while len(self._in_part) > MOST_DROPPED:
            del self._in_part[next(iter(self._in_part))]


def round_key(source: str, round_id: str) -> str:
    """One text for both."""
    return msgspec.json.encode((source, round_id)).decode()


def from_notes(notes: Mapping[str, bytes]) -> dict[str, Listing]:
    """Read what the store keeps. A listing that cannot be read is left out: its schedule begins anew."""
    found: dict[str, Listing] = {}
    for name, note in notes.items():
        try:
            found[name] = msgspec.json.decode(note, type=Listing)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
    return found


def to_notes(changes: Mapping[str, Listing | None]) -> dict[str, bytes | None]:
    """What the store must write, None to forget."""
    return {name: None if listing is None else msgspec.json.encode(listing) for name, listing in changes.items()}
