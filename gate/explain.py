"""Why, in words: which rule decides, which of its lines says so, and when that changes."""

from collections.abc import Iterable
from datetime import datetime

from gate import durations
from gate.asked import check_names
from gate.calendars import FIRST_YEAR, LAST_YEAR, Zone
from gate.errors import InvalidParameter, InvalidWorker
from gate.fetchrules import FetchRules, RuleState, WhyVerdict
from gate.hours import Entry
from gate.interface import NotAnInstant, WhyIn, WhyOut, instant
from gate.overrides import Overrides
from gate.wallclock import dated, spoken

STATES = 5
"""How many rules are told of where all queues were asked for."""


def why(rules: FetchRules, overrides: Overrides, asked: WhyIn, now: datetime) -> WhyOut:
    """The answer to Why; raises InvalidWorker and InvalidParameter."""
    check_names(asked.worker, None if asked.queue is None else [asked.queue])
    at = _at(asked.at, now)
    verdict = rules.why(asked.worker, asked.queue, at, overrides.as_of(at, now))
    return WhyOut(
        open=verdict.open,
        until=verdict.until,
        reason=verdict.reason,
        at=at,
        rule=verdict.rule,
        line=verdict.line,
        words=words(verdict, asked.worker, asked.queue, at, now, rules),
    )


def _at(text: str | None, now: datetime) -> datetime:
    """The instant that was asked for. Hours are known for some years only, and datetime ends with year 9999."""
    if text is None:
        return now
    try:
        at = instant(text)
    except NotAnInstant:
        raise InvalidParameter(parameter="at") from None
    if not FIRST_YEAR <= at.year <= LAST_YEAR:
        raise InvalidWorker(field="at", reason=f"{text!r} is not within {FIRST_YEAR} to {LAST_YEAR}")
    return at


def words(
    verdict: WhyVerdict, worker: str, queue: str | None, at: datetime, now: datetime, rules: FetchRules
) -> list[str]:
    """The answer to Why, line by line, the answer itself first. Times are local ones of the deciding rule's zone.

    `at`: the instant that was asked for. `now`: that from which "today" is seen.
    """
    zone = _zone(verdict.states[0], rules)
    asked = f"worker {worker}, {'all queues' if queue is None else f'queue {queue}'}"
    told = [f"{_open(verdict.open)} at {dated(at, zone.info)} {zone.key} for {asked}"]
    if queue is None:
        told += [state.reason for state in verdict.states[:STATES]]
        if (more := len(verdict.states) - STATES) > 0:
            told.append(f"and {more} more rules: ask for one queue")
    else:
        told += _rule(verdict.states[0])
    return [*told, _change(verdict, now, zone)]


def _rule(state: RuleState) -> list[str]:
    """What decides, and all that the file says in it."""
    rule = state.rule
    if rule is None:
        return [state.reason]
    told = [
        state.reason,
        f"rule {rule.name} is the first that covers it: workers {', '.join(rule.workers)}; "
        f"queues {', '.join(rule.queues)}",
        f"open: {'always' if rule.open is None else _entries(rule.open)}",
    ]
    if rule.closed:
        told.append(f"closed: {_entries(rule.closed)}")
    if rule.last_start:
        told.append(f"last start: {durations.text(rule.last_start * 60.0)} before it closes")
    if state.override is not None:
        told.append("an override beats these hours until it ends")
    return told


def _entries(entries: Iterable[Entry]) -> str:
    return ", ".join(map(str, entries))


def _change(verdict: WhyVerdict, now: datetime, zone: Zone) -> str:
    if verdict.until is None:
        return "nothing is known to change this"
    then = f", then {_open(not verdict.open)}" if len(verdict.states) == 1 else ""
    return f"next change: {spoken(verdict.until, now, zone.info)} {zone.key}{then}"


def _zone(state: RuleState, rules: FetchRules) -> Zone:
    """That of the deciding rule; that of the file where there is none."""
    return rules.zone if state.rule is None else rules.timetables[state.rule.name].zone


def _open(is_open: bool) -> str:
    return "open" if is_open else "closed"
