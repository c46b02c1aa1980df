"""The interfaces as types: one frozen struct per method and reply, and the table that names them.

The hand-written `.varlink` files beside this module are the contract; `tests/test_interface.py` holds both
together. Instants go in as strings, so that a naive or odd one gets our own error, and come out as aware
datetimes, which msgspec writes as RFC 3339 in UTC.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

Instant = Annotated[datetime, Meta(tz=True)]


class Decision(StrEnum):
    """What a claim was answered. Only `send` allows a send."""

    SEND = "send"
    SENT = "sent"
    HELD = "held"
    DOUBT = "doubt"
    WAIT = "wait"
    LATE = "late"
    PAUSED = "paused"


class State(StrEnum):
    """Where an occurrence stands in the ledger."""

    CLAIMED = "claimed"
    SENT = "sent"
    DOUBT = "doubt"
    RELEASED = "released"
    MISSED = "missed"


class CatchUp(StrEnum):
    """Which of the occurrences that were missed are sent later."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Steer(StrEnum):
    """What an override does to a rule; `auto` takes it back."""

    OPEN = "open"
    CLOSE = "close"
    AUTO = "auto"


class Halt(StrEnum):
    """What an operator orders over schedules; `resume` takes a pause back."""

    PAUSE = "pause"
    RESUME = "resume"


class Wire(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all parameters and replies."""


class Reply(Struct, frozen=True, kw_only=True):
    """Base of all replies: a client of today understands a gate of tomorrow that says more."""


class Empty(Wire, frozen=True, kw_only=True):
    """No parameters."""


class Done(Reply, frozen=True, kw_only=True):
    """An empty reply."""


class ClaimIn(Wire, frozen=True, kw_only=True):
    schedule: str
    holder: str
    at: str | None = None
    every: float | None = None
    once: bool | None = None
    deadline: float | None = None
    lease: float | None = None
    token: str | None = None
    title: str | None = None


class ClaimOut(Reply, frozen=True, kw_only=True):
    decision: Decision
    reason: str
    at: Instant
    token: str | None = None
    until: Instant | None = None
    by: str | None = None


class StartIn(Wire, frozen=True, kw_only=True):
    schedule: str
    holder: str
    at: str
    attempt: int | None = None
    token: str | None = None


class TokenIn(Wire, frozen=True, kw_only=True):
    token: str


class SourceIn(Wire, frozen=True, kw_only=True):
    schedule: str
    trigger: str
    title: str | None = None
    looked: str | None = None


class ReviewIn(Wire, frozen=True, kw_only=True):
    source: str
    round: str
    last: bool
    schedules: list[SourceIn]


class Again(Reply, frozen=True, kw_only=True):
    at: Instant
    reason: str


class Reviewed(Reply, frozen=True, kw_only=True):
    schedule: str
    catch_up: CatchUp
    since: Instant
    known: list[Instant]
    again: list[Again]
    paused: Instant | None
    back: Instant | None = None


class ReviewOut(Reply, frozen=True, kw_only=True):
    now: Instant
    reviews: list[Reviewed]


class MissedIn(Wire, frozen=True, kw_only=True):
    schedule: str
    holder: str
    at: str
    first: str | None = None
    count: int | None = None
    reason: str
    title: str | None = None


class CheckIn(Wire, frozen=True, kw_only=True):
    worker: str
    queues: list[str] | None = None


class WatchIn(Wire, frozen=True, kw_only=True):
    worker: str
    queues: list[str] | None = None
    session: str


class CheckOut(Reply, frozen=True, kw_only=True):
    open: bool
    queues: list[str] | None
    excluded: list[str] | None
    until: Instant | None
    limited: bool
    place: bool
    reason: str


class AcquireIn(Wire, frozen=True, kw_only=True):
    worker: str
    queues: list[str] | None = None
    session: str
    permit: str | None = None


class AcquireOut(Reply, frozen=True, kw_only=True):
    open: bool
    queues: list[str] | None
    excluded: list[str] | None
    permit: str | None
    until: Instant | None
    reason: str
    reuse: float | None = None


class BindIn(Wire, frozen=True, kw_only=True):
    permit: str
    queue: str
    job: str | None = None


class PermitIn(Wire, frozen=True, kw_only=True):
    permit: str


class HeldPermit(Wire, frozen=True, kw_only=True):
    permit: str
    queue: str
    job: str | None = None


class RestoreIn(Wire, frozen=True, kw_only=True):
    worker: str
    permits: list[HeldPermit]
    session: str | None = None


class RestoreOut(Reply, frozen=True, kw_only=True):
    kept: list[str]


class PlaceInfo(Reply, frozen=True, kw_only=True):
    permit: str
    worker: str
    queue: str | None
    job: str | None
    since: Instant
    pid: int


class WaitingInfo(Reply, frozen=True, kw_only=True):
    worker: str
    since: Instant
    pid: int


class PoolInfo(Reply, frozen=True, kw_only=True):
    pool: str
    limit: int | None
    reason: str
    until: Instant | None
    taken: int
    places: list[PlaceInfo]
    waiting: list[WaitingInfo]
    elsewhere: int | None = None


class OverrideInfo(Reply, frozen=True, kw_only=True):
    rule: str
    action: Steer
    until: Instant
    note: str
    by: str
    since: Instant


class PauseInfo(Reply, frozen=True, kw_only=True):
    schedule: str
    until: Instant
    note: str
    by: str
    since: Instant


class RuleInfo(Reply, frozen=True, kw_only=True):
    rule: str
    workers: list[str]
    queues: list[str]
    open: bool
    until: Instant | None
    reason: str


class WatcherInfo(Reply, frozen=True, kw_only=True):
    worker: str
    queues: list[str] | None
    open: bool
    until: Instant | None
    reason: str
    uid: int
    gid: int
    pid: int
    since: Instant


class Span(Reply, frozen=True, kw_only=True):
    start: Instant
    end: Instant


class OddDay(Reply, frozen=True, kw_only=True):
    day: str
    what: str


class LimitSpan(Reply, frozen=True, kw_only=True):
    pool: str
    number: int
    by: str | None
    start: Instant
    end: Instant


class RuleWeek(Reply, frozen=True, kw_only=True):
    rule: str
    timezone: str
    open: list[Span]
    closed_by: list[Span]
    limits: list[LimitSpan]
    override: OverrideInfo | None
    odd: list[OddDay]


class GateInfo(Reply, frozen=True, kw_only=True):
    gate: str
    host: str
    seen: Instant
    here: bool


class StoreInfo(Reply, frozen=True, kw_only=True):
    kind: str
    url: str
    healthy: bool
    problem: str | None
    bytes: int
    round_trip: float | None = None
    skew: float | None = None
    gates: list[GateInfo] = []


class Tzdata(Reply, frozen=True, kw_only=True):
    source: str
    version: str


class Counts(Reply, frozen=True, kw_only=True):
    send: int = 0
    sent: int = 0
    held: int = 0
    doubt: int = 0
    wait: int = 0
    late: int = 0
    paused: int = 0
    observed: int = 0


class ScheduleInfo(Reply, frozen=True, kw_only=True):
    schedule: str
    title: str | None
    known_since: Instant
    at: Instant
    state: State
    by: str
    paused: str | None
    sent: int
    refused: int
    doubt: int
    missed: int
    observed: int


class OccurrenceInfo(Reply, frozen=True, kw_only=True):
    schedule: str
    title: str | None
    at: Instant
    state: State
    by: str
    reason: str
    claimed: Instant
    until: Instant
    settled: Instant | None
    grants: int


class HolderInfo(Reply, frozen=True, kw_only=True):
    holder: str
    uid: int
    gid: int
    pid: int
    since: Instant
    claims: int


class StatusIn(Wire, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=0, le=1000)] | None = None


class StatusOut(Reply, frozen=True, kw_only=True):
    version: str
    pid: int
    started: Instant
    now: Instant
    socket: str
    state: str | None
    config: str | None
    store: StoreInfo
    tzdata: Tzdata
    connections: int
    counts: Counts
    schedules: list[ScheduleInfo]
    schedules_total: int
    doubts: list[OccurrenceInfo]
    doubts_total: int
    missed: list[OccurrenceInfo]
    missed_total: int
    holders: list[HolderInfo]
    rules: list[RuleInfo]
    rules_total: int
    watchers: list[WatcherInfo]
    watchers_total: int
    overrides: list[OverrideInfo]
    pauses: list[PauseInfo]
    pools: list[PoolInfo]
    config_loaded: Instant
    config_problem: str | None
    warnings: list[str]


class HistoryIn(Wire, frozen=True, kw_only=True):
    schedule: str | None = None
    since: str | None = None
    limit: Annotated[int, Meta(ge=0, le=1000)] | None = None


class HistoryOut(Reply, frozen=True, kw_only=True):
    occurrences: list[OccurrenceInfo]


class ResendIn(Wire, frozen=True, kw_only=True):
    schedule: str
    at: str


class WhyIn(Wire, frozen=True, kw_only=True):
    worker: str
    queue: str | None = None
    at: str | None = None


class WhyOut(Reply, frozen=True, kw_only=True):
    open: bool
    until: Instant | None
    reason: str
    at: Instant
    rule: str | None
    line: str | None
    words: list[str]


class StoryIn(Wire, frozen=True, kw_only=True):
    schedule: str
    at: str | None = None


class RefusalInfo(Reply, frozen=True, kw_only=True):
    when: Instant
    at: Instant
    holder: str
    decision: Decision
    reason: str
    observed: bool


class StartInfo(Reply, frozen=True, kw_only=True):
    attempt: int
    by: str
    state: State
    began: Instant
    ended: Instant | None


class StoryOut(Reply, frozen=True, kw_only=True):
    now: Instant
    at: Instant | None
    occurrence: OccurrenceInfo | None
    refusals: list[RefusalInfo]
    starts: list[StartInfo]
    policy: str
    paused: str | None


class WeekIn(Wire, frozen=True, kw_only=True):
    rule: str | None = None
    start: str | None = None
    days: Annotated[int, Meta(ge=1, le=31)] | None = None


class WeekOut(Reply, frozen=True, kw_only=True):
    now: Instant
    start: Instant
    end: Instant
    rules: list[RuleWeek]
    rules_total: int


class OverrideIn(Wire, frozen=True, kw_only=True):
    rule: str
    action: Steer
    until: str | None = None
    note: str | None = None


class OverrideOut(Reply, frozen=True, kw_only=True):
    overrides: list[OverrideInfo]


class PauseIn(Wire, frozen=True, kw_only=True):
    schedule: str
    action: Halt
    until: str | None = None
    note: str | None = None


class PauseOut(Reply, frozen=True, kw_only=True):
    pauses: list[PauseInfo]


class ReloadOut(Reply, frozen=True, kw_only=True):
    warnings: list[str]


class GetInfoOut(Reply, frozen=True, kw_only=True):
    vendor: str
    product: str
    version: str
    url: str
    interfaces: list[str]


class GetInterfaceDescriptionIn(Wire, frozen=True, kw_only=True):
    interface: str


class GetInterfaceDescriptionOut(Reply, frozen=True, kw_only=True):
    description: str


class Method(NamedTuple):
    """What a method takes and answers."""

    takes: type[Wire]
    answers: type[Reply]


METHODS: dict[str, Method] = {
    "org.varlink.service.GetInfo": Method(Empty, GetInfoOut),
    "org.varlink.service.GetInterfaceDescription": Method(GetInterfaceDescriptionIn, GetInterfaceDescriptionOut),
    "io.schedulegate.Send.Claim": Method(ClaimIn, ClaimOut),
    "io.schedulegate.Send.Start": Method(StartIn, ClaimOut),
    "io.schedulegate.Send.Confirm": Method(TokenIn, Done),
    "io.schedulegate.Send.Release": Method(TokenIn, Done),
    "io.schedulegate.Send.Review": Method(ReviewIn, ReviewOut),
    "io.schedulegate.Send.Missed": Method(MissedIn, Done),
    "io.schedulegate.Fetch.Check": Method(CheckIn, CheckOut),
    "io.schedulegate.Fetch.Watch": Method(WatchIn, CheckOut),
    "io.schedulegate.Fetch.Acquire": Method(AcquireIn, AcquireOut),
    "io.schedulegate.Fetch.Bind": Method(BindIn, Done),
    "io.schedulegate.Fetch.Release": Method(PermitIn, Done),
    "io.schedulegate.Fetch.Restore": Method(RestoreIn, RestoreOut),
    "io.schedulegate.Control.Status": Method(StatusIn, StatusOut),
    "io.schedulegate.Control.History": Method(HistoryIn, HistoryOut),
    "io.schedulegate.Control.Resend": Method(ResendIn, Done),
    "io.schedulegate.Control.Why": Method(WhyIn, WhyOut),
    "io.schedulegate.Control.Story": Method(StoryIn, StoryOut),
    "io.schedulegate.Control.Week": Method(WeekIn, WeekOut),
    "io.schedulegate.Control.Override": Method(OverrideIn, OverrideOut),
    "io.schedulegate.Control.Pause": Method(PauseIn, PauseOut),
    "io.schedulegate.Control.Reload": Method(Empty, ReloadOut),
}
INTERFACES = tuple(dict.fromkeys(name.rpartition(".")[0] for name in METHODS))


class NotAnInstant(ValueError):
    """Not an RFC 3339 instant with a zone; the text says why."""


def instant(text: str) -> datetime:
    """Read an RFC 3339 string with a zone as an aware UTC datetime; raises NotAnInstant."""
    try:
        value = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        raise NotAnInstant(f"{text!r} is not an RFC 3339 instant such as 2026-11-30T12:00:00Z") from None
    if value.tzinfo is None:
        raise NotAnInstant(f"{text!r} has no zone: write 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00")
    return _in_utc(value, text)


def rfc3339(value: datetime) -> str:
    """Write an aware datetime as RFC 3339 in UTC; raises NotAnInstant for a naive one."""
    if value.tzinfo is None:
        raise NotAnInstant(f"{value!r} has no zone: give it one, such as tzinfo=datetime.UTC")
    return _in_utc(value, value.isoformat()).isoformat().replace("+00:00", "Z")


def _in_utc(value: datetime, shown: str) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise NotAnInstant(f"{shown!r} is outside the years 1 to 9999 in UTC") from None
