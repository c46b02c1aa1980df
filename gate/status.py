"""The parts of a status, as they go over the wire."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from msgspec.structs import replace

from gate import errors, interface
from gate.engine import Engine
from gate.fetch import Group, Watcher
from gate.fetchrules import RuleState
from gate.reactor import Connection
from gate.rules import Paused
from gate.stores.base import Listed, SharedStore, Sign, Store, Titled
from gate.tallies import Tally

DOUBTS_SHOWN = 1000
MISSED_SHOWN = 1000


class Lists(NamedTuple):
    """What a status asks of the store, or why there is no answer."""

    now: datetime
    size: int = 0
    schedules_total: int = 0
    schedules: Sequence[Listed] = ()
    doubts_total: int = 0
    doubts: Sequence[Titled] = ()
    missed_total: int = 0
    missed: Sequence[Titled] = ()
    problem: str | None = None


def lists(limit: int, store: Store) -> Lists:
    """Ask the store, in its thread; `limit`: how many schedules."""
    try:
        doubts, missed = store.doubts(DOUBTS_SHOWN), store.missed(MISSED_SHOWN)
        return Lists(store.now(), store.size(), *store.schedules(limit), *doubts, *missed)
    except errors.StoreError as error:  # when the store is away, a status is what people look at
        return Lists(store.now(), problem=str(error))


def store_info(store: Store, gates: Mapping[str, Sign], size: int, problem: str | None) -> interface.StoreInfo:
    """The store, and the gates that share it."""
    about = interface.StoreInfo(kind=store.kind, url=store.url, healthy=problem is None, problem=problem, bytes=size)
    if not store.shared:
        return about
    shared = cast("SharedStore", store)
    signs = sorted(gates.items(), key=lambda one: (one[1].host, one[0]))
    known = [
        interface.GateInfo(gate=gate, host=sign.host, seen=sign.at, here=gate == shared.gate) for gate, sign in signs
    ]
    return replace(about, round_trip=shared.round_trip, skew=shared.skew, gates=known)


def counts(engine: Engine) -> interface.Counts:
    """All answers to claims."""
    answered = {decision.value: count for decision, count in engine.counts.items()}
    return interface.Counts(**answered, observed=engine.observed)


def schedule_info(listed: Listed, tally: Tally, paused: Paused | None) -> interface.ScheduleInfo:
    """A schedule and its newest occurrence, as they go over the wire."""
    schedule, newest = listed
    return interface.ScheduleInfo(
        schedule=schedule.name,
        title=schedule.title,
        known_since=schedule.known_since,
        at=schedule.newest,
        state=newest.state,
        by=newest.holder,
        paused=None if paused is None else paused.reason,
        sent=tally.sent,
        refused=tally.refused,
        doubt=tally.doubt,
        missed=tally.missed,
        observed=tally.observed,
    )


def occurrence_info(titled: Titled) -> interface.OccurrenceInfo:
    """An occurrence, as it goes over the wire."""
    record = titled.occurrence
    return interface.OccurrenceInfo(
        schedule=record.schedule,
        title=titled.title,
        at=record.at,
        state=record.state,
        by=record.holder,
        reason=record.reason,
        claimed=record.claimed,
        until=record.until,
        settled=record.settled,
        grants=record.grants,
    )


def holder_info(connection: Connection) -> interface.HolderInfo:
    """A connection that has asked for a claim."""
    return interface.HolderInfo(
        holder=connection.holder or "",
        uid=connection.uid,
        gid=connection.gid,
        pid=connection.pid,
        since=connection.since,
        claims=len(connection.claims),
    )


def rule_info(state: RuleState) -> interface.RuleInfo:
    """A rule and what it says."""
    assert state.rule is not None  # it is the state of a rule
    return interface.RuleInfo(
        rule=state.rule.name,
        workers=list(state.rule.workers),
        queues=list(state.rule.queues),
        open=state.open,
        until=state.until,
        reason=state.reason,
    )


def watcher_info(watcher: Watcher, group: Group) -> interface.WatcherInfo:
    """A connection that watches, and the answer that it has."""
    return interface.WatcherInfo(
        worker=group.worker,
        queues=None if group.queues is None else list(group.queues),
        open=group.answer.open,
        until=group.answer.until,
        reason=group.answer.reason,
        uid=watcher.uid,
        gid=watcher.gid,
        pid=watcher.pid,
        since=watcher.since,
    )
