"""Claims and reports of what was missed, as they come over the wire: every field checked, every instant read.

What is wrong raises InvalidClaim with the field, what is wrong with it and what is allowed. Instants are aware UTC
datetimes, durations seconds.
"""

import math
import re
from datetime import datetime, timedelta

from msgspec import Struct

from gate import errors
from gate.interface import ClaimIn, MissedIn, NotAnInstant, instant, rfc3339
from gate.rules import Paused, SendPolicy

LEASE_SECONDS = 30.0
MARK = "\x1f"
"""What only the ledger's own names begin with."""
SCHEDULE_BYTES = 512
HOLDER_BYTES = 256
TITLE_BYTES = 512
REASON_BYTES = 512
TOKEN_CHARACTERS = 128
LEASE_SECONDS_MAX = 86_400.0
DEADLINE_SECONDS_MAX = 10 * 366 * 86_400.0
EVERY_SECONDS = (0.1, 10 * 366 * 86_400.0)
FIRST_YEAR, LAST_YEAR = 1970, 9000


class Ask(Struct, frozen=True, kw_only=True):
    """A claim whose fields have been checked."""

    schedule: str
    holder: str
    token: str
    at: datetime | None
    every: float | None
    once: bool
    deadline: float | None
    lease: float
    title: str | None
    policy: SendPolicy
    start: bool = False
    """Whether this is the start of a task that was sent: then it is never too early, and never too old."""
    paused: Paused | None = None
    """Why nothing is sent at present."""


class Miss(Struct, frozen=True, kw_only=True):
    """An occurrence that was missed, as it was reported; its fields have been checked."""

    schedule: str
    holder: str
    at: datetime
    reason: str
    count: int
    title: str | None


def ask(claim: ClaimIn, token: str, policy: SendPolicy) -> Ask:
    """Check a claim; raises errors.InvalidClaim with the field, what is wrong with it and what is allowed."""
    check_schedule(claim.schedule)
    check_text("holder", claim.holder, HOLDER_BYTES)
    check_text("token", token, TOKEN_CHARACTERS)
    check_title(claim.title)
    _check_number("deadline", claim.deadline, 0.0, DEADLINE_SECONDS_MAX)
    _check_number("every", claim.every, *EVERY_SECONDS)
    _check_number("lease", claim.lease, 0.001, LEASE_SECONDS_MAX)
    once = bool(claim.once)
    deadlines = [d for d in (claim.deadline, policy.deadline) if d is not None]
    return Ask(
        schedule=claim.schedule,
        holder=claim.holder,
        token=token,
        at=_check_at(claim, once=once),
        every=claim.every,
        once=once,
        deadline=min(deadlines, default=None),
        lease=LEASE_SECONDS if claim.lease is None else claim.lease,
        title=claim.title,
        policy=policy,
    )


def miss(missed: MissedIn, now: datetime) -> Miss:
    """Check what is reported as missed; raises errors.InvalidClaim with the field and what is wrong with it."""
    check_schedule(missed.schedule)
    check_text("holder", missed.holder, HOLDER_BYTES)
    check_text("reason", missed.reason, REASON_BYTES)
    check_title(missed.title)
    at = _minute("at", missed.at)
    if at > now:
        raise errors.InvalidClaim(field="at", reason=f"{missed.at!r} is still to come: only the past can be missed")
    count = 1 if missed.count is None else missed.count
    first = at if missed.first is None else _minute("first", missed.first)
    if first > at:
        raise errors.InvalidClaim(field="first", reason=f"{missed.first!r} is after `at`")
    most = (at - first) // timedelta(minutes=1) + 1
    if not 1 <= count <= most:
        raise errors.InvalidClaim(field="count", reason=f"{count} is outside 1 to {most}, the minutes since `first`")
    reason = missed.reason if count == 1 else f"{missed.reason}; stands for {count} since {rfc3339(first)}"
    return Miss(schedule=missed.schedule, holder=missed.holder, at=at, reason=reason, count=count, title=missed.title)


def stands_since(reason: str) -> datetime | None:
    """The first of the occurrences that a record of missed ones stands for, by its reason; None if it is one alone."""
    found = re.search(r"; stands for \d+ since (\S+)$", reason)
    return None if found is None else instant(found[1])


def check_title(title: str | None) -> None:
    """Raises errors.InvalidClaim for one that is too long."""
    if title is not None and len(title.encode()) > TITLE_BYTES:
        raise errors.InvalidClaim(field="title", reason=f"longer than {TITLE_BYTES} bytes")


def check_schedule(name: str) -> None:
    """Raises errors.InvalidClaim for a name that is empty, too long, or begins as only the ledger's own names do."""
    check_text("schedule", name, SCHEDULE_BYTES)
    if name.startswith(MARK):
        raise errors.InvalidClaim(field="schedule", reason=f"{name!r} begins with U+001F, which is the ledger's own")


def check_text(field: str, value: str, limit: int) -> None:
    """Raises errors.InvalidClaim for a text that is empty, or has more bytes than `limit`."""
    size = len(value.encode())
    if not 1 <= size <= limit:
        raise errors.InvalidClaim(field=field, reason=f"has {size} bytes: 1 to {limit} are allowed")


def _check_number(field: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise errors.InvalidClaim(field=field, reason=f"{value:g} s is outside {low:g} to {high:g}")


def _check_at(claim: ClaimIn, *, once: bool) -> datetime | None:
    if claim.every is not None:
        if claim.at is not None or once:
            raise errors.InvalidClaim(field="every", reason="goes without `at` and `once`: the gate picks `at`")
        return None
    if claim.at is None:
        raise errors.InvalidClaim(field="at", reason="missing: give the nominal instant, or `every` for an interval")
    return check_instant("at", claim.at) if once else _minute("at", claim.at, ", or set `once` for a one-off")


def check_instant(field: str, text: str) -> datetime:
    """Read an instant; raises errors.InvalidClaim."""
    try:
        at = instant(text)
    except NotAnInstant as error:
        raise errors.InvalidClaim(field=field, reason=str(error)) from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise errors.InvalidClaim(field=field, reason=f"{text!r} is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    return at


def _minute(field: str, text: str, otherwise: str = "") -> datetime:
    at = check_instant(field, text)
    if at.second or at.microsecond:
        raise errors.InvalidClaim(field=field, reason=f"{text!r} is within a minute: name the minute{otherwise}")
    return at
