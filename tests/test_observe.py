"""mode = "observe": every claim is granted, the answer says what it would have been, and the ledger stays sound."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.interface import ClaimOut, Decision, State
from gate.ledger import Event
from gate.rules import Paused, SendPolicy
from tests.support.book import NOON, Book

S = "nightly"
MINUTE = timedelta(minutes=1)
BACKUP = Paused(reason="paused by backup", until=NOON + MINUTE)
OBSERVE = SendPolicy(mode="observe", deadline=3600.0)


def book(keep: float = 86_400.0) -> Book:
    return Book.in_memory(OBSERVE, keep)


def granted(answer: ClaimOut, token: str, would_be: str) -> None:
    """Check that it was granted, and what it says."""
    assert (answer.decision, answer.token) == (Decision.SEND, token)
    assert answer.reason.startswith(f"observed: enforce would answer {would_be}: ")
    assert answer.until is not None


def test_what_would_be_granted_is_granted_as_ever() -> None:
    answer = book().answer(S, token="a")
    assert (answer.decision, answer.reason) == (Decision.SEND, "granted")


def test_a_second_grant_of_what_was_sent_leaves_its_record() -> None:
    ledger = book()
    ledger.claim(S, token="a", holder="first")
    ledger.confirm("a")
    before = ledger.record(S)
    granted(ledger.answer(S, token="b", holder="second"), "b", "sent")
    granted(ledger.answer(S, token="b", holder="second"), "b", "sent")
    ledger.confirm("b")
    ledger.release("b")
    assert ledger.record(S) == before


@pytest.mark.parametrize("first", [Event.RELEASE, Event.CONFIRM])
def test_a_second_grant_of_what_another_holds_leaves_its_claim(first: Event) -> None:
    ledger = book()
    ledger.claim(S, token="a")
    granted(ledger.answer(S, token="b"), "b", "held")
    record = ledger.record(S)
    assert record is not None
    assert (record.token, record.grants) == ("a", 1)
    ledger.settle(first, "a")
    ledger.confirm("b")
    record = ledger.record(S)
    assert record is not None
    assert record.state is State.SENT, "one of them has sent it"


def test_a_doubt_is_granted_and_settled_by_its_confirm() -> None:
    ledger = book()
    ledger.claim(S, token="a")
    ledger.lose("a")
    granted(ledger.answer(S, token="b"), "b", "doubt")
    record = ledger.record(S)
    assert record is not None
    assert record.state is State.DOUBT
    ledger.confirm("b")
    record = ledger.record(S)
    assert record is not None
    assert record.state is State.SENT


@pytest.mark.parametrize(
    ("fields", "would_be"),
    [
        ({"paused": BACKUP}, "paused"),
        ({"at": NOON - timedelta(hours=2)}, "late"),
        ({"at": NOON + timedelta(hours=2)}, "wait"),
    ],
)
def test_what_would_be_refused_for_another_reason_is_recorded_as_sent(fields: dict[str, Any], would_be: str) -> None:
    ledger = book()
    answer = ledger.answer(S, token="a", **fields)
    granted(answer, "a", would_be)
    ledger.confirm("a")
    record = ledger.record(S, answer.at)
    assert record is not None
    assert (record.state, record.token) == (State.SENT, "a")
    assert ledger.store.missed(10) == (0, [])


def test_what_may_have_been_forgotten_is_granted_too() -> None:
    ledger = book(keep=60.0)
    ledger.claim(S, NOON)
    ledger.clock.move(600)
    granted(ledger.answer(S, NOON + MINUTE, token="b"), "b", "late")


def test_an_interval_is_granted_whenever_its_scheduler_asks() -> None:
    ledger = book()
    ledger.claim(S, None, token="a", every=60.0)
    ledger.confirm("a")
    ledger.clock.move(10)
    answer = ledger.answer(S, None, token="b", every=60.0)
    granted(answer, "b", "wait")
    assert answer.at == ledger.clock.now()
    ledger.confirm("b")
    ledger.clock.move(60)
    assert ledger.answer(S, None, every=60.0).reason == "granted", "its cadence is that of its scheduler"


@pytest.mark.parametrize("resend", ["skip", "resend"])
def test_a_doubt_that_is_paused_is_granted(resend: Any) -> None:
    ledger = Book.in_memory(SendPolicy(mode="observe", on_doubt=resend))
    ledger.claim(S, token="a")
    ledger.lose("a")
    granted(ledger.answer(S, token="b", paused=BACKUP), "b", "paused" if resend == "resend" else "doubt")
    ledger.confirm("b")


CALLS = st.tuples(
    st.sampled_from(["claim", "confirm", "release", "lose", "wait"]),
    st.integers(0, 4),
    st.sampled_from([-90, -1, 0, 0, 0, 1, 90]),
    st.booleans(),
)


@given(st.lists(CALLS, max_size=40))
def test_every_claim_is_granted_and_what_was_sent_stays_sent(calls: list[tuple[str, int, int, bool]]) -> None:
    ledger = book()
    tokens: dict[str, Any] = {}
    sent: dict[Any, Any] = {}
    for what, number, minute, paused in calls:
        token = f"{number} {minute}"
        if what == "wait":
            ledger.clock.move(7)
        elif what == "claim":
            answer = ledger.answer(S, NOON + minute * MINUTE, token, paused=BACKUP if paused else None)
            own = ledger.view(None, None, token).occurrence
            assert answer.decision is Decision.SEND or (own is not None and own.token == token), "it has sent it itself"
            tokens[token] = answer.at
        elif token in tokens:
            {"confirm": ledger.confirm, "release": ledger.release, "lose": ledger.lose}[what](token)
        for at in tokens.values():
            record = ledger.record(S, at)
            assert record is not None
            assert at not in sent or record == sent[at]
            if record.state is State.SENT:
                sent[at] = record
