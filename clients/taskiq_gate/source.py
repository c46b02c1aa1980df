"""The wrapper around a schedule source of taskiq."""

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from taskiq import ScheduledTask, ScheduleSource
from taskiq.cli.scheduler.run import is_cron_task_now, to_tz_aware
from taskiq.exceptions import ScheduledTaskCancelledError

from gate.errors import GateError
from gate.interface import Decision
from gate_client import AsyncClaim, AsyncGate
from taskiq_gate import identity
from taskiq_gate.asking import Limits, Question, decide
from taskiq_gate.listing import ClockWatch, Listing, finished
from taskiq_gate.occurrence import Asked, NoOccurrence, Trigger, trigger
from taskiq_gate.offers import OfferedTask, StandIn, renamed, source_task
from taskiq_gate.recovery import Recovery
from taskiq_gate.sends import Send, Sends

log = logging.getLogger("taskiq_gate")

LEVELS = {
    Decision.SENT: logging.INFO,
    Decision.WAIT: logging.INFO,
    Decision.PAUSED: logging.INFO,
    Decision.HELD: logging.WARNING,
    Decision.DOUBT: logging.WARNING,
    Decision.LATE: logging.WARNING,
}
TASK_IDS_MAX = 10_000
LISTING_SECONDS = 60.0
"""How often the schedules are listed when taskiq does not, because the clock was set back."""
WATCH_SECONDS = 5.0
"""How often the clock is looked at."""


class GatedScheduleSource(ScheduleSource):
    """Asks the gate before each send of `source`, and tells it afterwards.

        sources=[GatedScheduleSource(LabelScheduleSource(broker))]

    `name`: the first part of every schedule's identity; without one the class name of `source`, with -2, -3, ... for
        further wrappers in this process, in the order in which they are made. Two applications that share a gate
        should each give their sources names, and keep them.
    `gate`: an AsyncGate to use, which stays the caller's to close; without one, `socket` and `holder` are those of the
        AsyncGate that is made at the first listing, in the scheduler's event loop.
    `max_wait`: seconds to wait for an occurrence that another scheduler is sending.
    `patience`: seconds to wait for a gate that is away, and then `on_gate_down`: "hold" sends nothing and logs an
        error, "send" sends without a claim and logs a warning.
    `lease`: seconds that a send may take; without one the gate's own default (30).
    `timeout`: seconds for one answer of a gate that is there.

    A decision takes `max_wait + patience + timeout` seconds at most. Keep that below taskiq's `--send-timeout`, and
    below a minute: until it is made, taskiq skips further ticks of that schedule, and of that one alone.

    Schedules are recognised after a restart by their `schedule_id` if it was given, else by what they are: task, time,
    arguments and labels. Give an id to a schedule that shall keep its history when any of these changes, and to
    one-offs that are alike in all of them.

    What was missed is found whenever taskiq lists its schedules (at its start, then by its `--update-interval`), and
    is sent then as the gate's configuration says (`catch_up`, `catch_up_within`): each occurrence once, with the task
    id that it would have had, and as a one-off schedule with an id of its own. The hooks of `source` see the schedule
    itself. What is not sent is told to the gate, which lists it. What the broker refused is offered again whatever
    `catch_up` says. While `source` fails to list its schedules, those that it listed last stay in force.

    Everything else of `source` is reached through the wrapper.
    """

    def __init__(
        self,
        source: ScheduleSource,
        *,
        name: str | None = None,
        gate: AsyncGate | None = None,
        socket: str | os.PathLike[str] | None = None,
        holder: str | None = None,
        max_wait: float = 20.0,
        patience: float = 20.0,
        lease: float | None = None,
        on_gate_down: Literal["hold", "send"] = "hold",
        timeout: float = 5.0,
    ) -> None:
        if on_gate_down not in ("hold", "send"):
            raise ValueError(f"on_gate_down is {on_gate_down!r}: 'hold' and 'send' are allowed")
        self._inner = source
        self._limits = Limits(max_wait=max_wait, patience=patience, timeout=timeout, lease=lease)
        self._on_gate_down = on_gate_down
        self._make_gate: Callable[[], AsyncGate] = lambda: AsyncGate(socket, holder=holder, timeout=timeout)
        self._given_gate = gate
        self._own_gate: tuple[asyncio.AbstractEventLoop, AsyncGate] | None = None
        self._sends = Sends(self._limits)
        self._asked: dict[str, Asked] = {}
        """What was asked for, by key."""
        self._task_ids: dict[str, str] = {}
        """The task ids that are our work, by schedule id: the task object is the same at every tick."""
        self._stopping = False
        self._listing = Listing(source, name)
        self.name = self._listing.name
        self._recovery = Recovery(self.name, self._limits, self._sends, _now)
        self._clock_watch = ClockWatch(_now)
        self._watching: asyncio.Task[None] | None = None
        self._generation = 0
        """How often it was found set back."""
        self._live: list[ScheduledTask] = []
        """The list that taskiq's loop goes through."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_inner":  # not made yet: a copy, or a subclass that is being built
            raise AttributeError(attribute)
        return getattr(self._inner, attribute)

    @property
    def source(self) -> ScheduleSource:
        """The source that this one stands in front of."""
        return self._inner

    def __repr__(self) -> str:
        return f"<GatedScheduleSource {self.name}: {self._inner!r}>"

    # ---- what delegates

    async def startup(self) -> None:
        self._stopping = False
        await finished(self._inner.startup())

    async def shutdown(self) -> None:
        """Let sends that are under way end, release what was not sent, then shut `source` down."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        try:
            await self._sends.finish()
            if self._given_gate is not None:
                await self._given_gate.drain(self._limits.timeout)
            elif self._own_gate is not None:
                (_, own), self._own_gate = self._own_gate, None
                await own.close(self._limits.timeout)
        except Exception:
            log.exception("%s: the gate could not be told that this scheduler stops", self.name)
        finally:
            await finished(self._inner.shutdown())

    async def get_schedules(self) -> list[ScheduledTask]:
        """What `source` lists, and what it lost before: one-offs that are sent at once."""
        self._clock_watch.begin()
        self._live = await self._listed()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return self._live

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        await finished(self._inner.add_schedule(schedule))

    async def delete_schedule(self, schedule_id: str) -> None:
        await finished(self._inner.delete_schedule(schedule_id))

    # ---- the two hooks

    async def pre_send(self, task: ScheduledTask) -> None:
        """Claim the occurrence; raises ScheduledTaskCancelledError if it shall not be sent."""
        now = _now()
        task.task_id = self._users_task_id(task)
        await finished(self._inner.pre_send(source_task(task)))
        if isinstance(task, StandIn):
            task.take_over()
        if self._stopping:
            raise ScheduledTaskCancelledError
        question: Question | None = None
        try:
            question, asked = self._question(task, now)
            self._sends.enter(question.key, question.trigger, offered=isinstance(task, OfferedTask))
            gate = self._gate()
            with self._sends.asking():
                async with asyncio.timeout(self._limits.altogether):
                    question, claim = await decide(gate, question, self._limits)
            self._recovery.answered(question)
            asked.note(question.trigger, now)
        except asyncio.CancelledError:
            if question is not None:
                self._recovery.not_sent(question, "the send was cancelled before the gate had decided")
            raise
        except (GateError, NoOccurrence) as error:
            self._without_gate(task, question, str(error))
        except TimeoutError:
            self._without_gate(task, question, f"no decision within {self._limits.altogether:g} s")
        except Exception as error:
            log.exception("%s: asking the gate failed for a reason of its own", self.name)
            self._without_gate(task, question, repr(error))
        else:
            await self._follow(task, question, gate, claim)

    async def post_send(self, task: ScheduledTask) -> None:
        """Confirm, without letting the gate's troubles reach the scheduler."""
        try:
            send = self._sends.sent()
            if send is not None:
                if send.claim is None and send.question is not None:
                    self._recovery.sent_unasked(send.question)
                await self._sends.confirm(send)
        except Exception:
            log.exception("%s: %s was sent, but is not confirmed", self.name, task.task_name)
        await finished(self._inner.post_send(source_task(task)))

    # ---- asking

    def _question(self, task: ScheduledTask, now: datetime) -> tuple[Question, Asked]:
        if isinstance(task, OfferedTask):
            title = identity.title(task.original)
            return Question(key=task.offer.key, title=title, trigger=task.offer.trigger), Asked()
        task = source_task(task)
        key = self._listing.key(task)
        asked = self._asked.setdefault(key, Asked())
        due = _trigger(task, now, asked)
        asked.note(due, now)
        return Question(key=key, title=identity.title(task), trigger=due), asked

    def _gate(self) -> AsyncGate:
        if self._given_gate is not None:
            return self._given_gate
        loop = asyncio.get_running_loop()
        if self._own_gate is None or self._own_gate[0] is not loop:
            self._own_gate = (loop, self._make_gate())
        return self._own_gate[1]

    async def _follow(self, task: ScheduledTask, question: Question, gate: AsyncGate, claim: AsyncClaim) -> None:
        if claim.granted:
            self._set_task_id(task, question.key, claim.at)
            self._sends.begin(Send(str(question), question, gate, claim))
            return
        by = f" by {claim.by}" if claim.by else ""
        level, reason = LEVELS.get(claim.decision, logging.WARNING), claim.reason
        if claim.decision is Decision.WAIT and question.trigger.every is None:
            level, reason = logging.WARNING, f"{reason}; by this clock it is: one of the two is wrong"
        log.log(level, "%s is refused: %s%s (%s)", question, claim.decision, by, reason)
        if claim.decision is Decision.SENT and question.trigger.once:
            await self._clean_up(source_task(task))
        if claim.decision is Decision.WAIT and claim.until is not None:
            self._recovery.waits(question, claim.until, claim.reason)
        raise ScheduledTaskCancelledError

    async def _clean_up(self, task: ScheduledTask) -> None:
        """A one-off that was sent before is deleted by the hook that its source has for that."""
        try:
            await finished(self._inner.post_send(task))
            log.warning("%s: the one-off %s was sent before: it is removed", self.name, task.schedule_id)
        except Exception:
            log.exception("%s: a one-off that was sent could not be removed", self.name)

    def _without_gate(self, task: ScheduledTask, question: Question | None, why: str) -> None:
        what = question or f"{self.name}:{task.task_name}"
        if self._on_gate_down == "hold":
            log.error("%s is not sent: %s", what, why)
            if question is not None:
                self._recovery.not_sent(question, why)
            raise ScheduledTaskCancelledError
        log.warning("%s is sent without a claim: %s", what, why)
        if question is not None and question.trigger.at is not None:
            self._set_task_id(task, question.key, question.trigger.at)
        self._sends.begin(Send(str(what), question))

    def _users_task_id(self, task: ScheduledTask) -> str | None:
        """The id that its user gave to the task; those that were our work are not."""
        return None if task.task_id == self._task_ids.get(task.schedule_id) else task.task_id

    def _set_task_id(self, task: ScheduledTask, key: str, at: datetime) -> None:
        """The same occurrence has the same task id, whoever sends it; an id of the user's own stays.

        The label says which occurrence it is, for the workers' OnceMiddleware.
        """
        task.labels = {**task.labels, identity.OCCURRENCE: identity.occurrence_label(key, at)}
        if task.task_id is None:
            task.task_id = self._task_ids[task.schedule_id] = identity.task_id(key, at)

    # ---- listing

    async def _listed(self, generation: int = 0) -> list[ScheduledTask]:
        """What taskiq shall go through; under ids that it has not seen yet, if there is a `generation`."""
        schedules = await self._listing.read()
        shown = schedules
        if generation:
            shown = [renamed(schedule, self._users_task_id(schedule), generation) for schedule in schedules]
        try:
            by_key = {self._listing.key(schedule): schedule for schedule in schedules}
            self._forget(by_key)
            offers = await self._recovery.offers(self._gate(), by_key)
            tasks = [(offer, by_key[offer.key]) for offer in offers]
            return [*shown, *(OfferedTask(offer, task, self._users_task_id(task)) for offer, task in tasks)]
        except Exception:
            log.exception("%s: looking for what was missed failed for a reason of its own", self.name)
            return list(shown)

    def _forget(self, by_key: dict[str, ScheduledTask]) -> None:
        """What is not listed any more."""
        self._asked = {key: asked for key, asked in self._asked.items() if key in by_key}
        if len(self._task_ids) > TASK_IDS_MAX:
            ids = {schedule.schedule_id for schedule in by_key.values()}
            self._task_ids = {id_: mine for id_, mine in self._task_ids.items() if id_ in ids}

    async def _watch(self) -> None:
        """taskiq's loop stands still when the clock is set back, until the time is reached again that it had seen.

        It neither sends nor lists meanwhile. But it goes through the list that it was given, so that is renewed.
        """
        generation = 0
        while True:
            await asyncio.sleep(LISTING_SECONDS if generation else WATCH_SECONDS)
            live = self._live
            if not self._clock_watch.set_back():
                generation = 0
                continue
            if not generation:
                generation = self._generation = self._generation + 1
                text = "%s: the clock was set back: taskiq stands still until it has caught up, and is gone round"
                log.warning(text, self.name)
            try:
                listed = await self._listed(generation)
            except Exception:
                log.exception("%s: the schedules cannot be listed", self.name)
                continue
            if live is self._live:
                live[:] = listed


def _now() -> datetime:
    return datetime.now(UTC)


def _trigger(task: ScheduledTask, now: datetime, asked: Asked) -> Trigger:
    cron, offset = task.cron, task.cron_offset
    return trigger(
        now,
        asked,
        cron=None if cron is None else lambda instant: is_cron_task_now(cron, instant, offset),
        shift=offset if isinstance(offset, timedelta) else timedelta(0),
        every=None if task.interval is None else identity.seconds(task.interval),
        time=None if task.time is None else to_tz_aware(task.time).astimezone(UTC),
    )
