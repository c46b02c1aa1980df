"""A taskiq application in miniature: the real scheduler, a broker that remembers, a source that is a list."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from taskiq import BrokerMessage, InMemoryBroker, ScheduledTask, ScheduleSource, TaskiqScheduler

from taskiq_gate import GatedScheduleSource


def scheduled(**fields: Any) -> ScheduledTask:
    """A schedule that is due at every minute, unless `fields` say otherwise."""
    given: dict[str, Any] = {"task_name": "app:job", "labels": {}, "args": [], "kwargs": {}, "schedule_id": "nightly"}
    if not {"cron", "interval", "time"} & fields.keys():
        given["cron"] = "* * * * *"
    return ScheduledTask(**given | fields)


class Broker(InMemoryBroker):
    """Keeps what is sent and executes nothing. `fault` is awaited first, and may raise or never end."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[BrokerMessage] = []
        self.kicked = asyncio.Event()
        self.fault: Callable[[], Awaitable[Any]] | None = None

    async def kick(self, message: BrokerMessage) -> None:
        self.kicked.set()
        if self.fault is not None:
            await self.fault()
        self.sent.append(message)


class ListSource(ScheduleSource):
    """A source with hooks that are plain functions. `seen` is what was called."""

    def __init__(self, *schedules: ScheduledTask) -> None:
        self.schedules = list(schedules)
        self.seen: list[str] = []

    async def startup(self) -> None:
        self.seen.append("startup")

    async def shutdown(self) -> None:
        self.seen.append("shutdown")

    async def get_schedules(self) -> list[ScheduledTask]:
        return list(self.schedules)

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        self.schedules.append(schedule)

    async def delete_schedule(self, schedule_id: str) -> None:
        self.schedules = [schedule for schedule in self.schedules if schedule.schedule_id != schedule_id]

    def pre_send(self, task: ScheduledTask) -> None:
        self.seen.append("pre_send")

    def post_send(self, task: ScheduledTask) -> None:
        self.seen.append("post_send")


class App:
    """One scheduler, with one gated source."""

    def __init__(self, source: ScheduleSource, **options: Any) -> None:
        self.broker = Broker()
        self.inner: Any = source
        given: dict[str, Any] = {"name": "app", "max_wait": 10.0, "patience": 10.0} | options
        self.source = GatedScheduleSource(source, **given)
        self.scheduler = TaskiqScheduler(self.broker, [self.source])

    def tick(self, task: ScheduledTask) -> "asyncio.Task[None]":
        """What taskiq's loop does when a schedule is due."""
        return asyncio.create_task(self.scheduler.on_ready(self.source, task))

    @property
    def task_ids(self) -> list[str]:
        """Of the messages that were sent."""
        return [message.task_id for message in self.broker.sent]


def run(work: Callable[[App], Awaitable[Any]], source: ScheduleSource, **options: Any) -> App:
    """Start an application, do work, and shut the application down as taskiq does."""

    async def main() -> App:
        app = App(source, **options)
        await app.source.startup()
        await app.source.get_schedules()
        try:
            await work(app)
        finally:
            await app.source.shutdown()
        return app

    return asyncio.run(main())
