"""Occurrences that are offered to taskiq's loop once more: one-off schedules beside those of the source.

taskiq sends a one-off as soon as it lists it, and never the same schedule id again: each offer has an id of its own.
"""

from datetime import datetime
from itertools import count

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


class OfferedTask(ScheduledTask):
    """An offer as taskiq sends it. `original`: its schedule as the source has it, for the source's own hooks."""

    _offer: Offer = PrivateAttr()
    _original: ScheduledTask = PrivateAttr()

    def __init__(self, offer: Offer, schedule: ScheduledTask, task_id: str | None) -> None:
        """`task_id`: the one that its user gave to the schedule."""
        super().__init__(
            task_name=schedule.task_name,
            labels=dict(schedule.labels),
            args=list(schedule.args),
            kwargs=dict(schedule.kwargs),
            task_id=task_id,
            schedule_id=_fresh_id(offer, schedule),
            time=offer.time,
        )
        self._offer = offer
        self._original = schedule.model_copy(update={"labels": dict(schedule.labels), "task_id": task_id})

    @property
    def offer(self) -> Offer:
        return self._offer

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
    return task.original if isinstance(task, OfferedTask) else task


def _fresh_id(offer: Offer, schedule: ScheduledTask) -> str:
    at = offer.trigger.at or offer.time
    return f"{schedule.schedule_id}@{at:%Y-%m-%dT%H:%MZ}#{next(_numbers)}"
