"""Limits over the gates of several hosts on one Redis."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gate.sharing import LOOK_SECONDS
from tests.process.test_permits import CHAOS_SECONDS, HOLD, chaotic, ended, observed, script
from tests.support import tell
from tests.support.gate_process import PATIENCE, GateProcess, RawClient
from tests.support.gatectl import gatectl
from tests.support.proxy import Fault, Proxy
from tests.support.redis import RedisServer
from tests.support.redis_store import new_prefix

pytestmark = pytest.mark.process

HOSTS = 3
LEASE = 3.0
LONG = 15.0
"""Gates that are killed are back before it is over, however busy the machine is."""
TENFOLD = 10


def config(url: str, limit: int = 3, prefix: str = "gate", lease: float = LEASE) -> str:
    return f"""
timezone = "UTC"
[store]
url = "{url}"
prefix = "{prefix}"
lease = "{lease:g}s"
[[fetch]]
name = "dicom"
queues = ["dicom"]
at_once = {limit}
"""


@pytest.fixture
def gates(server: RedisServer, tmp_path: Path) -> Iterator[list[GateProcess]]:
    with ExitStack() as stack:
        made = [
            GateProcess(tmp_path / f"host{n}", config=config(server.unix_url), log_level="info") for n in range(HOSTS)
        ]
        yield [stack.enter_context(gate) for gate in made]


def acquire(client: RawClient, session: str = "s") -> Any:
    return client.call("Fetch.Acquire", worker="w", queues=["dicom"], session=session, timeout=3 * PATIENCE)


def granted(client: RawClient, session: str = "s", seconds: float = PATIENCE) -> str:
    """A permit, as soon as there is one."""
    end = time.monotonic() + seconds
    while (answer := acquire(client, session))["permit"] is None:
        assert time.monotonic() < end, answer["reason"]
        time.sleep(0.05)
    return str(answer["permit"])


def said(gate: GateProcess, text: str, *command: str) -> None:
    """Wait until a command of gatectl prints this."""
    end = time.monotonic() + PATIENCE
    while text not in (shown := gatectl(*command, "--socket", str(gate.socket)).stdout):
        assert time.monotonic() < end, shown


def test_a_limit_is_that_of_all_hosts_together(gates: list[GateProcess]) -> None:
    with gates[0].client() as a, gates[1].client() as b, gates[2].client() as c:
        granted(a)
        granted(b)
        last = granted(c)
        answer = acquire(a)
        assert answer["permit"] is None
        assert answer["reason"] == "rule dicom: limit 3, 1 taken here, and 2 held by other hosts"
        (pool,) = b.call("Control.Status")["pools"]
        assert (pool["limit"], pool["taken"], pool["elsewhere"]) == (3, 1, 2)
        c.call("Fetch.Release", permit=last)
        begin = time.monotonic()
        granted(a)
        tell(f"a place that came free on another host was had after {time.monotonic() - begin:.2f} s")
        assert time.monotonic() - begin < TENFOLD
        said(gates[1], "1 + 2 elsewhere", "status")
        said(gates[1], "rule dicom: limit 3, 1 taken here, 2 held by other hosts", "why", "worker", "w")


def test_one_who_asks_once_gets_what_another_host_does_not_use(gates: list[GateProcess]) -> None:
    with gates[0].client() as a, gates[1].client() as b:
        permits = [granted(a) for _ in range(3)]
        for permit in permits:
            a.call("Fetch.Release", permit=permit)
        begin = time.monotonic()
        assert acquire(b)["permit"] is not None
        tell(f"what another host had and did not use was had after {time.monotonic() - begin:.2f} s")


def test_who_waits_is_told_of_a_place_that_comes_free_on_another_host(gates: list[GateProcess]) -> None:
    with gates[0].client() as a, gates[1].client() as b, gates[1].client() as watch:
        permits = [granted(a) for _ in range(3)]
        watch.post("Fetch.Watch", more=True, worker="w", queues=["dicom"], session="b")
        watch.reply()
        assert acquire(b, "b")["permit"] is None
        begin = time.monotonic()
        a.call("Fetch.Release", permit=permits[0])
        while not watch.reply()["place"]:
            pass
        took = time.monotonic() - begin
        assert acquire(b, "b")["permit"] is not None
        tell(f"a worker was told of a place on another host after {took * 1e3:.0f} ms")
        assert took < TENFOLD


# -- faults, at a lease of three seconds


def test_a_gate_that_is_cut_off_gives_no_more_after_its_lease_and_recovers_by_itself(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    prefix = new_prefix()
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(shared_redis.port))
        urls = [proxy.url, shared_redis.url]
        made = [GateProcess(tmp_path / f"host{n}", config=config(url, 3, prefix)) for n, url in enumerate(urls)]
        cut, other = (stack.enter_context(gate) for gate in made)
        with cut.client() as a, other.client() as b:
            running = granted(a)
            proxy.put(Fault.CUT)
            begin = time.monotonic()
            reason = "rule dicom: what other hosts hold is not known, for the store is away"
            extra = []
            while (answer := acquire(a))["reason"] != reason:
                if answer["permit"] is not None:
                    extra.append(answer["permit"])
                    assert len(extra) < 3, "within the share that it had"
                assert time.monotonic() < begin + PATIENCE, answer
                time.sleep(0.05)
            took = time.monotonic() - begin
            assert took < LEASE, "before the others take what it held"
            assert a.call("Fetch.Check", worker="w", queues=["free"])["open"], "where no limit applies, starts go on"
            others = [granted(b) for _ in range(3)]
            tell(
                f"cut off: the last place after {took:.1f} s, the others had it after {time.monotonic() - begin:.1f} s"
            )
            for permit in extra:
                a.call("Fetch.Release", permit=permit)
            proxy.put(Fault.NONE)
            while (answer := acquire(a))["reason"] == reason:
                time.sleep(0.05)
            assert answer["permit"] is None, "three run on the other host"
            b.call("Fetch.Release", permit=others[0])
            time.sleep(2 * LOOK_SECONDS)
            assert acquire(a)["permit"] is None, "with its own, three run"
            b.call("Fetch.Release", permit=others[1])
            granted(a)
            a.call("Fetch.Release", permit=running)


def test_where_no_limit_applies_a_policy_says_whether_starts_go_on_without_the_store(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(shared_redis.port))
        text = config(proxy.url, 3, new_prefix()).replace("[[fetch]]", 'on_store_down = "closed"\n[[fetch]]')
        gate = stack.enter_context(GateProcess(tmp_path / "gate", config=text))
        watch, client = stack.enter_context(gate.client()), stack.enter_context(gate.client())
        watch.post("Fetch.Watch", more=True, worker="w", queues=["free"], session="w")
        assert watch.reply()["open"]
        proxy.put(Fault.CUT)
        begin = time.monotonic()
        closed = watch.reply()
        took = time.monotonic() - begin
        tell(f"cut off: closed after {took:.1f} s")
        assert LEASE / 2 < took < TENFOLD * LEASE
        reason = "the store is away, and on_store_down is 'closed'"
        assert (closed["open"], closed["reason"]) == (False, reason)
        assert client.call("Fetch.Check", worker="w", queues=["free"])["reason"] == reason
        asked = client.call("Fetch.Acquire", worker="w", queues=["free"], session="s")
        assert (asked["permit"], asked["reason"]) == (None, reason)
        said(gate, reason, "why", "worker", "w")
        proxy.put(Fault.NONE)
        assert watch.reply()["open"], "it is told"
        assert client.call("Fetch.Check", worker="w", queues=["free"])["open"]


def test_a_gate_that_is_killed_keeps_its_places_until_it_is_back(shared_redis: RedisServer, tmp_path: Path) -> None:
    prefix = new_prefix()
    with ExitStack() as stack:
        text = config(shared_redis.url, 3, prefix, 2 * LEASE)  # a start takes a while
        made = [GateProcess(tmp_path / f"host{n}", config=text) for n in range(2)]
        killed, other = (stack.enter_context(gate) for gate in made)
        with killed.client() as a:
            a.call("Fetch.Release", permit=granted(a))
        held = stack.enter_context(script(HOLD, killed))
        with other.client() as b:
            granted(b)
            assert acquire(b)["permit"] is None
            killed.kill()
            assert acquire(b)["permit"] is None
            killed.start()
            end = time.monotonic() + 2.5 * LEASE
            while time.monotonic() < end:
                assert acquire(b)["permit"] is None
                time.sleep(0.05)
            held.kill()
            held.wait()
            assert [granted(b), granted(b)]


def test_the_places_of_a_host_that_is_dead_are_free_after_the_lease(shared_redis: RedisServer, tmp_path: Path) -> None:
    prefix = new_prefix()
    with ExitStack() as stack:
        made = [GateProcess(tmp_path / f"host{n}", config=config(shared_redis.url, 3, prefix)) for n in range(2)]
        dead, other = (stack.enter_context(gate) for gate in made)
        with dead.client() as a, other.client() as b:
            for _ in range(3):
                granted(a)
            dead.kill()
            begin = time.monotonic()
            granted(b)
            took = time.monotonic() - begin
            tell(f"a place of a dead host was had after {took:.1f} s")
            assert took > LEASE / 2


def test_a_ramp_is_that_of_all_hosts(shared_redis: RedisServer, tmp_path: Path) -> None:
    """It has begun with this minute, or the one before."""
    since = datetime.now(UTC) - timedelta(seconds=10)
    hours = f"{since:%Y-%m-%d %H:%M} .. {since + timedelta(days=1):%Y-%m-%d %H:%M}"
    text = config(shared_redis.url, 8, new_prefix()) + f'open = ["{hours}"]\nramp = "2 every 1h"\n'
    with ExitStack() as stack:
        gates = [stack.enter_context(GateProcess(tmp_path / f"host{n}", config=text)) for n in range(2)]
        clients = [stack.enter_context(gate.client()) for gate in gates]
        granted(clients[0])
        given = [acquire(client, f"{n}")["permit"] for n in range(3) for client in reversed(clients)]
        assert sum(permit is not None for permit in given) == 1


# -- chaos


def test_chaos_over_hosts_never_runs_more_at_once_than_the_limit_in_force(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    """kill -9 of workers and of gates, SIGSTOP, other limits: an observer reads who ran when, on all hosts."""
    seed, prefix = int(os.environ.get("GATE_CHAOS_SEED", "1")), new_prefix()
    dice, log = random.Random(seed), tmp_path / "log"
    note = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    limit, kills = 3, 0
    os.write(note, b"L 3\n")
    with ExitStack() as stack:
        stack.callback(os.close, note)
        made = [
            GateProcess(tmp_path / f"host{n}", config=config(shared_redis.url, 3, prefix, LONG)) for n in range(HOSTS)
        ]
        gates = [stack.enter_context(gate) for gate in made]
        hosts = [gates[number % HOSTS] for number in range(2 * HOSTS)]
        workers = [chaotic(gate, log, number, dice.choice([1, 4])) for number, gate in enumerate(hosts)]
        end = time.monotonic() + CHAOS_SECONDS
        try:
            while time.monotonic() < end:
                time.sleep(dice.uniform(0.1, 0.5))
                index = dice.randrange(len(workers))
                match dice.choice(["kill", "stop", "gate", "limit", "limit"]):
                    case "kill":
                        ended(workers[index], note)
                        workers[index] = chaotic(hosts[index], log, dice.randrange(10**6), dice.choice([1, 4]))
                    case "stop":
                        workers[index].send_signal(signal.SIGSTOP)
                        time.sleep(dice.uniform(0.1, 0.4))
                        workers[index].send_signal(signal.SIGCONT)
                    case "gate":
                        kills += 1
                        hosts[index].kill()
                        hosts[index].start()
                    case "limit":
                        before, limit = limit, dice.randint(1, 6)
                        if limit > before:
                            os.write(note, f"L {limit}\n".encode())
                        for gate in gates:
                            gate.config.write_text(config(shared_redis.url, limit, prefix, LONG))
                            with gate.client() as client:
                                client.call("Control.Reload")
                        if limit < before:
                            os.write(note, f"L {limit}\n".encode())
        finally:
            for one in workers:
                ended(one, note)
        starts, _, most = observed(log.read_text().splitlines())
        peaks = ", ".join(f"{most[limit]} of {limit}" for limit in sorted(most))
        tell(f"chaos over {HOSTS} hosts, seed {seed}: {starts} starts, {kills} kills of a gate; at most {peaks}")
        assert starts > CHAOS_SECONDS
