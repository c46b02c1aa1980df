"""What this source's schedules have lost, and which of it is offered to taskiq's loop again.

taskiq looks at the present minute only, forgets what ran when its source fails for a moment, and has no hook for a
send that fails. So each time that it lists its schedules, the gate is asked what it has records of: what matches, is
over and has none was missed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from taskiq import ScheduledTask
from taskiq.cli.scheduler.run import is_cron_task_now

from gate.errors import GateError, MethodNotFound
from gate.interface import CatchUp, Reviewed, rfc3339
from gate_client import AsyncGate
from taskiq_gate import identity
from taskiq_gate.asking import Limits, Question
from taskiq_gate.missing import NEWEST, Missing, begin
from taskiq_gate.occurrence import MINUTE, Matches, Trigger, floor, whole_minutes
from taskiq_gate.offers import Offer, trigger_of
from taskiq_gate.review import Loss, review, tell_missed
from taskiq_gate.sends import Sends

log = logging.getLogger("taskiq_gate")

About = TypeVar("About")
What = TypeVar("What")

OFFERS = 60
"""How much is offered in one listing, over all schedules."""
LOOKS = 10_000
"""How many minutes of all schedules are looked at in one listing, or two for each schedule if that is more."""
LOOKS_AT_ONCE = 200
"""And how many before the event loop has its turn: some milliseconds."""
REMEMBERED = 10_000
"""Of what was to be asked for while the gate was away."""
UNSENT = "nobody asked for it in its minute"
TOO_OLD = "it is older than catch_up_within"
NEVER = datetime(1970, 1, 1, tzinfo=UTC)

POLICIES = {
    CatchUp.NONE: "catch_up is none",
    CatchUp.LATEST: "catch_up is latest, and there is a later one",
    CatchUp.ALL: f"catch_up is all, of the newest {NEWEST} within catch_up_within",
}


class Recovery:
    """Remembers what could not be asked for, finds what was missed, and says what to offer again."""

    def __init__(self, name: str, limits: Limits, sends: Sends, clock: Callable[[], datetime]) -> None:
        self.name = name
        self._limits = limits
        self._clock = clock
        self._sends = sends
        sends.lost = self.not_sent
        self._missing: dict[str, Missing] = {}
        """By key."""
        self._problems: dict[tuple[str, datetime], str] = {}
        """Why this process did not send a minute."""
        self._pending: dict[tuple[str, bool], Offer] = {}
        """One-offs and intervals that wait, or were not sent; by key and whether it is the one-off."""
        self._untold: dict[tuple[str, datetime | None], Question] = {}
        """What was sent without the gate."""
        self._tries: dict[tuple[str, Trigger], int] = {}
        """How often each thing that is still to be sent was offered."""
        self._unreadable: set[str] = set()
        self._away = False

    # ---- what the hooks tell

    def not_sent(self, question: Question, why: str) -> None:
        """It was not sent: the gate was away, or the broker. taskiq has no further tick for a one-off."""
        trigger = question.trigger
        if trigger.every is None and not trigger.once:
            if trigger.at is not None:
                _remember(self._problems, (question.key, trigger.at), why)
            return
        self._pend(question, self._clock(), why)

    def answered(self, question: Question) -> None:
        """The gate has decided."""
        self._pending.pop((question.key, question.trigger.once), None)

    def waits(self, question: Question, until: datetime, why: str) -> None:
        """It is not due yet. A cron has its next minute for that, or is found to have missed this one."""
        trigger = question.trigger
        if trigger.every is not None or trigger.once:
            self._pend(question, until, why)

    def _pend(self, question: Question, until: datetime, why: str) -> None:
        key, trigger = question.key, question.trigger
        self._pending[key, trigger.once] = Offer(key=key, trigger=trigger, reason=why, time=until)

    def sent_unasked(self, question: Question) -> None:
        """It was sent without the gate, which shall know of it."""
        _remember(self._untold, (question.key, question.trigger.at), question)

    # ---- at each listing

    async def offers(self, gate: AsyncGate, schedules: Mapping[str, ScheduledTask]) -> list[Offer]:
        """What is to be sent besides the schedules themselves (by key). A gate that is away changes nothing."""
        self._forget(schedules)
        try:
            async with asyncio.timeout(self._limits.listing):
                await self._tell_what_was_sent(gate)
                gates_now, reviews = await review(gate, self.name, schedules, self._looked, self._limits.timeout)
        except (GateError, TimeoutError) as error:
            self._warn(error)
            return [offer for offer in self._pending.values() if offer.time > self._clock()]
        self._away = False
        now = min(gates_now, self._clock())
        known = {key: schedules[key] for key in reviews if key in schedules}
        searched = await self._search(known, reviews, now)
        await self._tell_what_was_missed(gate, known, reviews, searched)
        waiting = [offer for offer in self._pending.values() if offer.time > now]
        late = [offer for offer in self._pending.values() if offer.time <= now]
        return [*waiting, *self._chosen([*late, *self._lost(known, reviews, searched, now)])]

    def _looked(self, key: str) -> datetime:
        missing = self._missing.get(key)
        return NEVER if missing is None else missing.looked

    async def _tell_what_was_sent(self, gate: AsyncGate) -> None:
        for about, question in list(self._untold.items()):
            trigger = question.trigger
            claim = await gate.claim(
                question.key, trigger.at, once=trigger.once or None, every=trigger.every, title=question.title
            )
            if claim.granted:
                await claim.confirm()
            self._untold.pop(about, None)

    async def _search(
        self, schedules: Mapping[str, ScheduledTask], reviews: Mapping[str, Reviewed], now: datetime
    ) -> list[str]:
        """Look for missed minutes; gives the keys of the schedules that all was found of that may be sent."""
        keys = [key for key, schedule in schedules.items() if schedule.cron is not None]
        searched: list[str] = []
        turns = _Turns(max(LOOKS, 2 * len(keys)))  # a minute goes by between two listings
        for key in keys:
            known = set(reviews[key].known)
            missing = self._begun(key, schedules[key], reviews[key], known, now)
            # What is being asked for here has no record yet, and is not missed.
            asked_for = {at for at in self._sends.minutes(key) - known if at >= missing.end}
            until = min([floor(now), *asked_for])
            look = partial(missing.look, _matches(schedules[key]), known, until)
            if await self._look(turns, schedules[key], (until - missing.end) // MINUTE, look):
                searched.append(key)
        for key in searched:
            missing = self._missing[key]
            look = partial(missing.look_in_gaps, _matches(schedules[key]), set(reviews[key].known))
            await self._look(turns, schedules[key], missing.left_in_gaps, look)
        return searched

    async def _look(self, turns: "_Turns", schedule: ScheduledTask, minutes: int, look: Callable[[int], int]) -> bool:
        """Look at so many minutes, or as many as there are turns for; gives whether that was all."""
        while minutes > 0 and turns.left > 0:
            try:
                looked = look(min(turns.at_once, turns.left))
            except Exception as error:  # noqa: BLE001 - taskiq's cron code raises many things
                self._warn_of_cron(schedule, error)
                break
            minutes -= looked
            await turns.took(looked)
        return minutes <= 0

    def _begun(
        self, key: str, schedule: ScheduledTask, reviewed: Reviewed, known: set[datetime], now: datetime
    ) -> Missing:
        trigger, since, back = identity.trigger_text(schedule), reviewed.since, reviewed.back
        self._missing[key] = missing = begin(self._missing.get(key), trigger, since, known, now, back)
        return missing

    async def _tell_what_was_missed(
        self,
        gate: AsyncGate,
        schedules: Mapping[str, ScheduledTask],
        reviews: Mapping[str, Reviewed],
        searched: Iterable[str],
    ) -> None:
        losses = [loss for key in searched for loss in self._losses(key, schedules[key], reviews[key].catch_up)]
        try:
            async with asyncio.timeout(self._limits.listing):
                told = await tell_missed(gate, losses, self._limits.timeout)
        except TimeoutError:
            return
        for loss, refused in told:
            self._missing[loss.key].missed(loss.span)
            if refused is None:
                log.warning("%s was missed: %s", loss, loss.reason)
            else:
                log.error("%s was missed, but the gate does not take it: %s", loss, refused)

    def _losses(self, key: str, schedule: ScheduledTask, catch_up: CatchUp) -> Iterator[Loss]:
        """What will not be sent, oldest first: the gate takes what lies before a span for dealt with."""
        missing, title = self._missing[key], identity.title(schedule)
        for old in missing.too_old():
            yield Loss(key=key, title=title, span=old, reason=f"{UNSENT}; {TOO_OLD}")
        if not missing.gaps and (span := missing.to_miss(catch_up)) is not None:
            why = f"{self._problems.get((key, span.last), UNSENT)}; {POLICIES[catch_up]}"
            yield Loss(key=key, title=title, span=span, reason=why)

    # ---- what to offer

    def _lost(
        self,
        schedules: Mapping[str, ScheduledTask],
        reviews: Mapping[str, Reviewed],
        searched: Iterable[str],
        now: datetime,
    ) -> Iterable[Offer]:
        """All that can be sent now of what was not."""
        for key, schedule in schedules.items():
            if reviews[key].paused is not None:
                continue
            newest = max(reviews[key].known, default=None)
            for again in reviews[key].again:
                trigger = trigger_of(schedule, again.at)
                # An interval that has a later record has gone on.
                if trigger is not None and (trigger.every is None or again.at == newest):
                    yield Offer(key=key, trigger=trigger, reason=again.reason, time=now)
        for key in searched:
            if reviews[key].paused is None:
                for at in self._missing[key].to_offer(reviews[key].catch_up):
                    yield Offer(key=key, trigger=Trigger(at=at), reason=self._problems.get((key, at), UNSENT), time=now)

    def _chosen(self, offers: Iterable[Offer]) -> list[Offer]:
        """What was offered least often comes first, of that the oldest."""
        busy = self._sends.offered()  # an offer that hangs is not followed by more
        found = {(offer.key, offer.trigger): offer for offer in offers}
        free = [offer for offer in found.values() if offer.key not in busy]
        free.sort(key=lambda offer: (self._tries.get((offer.key, offer.trigger), 0), offer.trigger.at or offer.time))
        chosen = free[:OFFERS]
        tries = {about: self._tries[about] for about in found if about in self._tries}
        for offer in chosen:
            tries[offer.key, offer.trigger] = tries.get((offer.key, offer.trigger), 0) + 1
            at = "" if offer.trigger.at is None else f" at {rfc3339(offer.trigger.at)}"
            log.info("%s%s is offered again: %s", offer.key, at, offer.reason)
        self._tries = tries
        return chosen

    # ---- the rest

    def _forget(self, schedules: Mapping[str, ScheduledTask]) -> None:
        """What is not listed any more."""
        self._missing = {key: missing for key, missing in self._missing.items() if key in schedules}
        self._pending = {about: offer for about, offer in self._pending.items() if about[0] in schedules}

    def _warn(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            level = logging.INFO if isinstance(error, MethodNotFound) else logging.WARNING
            why = str(error) or f"no answers within {self._limits.listing:g} s"
            log.log(level, "%s: what was missed is not known: %s", self.name, why)

    def _warn_of_cron(self, schedule: ScheduledTask, error: Exception) -> None:
        text = f"{schedule.task_name} {schedule.cron}"
        if text not in self._unreadable:
            self._unreadable.add(text)
            log.error(
                "%s: taskiq cannot read the cron %r of %s, and never sends it: %r",
                self.name,
                schedule.cron,
                schedule.task_name,
                error,
            )


class _Turns:
    """How many minutes may still be looked at: `left` in this listing, `at_once` before the event loop has its turn."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.at_once = LOOKS_AT_ONCE

    async def took(self, count: int) -> None:
        self.left -= count
        self.at_once -= count
        if self.at_once <= 0:
            await asyncio.sleep(0)
            self.at_once = LOOKS_AT_ONCE


def _matches(schedule: ScheduledTask) -> Matches:
    cron, offset = schedule.cron or "", schedule.cron_offset
    shift = offset if isinstance(offset, timedelta) else timedelta(0)
    return whole_minutes(lambda instant: is_cron_task_now(cron, instant, offset), shift)


def _remember(memory: dict[About, What], about: About, what: What) -> None:
    memory[about] = what
    while len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
