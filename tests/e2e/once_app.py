"""An application whose scheduler and workers are killed: `taskiq scheduler|worker tests.e2e.once_app:...`.

The schedules are one-offs, all of them due soon after `base`. Each task writes a line to the journal when it starts and
one when it ends; a line this short is written whole or not at all.
"""

import asyncio
import os
from datetime import UTC, timedelta
from typing import Any

import msgspec
from taskiq import AsyncBroker, BrokerMessage, SimpleRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from taskiq_gate import GatedScheduler, GatedScheduleSource, OnceMiddleware
from tests.e2e.once_app_settings import NAME, VARIABLE, Settings

settings = msgspec.json.decode(os.environ[VARIABLE].encode(), type=Settings)
_journal = os.open(settings.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def write(event: str, number: int) -> None:
    os.write(_journal, f"{event} {number} {os.getpid()}\n".encode())


def schedule(number: int) -> dict[str, Any]:
    due = settings.base + timedelta(seconds=number / settings.rate)
    return {"time": due.astimezone(UTC), "schedule_id": f"job-{number}", "args": [number]}


class Stops:
    """A broker whose scheduler hangs between the kick and the confirmation, where the test kills it."""

    async def kick(self, message: BrokerMessage) -> None:
        await super().kick(message)  # type: ignore[misc]
        write("kicked", 0)
        await asyncio.sleep(settings.slow)
        if settings.stop:
            await asyncio.Event().wait()


class StreamBroker(Stops, RedisStreamBroker):
    pass


class ListBroker(Stops, ListQueueBroker):
    pass


def make_broker() -> AsyncBroker:
    if not settings.stream:
        return ListBroker(settings.redis)
    idle = int(settings.idle * 1000)
    return StreamBroker(settings.redis, idle_timeout=idle, xread_block=200)


broker = make_broker().with_middlewares(
    OnceMiddleware(settings.socket, on_gate_down=settings.on_gate_down, timeout=1.0),  # type: ignore[arg-type]
    SimpleRetryMiddleware(default_retry_count=5, default_retry_label=True),
)
_failed: dict[int, int] = {}


@broker.task("once:job", schedule=[schedule(number) for number in range(settings.many)])
async def job(number: int) -> None:
    write("start", number)
    await asyncio.sleep(settings.seconds)
    write("end", number)
    if _failed.setdefault(number, 0) < settings.fails:
        _failed[number] += 1
        raise ValueError("it fails")


source = GatedScheduleSource(LabelScheduleSource(broker), name=NAME, socket=settings.socket, patience=5.0, max_wait=5.0)
scheduler: TaskiqScheduler = GatedScheduler(broker, [source])
