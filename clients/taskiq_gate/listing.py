"""What a source lists: under which keys, what of it is left out, and what stays in force while the source fails."""

import asyncio
import inspect
import logging
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

from taskiq import ScheduledTask, ScheduleSource

from taskiq_gate import identity

log = logging.getLogger("taskiq_gate")

STALE_MAX = 60
"""How many listings in a row a source may fail before its last good list is no longer used."""
SET_BACK_SECONDS = 30.0
"""By how much a clock must go back to matter: taskiq lets a minute pass between two sends."""
_ENDS_THE_LOOP = re.compile(r"\*/0+(?!\d)")
"""pycron divides by the step, and taskiq's loop dies of it."""

_names: "WeakValueDictionary[str, Listing]" = WeakValueDictionary()
"""The listings of this process by name."""


class Listing:
    """Lists the schedules of `source`, and names them. `keys`: by schedule id, of the last listing."""

    def __init__(self, source: ScheduleSource, name: str | None) -> None:
        self.keys: dict[str, str] = {}
        self.name = self._register(name, type(source).__name__)
        self._source = source
        self._last: list[ScheduledTask] | None = None
        self._failures = 0
        self._warned: set[str] = set()

    async def read(self) -> list[ScheduledTask]:
        """The schedules. While the source fails, those that it listed last: taskiq takes a failure for an empty list.

        Raises what the source raises, if it has never listed anything or fails for too long.
        """
        try:
            schedules = list(await finished(self._source.get_schedules()))
        except Exception:
            self._failures += 1
            if self._last is None or self._failures > STALE_MAX:
                raise
            if self._failures == 1:
                text = "%s: the schedules cannot be listed: those that were listed before stay in force"
                log.warning(text, self.name, exc_info=True)
            return self._last
        self._failures = 0
        alive = [schedule for schedule in schedules if not self._deadly(schedule)]
        self.keys = identity.keys(self.name, alive)  # before taskiq touches the labels
        self._last = self._without_twins(alive)
        self._warn_of_repeated_ids(self._last)
        self._warn_of_hidden_one_offs()
        return self._last

    def key(self, schedule: ScheduledTask) -> str:
        """What names a schedule for the gate."""
        return self.keys.get(schedule.schedule_id) or identity.base_key(self.name, schedule)

    def _deadly(self, schedule: ScheduledTask) -> bool:
        if schedule.cron is None or not _ENDS_THE_LOOP.search(schedule.cron):
            return False
        text = "%s: %s has the cron %r, a step of 0, which would end the scheduler: it is left out"
        self._warn(f"deadly {schedule.cron}", text, self.name, schedule.task_name, schedule.cron)
        return True

    def _without_twins(self, schedules: list[ScheduledTask]) -> list[ScheduledTask]:
        """Of schedules that are the same in all but an id that nobody chose, the first."""
        firsts: dict[str, ScheduledTask] = {}
        for schedule in schedules:
            first = firsts.setdefault(self.keys[schedule.schedule_id], schedule)
            if first.schedule_id != schedule.schedule_id:
                text = "%s: the schedules %s and %s are the same (%s): the first alone is sent; an id tells them apart"
                about = (self.name, first.schedule_id, schedule.schedule_id, identity.title(schedule))
                self._warn(f"twin {schedule.schedule_id}", text, *about)
        return [s for s in schedules if firsts[self.keys[s.schedule_id]].schedule_id == s.schedule_id]

    def _warn_of_hidden_one_offs(self) -> None:
        """What a source does not list is not heard of here either, and cannot be listed as missed."""
        if getattr(self._source, "_skip_past_schedules", False) is True:
            text = (
                "%s: skip_past_schedules hides one-offs that are added in the minute in which they are due, or are due "
                "while no scheduler runs: they are lost; without it each is sent once, and none after its `deadline`"
            )
            self._warn("hidden one-offs", text, self.name)

    def _warn_of_repeated_ids(self, schedules: list[ScheduledTask]) -> None:
        """taskiq remembers what ran by schedule id alone: of two with one id, it never sends the second in time."""
        ids = Counter(schedule.schedule_id for schedule in schedules)
        others = {id_ for other in list(_names.values()) if other is not self for id_ in other.keys}
        for id_ in (id_ for id_, times in ids.items() if times > 1 or id_ in others):
            text = "%s: the schedule id %r is in use twice, so taskiq sends only one of the two"
            self._warn(f"id {id_}", text, self.name, id_)

    def _warn(self, about: str, text: str, *values: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            log.error(text, *values)

    def _register(self, name: str | None, base: str) -> str:
        """Take the name that was given, or the first free one that the source's class gives."""
        if name is not None:
            if not name or len(name.encode()) > 128:
                raise ValueError(f"name is {name!r}: 1 to 128 bytes are allowed")
            if name in _names:
                log.warning("two sources have the name %r: schedules that are alike count as one", name)
            _names[name] = self
            return name
        number = 1
        while (free := base if number == 1 else f"{base}-{number}") in _names:
            number += 1
        _names[free] = self
        return free


class ClockWatch:
    """Notices that the wall clock was set back since `begin`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._before = 0.0

    def begin(self) -> None:
        """Now is the time to compare with."""
        self._before = self._difference()

    def set_back(self) -> bool:
        """Whether it was."""
        return self._difference() < self._before - SET_BACK_SECONDS

    def _difference(self) -> float:
        return self._clock().timestamp() - asyncio.get_running_loop().time()


async def finished(result: Any) -> Any:
    """What a hook gives, be it a coroutine or not."""
    return await result if inspect.isawaitable(result) else result
