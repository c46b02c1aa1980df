"""Review and Missed: what schedulers list, and what they may have missed of it.

Listings belong to the thread of the store: they are read and changed there, next to what the store keeps of them.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol

from gate import claims, errors, ledger, listings
from gate.engine import Engine, Request
from gate.interface import (
    Again,
    CatchUp,
    Done,
    MissedIn,
    Reply,
    Reviewed,
    ReviewIn,
    ReviewOut,
    State,
)
from gate.ledger import REASONS, Change, Event, Occurrence
from gate.listings import Listing, Rounds
from gate.masks import HORIZON_DAYS
from gate.rules import Paused, SendPolicy
from gate.stores.base import Step, Store

log = logging.getLogger("gate.send")

LISTING, ROUND = "listing", "round"
"""Kinds of notes: one listing for each schedule, and the rounds whose end is to come."""
SOURCE_BYTES = 512
ROUND_BYTES = 128
TRIGGER_BYTES = 512
SCHEDULES = 100
"""How many schedules a call may list."""
KNOWN = 2_000
"""How many occurrences of a schedule an answer names."""
UNSENT = 1_000
"""How many occurrences that were not sent are looked at, to find those to be offered again."""
AGAIN = 100
"""How many of a schedule are offered again at a time."""


class Large(Protocol):
    """Answers with something large: `start` begins to make it, and `reply` makes the answer of its outcome."""

    def __call__(
        self, request: Request, start: Callable[[Callable[[Any], None]], None], reply: Callable[[Any], Reply]
    ) -> None: ...


class Question(NamedTuple):
    """One schedule of a review, and what the configuration says of it."""

    schedule: str
    policy: SendPolicy
    paused: Paused | None


class Reviews:
    """Serves `io.schedulegate.Send.Review` and `Missed`. `store` is only used here while there is no thread yet."""

    def __init__(self, engine: Engine, store: Store, large: Large, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._large = large
        self._now = now
        self._listings = listings.from_notes(store.notes(LISTING))
        in_part = store.notes(ROUND)
        self._rounds = Rounds(in_part)
        if in_part:
            store.put_notes(ROUND, dict.fromkeys(in_part))

    def read_again(self, store: Store) -> None:
        """Read what is listed, in the thread of the store: schedulers of other hosts list at their own gates."""
        self._listings = listings.from_notes(store.notes(LISTING))

    # -- Review

    def review(self, request: Request, asked: ReviewIn) -> None:
        """Remember what is listed, and answer what may have been missed of it."""
        try:
            _check(asked)
        except errors.InvalidClaim as error:
            request.fail(error)
            return
        engine, now = self._engine, self._now()
        names = dict.fromkeys(listed.schedule for listed in asked.schedules)
        questions = [Question(name, engine.policy(name), engine.paused(name, now)) for name in names]
        query = partial(self._review, asked, questions)
        self._large(request, partial(engine.query, query), lambda answer: answer)

    def _review(self, asked: ReviewIn, questions: list[Question], store: Store) -> ReviewOut:
        now = store.now()
        self._listed(asked, store, now)
        looking = {listed.schedule for listed in asked.schedules if listed.looked is not None}
        answers = [self._answer(one, store, now, looking=one.schedule in looking) for one in questions]
        return ReviewOut(now=now, reviews=answers)

    def _listed(self, asked: ReviewIn, store: Store, now: datetime) -> None:
        self._write(listings.listed(self._listings, asked.source, asked.schedules, now), store)
        key = listings.round_key(asked.source, asked.round)
        begun = key in self._rounds
        if begun is asked.last:  # of a round in several calls, its beginning and its end are written down
            store.put_notes(ROUND, {key: None if asked.last else b""})
        names = self._rounds.add(key, (listed.schedule for listed in asked.schedules), now, last=asked.last)
        if names is not None:
            self._write(listings.left_out(self._listings, asked.source, names), store)

    def _write(self, changes: dict[str, Listing] | dict[str, None], store: Store) -> None:
        if not changes:
            return
        store.put_notes(LISTING, listings.to_notes(changes))
        for name, listing in changes.items():
            if listing is None:
                del self._listings[name]
            else:
                self._listings[name] = listing

    def _answer(self, question: Question, store: Store, now: datetime, *, looking: bool) -> Reviewed:
        name, policy, paused = question
        listing = self._listings.get(name)
        if policy.mode == "observe" or listing is None:
            catch_up, again = CatchUp.NONE, []
        else:
            catch_up, again = (
                policy.catch_up,
                _again(store.unsent(name, store.horizon(now), UNSENT), listing, policy, now),
            )
        horizon = store.horizon(now)
        since = (
            now if listing is None else max(now - timedelta(seconds=policy.catch_up_within), horizon, listing.looked)
        )
        back = max(horizon, listing.looked) if looking and listing is not None else since
        known = store.known(name, back, KNOWN)
        if len(known) == KNOWN:  # of what lies before them, nothing is said
            since, back = max(since, known[-1]), known[-1]
        until = None
        if paused is not None and policy.mode == "enforce":
            until = paused.until or now + timedelta(days=HORIZON_DAYS)
        return Reviewed(
            schedule=name,
            catch_up=catch_up,
            since=since,
            known=known[::-1],
            again=again,
            paused=until,
            back=back if back < since else None,
        )

    # -- Missed

    def missed(self, request: Request, asked: MissedIn) -> None:
        """Record what was missed."""
        try:
            miss = claims.miss(asked, self._now())
        except errors.InvalidClaim as error:
            request.fail(error)
            return
        request.caller.holder = miss.holder
        many = asked.first is not None
        self._engine.query(partial(self._miss, miss, many), partial(self._was_missed, request, miss))

    def _miss(self, miss: claims.Miss, many: bool, store: Store) -> Change | Exception:
        (outcome,) = store.apply([Step(None, miss.schedule, miss.at, partial(ledger.missed, miss))])
        listing = self._listings.get(miss.schedule)
        if many and listing is not None and listing.looked <= miss.at:
            self._write({miss.schedule: listing.dealt_with(miss.at)}, store)
        return outcome

    def _was_missed(self, request: Request, miss: claims.Miss, outcome: Change | Exception) -> None:
        if isinstance(outcome, Exception):
            self._engine.failed(request, outcome)
            return
        if outcome.occurrence is not None:
            self._engine.tallies.missed(miss.schedule, miss.count)
            extra = {"schedule": miss.schedule, "at": miss.at, "by": miss.holder}
            log.warning("missed: %s", miss.reason, extra=extra)
        request.reply(Done())


def _check(asked: ReviewIn) -> None:
    claims.check_text("source", asked.source, SOURCE_BYTES)
    claims.check_text("round", asked.round, ROUND_BYTES)
    if len(asked.schedules) > SCHEDULES:
        reason = f"{len(asked.schedules)} are given, at most {SCHEDULES} are allowed: list them in several calls"
        raise errors.InvalidClaim(field="schedules", reason=reason)
    for index, listed in enumerate(asked.schedules):
        place = f"schedules[{index}]"
        claims.check_text(f"{place}.schedule", listed.schedule, claims.SCHEDULE_BYTES)
        claims.check_text(f"{place}.trigger", listed.trigger, TRIGGER_BYTES)
        if listed.looked is not None:
            claims.check_instant(f"{place}.looked", listed.looked)


def _again(unsent: list[Occurrence], listing: Listing, policy: SendPolicy, now: datetime) -> list[Again]:
    """What is to be offered again, the newest of it, in the order of time."""
    within = now - timedelta(seconds=policy.catch_up_within)
    began = listing.since.replace(second=0, microsecond=0)  # the minute in which it began may be claimed too
    found: list[Again] = []
    for record in unsent:
        if record.state is State.DOUBT and policy.on_doubt == "skip":
            continue
        if policy.deadline is not None and now > record.at + timedelta(seconds=policy.deadline):
            continue
        ordered = record.reason == REASONS[Event.RESEND] and record.touched >= within  # however old it is
        if ordered or record.at >= max(within, began):
            found.append(Again(at=record.at, reason=record.reason))
    return found[:AGAIN][::-1]
