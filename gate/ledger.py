"""The send table: every transition of an occurrence, and every answer to a claim.

Everything that changes an occurrence lives in this file, and what is not in MOVES cannot happen. The functions
are pure: they take what the store knows (`View`) and `now`, and give back what shall be written and answered
(`Change`). Instants are aware UTC datetimes, durations seconds.

Memory is a watermark: an occurrence without a record that is older than the horizon is `late`, never `send`,
unless the schedule was first seen after it.
"""

import math
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from gate import errors
from gate.interface import ClaimIn, ClaimOut, Decision, Done, NotAnInstant, Reply, State, instant, rfc3339
from gate.rules import SendPolicy

LEASE_SECONDS = 30.0
EARLY_SECONDS = 5.0
"""How far ahead of the gate's clock an occurrence may be claimed: timers fire early."""
EARLY_INTERVAL_SECONDS = 1.0
SCHEDULE_BYTES = 512
HOLDER_BYTES = 256
TITLE_BYTES = 512
TOKEN_CHARACTERS = 128
LEASE_SECONDS_MAX = 86_400.0
DEADLINE_SECONDS_MAX = 10 * 366 * 86_400.0
EVERY_SECONDS = (0.1, 10 * 366 * 86_400.0)
FIRST_YEAR, LAST_YEAR = 1970, 9000


class Event(Enum):
    """What can happen to an occurrence."""

    CLAIM = auto()
    """Somebody asks who has no claim on it."""
    TAKE_OVER = auto()
    """The same, of one in doubt, where the policy is to send again."""
    RENEW = auto()
    """Its holder asks again with its token: an answer was lost, or a connection came back."""
    CONFIRM = auto()
    CONFIRM_REPLACED = auto()
    """Confirmed with a token whose claim another has taken over: it was sent all the same."""
    RELEASE = auto()
    UNREAD = auto()
    """The holder died before it read its grant, so it cannot have sent."""
    LOST = auto()
    """The holder's connection closed, or the gate restarted, and the grace is over."""
    EXPIRED = auto()
    """The holder hangs past its lease."""
    RESEND = auto()
    """An operator allows a new send."""


MOVES: dict[tuple[State | None, Event], State] = {
    (None, Event.CLAIM): State.CLAIMED,
    (State.RELEASED, Event.CLAIM): State.CLAIMED,
    (State.RELEASED, Event.RENEW): State.CLAIMED,
    (State.RELEASED, Event.CONFIRM): State.SENT,
    (State.RELEASED, Event.CONFIRM_REPLACED): State.SENT,
    (State.CLAIMED, Event.RENEW): State.CLAIMED,
    (State.CLAIMED, Event.CONFIRM): State.SENT,
    (State.CLAIMED, Event.CONFIRM_REPLACED): State.SENT,
    (State.CLAIMED, Event.RELEASE): State.RELEASED,
    (State.CLAIMED, Event.UNREAD): State.RELEASED,
    (State.CLAIMED, Event.LOST): State.DOUBT,
    (State.CLAIMED, Event.EXPIRED): State.DOUBT,
    (State.DOUBT, Event.RENEW): State.CLAIMED,
    (State.DOUBT, Event.TAKE_OVER): State.CLAIMED,
    (State.DOUBT, Event.CONFIRM): State.SENT,
    (State.DOUBT, Event.CONFIRM_REPLACED): State.SENT,
    (State.DOUBT, Event.RELEASE): State.RELEASED,
    (State.DOUBT, Event.RESEND): State.RELEASED,
}
"""(state, event) -> state. No entry: nothing changes. SENT has none: what was sent stays sent."""

REASONS: dict[Event, str] = {
    Event.CLAIM: "granted",
    Event.TAKE_OVER: "granted again: the holder before vanished, and on_doubt is resend",
    Event.RENEW: "granted; its holder asked again",
    Event.CONFIRM: "confirmed",
    Event.CONFIRM_REPLACED: "confirmed by a holder whose claim had been taken over",
    Event.RELEASE: "released by its holder: not sent",
    Event.UNREAD: "released: its holder was gone before it read the grant",
    Event.LOST: "its holder vanished before confirming",
    Event.EXPIRED: "its holder did not confirm within the lease",
    Event.RESEND: "an operator allowed a new send",
}


class Schedule(Struct, frozen=True, kw_only=True):
    """What the ledger knows of a schedule. `newest`: the latest `at` that was ever granted."""

    name: str
    title: str | None
    known_since: datetime
    newest: datetime
    once: bool
    touched: datetime


class Occurrence(Struct, frozen=True, kw_only=True):
    """One occurrence. `token`, `holder`, `claimed`, `until`: of the latest grant; `grants` counts them."""

    schedule: str
    at: datetime
    state: State
    token: str
    holder: str
    claimed: datetime
    until: datetime
    touched: datetime
    settled: datetime | None
    reason: str
    grants: int


class Token(Struct, frozen=True, kw_only=True):
    """Which occurrence a token was granted, and to whom."""

    token: str
    schedule: str
    at: datetime
    holder: str
    born: datetime


class View(Struct, frozen=True, kw_only=True):
    """What a decision sees.

    `token`: the record of the token that was named; `occurrence`: that token's, else the one that was asked for,
    else (an interval) the schedule's newest. `horizon`: what is older may have been forgotten.
    """

    schedule: Schedule | None
    occurrence: Occurrence | None
    token: Token | None
    horizon: datetime


class Change(Struct, frozen=True):
    """What is answered, and what is written (None: nothing)."""

    answer: Reply | errors.CallError
    occurrence: Occurrence | None = None
    schedule: Schedule | None = None
    token: Token | None = None

    @property
    def written(self) -> bool:
        """Whether the store had to write."""
        return not (self.occurrence is None and self.schedule is None and self.token is None)


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


def ask(claim: ClaimIn, token: str, policy: SendPolicy) -> Ask:
    """Check a claim; raises errors.InvalidClaim with the field, what is wrong with it and what is allowed."""
    _check_text("schedule", claim.schedule, SCHEDULE_BYTES)
    _check_text("holder", claim.holder, HOLDER_BYTES)
    _check_text("token", token, TOKEN_CHARACTERS)
    if claim.title is not None and len(claim.title.encode()) > TITLE_BYTES:
        raise errors.InvalidClaim(field="title", reason=f"longer than {TITLE_BYTES} bytes")
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


def _check_text(field: str, value: str, limit: int) -> None:
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
    try:
        at = instant(claim.at)
    except NotAnInstant as error:
        raise errors.InvalidClaim(field="at", reason=str(error)) from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise errors.InvalidClaim(field="at", reason=f"{claim.at!r} is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    if not once and (at.second or at.microsecond):
        raise errors.InvalidClaim(
            field="at", reason=f"{claim.at!r} is within a minute: name the minute, or set `once` for a one-off"
        )
    return at


def claim(ask: Ask, view: View, now: datetime) -> Change:
    """May `ask.holder` send? The answer is a ClaimOut, or InvalidClaim for a token that belongs elsewhere."""
    known, record = view.token, view.occurrence
    if known is not None and (known.schedule != ask.schedule or ask.at not in (None, known.at)):
        reason = f"{ask.token!r} was granted {known.schedule} at {rfc3339(known.at)}: make a new one for each claim"
        return Change(errors.InvalidClaim(field="token", reason=reason))
    if record is not None and record.token == ask.token:
        return _ask_again(ask, view, record, now)
    if ask.every is not None and known is None:
        return _claim_interval(ask, ask.every, view, now)
    if record is not None and record.state is not State.RELEASED:
        return _claim_taken(ask, view, record, now)
    at = known.at if known is not None else ask.at
    assert at is not None
    if at > now + timedelta(seconds=EARLY_SECONDS):
        return _no(at, Decision.WAIT, "not due yet", until=at)
    return _grant(ask, at, view, Event.CLAIM, now)


def _ask_again(ask: Ask, view: View, record: Occurrence, now: datetime) -> Change:
    if record.state is State.SENT:
        return _no(record.at, Decision.SENT, f"already sent: {record.reason}", by=record.holder)
    return _grant(ask, record.at, view, Event.RENEW, now)


def _claim_taken(ask: Ask, view: View, record: Occurrence, now: datetime) -> Change:
    """An occurrence that is sent, claimed by another, or in doubt."""
    if record.state is State.SENT:
        return _listed(_no(record.at, Decision.SENT, "already sent", by=record.holder), view.schedule, now)
    if record.state is State.CLAIMED:
        return _no(record.at, Decision.HELD, "being sent by its holder", by=record.holder, until=record.until)
    if ask.policy.on_doubt == "resend":
        return _grant(ask, record.at, view, Event.TAKE_OVER, now)
    return _listed(
        _no(record.at, Decision.DOUBT, f"{record.reason}; on_doubt is skip", by=record.holder), view.schedule, now
    )


def _listed(change: Change, schedule: Schedule | None, now: datetime) -> Change:
    """A one-off is remembered as long as its source lists it; once a day is often enough to write that down."""
    if schedule is not None and schedule.once and now - schedule.touched > timedelta(days=1):
        return Change(change.answer, schedule=replace(schedule, touched=now))
    return change


def _claim_interval(ask: Ask, every: float, view: View, now: datetime) -> Change:
    """An interval keeps its cadence: the newest occurrence plus whole intervals. Source: design section 4."""
    schedule, step = view.schedule, timedelta(seconds=every)
    if schedule is None or _ahead(ask, schedule, now):
        return _grant(ask, now, replace(view, occurrence=None), Event.CLAIM, now)
    newest = schedule.newest
    early = timedelta(seconds=min(EARLY_INTERVAL_SECONDS, every / 10))
    due = newest + step
    if now >= due - early:
        at = newest + (now + early - newest) // step * step
        if ask.deadline is not None and now > at + timedelta(seconds=ask.deadline):
            at = now  # the cadence is lost: it begins anew, or every later one would be late too
        return _grant(ask, at, replace(view, occurrence=None), Event.CLAIM, now)
    record = view.occurrence
    if record is None or record.state is State.SENT:
        return _no(
            due, Decision.WAIT, "sent in this interval already", until=due, by=None if record is None else record.holder
        )
    if record.state is State.RELEASED:
        return _grant(ask, record.at, view, Event.CLAIM, now)
    return _claim_taken(ask, view, record, now)


def _grant(ask: Ask, at: datetime, view: View, event: Event, now: datetime) -> Change:
    record, schedule = view.occurrence, view.schedule
    if event is not Event.RENEW and (late := _late(ask, at, view, now)) is not None:
        return late
    until = now + timedelta(seconds=ask.lease)
    granted = Occurrence(
        schedule=ask.schedule,
        at=at,
        state=MOVES[None if record is None else record.state, event],
        token=ask.token,
        holder=ask.holder,
        claimed=now,
        until=until,
        touched=now,
        settled=None,
        reason=REASONS[event],
        grants=1 if record is None else record.grants + (event is not Event.RENEW),
    )
    answer = ClaimOut(decision=Decision.SEND, reason=granted.reason, at=at, token=ask.token, until=until, by=ask.holder)
    token = view.token or Token(token=ask.token, schedule=ask.schedule, at=at, holder=ask.holder, born=now)
    return Change(answer, granted, _seen(ask, at, schedule, now), None if token is view.token else token)


def _late(ask: Ask, at: datetime, view: View, now: datetime) -> Change | None:
    if ask.deadline is not None and now > at + timedelta(seconds=ask.deadline):
        return _no(at, Decision.LATE, f"past its deadline of {ask.deadline:g} s")
    schedule = view.schedule
    if view.occurrence is not None or schedule is None or not schedule.known_since <= at < view.horizon:
        return None
    # The newest occurrence is never forgotten, so the next one of an interval, however long, was not sent yet.
    if ask.every is None or at <= schedule.newest:
        return _no(at, Decision.LATE, f"older than the ledger remembers ({rfc3339(view.horizon)})")
    return None


def _seen(ask: Ask, at: datetime, schedule: Schedule | None, now: datetime) -> Schedule:
    if schedule is None:
        return Schedule(name=ask.schedule, title=ask.title, known_since=at, newest=at, once=ask.once, touched=now)
    return Schedule(
        name=schedule.name,
        title=ask.title or schedule.title,
        # An older occurrence that is granted now must not be granted again once its record is pruned.
        known_since=min(at, schedule.known_since),
        newest=at if _ahead(ask, schedule, now) else max(at, schedule.newest),
        once=ask.once,
        touched=now,
    )


def _ahead(ask: Ask, schedule: Schedule, now: datetime) -> bool:
    """Whether an interval's newest occurrence lies so far ahead that the clock must have been set back."""
    # A minute of the same schedule may have been claimed EARLY_SECONDS before its time.
    return ask.every is not None and schedule.newest > now + timedelta(seconds=max(ask.every, EARLY_SECONDS))


def _no(
    at: datetime, decision: Decision, reason: str, *, until: datetime | None = None, by: str | None = None
) -> Change:
    return Change(ClaimOut(decision=decision, reason=reason, at=at, until=until, by=by))


def settle(event: Event, token: str, view: View, now: datetime) -> Change:
    """Confirm, release or lose the claim of a token; idempotent; answers UnknownToken for one never granted."""
    record, known = view.occurrence, view.token
    if record is None or known is None:
        return Change(errors.UnknownToken(token=token))
    if record.token != token:
        if event is not Event.CONFIRM:
            return Change(Done())
        event = Event.CONFIRM_REPLACED
    return Change(Done(), _moved(record, event, now, by=known.holder))


def resend(schedule: str, at: datetime, view: View, now: datetime) -> Change:
    """An operator settles a doubt by allowing a new send; answers NotInDoubt for anything else."""
    record = view.occurrence
    if record is None or record.state is not State.DOUBT:
        state = "unknown to the ledger" if record is None else str(record.state)
        return Change(errors.NotInDoubt(schedule=schedule, at=rfc3339(at), state=state))
    return Change(Done(), _moved(record, Event.RESEND, now, by=record.holder))


def _moved(record: Occurrence, event: Event, now: datetime, *, by: str) -> Occurrence | None:
    state = MOVES.get((record.state, event))
    if state is None:
        return None
    return replace(record, state=state, holder=by, touched=now, settled=now, reason=REASONS[event])


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The horizon of a ledger that has forgotten nothing."""
