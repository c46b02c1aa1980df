"""The outcome table: what becomes of an occurrence when its holder, or the gate, is killed at each point."""

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.gate_process import PATIENCE, ROOT, GateProcess, RawClient, frame
from tests.support.instants import minute

pytestmark = pytest.mark.process

CONFIG = """
[[send]]
schedules = ["patient resend:*"]
on_doubt = "resend"
grace = "1500ms"
[[send]]
schedules = ["patient skip:*"]
grace = "1500ms"
[[send]]
schedules = ["resend:*"]
on_doubt = "resend"
grace = "200ms"
[[send]]
schedules = ["skip:*"]
grace = "200ms"
"""
SKIP, RESEND = "skip", "resend"
"""The policies; a schedule's name begins with its own."""
PATIENT = "patient "
"""For tests that must be back before the grace is over, on a slow machine too."""
HOLDER = """
import sys
from tests.support.gate_process import RawClient
path, schedule, at, token, last = sys.argv[1:]
client = RawClient(path)
for stage in ("connect", "post", "claim", "confirm"):
    if stage == "post":
        client.post("Send.Claim", schedule=schedule, at=at, holder="holder", token=token)
    elif stage == "claim":
        assert client.reply()["decision"] == "send"
    elif stage == "confirm":
        client.call("Send.Confirm", token=token)
    if stage == last:
        break
print(stage, flush=True)
sys.stdin.read()
"""

Make = Callable[..., GateProcess]


_numbers = itertools.count()


def new(policy: str) -> str:
    """A schedule that no other test has."""
    return f"{policy}:{next(_numbers)}"


def token_of(schedule: str) -> str:
    return f"the token of {schedule}"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    """One gate for all tests that leave it alive."""
    with GateProcess(tmp_path_factory.mktemp("holders"), config=CONFIG) as process:
        yield process


@pytest.fixture
def mortal(make_gate: Make) -> GateProcess:
    """A gate for a test that kills it."""
    return make_gate(config=CONFIG).start()


@contextmanager
def holder(gate: GateProcess, schedule: str, last: str) -> Iterator[subprocess.Popen[str]]:
    """A process that goes as far as `last` and then hangs; it is killed at the end."""
    arguments = [sys.executable, "-c", HOLDER, str(gate.socket), schedule, minute(), token_of(schedule), last]
    with subprocess.Popen(arguments, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == last
            yield process
        finally:
            process.kill()


def killed(gate: GateProcess, schedule: str, last: str) -> None:
    """A holder that was killed after `last`."""
    with holder(gate, schedule, last) as process:
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def outcome(client: RawClient, schedule: str, **parameters: Any) -> dict[str, Any]:
    """What somebody else is told at last, who waits while it is held."""
    client.post("Send.Claim", more=True, schedule=schedule, at=minute(), holder="other", **parameters)
    while (message := client.recv()).get("continues"):
        assert message["parameters"]["decision"] == "held"
        assert message["parameters"]["by"] == "holder"
    answer: dict[str, Any] = message["parameters"]
    return answer


def hold(client: RawClient, schedule: str, **parameters: Any) -> None:
    """Claim as the holder, or claim again; it has to be granted."""
    answer = client.claim(schedule, minute(), holder="holder", token=token_of(schedule), **parameters)
    assert (answer["decision"], answer["token"]) == ("send", token_of(schedule))


def state(client: RawClient, schedule: str) -> str | None:
    """What the ledger says of this minute."""
    found = client.call("Control.History", schedule=schedule)["occurrences"]
    return found[0]["state"] if found else None


@pytest.fixture
def other(gate: GateProcess) -> Iterator[RawClient]:
    with gate.client() as client:
        yield client


@pytest.mark.parametrize("policy", [SKIP, RESEND])
def test_killed_before_the_claim(gate: GateProcess, other: RawClient, policy: str) -> None:
    schedule = new(policy)
    killed(gate, schedule, "connect")
    assert outcome(other, schedule)["decision"] == "send"


@pytest.mark.parametrize("policy", [SKIP, RESEND])
def test_killed_before_it_read_its_grant(gate: GateProcess, other: RawClient, policy: str) -> None:
    schedule = new(policy)
    with holder(gate, schedule, "post"):
        end = time.monotonic() + PATIENCE
        while state(other, schedule) != "claimed":
            assert time.monotonic() < end
    answer = outcome(other, schedule)
    assert answer["decision"] == "send"
    assert state(other, schedule) == "claimed"
    assert schedule not in [doubt["schedule"] for doubt in other.call("Control.Status")["doubts"]]


@pytest.mark.parametrize("restarted", [False, True])
def test_who_read_its_grant_once_may_have_sent_whatever_it_left_unread_later(
    make_gate: Make, gate: GateProcess, restarted: bool
) -> None:
    """It claims again with its token, as after a lost answer, and is killed before it reads that."""
    if restarted:
        gate = make_gate(config=CONFIG).start()
    schedule = new(PATIENT + SKIP)
    with gate.client() as first:
        hold(first, schedule)
        if restarted:
            gate.restart()
        with gate.client() as again, gate.client() as other:
            again.post("Send.Claim", schedule=schedule, at=minute(), holder="holder", token=token_of(schedule))
            if not restarted:
                first.post("Send.Claim", schedule=schedule, at=minute(), holder="holder", token=token_of(schedule))
            assert state(other, schedule) == "claimed"  # whoever is answered later knows that those were answered
            again.close()
            first.close()
            assert outcome(other, schedule)["decision"] == "doubt"


def test_killed_between_claim_and_confirm_and_the_policy_is_skip(gate: GateProcess, other: RawClient) -> None:
    schedule = new(SKIP)
    killed(gate, schedule, "claim")
    answer = outcome(other, schedule)
    assert (answer["decision"], answer["by"]) == ("doubt", "holder")
    assert "vanished before confirming" in answer["reason"]
    (doubt,) = [doubt for doubt in other.call("Control.Status")["doubts"] if doubt["schedule"] == schedule]
    assert (doubt["at"], doubt["by"], doubt["state"]) == (minute(), "holder", "doubt")
    other.call("Control.Resend", schedule=schedule, at=minute())
    assert outcome(other, schedule)["decision"] == "send"
    with gate.client() as third:
        assert third.claim(schedule, minute())["decision"] == "held"


def test_killed_between_claim_and_confirm_and_the_policy_is_resend(gate: GateProcess, other: RawClient) -> None:
    schedule = new(RESEND)
    killed(gate, schedule, "claim")
    answer = outcome(other, schedule)
    assert answer["decision"] == "send"
    with gate.client() as third:
        assert third.claim(schedule, minute())["decision"] == "held"
        other.call("Send.Confirm", token=answer["token"])
        assert third.claim(schedule, minute())["decision"] == "sent"


@pytest.mark.parametrize("policy", [SKIP, RESEND])
def test_killed_after_the_confirm(gate: GateProcess, other: RawClient, policy: str) -> None:
    schedule = new(policy)
    killed(gate, schedule, "confirm")
    answer = outcome(other, schedule)
    assert (answer["decision"], answer["by"]) == ("sent", "holder")


@pytest.mark.parametrize(("policy", "decision"), [(SKIP, "doubt"), (RESEND, "send")])
def test_alive_but_hung_past_its_lease(gate: GateProcess, other: RawClient, policy: str, decision: str) -> None:
    schedule = new(policy)
    with gate.client() as hung:
        hold(hung, schedule, lease=0.05)
        assert outcome(other, schedule)["decision"] == decision
        hung.call("Send.Confirm", token=token_of(schedule))  # late, and true all the same
        assert state(other, schedule) == "sent"
        hung.call("Send.Release", token=token_of(schedule))
        assert other.claim(schedule, minute())["decision"] == "sent"


@pytest.mark.parametrize("policy", [SKIP, RESEND])
def test_a_send_that_was_refused_is_offered_again(gate: GateProcess, other: RawClient, policy: str) -> None:
    schedule = new(policy)
    with gate.client() as refused:
        hold(refused, schedule)
        other.post("Send.Claim", more=True, schedule=schedule, at=minute(), holder="other")
        assert other.recv()["continues"]
        refused.call("Send.Release", token=token_of(schedule))
        assert other.reply()["decision"] == "send"


@pytest.mark.parametrize("policy", [SKIP, RESEND])
def test_a_confirm_of_a_claim_that_was_taken_over_makes_it_sent(gate: GateProcess, policy: str) -> None:
    schedule = new(policy)
    with gate.client() as first, gate.client() as second, gate.client() as third:
        hold(first, schedule, lease=0.05)
        if policy == SKIP:
            assert outcome(third, schedule)["decision"] == "doubt"
            second.call("Control.Resend", schedule=schedule, at=minute())
        taken = outcome(second, schedule)
        assert taken["decision"] == "send"
        first.call("Send.Confirm", token=token_of(schedule))
        second.call("Send.Release", token=taken["token"])
        assert third.claim(schedule, minute())["decision"] == "sent"


def after_a_grace(gate: GateProcess) -> None:
    """Wait until a connection that closes now is past its grace: what closed before that is, too."""
    schedule = new(PATIENT + SKIP)
    with gate.client() as clock:
        with gate.client() as gone:
            assert gone.claim(schedule, minute(), holder="holder")["decision"] == "send"
        assert outcome(clock, schedule)["decision"] == "doubt"


@pytest.mark.parametrize("policy", [SKIP, RESEND])
@pytest.mark.parametrize("how", ["claims again", "confirms"])
def test_who_reconnects_within_the_grace_keeps_its_claim(
    gate: GateProcess, other: RawClient, policy: str, how: str
) -> None:
    schedule = new(PATIENT + policy)
    with gate.client() as first:
        hold(first, schedule)
    with gate.client() as again:
        assert other.claim(schedule, minute())["decision"] == "held"
        if how == "claims again":
            hold(again, schedule)
            after_a_grace(gate)
            assert other.claim(schedule, minute())["decision"] == "held"
        again.call("Send.Confirm", token=token_of(schedule))
        assert other.claim(schedule, minute())["decision"] == "sent"


# ---- the gate is killed


def test_the_holder_goes_on_with_the_next_gate(mortal: GateProcess) -> None:
    policies = (PATIENT + SKIP, PATIENT + RESEND)
    again, confirmed, released = ([new(policy) for policy in policies] for _ in range(3))
    with mortal.client() as before:
        for schedule in again + confirmed + released:
            hold(before, schedule)
        mortal.restart()
        assert before.at_end()
    with mortal.client() as after, mortal.client() as other:
        for schedule in again:
            hold(after, schedule)
        for schedule in confirmed + released:
            held = other.claim(schedule, minute())
            assert (held["decision"], held["by"]) == ("held", "holder")
        for schedule in confirmed:
            after.call("Send.Confirm", token=token_of(schedule))
            assert other.claim(schedule, minute())["decision"] == "sent"
        for schedule in released:
            after.call("Send.Release", token=token_of(schedule))
            assert other.claim(schedule, minute())["decision"] == "send"
        after_a_grace(mortal)
        for schedule in again:
            assert other.claim(schedule, minute())["decision"] == "held"


def test_gate_and_holder_are_killed(mortal: GateProcess) -> None:
    skip, resend, late = new(SKIP), new(RESEND), new(SKIP)
    with holder(mortal, skip, "claim"), holder(mortal, resend, "claim"), holder(mortal, late, "claim"):
        mortal.kill()
    mortal.start()
    with mortal.client() as other:
        assert outcome(other, skip)["decision"] == "doubt"
        assert outcome(other, resend)["decision"] == "send"
        assert outcome(other, late)["decision"] == "doubt"
        other.call("Send.Confirm", token=token_of(late))
        assert other.claim(late, minute())["decision"] == "sent"


DYING = """
import os, signal, sys
from gate.__main__ import main
from gate.stores.sqlite import SqliteStore

apply, where = SqliteStore.apply, {where!r}

def dying(self, steps):
    dies = any(step.token == "dies" for step in steps)
    if dies and where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    outcomes = apply(self, steps)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return outcomes

SqliteStore.apply = dying
sys.exit(main())
"""
"""A gate that is killed before or after the commit of whatever comes with the token `dies`."""


@contextmanager
def killed_at_a_commit(make_gate: Make, where: str) -> Iterator[tuple[RawClient, Callable[[], GateProcess]]]:
    """A connection to a gate that will be killed, and a function that waits for that and starts the next gate."""
    dying = make_gate("dying", config=CONFIG, program=DYING.format(where=where)).start()
    with dying.client() as client:

        def next_gate() -> GateProcess:
            client.post("Send.Confirm", token="dies")
            while not client.at_end():
                pass
            assert dying.process is not None
            assert dying.process.wait(PATIENCE) == -signal.SIGKILL
            gate = make_gate("next", config=CONFIG)
            gate.state, gate.socket = dying.state, dying.socket
            return gate.start()

        yield client, next_gate


@pytest.mark.parametrize("where", ["before", "after"])
def test_an_answer_lost_between_commit_and_reply_is_given_again(make_gate: Make, where: str) -> None:
    schedules = [new(PATIENT + SKIP), new(PATIENT + RESEND)]
    with killed_at_a_commit(make_gate, where) as (client, next_gate):
        for schedule in schedules:
            client.post("Send.Claim", schedule=schedule, at=minute(), holder="holder", token=token_of(schedule))
        gate = next_gate()
    with gate.client() as client, gate.client() as other:
        for schedule in schedules:
            hold(client, schedule)
            assert other.claim(schedule, minute())["decision"] == "held"
            client.call("Send.Confirm", token=token_of(schedule))
            assert other.claim(schedule, minute())["decision"] == "sent"


def test_a_claim_that_was_written_and_never_answered_is_held_for_its_holder(make_gate: Make) -> None:
    schedule = new(PATIENT + SKIP)
    with killed_at_a_commit(make_gate, "after") as (client, next_gate):
        one_packet = frame("Send.Claim", schedule=schedule, at=minute(), holder="holder", token=token_of(schedule))
        client.send_raw(one_packet + frame("Send.Confirm", token="dies"))
        gate = next_gate()
    with gate.client() as client, gate.client() as other:
        assert other.claim(schedule, minute())["decision"] == "held"
        hold(client, schedule)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_settlement_whose_answer_was_lost_is_made_again(make_gate: Make, where: str) -> None:
    sent, released = new(PATIENT + SKIP), new(PATIENT + SKIP)
    with killed_at_a_commit(make_gate, where) as (client, next_gate):
        hold(client, sent)
        hold(client, released)
        client.post("Send.Confirm", token=token_of(sent))
        client.post("Send.Release", token=token_of(released))
        gate = next_gate()
    with gate.client() as client:
        client.call("Send.Confirm", token=token_of(sent))
        client.call("Send.Release", token=token_of(released))
        assert client.claim(sent, minute())["decision"] == "sent"
        assert client.claim(released, minute())["decision"] == "send"
