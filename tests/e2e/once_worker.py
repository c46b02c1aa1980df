"""One worker in one process, so that its death is a death: what `taskiq worker` runs in each of its children."""

import asyncio
import logging

from taskiq.api import run_receiver_task

from tests.e2e.once_app import broker


async def main() -> None:
    broker.is_worker_process = True
    await broker.startup()
    await run_receiver_task(broker, max_async_tasks=10)


logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
asyncio.run(main())
