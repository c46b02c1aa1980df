"""SIGKILL of the gate at random under load: nothing is granted twice, and nothing that was confirmed is lost.

GATE_CRASH_ROUNDS says how often it is killed (40). Two gates, one per policy, run side by side. Their clients claim
minutes that all want and minutes that are their own, confirm, release, vanish with and without having read the answer,
and ask again with the same token whenever an answer was lost. What they saw goes into a Book, which knows the laws.
"""

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import tell
from tests.support.gate_process import PATIENCE, GateProcess, RawClient
from tests.support.instants import minutes

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROUNDS = int(os.environ.get("GATE_CRASH_ROUNDS", "40"))
CLIENTS = 6
SHARED_BY = 12
"""How many claims are made for a shared minute before the next one is due."""
AT = minutes(10_000)
CONFIG = """
[[send]]
schedules = ["*"]
on_doubt = "{policy}"
grace = "{grace}"
"""
GRACE = "500ms"

Occurrence = tuple[str, str]


class Book:
    """What the clients of one gate saw. Every method that finds a law broken writes it down in `broken`."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self.broken: list[str] = []
        self.answers = 0
        self.repeated = 0
        """How many answers were lost and asked for again."""
        self.holding: dict[Occurrence, dict[str, int]] = {}
        """Tokens whose holder may be about to send, and the process that granted it last."""
        self.gone: dict[Occurrence, str] = {}
        """The last token whose holder vanished after it read its grant."""
        self.confirmed: dict[Occurrence, float] = {}
        """When the first Confirm was answered."""
        self.seen: set[Occurrence] = set()
        self.changed = threading.Condition()

    def answered(self, occurrence: Occurrence) -> None:
        """A client got an answer."""
        with self.changed:
            self.answers += 1
            self.seen.add(occurrence)
            self.changed.notify_all()

    def granted(self, occurrence: Occurrence, token: str, pid: int, asked: float) -> None:
        """A client, which asked first at `asked`, has read `send`."""
        with self.changed:
            sent = self.confirmed.get(occurrence)
            if sent is not None and asked > sent:
                self.broken.append(f"{occurrence} was confirmed, and granted again to {token}")
            others = self.holding.setdefault(occurrence, {})
            for other, theirs in others.items():
                # Under "resend", a holder whose gate was killed may be replaced, unless it claimed again in time.
                if other != token and (self.policy == "skip" or theirs == pid):
                    self.broken.append(f"{occurrence} was granted to {token} while {other} held it")
            if self.policy == "skip" and self.gone.get(occurrence, token) != token:
                self.broken.append(f"{occurrence} was granted to {token} while {self.gone[occurrence]} is in doubt")
            others[token] = pid

    def refused(self, occurrence: Occurrence, token: str, answer: dict[str, Any]) -> None:
        """A client has read a refusal. Holders are named after their tokens: nobody is held up by himself."""
        with self.changed:
            if answer["by"] == token:
                self.broken.append(f"{occurrence}: {token} was refused for its own claim: {answer}")

    def gives_up(self, occurrence: Occurrence, token: str) -> None:
        """The holder will not send any more, or is about to say that it sent."""
        with self.changed:
            self.holding.get(occurrence, {}).pop(token, None)

    def vanishes(self, occurrence: Occurrence, token: str) -> None:
        """The holder is about to go without a word."""
        with self.changed:
            self.holding.get(occurrence, {}).pop(token, None)
            self.gone[occurrence] = token

    def was_confirmed(self, occurrence: Occurrence) -> None:
        """A Confirm was answered."""
        with self.changed:
            self.confirmed.setdefault(occurrence, time.monotonic())

    def wait_for_answers(self, count: int) -> None:
        """Until so many more answers were read."""
        with self.changed:
            wanted = self.answers + count
            assert self.changed.wait_for(lambda: self.answers >= wanted, PATIENCE), "the clients got no answers"


class Client(threading.Thread):
    """One client: claims and settles until it is stopped, whatever happens to the gate."""

    def __init__(self, number: int, path: Path, book: Book, stop: threading.Event) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.number = number
        self.random = random.Random(number)
        self.path, self.book, self.stop = path, book, stop
        self.line: RawClient | None = None
        self.count = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.once()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.hang_up()

    def once(self) -> None:
        self.count += 1
        occurrence = self.choose()
        token = f"{self.number}-{self.count}"
        if self.random.random() < 0.1:
            self.claim_and_vanish_unread(occurrence, token)
            return
        asked = time.monotonic()
        if self.claim(occurrence, token, asked):
            self.settle(occurrence, token, asked)

    def choose(self) -> Occurrence:
        if self.random.random() < 0.3:
            return f"own of {self.number}", AT[self.count % len(AT)]
        return "shared", AT[self.book.answers // SHARED_BY % len(AT)]

    def claim(self, occurrence: Occurrence, token: str, asked: float) -> bool:
        answer = self.ask("Send.Claim", **parameters(occurrence, token))
        self.book.answered(occurrence)
        if answer["decision"] != "send":
            self.book.refused(occurrence, token, answer)
            return False
        assert answer["token"] == token
        self.book.granted(occurrence, token, self.pid(), asked)
        return True

    def settle(self, occurrence: Occurrence, token: str, asked: float) -> None:
        what = self.random.random()
        if what < 0.2 and not self.claim(occurrence, token, asked):  # asked twice: the same answer
            self.book.gives_up(occurrence, token)
            if self.book.policy == "skip":
                self.book.broken.append(f"{occurrence}: {token} was granted, and refused when it asked again")
            return
        if what < 0.7:
            self.book.gives_up(occurrence, token)
            self.ask("Send.Confirm", token=token)
            self.book.was_confirmed(occurrence)
        elif what < 0.85:
            self.book.gives_up(occurrence, token)
            self.ask("Send.Release", token=token)
        else:
            self.book.vanishes(occurrence, token)
            self.hang_up()

    def claim_and_vanish_unread(self, occurrence: Occurrence, token: str) -> None:
        line = self.connected()
        with suppress(OSError):
            line.post("Send.Claim", **parameters(occurrence, token))
        self.hang_up()

    # -- the line

    def ask(self, method: str, **given: Any) -> dict[str, Any]:
        """Ask until there is an answer."""
        while True:
            line = self.connected()
            try:
                return line.call(method, **given)
            except (OSError, EOFError):
                self.hang_up()
                self.book.repeated += 1

    def connected(self) -> RawClient:
        end = time.monotonic() + PATIENCE
        while self.line is None:
            try:
                self.line = RawClient(self.path)
            except OSError:
                assert time.monotonic() < end, "the gate does not come back"
                time.sleep(0.005)
        return self.line

    def pid(self) -> int:
        """The process that answered last."""
        assert self.line is not None
        return int(struct.unpack("3i", self.line.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None


def parameters(occurrence: Occurrence, token: str) -> dict[str, Any]:
    schedule, at = occurrence
    return {"schedule": schedule, "at": at, "token": token, "holder": token}


def check_confirmed(gate: GateProcess, book: Book, name: str, newest: int) -> None:
    """Whoever asks for what was confirmed is told that it was sent."""
    with book.changed:
        confirmed = list(book.confirmed)[-newest:]
    with gate.client() as client:
        for number, occurrence in enumerate(confirmed):
            answer = client.call("Send.Claim", **parameters(occurrence, f"{name}-{number}"))
            if answer["decision"] != "sent":
                book.broken.append(f"{occurrence} was confirmed, but a new token gets {answer}")


def campaign(gate: GateProcess, policy: str, rounds: int) -> Book:
    """Kill the gate so many times, and start it again each time."""
    book, stop, chance = Book(policy), threading.Event(), random.Random(policy)
    gate.start()
    clients = [Client(number, gate.socket, book, stop) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        for number in range(rounds):
            book.wait_for_answers(chance.randrange(1, 120))
            gate.restart()
            check_confirmed(gate, book, f"check-{number}", 10)
        book.wait_for_answers(CLIENTS)
    finally:
        stop.set()
        for client in clients:
            client.join(PATIENCE)
    assert not [client.error for client in clients if client.error or client.is_alive()]
    return book


def settled(gate: GateProcess) -> dict[Occurrence, str]:
    """The states of all occurrences once nobody is connected and every grace is over."""
    end = time.monotonic() + PATIENCE
    while True:
        with gate.client() as client:
            found: dict[Occurrence, str] = {}
            for schedule in ("shared", *(f"own of {number}" for number in range(CLIENTS))):
                for occurrence in client.call("Control.History", schedule=schedule, limit=1000)["occurrences"]:
                    found[schedule, occurrence["at"]] = occurrence["state"]
        if "claimed" not in found.values():
            return found
        assert time.monotonic() < end, "claims of nobody stay claimed"
        time.sleep(0.02)


def check_all(gate: GateProcess, book: Book) -> None:
    """After the last restart: every state is one that the clients' story allows, and so is every new answer."""
    states = settled(gate)
    check_confirmed(gate, book, "last", len(book.confirmed))
    with gate.client() as client:
        for number, (occurrence, state) in enumerate(states.items()):
            if occurrence in book.confirmed and state != "sent":
                book.broken.append(f"{occurrence} was confirmed, but is {state}")
            if book.policy == "skip" and occurrence in book.gone and state != "doubt":
                book.broken.append(f"{occurrence} has a holder that vanished, but is {state}")
            token = f"last of all {number}"
            answer = client.call("Send.Claim", **parameters(occurrence, token))
            allowed = {"sent": "sent", "released": "send", "doubt": "doubt" if book.policy == "skip" else "send"}
            if answer["decision"] != allowed[state]:
                book.broken.append(f"{occurrence} is {state}, but a new token gets {answer}")
            if answer["decision"] == "send":
                client.call("Send.Release", token=token)


def test_sigkill_at_random_under_load(make_gate: Callable[..., GateProcess]) -> None:
    begin = time.monotonic()
    policies = ("skip", "resend")
    gates = {
        policy: make_gate(policy, config=CONFIG.format(policy=policy, grace=GRACE), log_level="error")
        for policy in policies
    }
    with ThreadPoolExecutor(len(policies)) as pool:
        running = {policy: pool.submit(campaign, gates[policy], policy, ROUNDS // 2) for policy in policies}
        books = {policy: future.result() for policy, future in running.items()}
    for policy, book in books.items():
        check_all(gates[policy], book)
        tell(
            f"{policy}: {ROUNDS // 2} kills, {book.answers} answers, {book.repeated} asked for again,"
            f" {len(book.seen)} occurrences, {len(book.confirmed)} confirmed, {len(book.gone)} holders vanished"
        )
        assert not book.broken
        assert book.confirmed
        assert book.gone
        assert book.repeated
    tell(f"{ROUNDS} kills in {time.monotonic() - begin:.0f} s")
