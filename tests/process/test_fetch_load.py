"""Ten thousand rules and a thousand watchers: what a Check costs, how fast a change reaches all, and how much memory.

Bounds are ten times the goals where a slow machine would miss them.
"""

import resource
import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.bench.loadgen import cpu_seconds
from tests.support import tell
from tests.support.gate_process import GateProcess, RawClient, frame
from tests.support.watcher import RawWatcher, watcher

pytestmark = [pytest.mark.process, pytest.mark.slow]

RULES = 10_000
WATCHERS = 990
"""A thousand connections are allowed; some are left for operators."""
CHECKS = 5_000
MOST_CHECK_SECONDS = 100e-6 * 10
MOST_CHANGE_SECONDS = 1.0 * 10
MOST_MEGABYTES = 150
START_SECONDS = 60.0

Make = Callable[..., GateProcess]


def config(first: str = "") -> str:
    """Ten thousand rules in twenty-four kinds of hours; `first` is a rule before them."""
    hours = "".join(
        f'h{n} = ["mon-fri {n:02}:00-{(n + 7) % 24:02}:30", "sat,sun {(n + 3) % 24:02}:00-{(n + 9) % 24:02}:00"]\n'
        for n in range(24)
    )
    rules = "".join(
        f'[[fetch]]\nname = "rule-{n}"\nworkers = ["worker-{n // 10}-*"]\nqueues = ["queue-{n}", "q-{n}-*"]\n'
        f'open = ["h{n % 24}"]\nclosed = ["h{(n + 5) % 24}"]\n'
        for n in range(RULES)
    )
    return f'timezone = "Europe/Berlin"\n[hours]\n{hours}{first}{rules}'


@contextmanager
def watching(gate: GateProcess) -> Iterator[list[RawWatcher]]:
    """Every worker asks for two queues of its own, so that no two have an answer in common."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    try:
        with ExitStack() as stack:
            yield [
                stack.enter_context(watcher(gate.socket, f"worker-{n}-a", [f"queue-{10 * n}", f"queue-{10 * n + 7}"]))
                for n in range(WATCHERS)
            ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def seconds_until_all_are_told(watchers: list[RawWatcher], change: Callable[[], object]) -> float:
    """From the beginning of a change until the last of them has read a new answer."""
    poll, waiting = select.poll(), {connection.sock.fileno(): connection for connection in watchers}
    for fd in waiting:
        poll.register(fd, select.POLLIN)
    begin = time.perf_counter()
    change()
    while waiting:
        ready = poll.poll(MOST_CHANGE_SECONDS * 1e3)
        assert ready, f"{len(waiting)} were never told"
        for fd, _ in ready:
            waiting.pop(fd).next()
            poll.unregister(fd)
    return time.perf_counter() - begin


def megabytes(gate: GateProcess) -> float:
    status = Path(f"/proc/{gate.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def check_seconds(gate: GateProcess, client: RawClient) -> float:
    """CPU of the gate for one Check; thirty-two are on their way at a time, each for other queues."""
    calls = [
        frame("Fetch.Check", worker=f"worker-{n % 1000}-b", queues=[f"queue-{n % 1000 * 10 + n % 10}", "x"])
        for n in range(CHECKS)
    ]
    before = cpu_seconds(gate.pid)
    for start in range(0, CHECKS, 32):
        some = calls[start : start + 32]
        client.send_raw(b"".join(some))
        for _ in some:
            client.reply()
    return (cpu_seconds(gate.pid) - before) / CHECKS


def test_ten_thousand_rules_and_a_thousand_watchers(make_gate: Make) -> None:
    begin = time.perf_counter()
    gate = make_gate(config=config(), log_level="info").start()
    tell(f"start with {RULES} rules: {time.perf_counter() - begin:.2f} s")
    with gate.client(START_SECONDS) as client, watching(gate) as watchers:
        first, again = check_seconds(gate, client), check_seconds(gate, client)
        tell(f"a Check: {first * 1e6:.0f} µs of CPU the first time, {again * 1e6:.0f} µs again")

        size = megabytes(gate)

        def close() -> None:
            client.post("Control.Override", rule="*", action="close", until="2027-01-01T00:00:00Z", note="all")

        override = seconds_until_all_are_told(watchers, close)
        assert len(client.reply()["overrides"]) == RULES
        tell(f"an override of all rules reached {WATCHERS} watchers in {override:.3f} s")
        client.call("Control.Override", rule="*", action="auto")
        for connection in watchers:
            connection.next()

        gate.config.write_text(config('[[fetch]]\nname = "first"\nqueues = ["*"]\n'))
        reload = seconds_until_all_are_told(watchers, lambda: client.post("Control.Reload"))
        client.reply()
        tell(f"a reload of {RULES} rules reached {WATCHERS} watchers in {reload:.3f} s")
        begin = time.perf_counter()
        assert client.call("Control.Status")["rules_total"] == RULES + 1
        tell(f"a status took {time.perf_counter() - begin:.3f} s")
        tell(f"resident: {size:.0f} MB before, {megabytes(gate):.0f} MB after an override and a reload of all")
    assert max(first, again) < MOST_CHECK_SECONDS
    assert max(override, reload) < MOST_CHANGE_SECONDS
    assert size < MOST_MEGABYTES
