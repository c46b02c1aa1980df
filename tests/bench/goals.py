"""The speed goals, and what was measured for them.

A floor is where something is wrong below it, a goal is where we want to stand.
"""

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from tests.bench.frames import Shape
from tests.bench.loadgen import Result
from tests.bench.rounds import BUSY, ROWS, STORM, Key, Samples

Value = Callable[[Result], float]


class Goal(NamedTuple):
    """`more`: whether more is better. `floor` and `goal` in `unit`: × for ratios."""

    id: str
    what: str
    more: bool
    floor: float
    goal: float
    unit: str = "×"

    def met(self, measured: float, bound: float) -> bool:
        """Whether what was measured is as good as `bound`."""
        return measured >= bound if self.more else measured <= bound


class Finding(NamedTuple):
    """A goal and what every round gave for it; `measured` is their median."""

    goal: Goal
    rounds: list[float]

    @property
    def measured(self) -> float:
        """What counts."""
        return median(self.rounds)


class Ratio(NamedTuple):
    """A goal that is the ratio of a value of two samples, round by round."""

    goal: Goal
    ours: Key
    theirs: Key
    value: Value


def _p50(result: Result) -> float:
    return result.p50


def _rate(result: Result) -> float:
    return result.rate


def _cpu(result: Result) -> float:
    return result.cpu


def _seconds(result: Result) -> float:
    return result.seconds


def _median_rate(result: Result) -> float:
    """Per second, by the median: a few stumbles of a database do not count."""
    return 1e6 / result.p50


def _check(server: str, connections: int) -> Key:
    return Key("check", server, Shape(connections))


def _claim(server: str, connections: int) -> Key:
    return Key("claim", server, Shape(connections))


def _application(server: str, tasks: int) -> Key:
    return Key("application", server, Shape(tasks))


def _shared(server: str, tasks: int) -> Key:
    return Key("shared", server, Shape(tasks))


def _ratios() -> Iterator[Ratio]:
    g1 = Goal("G1", "check without disk, 1 connection: p50 of the trio echo's", False, 1.2, 0.8)
    yield Ratio(g1, _check("gate", 1), _check("trio echo", 1), _p50)
    for n in (16, 256, 1000):
        g2 = Goal("G2", f"the same, {n} connections: calls/s of the asyncio server's", True, 0.8, 1.5)
        yield Ratio(g2, _check("gate", n), _check("asyncio", n), _rate)
    g3 = Goal(
        "G3", f"{STORM} reconnects while {BUSY} are busy: time of trio.serve_listeners'", False, round(1 / 3, 3), 0.05
    )
    yield Ratio(g3, Key("storm", "gate", BUSY), Key("storm", "trio echo", BUSY), _seconds)
    g4 = Goal("G4", "durable claim, 1 connection: p50 of an echo's with fdatasync", False, 3.0, 1.5)
    yield Ratio(g4, _claim("gate", 1), _claim("fdatasync echo", 1), _p50)
    for n, floor, goal in ((16, 2.0, 4.0), (256, 5.0, 10.0)):
        g5 = Goal("G5", f"durable claims/s, {n} connections: of one transaction each", True, floor, goal)
        yield Ratio(g5, _claim("gate", n), _claim("1 transaction each", n), _rate)
    for n, floor, goal in ((16, 1.0, 2.0), (256, 3.0, 5.0)):
        g6 = Goal("G6", f"durable claims/s, {n} tasks of AsyncGate: of redis.asyncio's, not durable", True, floor, goal)
        yield Ratio(g6, _application("gate", n), _application("redis", n), _rate)
        g6 = g6._replace(what=f"the same, {n} connections of the load generator")
        yield Ratio(g6, _claim("gate", n), _application("redis", n), _rate)
    for n, floor, goal in ((16, 2.0, 3.0), (256, 4.0, 6.0)):
        g8 = Goal("G8", f"claims/s, shared Redis, {n} tasks of AsyncGate: of redis.asyncio's", True, floor, goal)
        yield Ratio(g8, _shared("gate", n), _shared("redis", n), _rate)
        g9 = Goal("G9", f"the same: CPU of the application, {n} tasks", False, round(1 / 3, 3), round(1 / 6, 3))
        yield Ratio(g9, _shared("gate", n), _shared("redis", n), _cpu)
    g7 = Goal("G7", f"claims/s, {ROWS} connections: full ledger of empty", True, 0.7, 0.85)
    yield Ratio(g7, Key("rows", "full", ROWS), Key("rows", "empty", ROWS), _rate)
    for server, floor, goal in (("limited", 0.95, 0.98), ("gated", 0.99, 0.995)):
        g10 = Goal("G10", f"empty jobs/s of a procrastinate worker, {server}: of one without a gate", True, floor, goal)
        yield Ratio(g10, Key("job", server, Shape(1)), Key("job", "no gate", Shape(1)), _median_rate)
    g14 = Goal("G14", "is it open and until when, per second: of croniter's get_prev and get_next", True, 50.0, 300.0)
    yield Ratio(g14, Key("window", "gate", Shape(1)), Key("window", "croniter", Shape(1)), _rate)


RATIOS = tuple(_ratios())
FOOTPRINT = {
    "import": Goal("G11", "CPU of `import gate_client` over msgspec's", False, 20.0, 5.0, "ms"),
    "client": Goal("G11", "CPU of `from gate_client import Gate` over msgspec's", False, 20.0, 5.0, "ms"),
    "idle": Goal("G12", "idle CPU with 1,000 connections, per 10 s", False, 10.0, 1.0, "ms"),
    "memory": Goal("G13", "memory when idle (RSS, SQLite)", False, 50.0, 36.0, "MB"),
    "start": Goal("G15", "start to first durable answer", False, 1.0, 0.5, "s"),
}


def findings(samples: Samples, footprint: Mapping[str, list[float]]) -> list[Finding]:
    """What was measured, for those goals for which anything was."""
    found: list[Finding] = []
    for goal, ours, theirs, value in RATIOS:
        pairs = zip(samples.get(ours, []), samples.get(theirs, []), strict=False)
        if rounds := [value(a) / value(b) for a, b in pairs]:
            found.append(Finding(goal, rounds))
    return found + [Finding(FOOTPRINT[name], rounds) for name, rounds in footprint.items()]
