"""The tasks of the tests' procrastinate workers, as a blueprint for apps of any kind; they tell a file what they do."""

import asyncio
import json
import os
import time

from procrastinate import Blueprint

EVENTS = "GATE_E2E_EVENTS"
"""The environment variable that names the file."""
DSN = "GATE_E2E_DSN"

blueprint = Blueprint()


def tell(event: str, key: str) -> None:
    """Append a line; one this short is written whole or not at all."""
    line = json.dumps({"event": event, "key": key, "at": time.time(), "pid": os.getpid()})
    with open(os.environ[EVENTS], "ab", buffering=0) as events:  # noqa: PTH123 - unbuffered, as no method of Path is
        events.write(line.encode() + b"\n")


@blueprint.task(name="job")
async def job(key: str, seconds: float = 0.0) -> None:
    tell("start", key)
    await asyncio.sleep(seconds)
    tell("end", key)


@blueprint.task(name="blocking")
def blocking(key: str, seconds: float = 0.0) -> None:
    tell("start", key)
    time.sleep(seconds)
    tell("end", key)


@blueprint.task(name="forking")
async def forking(key: str, seconds: float = 0.0) -> None:
    """Fork as `multiprocessing` does; the child lives for a while and touches nothing."""
    child = os.fork()
    if child == 0:
        time.sleep(seconds)  # noqa: ASYNC251 - the child has no loop
        os._exit(0)
    tell("start", key)
    await asyncio.to_thread(os.waitpid, child, 0)
    tell("end", key)
