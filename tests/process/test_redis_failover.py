"""A gate over Redis servers of which one dies: Sentinel puts a replica in its place, or a Cluster loses a node."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import tell
from tests.support.book import KEEP, Book, ManualClock
from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess, RawClient
from tests.support.instants import minute
from tests.support.redis_cluster import Cluster, Sentinels, ask, eventually, leads
from tests.support.redis_store import redis_store

pytestmark = pytest.mark.process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def sentinels(redis_binary: Path, stack: ExitStack) -> Sentinels:
    return Sentinels(redis_binary, stack)


def gate_at(url: str, folder: Path, stack: ExitStack, wait_replicas: int = 0) -> GateProcess:
    """A gate whose store is there."""
    config = f'[store]\nurl = "{url}"\nwait_replicas = {wait_replicas}\n'
    return stack.enter_context(GateProcess(folder, config=config, log_level="info"))


def insist(client: RawClient, schedule: str, at: str, **parameters: Any) -> dict[str, Any]:
    """Ask again until the store is back."""
    end = time.monotonic() + 3 * PATIENCE
    while True:
        try:
            return client.claim(schedule, at, **parameters)
        except ErrorReply as error:
            if not error.name.endswith("StoreUnavailable") or time.monotonic() > end:
                raise
            time.sleep(0.02)


def send(client: RawClient, schedule: str, at: str) -> None:
    """Claim and confirm."""
    answer = client.claim(schedule, at)
    assert answer["decision"] == "send"
    client.call("Send.Confirm", token=answer["token"])


def test_claims_go_on_after_a_failover_and_what_was_sent_stays_sent(
    sentinels: Sentinels, tmp_path: Path, stack: ExitStack
) -> None:
    gate = gate_at(sentinels.url, tmp_path / "gate", stack, wait_replicas=1)
    with gate.client() as client:
        send(client, "known", minute(2))
        begin = time.monotonic()
        sentinels.primary.stop()
        assert insist(client, "known", minute(1), token="t")["decision"] == "send"
        tell(f"claims went on {time.monotonic() - begin:.1f} s after the primary was killed")
        assert client.claim("known", minute(2))["decision"] == "sent"
        assert client.claim("known", minute(1), token="t")["decision"] == "send"
        assert client.claim("known", minute(1))["decision"] == "held"
    sentinels.elected()


def test_what_no_replica_had_heard_of_this_host_still_refuses(
    sentinels: Sentinels, tmp_path: Path, stack: ExitStack
) -> None:
    gate = gate_at(sentinels.url, tmp_path / "gate", stack)
    other = gate_at(sentinels.url, tmp_path / "other", stack)
    with gate.client() as client, other.client() as there:
        send(client, "known", minute(3))
        sentinels.cut_replicas_off()
        send(client, "known", minute(2))
        sentinels.primary.stop()
        assert insist(client, "known", minute(1))["decision"] == "send"
        assert client.claim("known", minute(2))["decision"] == "sent", "this host remembers"
        assert insist(there, "known", minute(2))["decision"] == "sent", "and told the others"
        assert client.claim("known", minute(3))["decision"] == "sent"


def test_nothing_is_granted_of_which_too_few_replicas_have_heard(
    sentinels: Sentinels, tmp_path: Path, stack: ExitStack
) -> None:
    gate = gate_at(sentinels.url, tmp_path / "gate", stack, wait_replicas=1)
    with gate.client() as client:
        send(client, "known", minute(2))
        sentinels.cut_replicas_off()
        for _ in range(2):
            with pytest.raises(ErrorReply, match="StoreUnavailable"):
                client.claim("known", minute(1), token="t")
        sentinels.primary.stop()
        assert insist(client, "known", minute(1), token="t")["decision"] == "send"
        assert client.claim("known", minute(1))["decision"] == "held"


def test_a_cluster_lives_on_when_a_node_dies_and_when_that_of_the_ledger_does(
    redis_binary: Path, tmp_path: Path, stack: ExitStack
) -> None:
    cluster = Cluster(redis_binary, stack, replicas=True)
    gate = gate_at(cluster.url, tmp_path / "gate", stack, wait_replicas=1)
    ours = cluster.owner_of("gate")
    other = (ours + 1) % 3
    with gate.client() as client:
        send(client, "known", minute(4))
        cluster.owners[other].stop()
        send(client, "known", minute(3))
        eventually(lambda: leads(cluster.replicas[other]), "its replica took over")
        cluster.owners[ours].stop()
        eventually(lambda: leads(cluster.replicas[ours]), "the replica of the ledger took over")
        for _ in range(2):
            with pytest.raises(ErrorReply, match="StoreUnavailable"):
                client.claim("known", minute(2), token="t")  # it has no replica of its own
        cluster.owners[ours].start()
        ask(cluster.owners[ours], "CLUSTER MEET", "127.0.0.1", cluster.replicas[ours].port)
        name = ask(cluster.replicas[ours], "CLUSTER MYID")
        eventually(lambda: ask(cluster.owners[ours], "CLUSTER REPLICATE", name), "it follows who took over")
        assert insist(client, "known", minute(2), token="t")["decision"] == "send"
        for at in (4, 3):
            assert client.claim("known", minute(at))["decision"] == "sent"


def test_a_store_in_a_cluster_has_notes_and_lists(redis_binary: Path, tmp_path: Path, stack: ExitStack) -> None:
    cluster, clock = Cluster(redis_binary, stack), ManualClock()
    store = redis_store(cluster.url, tmp_path / "j.db", KEEP, clock)
    stack.callback(store.close)
    book = Book(store, clock)
    now = clock.now()
    book.claim("nightly", now, token="t")
    assert [one.token for one in store.open_claims()] == ["t"]
    book.confirm("t")
    store.put_notes("override", {"k": b"v"})
    store.probe()
    assert store.notes("override") == {"k": b"v"}
    assert list(store.gates()) == [store.gate]
    assert store.schedules(10)[0] == 1
    assert [one.occurrence.at for one in store.history("nightly", None, 10)] == [now]
    assert store.prune(10) == 0
    assert store.size() > 0
