"""A gate whose way to the store is cut, half-open, deaf or slow."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import tell
from tests.support.gate_process import ErrorReply, GateProcess
from tests.support.instants import minute
from tests.support.proxy import Fault, Proxy
from tests.support.redis import RedisServer
from tests.support.redis_store import new_prefix

pytestmark = pytest.mark.process

ANSWER_SECONDS = 3.5
"""A claim may wait for two tries of another, and has one of its own; half a second for a busy machine."""


@pytest.fixture
def proxy(shared_redis: RedisServer) -> Iterator[Proxy]:
    with Proxy(shared_redis.port) as made:
        yield made


@pytest.fixture
def gate(proxy: Proxy, tmp_path: Path) -> Iterator[GateProcess]:
    config = f'[store]\nurl = "{proxy.url}"\nprefix = "{new_prefix()}"\n'
    with GateProcess(tmp_path / "gate", config=config, log_level="info") as made:
        yield made


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.HALF_OPEN, Fault.DEAF])
def test_nothing_is_granted_without_the_store_and_the_next_request_after_it_is(
    gate: GateProcess, proxy: Proxy, fault: Fault
) -> None:
    with gate.client() as client:
        assert client.claim("s", minute(3))["decision"] == "send"
        proxy.put(fault)
        longest = 0.0
        for token in ("t", "u"):
            begin = time.monotonic()
            with pytest.raises(ErrorReply, match="StoreUnavailable"):
                client.claim("s", minute(2), token=token)
            longest = max(longest, time.monotonic() - begin)
        assert client.call("Fetch.Check", worker="w")["open"], "hours need no store"
        proxy.put(Fault.NONE)
        begin = time.monotonic()
        first = client.claim("s", minute(2), token="t")
        back = time.monotonic() - begin
        tell(f"{fault.value}: refused after {longest:.2f} s at most, and answered {back:.2f} s after it healed")
        second = client.claim("s", minute(2), token="u")
        assert sorted([first["decision"], second["decision"]]) == ["held", "send"], "whichever of them was carried out"
        assert client.claim("s", minute(1))["decision"] == "send"
    assert longest < ANSWER_SECONDS


def test_a_slow_store_is_slow_and_no_more(gate: GateProcess, proxy: Proxy) -> None:
    with gate.client() as client:
        proxy.put(Fault.SLOW)
        for at in (3, 2, 1):
            begin = time.monotonic()
            assert client.claim("s", minute(at))["decision"] == "send"
            assert time.monotonic() - begin < ANSWER_SECONDS
        assert client.claim("s", minute(1))["decision"] == "held"
        assert client.call("Control.Status")["store"]["round_trip"] > 0.1
