"""The send table: every transition of an occurrence, and every answer to a claim.

Everything that changes an occurrence lives in this file, and what is not in MOVES cannot happen. The functions
are pure: they take what the store knows (`View`) and `now`, and give back what shall be written and answered
(`Change`). Instants are aware UTC datetimes, durations seconds.

Memory is a watermark: an occurrence without a record that is older than the horizon is `late`, never `send`,
unless the schedule was first seen after it.
"""

from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from msgspec import Struct
from msgspec.structs import replace

from gate import errors
from gate.claims import Ask, Miss
from gate.interface import ClaimOut, Decision, Done, Reply, State, rfc3339

EARLY_SECONDS = 5.0
"""How far ahead of the gate's clock an occurrence may be claimed: timers fire early."""
EARLY_INTERVAL_SECONDS = 1.0


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
    MISS = auto()
    """Nobody has sent it in its time."""


MOVES: dict[tuple[State | None, Event], State] = {
    (None, Event.CLAIM): State.CLAIMED,
    (None, Event.MISS): State.MISSED,
    (State.MISSED, Event.CLAIM): State.CLAIMED,
    (State.MISSED, Event.RESEND): State.RELEASED,
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
    """What the ledger knows of a schedule. `newest`: the latest `at` that ever had a record."""

    name: str
    title: str | None
    known_since: datetime
    newest: datetime
    once: bool
    touched: datetime


class Occurrence(Struct, frozen=True, kw_only=True):
    """One occurrence. `token`, `holder`, `claimed`, `until`: of the latest grant; `grants` counts them.

    Of one that was missed: an empty token, who said so, and when.
    """

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
    else (an interval) the schedule's newest. `horizon`: what is older may have been forgotten. `lost`: what is older
    may have been lost by the store, with all that was known of its schedule.
    """

    schedule: Schedule | None
    occurrence: Occurrence | None
    token: Token | None
    horizon: datetime
    lost: datetime | None = None


class Change(Struct, frozen=True):
    """What is answered, and what is written (None: nothing).

    `observed`: under mode = "observe", the decision that enforce would have come to where that is no grant.
    """

    answer: Reply | errors.CallError
    occurrence: Occurrence | None = None
    schedule: Schedule | None = None
    token: Token | None = None
    observed: Decision | None = None

    @property
    def written(self) -> bool:
        """Whether the store had to write."""
        return not (self.occurrence is None and self.schedule is None and self.token is None)


def claim(ask: Ask, view: View, now: datetime) -> Change:
    """May `ask.holder` send? The answer is a ClaimOut, or InvalidClaim for a token that belongs elsewhere."""
    known, record = view.token, view.occurrence
    if known is not None and (known.schedule != ask.schedule or ask.at not in (None, known.at)):
        reason = f"{ask.token!r} was granted {known.schedule} at {rfc3339(known.at)}: make a new one for each claim"
        return Change(errors.InvalidClaim(field="token", reason=reason))
    if record is not None and record.token == ask.token:
        return _ask_again(ask, view, record, now)
    change = _claim_anew(ask, view, now)
    if ask.policy.mode == "observe" and isinstance(change.answer, ClaimOut):
        return _observed(ask, view, change, change.answer, now)
    return change


def _claim_anew(ask: Ask, view: View, now: datetime) -> Change:
    known, record = view.token, view.occurrence
    if ask.every is not None and known is None:
        return _claim_interval(ask, ask.every, view, now)
    if record is not None and record.state not in (State.RELEASED, State.MISSED):
        return _claim_taken(ask, view, record, now)
    at = known.at if known is not None else ask.at
    assert at is not None
    if at > now + timedelta(seconds=EARLY_SECONDS) and not ask.start:
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
    if event is not Event.RENEW and (refusal := _refusal(ask, at, view, now)) is not None:
        return refusal
    return _granted(ask, at, view, event, REASONS[event], now)


def _granted(ask: Ask, at: datetime, view: View, event: Event, reason: str, now: datetime) -> Change:
    record = view.occurrence
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
        reason=reason,
        grants=1 if record is None else record.grants + (event is not Event.RENEW),
    )
    schedule = _seen(ask, at, view.schedule, now)
    return Change(_yes(ask, at, reason, until), granted, schedule, _new_token(ask, at, view, now))


def _yes(ask: Ask, at: datetime, reason: str, until: datetime) -> ClaimOut:
    return ClaimOut(decision=Decision.SEND, reason=reason, at=at, token=ask.token, until=until, by=ask.holder)


def _new_token(ask: Ask, at: datetime, view: View, now: datetime) -> Token | None:
    """The record of the claim's token; None if there is one."""
    if view.token is not None:
        return None
    return Token(token=ask.token, schedule=ask.schedule, at=at, holder=ask.holder, born=now)


def _refusal(ask: Ask, at: datetime, view: View, now: datetime) -> Change | None:
    """Why an occurrence that nobody else has is not granted now."""
    forgotten = _forgotten(ask, at, view)
    if ask.deadline is not None and now > at + timedelta(seconds=ask.deadline):
        change = _no(at, Decision.LATE, f"past its deadline of {ask.deadline:g} s")
    elif forgotten:
        change = _no(at, Decision.LATE, f"older than the ledger remembers ({rfc3339(view.horizon)})")
    elif ask.paused is not None:
        change = _no(at, Decision.PAUSED, ask.paused.reason, until=ask.paused.until)
    else:
        return None
    # An interval goes on with its next occurrence. What was forgotten may have been sent.
    if ask.every is not None or view.occurrence is not None or forgotten:
        return change
    return _refused_for_good(ask, at, view, change, now)


def _refused_for_good(ask: Ask, at: datetime, view: View, change: Change, now: datetime) -> Change:
    """It gets a record, so that it is listed, and not offered again by a scheduler that looks for what it missed."""
    assert isinstance(change.answer, ClaimOut)
    record = _record_of_miss(ask.schedule, at, ask.holder, change.answer.reason, now)
    return Change(change.answer, record, _seen(ask, at, view.schedule, now))


def _record_of_miss(schedule: str, at: datetime, holder: str, reason: str, now: datetime) -> Occurrence:
    return Occurrence(
        schedule=schedule,
        at=at,
        state=MOVES[None, Event.MISS],
        token="",
        holder=holder,
        claimed=now,
        until=now,
        touched=now,
        settled=now,
        reason=reason,
        grants=0,
    )


def _forgotten(ask: Ask, at: datetime, view: View) -> bool:
    """Whether a record of it may have been forgotten."""
    schedule = view.schedule
    if ask.start or view.occurrence is not None:
        return False
    if view.lost is not None and at < view.lost:
        return True
    if schedule is None or not schedule.known_since <= at < view.horizon:
        return False
    # The newest occurrence is never forgotten, so the next one of an interval, however long, was not sent yet.
    return ask.every is None or at <= schedule.newest


def _observed(ask: Ask, view: View, change: Change, answer: ClaimOut, now: datetime) -> Change:
    """Under mode = "observe" every claim is granted, and the answer says what it would have been.

    What another has sent, holds or left in doubt keeps its record; the token is remembered, so that it can be
    confirmed. What is refused for another reason is recorded as if it had been granted.
    """
    if answer.decision is Decision.SEND:
        return change
    reason = f"observed: enforce would answer {answer.decision.value}: {answer.reason}"
    record = view.occurrence
    if answer.decision in (Decision.SENT, Decision.HELD, Decision.DOUBT) and record is not None:
        until = now + timedelta(seconds=ask.lease)
        token = _new_token(ask, record.at, view, now)
        granted = Change(_yes(ask, record.at, reason, until), schedule=change.schedule, token=token)
    elif ask.every is not None:  # its scheduler does not keep the cadence
        granted = _granted(ask, now, replace(view, occurrence=None), Event.CLAIM, reason, now)
    else:
        doubt = record is not None and record.state is State.DOUBT
        granted = _granted(ask, answer.at, view, Event.TAKE_OVER if doubt else Event.CLAIM, reason, now)
    return replace(granted, observed=answer.decision)


def _seen(ask: Ask | Miss, at: datetime, schedule: Schedule | None, now: datetime) -> Schedule:
    once = ask.once if isinstance(ask, Ask) else schedule is not None and schedule.once
    if schedule is None:
        return Schedule(name=ask.schedule, title=ask.title, known_since=at, newest=at, once=once, touched=now)
    return Schedule(
        name=schedule.name,
        title=ask.title or schedule.title,
        # An older occurrence that has a record now must not be granted again once that is pruned.
        known_since=min(at, schedule.known_since),
        newest=at if isinstance(ask, Ask) and _ahead(ask, schedule, now) else max(at, schedule.newest),
        once=once,
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


def missed(miss: Miss, view: View, now: datetime) -> Change:
    """Record what was missed; nothing changes for an occurrence that has a record, or may have had one."""
    schedule = view.schedule
    forgotten = schedule is not None and schedule.known_since <= miss.at < view.horizon
    if view.occurrence is not None or forgotten:
        return Change(Done())
    record = _record_of_miss(miss.schedule, miss.at, miss.holder, miss.reason, now)
    return Change(Done(), record, _seen(miss, miss.at, schedule, now))


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
    """An operator allows a new send of what is in doubt or was missed; answers NotInDoubt for anything else."""
    record = view.occurrence
    if record is None or (record.state, Event.RESEND) not in MOVES:
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
