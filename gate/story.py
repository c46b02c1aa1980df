"""The story of one occurrence: what the ledger knows of it, and who was refused it."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gate import durations, interface, starts
from gate.claims import stands_since
from gate.interface import CatchUp, Done, State
from gate.ledger import Change, Occurrence, View
from gate.rules import SendPolicy
from gate.stores.base import Step, Store, Titled
from gate.tallies import Refusal

ATTEMPTS_TOLD = 10
"""Of how many attempts of a task the starts are told."""
LATER = 10_000
"""How many later records are looked through for one that stands for an occurrence too."""
REFUSALS_TOLD = 20
"""How many refusals are told, the last ones."""


class Found(NamedTuple):
    """What the ledger knows. `at`: the instant that was asked for, else the newest of the schedule, if there is one.
    `known`: its record, or that of a later one that stands for it too. `starts`: of its task, by attempt.
    """

    at: datetime | None
    known: Titled | None
    starts: Mapping[int, Occurrence]


def look_up(schedule: str, at: datetime | None, store: Store) -> Found:
    """Look at one occurrence, in the thread of the store; raises StoreError."""
    (view,) = _views([schedule], at, store)
    if view.schedule is None:
        return Found(at, None, {})
    record: Occurrence | None = view.occurrence
    if record is None and at is not None:
        record = _standing_for(schedule, at, store)
    known = None if record is None else Titled(view.schedule.title, record)
    found = at or view.schedule.newest
    names = [starts.name(schedule, attempt) for attempt in range(ATTEMPTS_TOLD)]
    begun = [each.occurrence for each in _views(names, found, store)]
    return Found(found, known, {attempt: one for attempt, one in enumerate(begun) if one is not None})


def _standing_for(schedule: str, at: datetime, store: Store) -> Occurrence | None:
    """The record of occurrences that were missed together, among them this one."""
    later = store.known(schedule, at, LATER)
    if not later or len(later) == LATER:
        return None
    (view,) = _views([schedule], later[-1], store)
    record = view.occurrence
    if record is None or record.state is not State.MISSED:
        return None
    since = stands_since(record.reason)
    return record if since is not None and since <= at else None


def _views(schedules: Iterable[str], at: datetime | None, store: Store) -> list[View]:
    """What the store knows of one instant of each schedule."""
    seen: list[View] = []

    def look(view: View, _: datetime) -> Change:
        seen.append(view)
        return Change(Done())

    steps = [Step(None, name, at, look) for name in schedules]
    store.apply(steps)
    return seen[-len(steps) :]  # a store may decide more than once


def start_info(attempt: int, record: Occurrence) -> interface.StartInfo:
    """A start of its task, as it goes over the wire."""
    by = starts.who(record.holder)
    return interface.StartInfo(attempt=attempt, by=by, state=record.state, began=record.claimed, ended=record.settled)


def refusal_info(refusal: Refusal) -> interface.RefusalInfo:
    """A refusal, as it goes over the wire."""
    return interface.RefusalInfo(
        when=refusal.when,
        at=refusal.at,
        holder=refusal.holder,
        decision=refusal.decision,
        reason=refusal.reason,
        observed=refusal.observed,
    )


def told(refusals: Sequence[Refusal]) -> list[interface.RefusalInfo]:
    """The last of them."""
    return [refusal_info(refusal) for refusal in refusals[-REFUSALS_TOLD:]]


def policy_words(policy: SendPolicy) -> str:
    """What the configuration says of a schedule."""
    words = [f"on_doubt {policy.on_doubt}", f"catch_up {policy.catch_up.value}"]
    if policy.catch_up is not CatchUp.NONE:
        words[-1] += f" within {durations.text(policy.catch_up_within)}"
    if policy.deadline is not None:
        words.append(f"deadline {durations.text(policy.deadline)}")
    return ", ".join([*words, f"mode {policy.mode}"])
