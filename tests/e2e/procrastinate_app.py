"""An application as its user writes it: `procrastinate --app tests.e2e.procrastinate_app.app worker`.

Run as a program, it is one that runs its worker itself: its argument is the worker's name.
"""

import asyncio
import os
import sys

from procrastinate import App, PsycopgConnector

import procrastinate_gate
from tests.e2e.procrastinate_tasks import DSN, blueprint

app = App(connector=PsycopgConnector(conninfo=os.environ[DSN]))
app.add_tasks_from(blueprint, namespace="e2e")
procrastinate_gate.install(app)


async def main(name: str) -> None:
    async with app.open_async():
        await app.run_worker_async(queues=["a"], name=name, concurrency=2)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
