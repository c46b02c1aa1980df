"""The send table: every transition, every answer to a claim, and what stands in the way of one."""

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from gate import claims, errors, ledger
from gate.interface import ClaimIn, ClaimOut, Decision, Done, MissedIn, State, rfc3339
from gate.ledger import EPOCH, MOVES, REASONS, Change, Event, Occurrence, Schedule, Token, View
from gate.rules import DEFAULT_POLICY, SendPolicy
from tests.support.book import NOON, RESEND, Book

S = "nightly"
MINUTE = timedelta(minutes=1)
NOW = NOON + timedelta(seconds=2)
OLD_TOKEN = Token(token="old", schedule=S, at=NOON, holder="old holder", born=NOON)
TOKEN = Token(token="mine", schedule=S, at=NOON, holder="my holder", born=NOON)
SCHEDULE = Schedule(name=S, title=None, known_since=NOON, newest=NOON, once=False, touched=NOON)
STATES: list[State | None] = [None, *State]
MISSED = MissedIn(schedule=S, holder="asker", at=rfc3339(NOON), reason="nobody asked in its minute")


def record(state: State) -> Occurrence:
    """An occurrence that `mine` was granted; `old` had it before."""
    return Occurrence(
        schedule=S,
        at=NOON,
        state=state,
        token="" if state is State.MISSED else "mine",
        holder="my holder",
        claimed=NOON,
        until=NOON + timedelta(seconds=30),
        touched=NOON,
        settled=None if state is State.CLAIMED else NOON,
        reason="as it was",
        grants=2,
    )


def view(state: State | None, token: Token | None = None) -> View:
    """What a decision sees of an occurrence in `state`, with the record of the token that is named."""
    if state is None:
        return View(schedule=None, occurrence=None, token=None, horizon=EPOCH)
    return View(schedule=SCHEDULE, occurrence=record(state), token=token, horizon=EPOCH)


def claim(state: State | None, token: str, known: Token | None = None, policy: SendPolicy = DEFAULT_POLICY) -> Change:
    asked = ClaimIn(schedule=S, holder="asker", at=rfc3339(NOON))
    return ledger.claim(claims.ask(asked, token, policy), view(state, known), NOW)


ACTIONS = {
    "another claims, skip": lambda state: claim(state, "new"),
    "another claims, resend": lambda state: claim(state, "new", policy=RESEND),
    "replaced one claims, skip": lambda state: claim(state, "old", OLD_TOKEN),
    "replaced one claims, resend": lambda state: claim(state, "old", OLD_TOKEN, RESEND),
    "holder asks again": lambda state: claim(state, "mine", TOKEN),
    "holder confirms": lambda state: ledger.settle(Event.CONFIRM, "mine", view(state, TOKEN), NOW),
    "holder releases": lambda state: ledger.settle(Event.RELEASE, "mine", view(state, TOKEN), NOW),
    "holder never read": lambda state: ledger.settle(Event.UNREAD, "mine", view(state, TOKEN), NOW),
    "holder is lost": lambda state: ledger.settle(Event.LOST, "mine", view(state, TOKEN), NOW),
    "holder hangs": lambda state: ledger.settle(Event.EXPIRED, "mine", view(state, TOKEN), NOW),
    "replaced one confirms": lambda state: ledger.settle(Event.CONFIRM, "old", view(state, OLD_TOKEN), NOW),
    "replaced one releases": lambda state: ledger.settle(Event.RELEASE, "old", view(state, OLD_TOKEN), NOW),
    "replaced one never read": lambda state: ledger.settle(Event.UNREAD, "old", view(state, OLD_TOKEN), NOW),
    "replaced one is lost": lambda state: ledger.settle(Event.LOST, "old", view(state, OLD_TOKEN), NOW),
    "replaced one hangs": lambda state: ledger.settle(Event.EXPIRED, "old", view(state, OLD_TOKEN), NOW),
    "operator resends": lambda state: ledger.resend(S, NOON, view(state), NOW),
    "it is reported as missed": lambda state: ledger.missed(claims.miss(MISSED, NOW), view(state), NOW),
}
C, X, D, R, M, N = State.CLAIMED, State.SENT, State.DOUBT, State.RELEASED, State.MISSED, None
GRID: dict[str, list[State | None]] = {
    # In each state what comes of it, None for nothing: no record, claimed, sent, in doubt, released, missed.
    "another claims, skip": [C, N, N, N, C, C],
    "another claims, resend": [C, N, N, C, C, C],
    "replaced one claims, skip": [C, N, N, N, C, C],
    "replaced one claims, resend": [C, N, N, C, C, C],
    "holder asks again": [C, C, N, C, C, C],
    "holder confirms": [N, X, N, X, X, N],
    "holder releases": [N, R, N, R, N, N],
    "holder never read": [N, R, N, N, N, N],
    "holder is lost": [N, D, N, N, N, N],
    "holder hangs": [N, D, N, N, N, N],
    "replaced one confirms": [N, X, N, X, X, N],
    "replaced one releases": [N, N, N, N, N, N],
    "replaced one never read": [N, N, N, N, N, N],
    "replaced one is lost": [N, N, N, N, N, N],
    "replaced one hangs": [N, N, N, N, N, N],
    "operator resends": [N, N, N, R, N, R],
    "it is reported as missed": [M, N, N, N, N, N],
}
EVENTS = {
    "another claims, skip": Event.CLAIM,
    "holder asks again": Event.RENEW,
    "holder confirms": Event.CONFIRM,
    "holder releases": Event.RELEASE,
    "holder never read": Event.UNREAD,
    "holder is lost": Event.LOST,
    "holder hangs": Event.EXPIRED,
    "replaced one confirms": Event.CONFIRM_REPLACED,
    "operator resends": Event.RESEND,
    "it is reported as missed": Event.MISS,
}


def cells() -> list[Any]:
    assert GRID.keys() == ACTIONS.keys()
    return [
        pytest.param(action, STATES[n], GRID[action][n], id=f"{STATES[n]}-{action}")
        for action in GRID
        for n in range(len(STATES))
    ]


@pytest.mark.parametrize(("action", "state", "becomes"), cells())
def test_what_an_event_makes_of_an_occurrence(action: str, state: State | None, becomes: State | None) -> None:
    change = ACTIONS[action](state)
    if becomes is None:
        assert change.occurrence is None
        assert change.token is None
        assert change.schedule is None
        return
    assert change.occurrence is not None
    assert change.occurrence.state is becomes
    assert change.occurrence.touched == NOW
    assert (change.occurrence.settled is None) == (becomes is State.CLAIMED)


def test_the_table_has_these_moves_and_no_other() -> None:
    moves = {(s, e): m for a, e in EVENTS.items() for s, m in zip(STATES, GRID[a], strict=True) if m is not None}
    for state in (None, State.MISSED):  # without a grant there is nothing to renew: that is a claim
        del moves[state, Event.RENEW]
    moves[State.DOUBT, Event.TAKE_OVER] = State.CLAIMED
    assert moves == MOVES
    assert not [event for state, event in MOVES if state is State.SENT], "what was sent stays sent"
    assert set(REASONS) == set(Event) - {Event.MISS}, "a miss has the reason that it was reported with"


def test_what_a_grant_writes() -> None:
    change = claim(None, "new")
    assert change.occurrence == Occurrence(
        schedule=S,
        at=NOON,
        state=State.CLAIMED,
        token="new",
        holder="asker",
        claimed=NOW,
        until=NOW + timedelta(seconds=30),
        touched=NOW,
        settled=None,
        reason="granted",
        grants=1,
    )
    assert change.token == Token(token="new", schedule=S, at=NOON, holder="asker", born=NOW)
    assert change.schedule == replace(SCHEDULE, touched=NOW)


@pytest.mark.parametrize(
    ("action", "state", "grants", "token", "writes_token"),
    [
        ("another claims, skip", State.RELEASED, 3, "new", True),
        ("another claims, resend", State.DOUBT, 3, "new", True),
        ("replaced one claims, skip", State.RELEASED, 3, "old", False),
        ("holder asks again", State.CLAIMED, 2, "mine", False),
        ("holder asks again", State.DOUBT, 2, "mine", False),
        ("holder asks again", State.RELEASED, 2, "mine", False),
    ],
)
def test_grants_are_counted_but_for_those_that_only_repeat_one(
    action: str, state: State, grants: int, token: str, writes_token: bool
) -> None:
    change = ACTIONS[action](state)
    assert change.occurrence is not None
    assert (change.occurrence.grants, change.occurrence.token) == (grants, token)
    assert (change.token is not None) is writes_token


def test_who_settled_an_occurrence_is_its_holder() -> None:
    replaced = ACTIONS["replaced one confirms"](State.CLAIMED).occurrence
    assert replaced is not None
    assert (replaced.holder, replaced.reason) == (
        "old holder",
        "confirmed by a holder whose claim had been taken over",
    )
    confirmed = ACTIONS["holder confirms"](State.CLAIMED).occurrence
    assert confirmed is not None
    assert (confirmed.holder, confirmed.reason, confirmed.settled) == ("my holder", "confirmed", NOW)


# -- answers

UNTIL = NOW + timedelta(seconds=30)
ANSWERS: dict[tuple[str, State | None], ClaimOut] = {
    ("another claims, skip", None): ClaimOut(
        decision=Decision.SEND, reason="granted", at=NOON, token="new", until=UNTIL, by="asker"
    ),
    ("another claims, skip", State.CLAIMED): ClaimOut(
        decision=Decision.HELD,
        reason="being sent by its holder",
        at=NOON,
        until=NOON + timedelta(seconds=30),
        by="my holder",
    ),
    ("another claims, skip", State.SENT): ClaimOut(
        decision=Decision.SENT, reason="already sent", at=NOON, by="my holder"
    ),
    ("another claims, skip", State.DOUBT): ClaimOut(
        decision=Decision.DOUBT, reason="as it was; on_doubt is skip", at=NOON, by="my holder"
    ),
    ("another claims, skip", State.RELEASED): ClaimOut(
        decision=Decision.SEND, reason="granted", at=NOON, token="new", until=UNTIL, by="asker"
    ),
    ("another claims, resend", State.DOUBT): ClaimOut(
        decision=Decision.SEND,
        reason="granted again: the holder before vanished, and on_doubt is resend",
        at=NOON,
        token="new",
        until=UNTIL,
        by="asker",
    ),
    ("another claims, resend", State.SENT): ClaimOut(
        decision=Decision.SENT, reason="already sent", at=NOON, by="my holder"
    ),
    ("another claims, resend", State.CLAIMED): ClaimOut(
        decision=Decision.HELD,
        reason="being sent by its holder",
        at=NOON,
        until=NOON + timedelta(seconds=30),
        by="my holder",
    ),
    ("holder asks again", State.CLAIMED): ClaimOut(
        decision=Decision.SEND, reason="granted; its holder asked again", at=NOON, token="mine", until=UNTIL, by="asker"
    ),
    ("holder asks again", State.DOUBT): ClaimOut(
        decision=Decision.SEND, reason="granted; its holder asked again", at=NOON, token="mine", until=UNTIL, by="asker"
    ),
    ("holder asks again", State.SENT): ClaimOut(
        decision=Decision.SENT, reason="already sent: as it was", at=NOON, by="my holder"
    ),
}


@pytest.mark.parametrize(("action", "state"), ANSWERS)
def test_what_a_claim_is_answered(action: str, state: State | None) -> None:
    assert ACTIONS[action](state).answer == ANSWERS[action, state]


SETTLINGS = list(product([a for a in ACTIONS if "claims" not in a and "again" not in a], State))


@pytest.mark.parametrize(("action", "state"), SETTLINGS)
def test_settling_is_idempotent_and_always_done_for_a_token_that_was_granted(action: str, state: State) -> None:
    answer = ACTIONS[action](state).answer
    if action == "operator resends" and state not in (State.DOUBT, State.MISSED):
        assert isinstance(answer, errors.NotInDoubt)
        assert answer.parameters == {"schedule": S, "at": "2026-11-30T12:00:00Z", "state": state.value}
    else:
        assert answer == Done()


@pytest.mark.parametrize("event", [Event.CONFIRM, Event.RELEASE, Event.LOST, Event.EXPIRED, Event.UNREAD])
def test_a_token_that_was_never_granted_is_unknown(event: Event) -> None:
    answer = ledger.settle(event, "never", view(None), NOW).answer
    assert isinstance(answer, errors.UnknownToken)
    assert answer.token == "never"


def test_a_resend_of_what_was_never_claimed_is_refused() -> None:
    answer = ledger.resend(S, NOON, view(None), NOW).answer
    assert isinstance(answer, errors.NotInDoubt)
    assert answer.state == "unknown to the ledger"


# -- tokens


def test_the_same_token_gets_the_same_decision_and_a_later_until() -> None:
    book = Book.in_memory()
    first = book.answer(S, token="a")
    book.clock.move(10)
    again = book.answer(S, token="a")
    assert (first.decision, again.decision) == (Decision.SEND, Decision.SEND)
    assert again.token == first.token == "a"
    assert again.until == NOON + timedelta(seconds=40)
    assert book.claim(S, token="b") is Decision.HELD
    book.confirm("a")
    assert [book.claim(S, token=t) for t in ("a", "b", "c")] == [Decision.SENT] * 3


@pytest.mark.parametrize("between", ["nothing", "lost", "released"])
def test_the_same_token_is_granted_again_past_its_deadline_and_in_doubt(between: str) -> None:
    book = Book.in_memory()
    assert book.claim(S, token="a", deadline=5.0) is Decision.SEND
    if between == "lost":
        book.lose("a")
    if between == "released":
        book.release("a")
    book.clock.move(60)
    assert book.claim(S, token="b", deadline=5.0) is {"nothing": Decision.HELD, "lost": Decision.DOUBT}.get(
        between, Decision.LATE
    )
    assert book.claim(S, token="a", deadline=5.0) is Decision.SEND


@pytest.mark.parametrize("other", [{"schedule": "other"}, {"at": NOON - MINUTE}])
def test_a_token_belongs_to_one_occurrence(other: dict[str, Any]) -> None:
    book = Book.in_memory()
    book.claim(S, token="a")
    with pytest.raises(errors.InvalidClaim) as caught:
        book.claim(**{"schedule": S, "token": "a", **other})
    assert caught.value.field == "token"
    assert caught.value.reason == "'a' was granted nightly at 2026-11-30T12:00:00Z: make a new one for each claim"


def test_a_late_confirm_after_a_takeover_makes_it_sent_and_no_later_release_reopens_it() -> None:
    book = Book.in_memory(RESEND)
    book.claim(S, token="a", holder="first")
    book.lose("a")
    assert book.claim(S, token="b", holder="second") is Decision.SEND
    assert book.claim(S, token="a") is Decision.HELD, "it was taken over"
    book.confirm("a")
    for event in (Event.RELEASE, Event.LOST, Event.EXPIRED, Event.UNREAD):
        book.settle(event, "b")
    answer = book.answer(S, token="c")
    assert (answer.decision, answer.by) == (Decision.SENT, "first")
    book.confirm("b")
    assert book.answer(S, token="c").by == "first"


def test_a_release_of_a_replaced_claim_leaves_the_one_that_replaced_it() -> None:
    book = Book.in_memory(RESEND)
    book.claim(S, token="a")
    book.lose("a")
    book.claim(S, token="b")
    book.release("a")
    assert book.claim(S, token="c") is Decision.HELD


def test_released_and_taken_by_another_the_first_may_still_confirm() -> None:
    book = Book.in_memory()
    book.claim(S, token="a")
    book.release("a")
    book.claim(S, token="b")
    book.confirm("a")
    assert book.claim(S, token="c") is Decision.SENT
