"""What the gate and its client cost while they do nothing: import, idle CPU, memory, start."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.frames import GET_INFO, claims, first_minute
from tests.bench.loadgen import cpu_seconds
from tests.bench.processes import Bench, Target
from tests.support.gate_process import PATIENCE, RawClient

IDLE_CONNECTIONS = 1000
REPORTED_SECONDS = 10.0
SETTLING_SECONDS = 0.2

_IMPORT = "import msgspec, time; t = time.process_time(); {}; print((time.process_time() - t) * 1e3)"


def import_milliseconds(bench: Bench, statement: str, runs: int) -> list[float]:
    """CPU that an import takes where msgspec is imported already; byte code compiled by a run before."""
    program = _IMPORT.format(statement)
    bench.python("-c", program)
    return [float(bench.python("-c", program)) for _ in range(runs)]


def idle_cpu_milliseconds(bench: Bench, seconds: float) -> float:
    """CPU that a gate takes in ten seconds, with a thousand connections that say nothing."""
    with bench.gate() as gate, _connected(gate, IDLE_CONNECTIONS):
        time.sleep(SETTLING_SECONDS)
        before = cpu_seconds(gate.pid)
        time.sleep(seconds)
        return (cpu_seconds(gate.pid) - before) * 1e3 * REPORTED_SECONDS / seconds


def resident_megabytes(bench: Bench, runs: int) -> list[float]:
    """Memory of a gate that has just started and does nothing."""
    found: list[float] = []
    for _ in range(runs):
        with bench.gate() as gate:
            time.sleep(SETTLING_SECONDS)
            status = Path(f"/proc/{gate.pid}/status").read_text()
        found.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
    return found


def start_seconds(bench: Bench, runs: int) -> list[float]:
    """From the start of the process to the answer to a first claim, on an empty ledger; byte code compiled."""
    return [_start(bench) for _ in range(runs)]


def _start(bench: Bench) -> float:
    gate = bench.make_gate()
    call = claims(1, first_minute())[0]
    try:
        start = time.perf_counter()
        gate.spawn()
        with _first_connection(gate.socket) as client:
            client.send_raw(call)
            assert client.recv()["parameters"]["decision"] == "send"
        return time.perf_counter() - start
    finally:
        gate.kill()


def _first_connection(path: Path) -> RawClient:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return RawClient(path)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.001)


@contextmanager
def _connected(target: Target, number: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(number):
            client = stack.enter_context(RawClient(target.socket))
            client.send_raw(GET_INFO)
            client.recv()
        yield
