"""What a test tells the application that it starts, and what both know of its schedules."""

from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct
from taskiq.scheduler.scheduled_task import ScheduledTask

VARIABLE = "GATE_E2E"
"""The environment variable that holds the settings, as JSON."""
TASK = "e2e:task"
TICK = "e2e:tick"
SENT_AT = "sent_at"
SENT_BY = "sent_by"
"""Labels of each message: the scheduler's clock when it sent, and its pid."""
CRON = "* * * * *"
KINDS = ("random", "fixed", "zoned")
"""A schedule without an id of its user's, one with, and one in a time zone; all of them due every minute."""
OTHER_KINDS = ("often", "once")
"""One of every ten seconds, and a one-off."""
EVERY = 10
POINTS = ("before claim", "claim to kick", "kick to confirm", "after confirm")
"""Where a scheduler can be told to stop in its tracks."""


class Settings(Struct, frozen=True, kw_only=True):
    """One scheduler. `name` is its queue in Redis and the first part of its sources' names.

    `sources`: "label", "redis" or both. `socket`: the gate's; None for a scheduler without a gate. `held`: wait for
    a byte on stdin before anything starts. `stop_at`: one of POINTS, to say so there and wait for a byte. `slow`:
    seconds that each kick takes. `ticks`: a schedule of every second beside them that no gate is asked for.
    `once`: when the one-off is due, if there is one. `triggers`: when others of `kinds` are due, as in a task's label.
    `failing`: the listings of each source that fail, by their number from 1 on. `options`: for GatedScheduleSource;
    `redis_options`: for the Redis source.
    """

    redis: str
    name: str
    events: str
    sources: tuple[str, ...] = ("label",)
    kinds: tuple[str, ...] = KINDS
    socket: str | None = None
    held: bool = False
    stop_at: str | None = None
    slow: float = 0.0
    ticks: bool = False
    once: datetime | None = None
    triggers: dict[str, dict[str, Any]] = {}
    failing: tuple[int, ...] = ()
    options: dict[str, Any] = {}
    redis_options: dict[str, Any] = {}


def source_name(name: str, source: str) -> str:
    """What a gated source is called."""
    return f"{name}-{source}"


def fixed_id(name: str, source: str) -> str:
    """The id that the user gave to the schedule of the kind "fixed"."""
    return f"{name}-{source}-fixed"


def label_schedules(settings: Settings) -> list[dict[str, Any]]:
    """The schedules as a task's label."""
    kinds: dict[str, dict[str, Any]] = {
        "random": {},
        "fixed": {"schedule_id": fixed_id(settings.name, "label")},
        "zoned": {"cron_offset": "Asia/Kolkata"},
    }
    return [{"args": [kind], **_trigger(settings, kind), **kinds.get(kind, {})} for kind in settings.kinds]


def _trigger(settings: Settings, kind: str) -> dict[str, Any]:
    others: dict[str, dict[str, Any]] = {"often": {"interval": EVERY}, "once": {"time": settings.once}}
    return settings.triggers.get(kind) or others.get(kind, {"cron": CRON})


def redis_schedules(settings: Settings, deployment: int = 0) -> list[ScheduledTask]:
    """The schedules as a user adds them to a source once, or in each deployment: with new ids where none is given."""
    kinds: dict[str, dict[str, Any]] = {
        "fixed": {"schedule_id": fixed_id(settings.name, "redis")},
        "zoned": {"cron_offset": "Asia/Kolkata"},
    }
    found: list[ScheduledTask] = []
    for kind in settings.kinds:
        random_id = _as_random(uuid5(NAMESPACE_URL, f"{settings.name}/{kind}/{deployment}").hex)
        fields = {"schedule_id": random_id, **_trigger(settings, kind), **kinds.get(kind, {})}
        found.append(ScheduledTask(task_name=TASK, labels={}, args=[kind], kwargs={}, **fields))
    return found


def _as_random(digits: str) -> str:
    """In the form of the ids that taskiq draws: a UUID of version 4."""
    return f"{digits[:12]}4{digits[13:16]}a{digits[17:]}"
