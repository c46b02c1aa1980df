"""The application that the tests' schedulers run: `taskiq scheduler tests.e2e.app:scheduler`.

Everything is taskiq's and taskiq-redis's own; subclasses only look on, and stop where a test wants to kill.
"""

import asyncio
import json
import os
import time
from typing import Any

import msgspec
from taskiq import BrokerMessage, ScheduledTask, ScheduleSource, TaskiqMessage, TaskiqMiddleware, TaskiqScheduler
from taskiq.exceptions import ScheduledTaskCancelledError
from taskiq.schedule_sources import LabelScheduleSource
from taskiq.utils import maybe_awaitable
from taskiq_redis import ListQueueBroker, ListRedisScheduleSource

from taskiq_gate import GatedScheduleSource
from tests.e2e import settings as e2e

settings = msgspec.json.decode(os.environ[e2e.VARIABLE].encode(), type=e2e.Settings)
_events = os.open(settings.events, os.O_WRONLY)


def tell(event: str, **values: Any) -> None:
    """Say something to the test; a line this short is written whole or not at all."""
    os.write(_events, json.dumps({"event": event, "pid": os.getpid(), **values}).encode() + b"\n")


def read_go() -> None:
    """Take the byte that lets us go on; end if the test is gone."""
    if not os.read(0, 1):
        os._exit(3)


async def reach(point: str) -> None:
    """Stop here, if this is where the test wants us."""
    if settings.stop_at != point:
        return
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    loop.add_reader(0, told.set_result, None)
    tell("stopped")
    try:
        await told
    finally:
        loop.remove_reader(0)
    read_go()


class Broker(ListQueueBroker):
    async def kick(self, message: BrokerMessage) -> None:
        if message.task_name != e2e.TICK:
            tell("kicking")
        await reach("claim to kick")
        await asyncio.sleep(settings.slow)
        await super().kick(message)
        await reach("kick to confirm")


class Stamp(TaskiqMiddleware):
    """Writes into each message when it was sent, and by whom."""

    def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        message.labels[e2e.SENT_AT] = time.time()
        message.labels[e2e.SENT_BY] = os.getpid()
        return message

    def post_send(self, message: TaskiqMessage) -> None:
        if message.task_name == e2e.TICK:
            tell("tick")


class Points(ScheduleSource):
    """What a gate's wrapper calls first and last."""

    async def pre_send(self, task: ScheduledTask) -> None:
        tell("asked")
        await reach("before claim")
        await maybe_awaitable(super().pre_send(task))

    async def post_send(self, task: ScheduledTask) -> None:
        await reach("after confirm")
        await maybe_awaitable(super().post_send(task))


class Failing(ScheduleSource):
    """Fails where the test wants it."""

    _listed = 0

    async def get_schedules(self) -> list[ScheduledTask]:
        self._listed += 1
        if self._listed in settings.failing:
            raise ConnectionError("the source is away")
        return await super().get_schedules()  # type: ignore[safe-super]  # it stands before one that has it


class LabelSource(Failing, Points, LabelScheduleSource):  # type: ignore[misc]  # its own hook is not a coroutine
    pass


class RedisSource(Failing, Points, ListRedisScheduleSource):
    pass


class Gated(GatedScheduleSource):
    """Tells the test what became of an ask."""

    async def pre_send(self, task: ScheduledTask) -> None:
        try:
            await super().pre_send(task)
        except ScheduledTaskCancelledError:
            tell("refused")
            raise

    async def post_send(self, task: ScheduledTask) -> None:
        await super().post_send(task)
        tell("sent")


class Ticks(ScheduleSource):
    """A schedule of every second that no gate is asked for."""

    async def get_schedules(self) -> list[ScheduledTask]:
        return [ScheduledTask(task_name=e2e.TICK, schedule_id="tick", interval=1, labels={}, args=["tick"], kwargs={})]


def make_source(kind: str) -> ScheduleSource:
    """A source of this kind, before the gate if there is one."""
    source: ScheduleSource
    if kind == "label":
        source = LabelSource(broker)
    else:
        prefix = e2e.source_name(settings.name, kind)
        source = RedisSource(settings.redis, prefix=prefix, **settings.redis_options)
    if settings.socket is None:
        return source
    name = e2e.source_name(settings.name, kind)
    return Gated(source, name=name, socket=settings.socket, **settings.options)


async def run(kind: str) -> None:
    """The task; no worker runs it."""


if settings.held:
    tell("held")
    read_go()
broker = Broker(settings.redis, queue_name=settings.name).with_middlewares(Stamp())
broker.register_task(
    run, e2e.TASK, **({"schedule": e2e.label_schedules(settings)} if "label" in settings.sources else {})
)
broker.register_task(run, e2e.TICK)
_sources = [make_source(kind) for kind in settings.sources]
scheduler = TaskiqScheduler(broker, [*_sources, *([Ticks()] if settings.ticks else [])])
