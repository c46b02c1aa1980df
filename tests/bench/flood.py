"""`python -m tests.bench.flood`: how long a polite client waits while others flood the gate.

A process of its own keeps so many calls waiting on each of so many connections (loadgen.py). A client on a connection
of its own asks one thing at a time, first with nobody else there, then beside the flood: its p99 beside the flood
should stay under ten times the idle one.
"""

import argparse
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple

from tests.bench.frames import Shape, first_minute
from tests.bench.loadgen import AGAIN, Order
from tests.bench.processes import Pace, Target, bench
from tests.support.gate_process import ROOT, RawClient
from tests.support.instants import minute

WANTED = 10.0
FLOOD = Shape(999, 64)
"""Together with the polite one, as many as the gate lets in."""


class Wait(NamedTuple):
    """How long a polite client waits for an answer, in microseconds, and how often it asked."""

    p50: float
    p99: float
    calls: int


class Found(NamedTuple):
    """What was measured of one kind of call."""

    idle: Wait
    flooded: Wait
    others: int
    """How many calls of the flood were answered meanwhile."""

    @property
    def ratio(self) -> float:
        """p99 beside the flood, of the idle one."""
        return self.flooded.p99 / self.idle.p99


def check(client: RawClient) -> None:
    """One question of a worker."""
    client.call("Fetch.Check", worker="polite", queues=["default"])


def claimer() -> Callable[[RawClient], None]:
    """Claims of a new occurrence each."""
    at, number = minute(), iter(range(10**9))

    def claim(client: RawClient) -> None:
        answer = client.claim(f"polite:{next(number)}", at)
        assert answer["decision"] == "send", answer

    return claim


def polite(client: RawClient, ask: Callable[[RawClient], None], seconds: float) -> Wait:
    """Ask, wait a millisecond, and ask again."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    gc.disable()
    try:
        while (begin := time.perf_counter()) < end:
            ask(client)
            taken.append((time.perf_counter() - begin) * 1e6)
            time.sleep(0.001)
    finally:
        gc.enable()
    taken.sort()
    return Wait(taken[len(taken) // 2], taken[int(len(taken) * 0.99)], len(taken))


@contextmanager
def flood(target: Target, shape: Shape, seconds: float, *, claims: bool) -> Iterator["Flood"]:
    """Others ask for `seconds`, from when all of them are connected."""
    order = Order(
        socket=str(target.socket),
        connections=shape.connections,
        depth=shape.depth,
        seconds=seconds,
        warm_up=0.0,
        claims=AGAIN if claims else 0,
        claims_from=first_minute().isoformat(),
        again=True,
        server=target.pid,
    )
    command = [sys.executable, "-m", "tests.bench.loadgen", json.dumps(order._asdict())]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield Flood(process)
    finally:
        process.kill()
        process.wait()


class Flood(NamedTuple):
    """A process that floods."""

    process: "subprocess.Popen[str]"

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        """Wait for it; how many answers it got."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, "the flood was turned away"
        found: dict[str, int] = json.loads(out)
        return found["calls"]


def measure(
    target: Target, ask: Callable[[RawClient], None], shape: Shape, seconds: float, *, claims: bool = False
) -> Found:
    """A polite client alone, and beside a flood that has begun."""
    with RawClient(target.socket) as client:
        while client.call("Control.Status", limit=0)["connections"] > 1:  # of a flood before this one
            threading.Event().wait(0.01)
        polite(client, ask, 0.2)
        idle = polite(client, ask, seconds)
        with flood(target, shape, seconds + 1.5, claims=claims) as others:
            while client.call("Control.Status", limit=0)["connections"] <= shape.connections:
                if not others.running:  # it was over before that could be seen: nothing is known
                    return Found(idle, Wait(inf, inf, 0), others.end())
                threading.Event().wait(0.01)
            flooded = polite(client, ask, seconds)
            return Found(idle, flooded, others.end())


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each measurement takes (3)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--claims", action="store_true", help="the flood claims; else it asks for GetInfo")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    with bench(given.folder, Pace(given.seconds, 0.0)) as running:
        for _ in range(given.rounds):
            for name, ask in (("Check", check), ("Claim", claimer())):
                with running.gate() as gate:
                    found = measure(gate, ask, FLOOD, given.seconds, claims=given.claims)
                print(
                    f"{name}: p99 idle {found.idle.p99:.0f} us, beside {FLOOD} {found.flooded.p99:.0f} us "
                    f"(p50 {found.idle.p50:.0f} and {found.flooded.p50:.0f}), ratio {found.ratio:.1f} of {WANTED:g}; "
                    f"{found.flooded.calls} asked, {found.others:,} others served",
                    flush=True,
                )


if __name__ == "__main__":
    main()
