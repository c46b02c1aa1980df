"""Gates of several hosts on one Redis: each a process with a state directory of its own."""

import json
import random
import selectors
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_many_clients import Pipeline
from tests.support import tell
from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess
from tests.support.gatectl import gatectl
from tests.support.instants import minute, minutes
from tests.support.redis import RedisServer

pytestmark = pytest.mark.process

HOSTS, CLIENTS, MINUTES = 3, 50, 1000
KILLED_MINUTES = 1200


@pytest.fixture
def gates(server: RedisServer, tmp_path: Path) -> Iterator[list[GateProcess]]:
    config = f"""
[store]
url = "{server.unix_url}"
[[fetch]]
name = "dicom"
[[send]]
schedules = ["resent"]
on_doubt = "resend"
"""
    with ExitStack() as stack:
        made = [GateProcess(tmp_path / f"host{n}", config=config, log_level="info") for n in range(HOSTS)]
        yield [stack.enter_context(gate) for gate in made]


def test_50_clients_and_1000_minutes_over_three_gates_are_1000_grants(gates: list[GateProcess]) -> None:
    begin = time.monotonic()
    with ExitStack() as stack:
        clients = [Pipeline(gates[number % HOSTS], number) for number in range(CLIENTS)]
        selector = stack.enter_context(selectors.DefaultSelector())
        for client in clients:
            stack.callback(client.sock.close)
            client.fill()
            selector.register(client.sock, selectors.EVENT_READ, client)
        while selector.get_map():
            ready = selector.select(3 * PATIENCE)
            assert ready, "the gates have stopped answering"
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
        answers = [(client.name, at, answer) for client in clients for at, answer in client.answers()]
    took = time.monotonic() - begin
    tell(f"{CLIENTS} x {MINUTES} claims over {HOSTS} gates in {took:.1f} s: {len(answers) / took:,.0f} a second")
    assert Counter(answer["decision"] for _, _, answer in answers) == {"send": 1000, "held": 49_000}
    assert len({at for _, at, answer in answers if answer["decision"] == "send"}) == MINUTES


def test_who_waits_at_another_gate_is_told(gates: list[GateProcess]) -> None:
    with gates[0].client() as here, gates[1].client() as there:
        token = here.claim("wanted", minute())["token"]
        there.post("Send.Claim", more=True, schedule="wanted", holder="there", at=minute())
        assert there.reply()["decision"] == "held"
        begin = time.monotonic()
        here.call("Send.Confirm", token=token)
        assert there.reply()["decision"] == "sent"
        took = time.monotonic() - begin
        tell(f"told after {took * 1000:.0f} ms")
        assert took < 10


def test_an_order_on_one_host_reaches_the_workers_of_the_others(gates: list[GateProcess]) -> None:
    with gates[0].client() as worker, gates[1].client() as operator, gates[2].client() as scheduler:
        worker.post("Fetch.Watch", more=True, worker="w", session="s")
        assert worker.reply()["open"]
        took = []
        for action, open_now in (("close", False), ("open", True)):
            begin = time.monotonic()
            operator.call("Control.Override", rule="dicom", action=action, until=minute(-60), note="a test")
            assert worker.reply()["open"] is open_now
            took.append(time.monotonic() - begin)
        tell("an order reached another host after " + ", ".join(f"{one * 1000:.0f} ms" for one in took))
        assert max(took) < 10
        operator.call("Control.Pause", schedule="reports:*", action="pause", until=minute(-60), note="a test")
        end = time.monotonic() + PATIENCE
        while scheduler.claim(f"reports:{time.monotonic()}", minute())["decision"] != "paused":
            assert time.monotonic() < end, "the pause never came"
            time.sleep(0.05)
        assert [one["rule"] for one in scheduler.call("Control.Status")["overrides"]] == ["dicom"]


def test_what_a_scheduler_lists_at_one_gate_is_known_at_the_others(gates: list[GateProcess]) -> None:
    """One that moves to another host goes on from where it was."""
    listed: dict[str, Any] = {"source": "s", "last": True, "schedules": [{"schedule": "moves", "trigger": "* * * * *"}]}
    with gates[0].client() as here, gates[1].client() as there:
        here.call("Send.Review", round="1", **listed)
        since = here.call("Send.Review", round="2", **listed)["reviews"][0]["since"]
        end = time.monotonic() + PATIENCE
        while True:
            time.sleep(0.5)  # longer than a look of the other gate takes
            found = there.call("Send.Review", round=f"{time.monotonic()}", **listed)["reviews"][0]["since"]
            if found == since:
                break
            assert time.monotonic() < end, (found, since)


def test_status_names_the_gates_and_how_far_the_store_is(gates: list[GateProcess]) -> None:
    end = time.monotonic() + 2 * PATIENCE
    while True:
        text = gatectl("status", "--socket", str(gates[0].socket)).stdout
        if "gates: 3\n" in text:
            break
        assert time.monotonic() < end, text
        time.sleep(0.1)
    store = json.loads(gatectl("status", "--json", "--socket", str(gates[0].socket)).stdout)["store"]
    assert (store["kind"], store["healthy"]) == ("redis", True)
    assert 0 < store["round_trip"] < 10
    assert abs(store["skew"]) < 1
    assert sum(one["here"] for one in store["gates"]) == 1
    assert "(this one)" in text
    assert "ms away, this host 0.0" in text


@pytest.mark.parametrize("resent", [False, True])
def test_claims_of_a_gate_that_was_killed_are_in_doubt_and_what_was_sent_stays_sent(
    gates: list[GateProcess], *, resent: bool
) -> None:
    schedule = "resent" if resent else "skipped"
    with gates[0].client() as dies:
        dies.call("Send.Confirm", token=dies.claim(schedule, minute(1))["token"])
        assert dies.claim(schedule, minute(), lease=1.0)["decision"] == "send"
        gates[0].kill()
    with gates[1].client() as other:
        assert other.claim(schedule, minute(1))["decision"] == "sent"
        other.post("Send.Claim", more=True, schedule=schedule, holder="other", at=minute())
        assert other.reply()["decision"] == "held"
        answer = other.reply(3 * PATIENCE)
        assert answer["decision"] == ("send" if resent else "doubt")


def test_nothing_is_granted_without_the_store_and_all_go_on_when_it_is_back(
    gates: list[GateProcess], server: RedisServer
) -> None:
    with gates[0].client() as client:
        assert client.claim("before", minute())["decision"] == "send"
        with server.suspended():
            with pytest.raises(ErrorReply, match="StoreUnavailable"):
                client.claim("cut off", minute(), token="t")
            assert client.call("Fetch.Check", worker="w")["open"], "hours need no store"
        end = time.monotonic() + PATIENCE
        while True:
            try:
                assert client.claim("cut off", minute(), token="t")["decision"] == "send"
                break
            except ErrorReply:
                assert time.monotonic() < end


class Sender(threading.Thread):
    """A scheduler: asks its gate for each minute in turn, and again while the gate is away."""

    def __init__(self, gate: GateProcess, name: str, sent: Counter[str], lock: threading.Lock) -> None:
        super().__init__(name=name)
        self._gate = gate
        self._sent = sent
        self._lock = lock
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            for at in minutes(KILLED_MINUTES):
                while not self._settled(at):
                    pass
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.problem = error

    def _settled(self, at: str) -> bool:
        """Ask, send and confirm; again, with the same token, while the gate is away."""
        token = f"{self.name}/{at}"
        while True:
            try:
                with self._gate.client() as client:
                    answer: dict[str, Any] = client.claim("contested", at, holder=self.name, token=token)
                    if answer["decision"] != "send":
                        return answer["decision"] in ("sent", "doubt")
                    with self._lock:
                        self._sent[at] += 1
                    break
            except (OSError, EOFError, ErrorReply):
                time.sleep(0.01)
        while True:
            try:
                with self._gate.client() as client:
                    client.call("Send.Confirm", token=token)
                    return True
            except (OSError, EOFError, ErrorReply):
                time.sleep(0.01)


def test_gates_that_are_killed_at_random_grant_every_minute_once(gates: list[GateProcess]) -> None:
    sent: Counter[str] = Counter()
    lock, dice, kills = threading.Lock(), random.Random(6), 0
    senders = [Sender(gate, f"host {n}", sent, lock) for n, gate in enumerate(gates)]
    for sender in senders:
        sender.start()
    end = time.monotonic() + 60
    while any(sender.is_alive() for sender in senders) and time.monotonic() < end:
        dice.choice(gates).restart()
        kills += 1
        senders[0].join(0.1)
    for sender in senders:
        sender.join(PATIENCE)
        assert not sender.is_alive()
        assert sender.problem is None
    tell(f"{len(sent)} minutes over {HOSTS} gates, {kills} kills")
    assert kills >= 3
    assert sent == Counter(minutes(KILLED_MINUTES))


def test_a_gate_with_a_shared_store_ends_at_once(gates: list[GateProcess]) -> None:
    assert gates[0].stop(signal.SIGTERM) == 0
