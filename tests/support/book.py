"""A ledger to play with: a store, a clock that the test moves, and the calls of the Send interface as functions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from msgspec.structs import replace

from gate import claims, errors, ledger
from gate.interface import ClaimIn, ClaimOut, Decision, MissedIn, rfc3339
from gate.ledger import Change, Event, Occurrence, View
from gate.rules import DEFAULT_POLICY, Paused, SendPolicy
from gate.stores.base import Step, Store
from gate.stores.memory import MemoryStore

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
KEEP = 14 * 86_400.0
RESEND = SendPolicy(on_doubt="resend")
_tokens = count()


class ManualClock:
    """Stands still until it is moved; `move` takes seconds or a timedelta, back as well."""

    def __init__(self, start: datetime = NOON) -> None:
        self.time = start

    def now(self) -> datetime:
        return self.time

    def move(self, by: float | timedelta) -> None:
        self.time += by if isinstance(by, timedelta) else timedelta(seconds=by)


def claim_step(
    schedule: str,
    at: datetime | None,
    token: str,
    policy: SendPolicy = DEFAULT_POLICY,
    *,
    paused: Paused | None = None,
    **fields: Any,
) -> Step:
    """The step of a claim, as the engine makes it."""
    asked = ClaimIn(
        schedule=schedule,
        holder=fields.pop("holder", f"holder of {token}"),
        at=None if at is None else rfc3339(at),
        token=token,
        **fields,
    )
    ask = replace(claims.ask(asked, token, policy), paused=paused)
    return Step(token, schedule, ask.at, partial(ledger.claim, ask))


def settle_step(event: Event, token: str) -> Step:
    """The step that confirms, releases or loses the claim of a token."""
    return Step(token, None, None, partial(ledger.settle, event, token))


def resend_step(schedule: str, at: datetime) -> Step:
    """The step of an operator's resend."""
    return Step(None, schedule, at, partial(ledger.resend, schedule, at))


def missed_step(schedule: str, at: datetime, now: datetime, **fields: Any) -> Step:
    """The step of a report that an occurrence was missed."""
    reported = MissedIn(
        schedule=schedule,
        holder=fields.pop("holder", "a scheduler"),
        at=rfc3339(at),
        reason="nobody asked in its minute",
        **fields,
    )
    return Step(None, schedule, at, partial(ledger.missed, claims.miss(reported, now)))


def look(found: list[View]) -> Callable[[View, datetime], Change]:
    """A decision that changes nothing and keeps what it saw."""

    def decide(view: View, now: datetime) -> Change:
        found.append(view)
        return Change(errors.UnknownToken(token="only looking"))

    return decide


class Book:
    """A store and its clock."""

    def __init__(self, store: Store, clock: ManualClock, policy: SendPolicy = DEFAULT_POLICY) -> None:
        self.store = store
        self.clock = clock
        self.policy = policy

    @classmethod
    def in_memory(cls, policy: SendPolicy = DEFAULT_POLICY, keep: float = KEEP) -> "Book":
        clock = ManualClock()
        return cls(MemoryStore(clock, keep), clock, policy)

    def change(self, step: Step) -> Change:
        """Apply one step."""
        (outcome,) = self.store.apply([step])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def answer(self, schedule: str, at: datetime | None = NOON, token: str | None = None, **fields: Any) -> ClaimOut:
        """Claim; raises what the answer would be as an error. Without a token it has one of its own."""
        policy = fields.pop("policy", self.policy)
        answer = self.change(claim_step(schedule, at, token or f"auto-{next(_tokens)}", policy, **fields)).answer
        if isinstance(answer, errors.CallError):
            raise answer
        assert isinstance(answer, ClaimOut)
        return answer

    def claim(self, schedule: str, at: datetime | None = NOON, token: str | None = None, **fields: Any) -> Decision:
        """The decision of `answer`."""
        return self.answer(schedule, at, token, **fields).decision

    def settle(self, event: Event, token: str) -> Change:
        """Confirm, release or lose; raises UnknownToken."""
        change = self.change(settle_step(event, token))
        if isinstance(change.answer, errors.CallError):
            raise change.answer
        return change

    def confirm(self, token: str) -> Change:
        return self.settle(Event.CONFIRM, token)

    def release(self, token: str) -> Change:
        return self.settle(Event.RELEASE, token)

    def lose(self, token: str) -> Change:
        return self.settle(Event.LOST, token)

    def resend(self, schedule: str, at: datetime = NOON) -> Change:
        """An operator's resend; raises NotInDoubt."""
        change = self.change(resend_step(schedule, at))
        if isinstance(change.answer, errors.CallError):
            raise change.answer
        return change

    def miss(self, schedule: str, at: datetime = NOON, **fields: Any) -> Change:
        """Report that an occurrence was missed."""
        return self.change(missed_step(schedule, at, self.clock.now(), **fields))

    def view(self, schedule: str | None, at: datetime | None = None, token: str | None = None) -> View:
        """What a step that names these would see."""
        found: list[View] = []
        self.store.apply([Step(token, schedule, at, look(found))])
        return found[0]

    def record(self, schedule: str, at: datetime = NOON) -> Occurrence | None:
        """The record of one occurrence."""
        return self.view(schedule, at).occurrence
