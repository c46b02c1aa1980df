"""Many clients want the same: each occurrence is granted once, and who waits is told what became of it."""

import json
import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support import tell
from tests.support.gate_process import PATIENCE, GateProcess, RawClient, frame
from tests.support.instants import minute, minutes

pytestmark = pytest.mark.process

CLIENTS, MINUTES, DEPTH = 50, 1000, 32


@pytest.fixture
def gate(make_gate: Callable[..., GateProcess]) -> GateProcess:
    """A gate that does not write a line for each of 50,000 claims."""
    return make_gate(log_level="info").start()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Pipeline:
    """One connection that asks for every minute, in an order of its own, DEPTH at a time."""

    def __init__(self, gate: GateProcess, number: int) -> None:
        self.name = f"client {number}"
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(gate.socket))
        self.sock.setblocking(False)
        self.asked = minutes(MINUTES)
        random.Random(number).shuffle(self.asked)
        self.received = bytearray()
        self.sent = self.answered = 0

    def fill(self) -> None:
        """Ask for as many as may wait."""
        upto = min(self.answered + DEPTH, MINUTES)
        calls = [
            frame("Send.Claim", schedule="contested", holder=self.name, at=at) for at in self.asked[self.sent : upto]
        ]
        data = b"".join(calls)
        assert self.sock.send(data) == len(data), "32 calls fit into the socket"
        self.sent = upto

    def read(self) -> bool:
        """Take what is there; False when everything is answered."""
        data = self.sock.recv(256 * 1024)
        assert data, "the gate hung up"
        self.received += data
        self.answered += data.count(b"\0")
        if self.sent < MINUTES:
            self.fill()
        return self.answered < MINUTES

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        """Which minute was answered how."""
        messages = [json.loads(message) for message in bytes(self.received).split(b"\0")[:-1]]
        return list(zip(self.asked, [message["parameters"] for message in messages], strict=True))


def test_50_clients_and_1000_minutes_of_one_schedule_are_1000_grants(gate: GateProcess) -> None:
    begin = time.monotonic()
    with ExitStack() as stack:
        clients = [Pipeline(gate, number) for number in range(CLIENTS)]
        for client in clients:
            stack.callback(client.sock.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        for client in clients:
            client.fill()
            selector.register(client.sock, selectors.EVENT_READ, client)
        while selector.get_map():
            ready = selector.select(PATIENCE)
            assert ready, "the gate has stopped answering"
            for key, _ in ready:
                if not key.data.read():
                    selector.unregister(key.fileobj)
        took = time.monotonic() - begin
        answers = [(client.name, at, answer) for client in clients for at, answer in client.answers()]
        with gate.client() as witness:
            counts = witness.call("Control.Status")["counts"]
    tell(f"{CLIENTS} x {MINUTES} claims in {took:.1f} s: {len(answers) / took:,.0f} a second")
    assert len(answers) == CLIENTS * MINUTES
    assert all(answer["at"] == at for _, at, answer in answers)
    holder = {at: name for name, at, answer in answers if answer["decision"] == "send"}
    assert Counter(answer["decision"] for _, _, answer in answers) == {"send": 1000, "held": 49_000}
    assert len(holder) == MINUTES
    assert all(answer["by"] == holder[at] for _, at, answer in answers)
    assert len(set(holder.values())) > 1, "the clients did not compete"
    assert (counts["send"], counts["held"]) == (1000, 49_000)


@pytest.fixture
def crowd(gate: GateProcess, stack: ExitStack) -> list[RawClient]:
    return [stack.enter_context(gate.client()) for _ in range(CLIENTS)]


def all_ask(crowd: list[RawClient]) -> tuple[RawClient, str, list[RawClient]]:
    """Everybody asks for the same minute, before anybody reads: the winner, its token, and the others, who wait."""
    for number, client in enumerate(crowd):
        client.post("Send.Claim", more=True, schedule="wanted", holder=f"client {number}", at=minute())
    messages = [client.recv() for client in crowd]
    ((winner, won),) = [
        (client, message["parameters"])
        for client, message in zip(crowd, messages, strict=True)
        if message["parameters"]["decision"] == "send"
    ]
    others = [client for client in crowd if client is not winner]
    assert Counter(message["parameters"]["decision"] for message in messages) == {"send": 1, "held": CLIENTS - 1}
    assert {message["parameters"]["by"] for message in messages} == {won["by"]}
    assert sum(message.get("continues", False) for message in messages) == CLIENTS - 1
    return winner, won["token"], others


def test_all_who_wait_are_told_that_it_was_sent(crowd: list[RawClient]) -> None:
    winner, token, others = all_ask(crowd)
    winner.call("Send.Confirm", token=token)
    for client in others:
        message = client.recv()
        assert message["parameters"]["decision"] == "sent"
        assert "continues" not in message
        assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"


def test_one_of_those_who_wait_gets_what_was_released_and_the_others_wait_on(crowd: list[RawClient]) -> None:
    winner, token, others = all_ask(crowd)
    for _ in range(10):
        winner.call("Send.Release", token=token)
        winner = first_to_hear(others)
        answer = winner.reply()
        assert answer["decision"] == "send"
        token = answer["token"]
        others.remove(winner)
    winner.call("Send.Confirm", token=token)
    # The next that each of the others hears of it is the last: nobody else was granted anything.
    assert [client.reply()["decision"] for client in others] == ["sent"] * (CLIENTS - 11)


def first_to_hear(clients: list[RawClient]) -> RawClient:
    """Wait until one of them has something to read."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.sock, selectors.EVENT_READ, client)
        ready = selector.select(PATIENCE)
    assert ready, "nobody was told"
    heard: RawClient = ready[0][0].data
    return heard


def test_who_waits_and_leaves_is_not_granted_anything(gate: GateProcess, crowd: list[RawClient]) -> None:
    winner, token, others = all_ask(crowd)
    *leaving, staying = others
    for client in leaving:
        client.close()
    with gate.client() as witness:
        end = time.monotonic() + PATIENCE
        while witness.call("Control.Status")["connections"] > 3:
            assert time.monotonic() < end
    winner.call("Send.Release", token=token)
    assert staying.reply()["decision"] == "send"
