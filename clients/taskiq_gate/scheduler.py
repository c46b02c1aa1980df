"""A scheduler that repeats at once what the broker refuses."""

import asyncio
import logging

from taskiq import AsyncBroker, ScheduledTask, ScheduleSource, TaskiqScheduler
from taskiq.exceptions import SendTaskError

from gate_client.core import pauses
from taskiq_gate.source import GatedScheduleSource

log = logging.getLogger("taskiq_gate")


class GatedScheduler(TaskiqScheduler):
    """taskiq's own scheduler, but a send that the broker refuses is repeated for `retry` seconds, under its claim.

        scheduler = GatedScheduler(broker, sources=[GatedScheduleSource(LabelScheduleSource(broker))])

    Keep `retry` below the lease (30 s) and below taskiq's `--send-timeout`. What is refused until then is released,
    and offered again with the next listing, as without this class. Sources that are not gated have one attempt.
    """

    def __init__(self, broker: AsyncBroker, sources: list[ScheduleSource], *, retry: float = 10.0) -> None:
        super().__init__(broker, sources)
        self.retry = retry

    async def on_ready(self, source: ScheduleSource, task: ScheduledTask) -> None:
        """Send; raises SendTaskError when the broker has refused to the end."""
        if not isinstance(source, GatedScheduleSource):
            await super().on_ready(source, task)
            return
        clock = asyncio.get_running_loop().time
        end = clock() + self.retry
        attempt: ScheduleSource = source
        for pause in pauses():
            try:
                await super().on_ready(attempt, task)
                return
            except SendTaskError as error:
                if clock() + pause > end:
                    raise
                log.warning("%s: %s could not be sent, and is tried again: %r", source.name, task.task_name, error)
            await asyncio.sleep(pause)
            attempt = _Claimed(source)


class _Claimed(ScheduleSource):
    """A source whose claim this send has already."""

    def __init__(self, source: GatedScheduleSource) -> None:
        self._source = source

    async def get_schedules(self) -> list[ScheduledTask]:
        return await self._source.get_schedules()

    async def post_send(self, task: ScheduledTask) -> None:
        await self._source.post_send(task)
