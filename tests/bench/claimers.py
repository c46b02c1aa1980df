"""Asyncio applications that claim, as many tasks at once: through the gate, or from Redis without one.

    gate     `gate_client.AsyncGate`: durable
    redis    `redis.asyncio`, SET NX PX, on a server that writes nothing to disk

Started as `python -m tests.bench.claimers NAME SOCKET TASKS SECONDS WARM_UP`; prints a loadgen.Result as JSON, the
CPU in it being the application's.
"""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count

import redis.asyncio as redis

from gate_client import AsyncGate
from tests.bench import frames
from tests.bench.loadgen import Refused, Result

Claim = Callable[[int], Awaitable[bool]]
CONNECTIONS = 1000
LEASE_MILLISECONDS = 60_000


def by_gate(path: str) -> Claim:
    """One client for all tasks."""
    gate, start = AsyncGate(path, holder="bench"), frames.first_minute()

    async def claim(number: int) -> bool:
        minute, schedule = divmod(number, frames.SCHEDULES)
        return (await gate.claim(f"bench:{schedule:04d}", start + timedelta(minutes=minute))).granted

    return claim


def by_redis(path: str) -> Claim:
    """One client for all tasks; it keeps as many connections as are used at once."""
    client, run = redis.Redis(unix_socket_path=path, max_connections=CONNECTIONS), secrets.token_hex(4)

    async def claim(number: int) -> bool:
        minute, schedule = divmod(number, frames.SCHEDULES)
        key = f"bench:{schedule:04d}:{run}:{minute}"
        return bool(await client.set(key, secrets.token_hex(16), nx=True, px=LEASE_MILLISECONDS))

    return claim


async def measure(claim: Claim, tasks: int, seconds: float, warm_up: float) -> Result:
    """Let all tasks claim in a closed loop."""
    numbers = count()
    latencies: list[float] = []
    start = time.perf_counter() + warm_up
    end = start + seconds

    async def run() -> None:
        while (begun := time.perf_counter()) < end or not latencies:
            if not await claim(next(numbers)):
                raise Refused("a claim was not granted")
            if begun >= start:
                latencies.append(time.perf_counter() - begun)

    cpu = 0.0

    async def watch_cpu() -> None:
        nonlocal cpu
        await asyncio.sleep(start - time.perf_counter())
        cpu = time.process_time()

    await asyncio.gather(watch_cpu(), *(run() for _ in range(tasks)))
    taken, cpu = time.perf_counter() - start, time.process_time() - cpu
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    return Result(len(latencies), taken, p50 * 1e6, p99 * 1e6, cpu / len(latencies) * 1e6)


def main() -> None:
    make = {"gate": by_gate, "redis": by_redis}[sys.argv[1]]

    async def run() -> Result:
        return await measure(make(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))

    print(json.dumps(asyncio.run(run())._asdict()))


if __name__ == "__main__":
    main()
