"""Limits of a real gate: places through kill -9, SIGSTOP and restarts, over processes; who is told of a free one."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gate.interface import rfc3339
from tests.support import tell
from tests.support.gate_process import ROOT, ErrorReply, GateProcess, RawClient
from tests.support.watcher import RawWatcher

pytestmark = pytest.mark.process

CHAOS_SECONDS = float(os.environ.get("GATE_CHAOS_SECONDS", "12"))
GRACE_SECONDS = 2.0
FREE_SECONDS = 1.0
"""Ten times what a freed place may take to be offered."""

FOLLOW_SECONDS = 2.0
"""Ten times what a reload may take to be followed."""

Make = Callable[..., GateProcess]


def config(limit: int) -> str:
    return f'timezone = "UTC"\n[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\nat_once = {limit}\n'


def acquire(client: RawClient, session: str = "s", permit: str | None = None) -> Any:
    asked: dict[str, Any] = {} if permit is None else {"permit": permit}
    return client.call("Fetch.Acquire", worker="w", queues=["dicom"], session=session, **asked)


def taken(gate: GateProcess) -> int:
    with gate.client() as client:
        (pool,) = client.call("Control.Status")["pools"]
    return int(pool["taken"])


def until(what: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait until something is so; returns how long that took."""
    start = time.monotonic()
    while not what():
        assert time.monotonic() < start + seconds, "it did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - start


def test_no_more_places_than_the_limit_and_a_retry_gets_the_same_answer(make_gate: Make) -> None:
    gate = make_gate(config=config(2)).start()
    with gate.client() as one, gate.client() as other:
        assert acquire(one, permit="a")["permit"] == "a"
        assert acquire(other, permit="b")["permit"] == "b"
        refused = acquire(one, permit="c")
        assert (refused["open"], refused["permit"], refused["queues"]) == (False, None, [])
        assert "all 2 places of rule dicom are taken" in refused["reason"]
        assert acquire(other, permit="a")["permit"] == "a"
        one.call("Fetch.Release", permit="a")
        one.call("Fetch.Release", permit="a")
        assert taken(gate) == 1


def test_a_job_keeps_only_the_places_of_its_queue(make_gate: Make) -> None:
    rule = '[[fetch]]\nname = "{0}"\nqueues = ["{0}"]\nat_once = 1\n'
    gate = make_gate(config=f'timezone = "UTC"\n{rule.format("a")}{rule.format("b")}').start()
    with gate.client() as client:
        both = client.call("Fetch.Acquire", worker="w", queues=["a", "b"], session="s")
        assert both["queues"] == ["a", "b"]
        client.call("Fetch.Bind", permit=both["permit"], queue="b", job="17")
        rest = client.call("Fetch.Acquire", worker="w", queues=["a", "b"], session="t")
        assert rest["queues"] == ["a"]


def test_what_is_unknown_or_may_not_be_is_an_error_by_name(make_gate: Make) -> None:
    gate = make_gate(config=config(2)).start()
    with gate.client() as client:
        with pytest.raises(ErrorReply, match="UnknownPermit"):
            client.call("Fetch.Bind", permit="no", queue="dicom")
        wrongs: list[dict[str, Any]] = [{"worker": ""}, {"session": ""}, {"permit": "x" * 129}, {"permit": ""}]
        for wrong in wrongs:
            with pytest.raises(ErrorReply, match="InvalidWorker"):
                client.call("Fetch.Acquire", **{"worker": "w", "session": "s", **wrong})
        assert client.call("Fetch.Release", permit="no") == {}


def test_a_freed_place_is_offered_to_the_one_who_waits_longest_and_to_nobody_else(make_gate: Make) -> None:
    gate = make_gate(config=config(1)).start()
    with gate.client() as client, RawWatcher(gate.socket) as first, RawWatcher(gate.socket) as second:
        for watcher, session in ((first, "1"), (second, "2")):
            watcher.watch("w", ["dicom"], session)
        held = acquire(client, "0")["permit"]
        assert acquire(client, "1")["permit"] is None
        assert acquire(client, "2")["permit"] is None
        start = time.monotonic()
        client.call("Fetch.Release", permit=held)
        told = first.next()
        took = time.monotonic() - start
        assert (told["open"], told["limited"], told["place"]) == (True, True, True)
        assert second.is_quiet()
        assert acquire(client, "3")["permit"] is None
        assert acquire(client, "1")["permit"] is not None
        tell(f"a freed place was offered after {took * 1e3:.1f} ms")
        assert took < FREE_SECONDS


def test_at_an_opening_exactly_as_many_start_as_may(make_gate: Make) -> None:
    gate = make_gate(config=config(8)).start()
    with gate.client() as client:
        client.call(
            "Control.Override",
            rule="dicom",
            action="close",
            until=rfc3339(datetime.now(UTC) + timedelta(hours=1)),
            note="n",
        )
        watchers = [RawWatcher(gate.socket) for _ in range(50)]
        for number, watcher in enumerate(watchers):
            watcher.watch("w", ["dicom"], str(number))
        client.call("Control.Override", rule="dicom", action="auto")
        granted = []
        for number, watcher in enumerate(watchers):
            assert watcher.next()["open"]
            granted.append(acquire(client, str(number))["permit"] is not None)
        assert granted == [True] * 8 + [False] * 42
        for watcher in watchers:
            watcher.close()


def test_a_reload_with_another_limit_counts_at_once_and_ends_nothing(make_gate: Make) -> None:
    gate = make_gate(config=config(8)).start()
    with ExitStack() as stack, gate.client() as client:
        watchers = [stack.enter_context(RawWatcher(gate.socket)) for _ in range(10)]
        for number, watcher in enumerate(watchers):
            watcher.watch("w", ["dicom"], str(number))
        held = [acquire(client, str(number), f"permit {number}")["permit"] for number in range(8)]
        assert None not in held
        assert [acquire(client, str(number))["permit"] for number in (8, 9)] == [None, None]
        change(gate, client, 3)
        assert taken(gate) == 8
        for permit in held[:5]:
            client.call("Fetch.Release", permit=permit)
            assert acquire(client, "8")["permit"] is None
        assert all(watcher.is_quiet() for watcher in watchers)
        start = time.monotonic()
        change(gate, client, 5)
        for watcher in watchers[8:]:
            assert watcher.next()["place"]
        took = time.monotonic() - start
        assert all(watcher.is_quiet() for watcher in watchers), "one push for each free place"
        assert [acquire(client, str(number))["permit"] is None for number in (7, 8, 9)] == [True, False, False]
    tell(f"a larger limit was offered {took * 1e3:.1f} ms after the reload was asked for")
    assert took < FOLLOW_SECONDS


def change(gate: GateProcess, client: RawClient, limit: int) -> None:
    """Another limit, by a reload."""
    gate.config.write_text(config(limit))
    client.call("Control.Reload")


def test_the_places_of_a_killed_worker_are_free_after_the_grace(make_gate: Make) -> None:
    gate = make_gate(config=config(2)).start()
    with holder(gate) as held:
        held.kill()
        held.wait()
        with gate.client() as client:
            assert acquire(client)["permit"] is None
            took = until(lambda: acquire(client)["permit"] is not None)
    tell(f"the places of a killed worker were free after {took:.2f} s")
    assert took > GRACE_SECONDS / 2


@pytest.mark.parametrize("reads", [True, False])
def test_a_grant_that_was_never_read_is_free_when_its_connection_closes(reads: bool, make_gate: Make) -> None:
    gate = make_gate(config=config(1)).start()
    with gate.client() as leaves, gate.client() as stays:
        leaves.post("Fetch.Acquire", worker="w", queues=["dicom"], session="s")
        assert select.select([leaves.sock], [], [], 5.0)[0]
        if reads:
            assert leaves.reply()["open"]
        leaves.close()
        if reads:
            assert stays.call("Control.Status")["pools"][0]["taken"] == 1
        else:
            until(lambda: acquire(stays)["open"])


def test_a_stopped_worker_keeps_its_places_through_a_kill_of_the_gate(make_gate: Make) -> None:
    gate = make_gate(config=config(2)).start()
    with holder(gate) as held:
        held.send_signal(signal.SIGSTOP)
        gate.kill()
        gate.start()
        with gate.client() as client:
            end = time.monotonic() + 2 * GRACE_SECONDS
            while time.monotonic() < end:
                assert acquire(client)["permit"] is None
                time.sleep(0.05)
            held.send_signal(signal.SIGCONT)
            until(lambda: taken(gate) == 2)
            assert acquire(client)["permit"] is None


def test_a_busy_worker_keeps_its_place_through_a_kill_of_the_gate_though_another_of_its_process_is_back(
    make_gate: Make,
) -> None:
    gate = make_gate(config=config(2)).start()
    with script(HOLD_TWO, gate, stdin=subprocess.PIPE) as held:
        gate.kill()
        gate.start()
        with gate.client() as client:
            until(lambda: named(client) == 1)
            end = time.monotonic() + 1.5 * GRACE_SECONDS
            while time.monotonic() < end:
                assert acquire(client)["permit"] is None
                time.sleep(0.05)
            assert (taken(gate), named(client)) == (2, 1)
            assert held.stdin is not None
            held.stdin.close()
            until(lambda: named(client) == 2)
            assert acquire(client)["permit"] is None


def named(client: RawClient) -> int:
    """How many places are taken of which the gate knows the job."""
    (pool,) = client.call("Control.Status")["pools"]
    return len(pool["places"])


def test_chaos_never_runs_more_at_once_than_the_limit_in_force(make_gate: Make, tmp_path: Path) -> None:
    """kill -9 of workers and of the gate, SIGSTOP, other limits, orders: an observer reads who ran when."""
    seed = int(os.environ.get("GATE_CHAOS_SEED", "1"))
    dice, log = random.Random(seed), tmp_path / "log"
    gate = make_gate(config=config(3)).start()
    note = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    workers = [chaotic(gate, log, number, hands) for number, hands in enumerate([1, 1, 1, 10, 10])]
    limit, closed, gates = 3, False, 0
    os.write(note, b"L 3\n")

    def now_in_force(before: int, after: int, change: Callable[[], object]) -> None:
        """What is larger counts before it is asked for, what is smaller after it was answered."""
        if after > before:
            os.write(note, f"L {after}\n".encode())
        change()
        if after <= before:
            os.write(note, f"L {after}\n".encode())

    try:
        end = time.monotonic() + CHAOS_SECONDS
        while time.monotonic() < end:
            time.sleep(dice.uniform(0.1, 0.5))
            match dice.choice(["kill", "stop", "gate", "limit", "limit", "order", "order"]):
                case "kill":
                    index = dice.randrange(len(workers))
                    ended(workers[index], note)
                    workers[index] = chaotic(gate, log, dice.randrange(10**6), dice.choice([1, 1, 1, 10]))
                case "stop":
                    stopped = dice.choice(workers)
                    stopped.send_signal(signal.SIGSTOP)
                    time.sleep(dice.uniform(0.1, 0.4))
                    stopped.send_signal(signal.SIGCONT)
                case "gate":
                    gates += 1
                    gate.kill()
                    gate.start()
                case "limit":
                    before, limit = limit, dice.randint(1, 6)
                    with gate.client() as client:
                        if closed:
                            change(gate, client, limit)
                        else:
                            now_in_force(before, limit, partial(change, gate, client, limit))
                case "order":
                    action = dice.choice(["close", "auto", "open"])
                    before, closed = 0 if closed else limit, action == "close"
                    with gate.client() as client:
                        now_in_force(before, 0 if closed else limit, partial(order, client, action))
    finally:
        for one in workers:
            ended(one, note)
        os.close(note)
    starts, again, most = observed(log.read_text().splitlines())
    peaks = ", ".join(f"{most[limit]} of {limit}" for limit in sorted(most))
    told = f"{starts} starts, {again} of them with the place of the job before, {gates} kills of the gate"
    tell(f"chaos of {CHAOS_SECONDS:g} s, seed {seed}: {told}; at most {peaks}")
    assert starts > CHAOS_SECONDS
    until(lambda: taken(gate) == 0)


def order(client: RawClient, action: str) -> None:
    """Close, open or leave the rule to its hours."""
    end: dict[str, Any] = {"until": rfc3339(datetime.now(UTC) + timedelta(hours=1)), "note": "chaos"}
    client.call("Control.Override", rule="dicom", action=action, **({} if action == "auto" else end))


def observed(lines: list[str]) -> tuple[int, int, dict[int, int]]:
    """Count starts, those with a place that served a job before, and by limit the most that ran at one; fails at one
    above the limit.

    That is the largest one in force since the place was asked for: a smaller one ends no grant that is on its way, nor
    one that serves another job in the moment for which it is good.
    """
    running: set[tuple[str, str]] = set()
    asked: dict[tuple[str, ...], int] = {}
    """By the hand that asks, and by the permit that it got."""
    most: dict[int, int] = {}
    limit = starts = again = 0
    for line in lines:
        sign, *rest = line.split()
        match sign:
            case "L":
                limit = int(rest[0])
                asked = {asker: max(since, limit) for asker, since in asked.items()}
            case "x":
                running = {one for one in running if one[0] != rest[0]}
            case "?":
                asked[rest[0], rest[1]] = limit
            case "-":
                running.discard((rest[0], rest[1]))
            case "+":
                running.add((rest[0], rest[1]))
                starts += 1
                again += (rest[2],) in asked
                allowed = asked.setdefault((rest[2],), asked[rest[0], rest[1]])
                assert len(running) <= allowed, f"{len(running)} run under a limit of {allowed}"
                most[allowed] = max(most.get(allowed, 0), len(running))
    return starts, again, most


def chaotic(gate: GateProcess, log: Path, seed: int, hands: int) -> subprocess.Popen[bytes]:
    numbers = (str(seed), str(hands))
    command = [sys.executable, "-m", "tests.support.chaotic_worker", str(gate.socket), str(log), "w", *numbers]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}"})


def ended(one: subprocess.Popen[bytes], note: int) -> None:
    one.kill()
    one.wait()
    os.write(note, f"x {one.pid}\n".encode())


HOLD = """
import asyncio, sys
from gate_client.places import Places

async def main():
    places = Places("w", socket=sys.argv[1])
    for job in range(2):
        answer = await places.acquire(["dicom"], timeout=5)
        places.bind(answer.permit, "dicom", str(job))
    print("held", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


HOLD_TWO = """
import asyncio, sys, threading
from gate_client.places import Places

async def hold(busy):
    places = Places("w", socket=sys.argv[1])
    answer = await places.acquire(["dicom"], timeout=5)
    places.bind(answer.permit, "dicom", str(busy))
    if busy:
        print("held", flush=True)
        sys.stdin.read()
    else:
        ready.set()
    await asyncio.sleep(600)

ready = threading.Event()
threading.Thread(target=asyncio.run, args=[hold(False)], daemon=True).start()
ready.wait()
asyncio.run(hold(True))
"""
"""Two workers in one process. One of them is busy, so that it does not come back, until its input is at its end."""


@contextmanager
def holder(gate: GateProcess) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds two places."""
    with script(HOLD, gate) as held:
        yield held


@contextmanager
def script(text: str, gate: GateProcess, stdin: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said that it holds its places."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}"}
    command = [sys.executable, "-c", text, str(gate.socket)]
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, env=env) as held:
        try:
            assert held.stdout is not None
            assert held.stdout.readline() == b"held\n"
            yield held
        finally:
            held.kill()
