"""Schedules that stand in for those of the source, under other ids.

An occurrence that was lost is offered to taskiq's loop as a one-off, which it sends as soon as it is listed, and never
again under the same schedule id: each offer has one of its own.
"""

from datetime import datetime
from itertools import count
from typing import Any

from msgspec import Struct
from pydantic import PrivateAttr
from taskiq import ScheduledTask
from taskiq.cli.scheduler.run import to_tz_aware

from taskiq_gate import identity
from taskiq_gate.occurrence import Trigger

_numbers = count(1)
"""Of this process: two sources may know one schedule id."""


class Offer(Struct, frozen=True, kw_only=True):
    """Which occurrence of which schedule, why it was not sent, and when it is to be sent."""

    key: str
    trigger: Trigger
    reason: str
    time: datetime


class StandIn(ScheduledTask):
    """A schedule as taskiq shall know it. `original`: as the source has it, for the source's own hooks."""

    _original: ScheduledTask = PrivateAttr()

    def __init__(self, schedule: ScheduledTask, task_id: str | None, schedule_id: str, **triggers: Any) -> None:
        """`task_id`: the one that its user gave to the schedule."""
        super().__init__(
            task_name=schedule.task_name,
            labels=dict(schedule.labels),
            args=list(schedule.args),
            kwargs=dict(schedule.kwargs),
            task_id=task_id,
            schedule_id=schedule_id,
            **triggers,
        )
        self._original = schedule.model_copy(update={"labels": dict(schedule.labels), "task_id": task_id})

    @property
    def original(self) -> ScheduledTask:
        return self._original

    def take_over(self) -> None:
        """What a hook changed in the original is sent."""
        self.task_name = self._original.task_name
        self.task_id = self._original.task_id
        self.args = self._original.args
        self.kwargs = self._original.kwargs
        self.labels = dict(self._original.labels)


class OfferedTask(StandIn):
    """An offer as taskiq sends it."""

    _offer: Offer = PrivateAttr()

    def __init__(self, offer: Offer, schedule: ScheduledTask, task_id: str | None) -> None:
        at = offer.trigger.at or offer.time
        schedule_id = f"{schedule.schedule_id}@{at:%Y-%m-%dT%H:%MZ}#{next(_numbers)}"
        super().__init__(schedule, task_id, schedule_id, time=offer.time)
        self._offer = offer

    @property
    def offer(self) -> Offer:
        return self._offer


def renamed(schedule: ScheduledTask, task_id: str | None, generation: int) -> StandIn:
    """The same schedule under an id that taskiq has not seen, so that it does not remember when it ran."""
    return StandIn(
        schedule,
        task_id,
        f"{schedule.schedule_id}@{generation}",
        cron=schedule.cron,
        cron_offset=schedule.cron_offset,
        interval=schedule.interval,
        time=schedule.time,
    )


def trigger_of(schedule: ScheduledTask, at: datetime) -> Trigger | None:
    """By which of its triggers a schedule has the occurrence `at`; None if by none."""
    if schedule.time is not None and to_tz_aware(schedule.time) == at:
        return Trigger(at=at, once=True)
    if schedule.cron is not None and not (at.second or at.microsecond):
        return Trigger(at=at)
    if schedule.interval is not None:
        return Trigger(every=identity.seconds(schedule.interval))
    return None


def source_task(task: ScheduledTask) -> ScheduledTask:
    """The task that the source's own hooks know."""
    return task.original if isinstance(task, StandIn) else task
