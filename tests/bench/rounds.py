"""What is measured in a round: everything that is compared, one after the other."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.bench import ledgers, peers, permits, windows
from tests.bench.frames import GET_INFO, Shape
from tests.bench.loadgen import Result
from tests.bench.processes import Bench, Target, answer_to, answer_to_claim

CHECKS = (Shape(1), Shape(16), Shape(256), Shape(1000), Shape(1, 32), Shape(16, 32))
CLAIMS = (Shape(1), Shape(16), Shape(256), Shape(1, 32), Shape(16, 32))
BUSY, STORM = Shape(64), 500
TASKS = (Shape(16), Shape(256))
ROWS = Shape(256)
SYNCS = 200


class Key(NamedTuple):
    """What was measured (check, storm, claim, application, shared, rows, window, job), of which server, how asked."""

    what: str
    server: str
    shape: Shape


Samples = defaultdict[Key, list[Result]]


class Rounds:
    """The samples of all rounds. `say` is told what goes on; `brief`: leave out what no goal needs."""

    def __init__(self, bench: Bench, rows: int, say: Callable[[str], None], *, brief: bool) -> None:
        self.samples: Samples = defaultdict(list)
        self._bench = bench
        self._rows = rows
        self._say = say
        self._brief = brief
        self._odd = False
        self._full: Path | None = None
        with bench.gate() as gate:
            self._info = answer_to(gate, GET_INFO)
            self._grant = answer_to_claim(gate)
        self.parts: dict[str, Callable[[], None]] = {
            "checks": self._checks,
            "claims": self._claims,
            "applications": self._applications,
            "shared": self._shared,
            "rows": self._tables,
            "windows": self._windows,
            "permits": self._permits,
        }

    def run(self, parts: Iterable[str]) -> None:
        """One round; in every second one, all orders are turned round."""
        for part in parts:
            self.parts[part]()
        self._odd = not self._odd

    def _turn(self, *ways: tuple[str, Callable[[], Result]], what: str, shape: Shape) -> None:
        """Measure what is compared with each other."""
        for server, measure in reversed(ways) if self._odd else ways:
            self._say(f"{what}, {shape}: {server}")
            self.samples[Key(what, server, shape)].append(measure())

    def _wanted(self, shapes: tuple[Shape, ...]) -> Iterable[Shape]:
        return dict.fromkeys(shape for shape in shapes if shape.depth == 1) if self._brief else shapes

    def _checks(self) -> None:
        bench = self._bench
        with bench.gate() as gate, bench.peer("echo", self._info) as echo, bench.peer("asyncio") as protocol:
            servers = {"gate": gate, "trio echo": echo, "asyncio": protocol}
            for shape in self._wanted(CHECKS):
                ways = [(name, _later(bench.check, target, shape)) for name, target in servers.items()]
                self._turn(*ways, what="check", shape=shape)
            self._turn(
                ("gate", lambda: bench.check(gate, BUSY, storm=STORM)),
                ("trio echo", lambda: bench.check(echo, BUSY, storm=STORM)),
                what="storm",
                shape=BUSY,
            )

    def _claims(self) -> None:
        bench = self._bench
        with bench.peer("echo", self._grant) as echo, bench.peer("fdatasync", self._grant) as blocking:
            # The first twice: what is compared there depends most on the disk.
            for shape in self._wanted((CLAIMS[0], *CLAIMS)):
                ways = [
                    ("gate", _later(self._claim, shape)),
                    ("trio echo", _later(bench.claim_of_echo, echo, shape)),
                    ("1 transaction each", _later(self._claim_alone, shape)),
                ]
                if shape == Shape(1):
                    ways.insert(1, ("fdatasync echo", _later(bench.claim_of_echo, blocking, shape)))
                    ways.append(("fdatasync alone", self._fdatasync))
                self._turn(*ways, what="claim", shape=shape)

    def _claim(self, shape: Shape) -> Result:
        with self._bench.gate() as gate:
            return self._bench.claim(gate, shape)

    def _claim_alone(self, shape: Shape) -> Result:
        with self._bench.peer("transaction") as target:
            return self._bench.claim(target, shape)

    def _fdatasync(self) -> Result:
        file = self._bench.fresh()
        write = peers.preallocated(file)
        taken: list[float] = []
        for _ in range(SYNCS):
            start = time.perf_counter()
            write()
            taken.append((time.perf_counter() - start) * 1e6)
        file.unlink()
        return Result(SYNCS, sum(taken) / 1e6, sorted(taken)[SYNCS // 2], sorted(taken)[int(SYNCS * 0.99)], 0.0)

    def _applications(self) -> None:
        bench = self._bench
        with bench.redis() as redis:
            for shape in TASKS:
                self._turn(
                    ("gate", _later(self._claim_by_client, shape)),
                    ("redis", _later(bench.claimer, "redis", redis, shape.connections)),
                    what="application",
                    shape=shape,
                )

    def _shared(self) -> None:
        bench = self._bench
        with bench.redis() as redis:
            for shape in (Shape(1), *TASKS):
                self._turn(
                    ("gate", _later(self._claim_by_client, shape, redis.socket)),
                    ("redis", _later(bench.claimer, "redis", redis, shape.connections)),
                    what="shared",
                    shape=shape,
                )

    def _claim_by_client(self, shape: Shape, store: Path | None = None) -> Result:
        with self._bench.gate(store=store) as gate:
            return self._bench.claimer("gate", gate, shape.connections)

    def _tables(self) -> None:
        if self._full is None:
            self._say(f"making {self._rows:,} rows")
            self._full = ledgers.make(self._bench, self._rows)
        since, full = ledgers.settle(self._full), self._full

        def claim(folder: Path | None) -> Result:
            with self._bench.gate(folder) as gate:
                return self._bench.claim(gate, ROWS, since)

        self._turn(("full", lambda: claim(full)), ("empty", lambda: claim(None)), what="rows", shape=ROWS)

    def _windows(self) -> None:
        seconds = self._bench.pace.seconds
        self._turn(
            ("gate", lambda: windows.gate(seconds)),
            ("croniter", lambda: windows.other(seconds)),
            what="window",
            shape=Shape(1),
        )

    def _permits(self) -> None:
        with permits.servers(self._bench) as running:
            self._say("empty jobs of procrastinate workers")
            for kind, result in permits.measure(running, self._bench.pace.seconds).items():
                self.samples[Key("job", kind, Shape(1))].append(result)


def _later(measure: Callable[..., Result], *arguments: str | int | Shape | Target | Path) -> Callable[[], Result]:
    return lambda: measure(*arguments)
