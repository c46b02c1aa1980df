"""Where decisions meet the store: grants, those who wait, leases and grace, and a store that fails."""

import logging

import pytest

from gate import errors
from gate.interface import Decision
from gate.ledger import Event
from gate.rules import SendPolicy
from gate.writer import Work
from tests.support.book import NOON, RESEND
from tests.support.engine import World

S = "nightly"
GRACE, LEASE = 2.0, 30.0


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def resending() -> World:
    return World(RESEND)


# -- answers


def test_one_is_granted_and_the_others_are_told_who_has_it(world: World) -> None:
    first, second = world.peer(), world.peer()
    granted = first.ask(S, token="a", holder="first")
    assert (granted.said, granted.open) == (["send"], False)
    assert granted.last.token == "a"
    held = second.ask(S, token="b")
    assert (held.said, held.open, held.last.by) == (["held"], False, "first")
    assert first.confirm("a") == "Done"
    assert second.claim(S) == "sent"
    assert world.engine.counts == {Decision.SEND: 1, Decision.HELD: 1, Decision.SENT: 1}


def test_without_a_token_the_gate_makes_one_of_128_bits(world: World) -> None:
    answers = [world.peer().ask(f"s{n}").last for n in range(5)]
    tokens = {answer.token for answer in answers}
    assert len(tokens) == 5
    assert all(token is not None and len(token) == 32 and int(token, 16) >= 0 for token in tokens)


def test_a_wrong_claim_never_reaches_the_store(world: World) -> None:
    peer = world.peer()
    assert peer.claim("", token="a") == "InvalidClaim"
    assert peer.claim(S, None, token="a") == "InvalidClaim"
    assert world.store.schedules(10)[0] == 0
    assert peer.holder is None


def test_a_caller_is_known_by_its_last_holder(world: World) -> None:
    peer = world.peer()
    peer.claim(S, holder="one")
    peer.claim(S, holder="two")
    assert peer.holder == "two"


def test_a_token_that_was_never_granted_is_unknown(world: World) -> None:
    assert world.peer().confirm("never") == "UnknownToken"
    assert world.peer().release("never") == "UnknownToken"


def test_settling_works_from_any_connection_and_as_often_as_one_likes(world: World) -> None:
    holder, other = world.peer(), world.peer()
    holder.claim(S, token="a")
    assert [other.confirm("a"), holder.confirm("a"), other.release("a")] == ["Done"] * 3
    assert world.state(S) == "sent"
    assert holder.claims == set()


def test_an_operator_reopens_a_doubt_and_nothing_else(world: World) -> None:
    peer = world.peer()
    assert peer.resend(S) == "NotInDoubt"
    peer.claim(S, token="a")
    assert peer.resend(S) == "NotInDoubt"
    world.move(LEASE)
    assert world.peer().claim(S) == "doubt"
    assert world.peer().resend(S) == "Done"
    assert world.peer().claim(S) == "send"


# -- the lease


def test_a_holder_that_hangs_past_its_lease_is_in_doubt(world: World, caplog: pytest.LogCaptureFixture) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    world.move(LEASE - 0.001)
    assert world.state(S) == "claimed"
    world.move(0.001)
    assert world.state(S) == "doubt"
    assert world.peer().claim(S) == "doubt"
    assert peer.claims == set()
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage() == "in doubt: its holder did not confirm within the lease"
    assert peer.confirm("a") == "Done"
    assert world.state(S) == "sent"


def test_a_claim_names_its_own_lease(world: World) -> None:
    world.peer().claim(S, token="a", lease=0.5)
    world.move(0.5)
    assert world.state(S) == "doubt"


def test_asking_again_with_the_token_renews_the_lease(world: World) -> None:
    peer = world.peer()
    for _ in range(5):
        assert peer.claim(S, token="a") == "send"
        world.move(LEASE - 1)
    assert world.state(S) == "claimed"
    world.move(1)
    assert world.state(S) == "doubt"
    assert peer.claim(S, token="a") == "send", "the same token gets the same decision"
    assert peer.claims == {"a"}


@pytest.mark.parametrize("end", [Event.CONFIRM, Event.RELEASE])
def test_nothing_ends_what_was_settled(world: World, end: Event) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    peer.settle(end, "a")
    assert world.alarms == 0
    before = world.state(S)
    world.move(1000)
    peer.hang_up()
    world.move(1000)
    assert world.state(S) == before


# -- the connection


def test_a_claim_whose_connection_closed_is_held_for_a_grace_and_then_in_doubt(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    peer.hang_up()
    assert peer.claims == set()
    world.move(GRACE - 0.001)
    assert world.peer().claim(S) == "held"
    world.move(0.001)
    assert world.peer().claim(S) == "doubt"


def test_the_grace_is_the_policys() -> None:
    world = World(SendPolicy(grace=60.0))
    peer = world.peer()
    peer.claim(S, token="a", lease=3600.0)
    peer.hang_up()
    world.move(59)
    assert world.state(S) == "claimed"
    world.move(1)
    assert world.state(S) == "doubt"


def test_the_grace_is_not_cut_short_by_the_lease_nor_made_longer(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a", lease=10.0)
    world.move(9.5)
    peer.hang_up()
    world.move(1.5)
    assert world.state(S) == "claimed"
    world.move(0.5)
    assert world.state(S) == "doubt"


def test_an_answer_that_was_never_read_is_released(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    peer.hang_up(unread=True)
    assert world.state(S) == "released"
    assert world.peer().claim(S) == "send"


def test_a_repeated_grant_that_was_not_read_is_in_doubt_since_the_first_may_have_been_read(world: World) -> None:
    first, second = world.peer(), world.peer()
    first.claim(S, token="a")
    first.hang_up()
    second.claim(S, token="a")
    second.hang_up(unread=True)
    assert world.state(S) == "claimed"
    world.move(GRACE)
    assert world.state(S) == "doubt"


def test_a_holder_that_comes_back_within_the_grace_keeps_its_claim(world: World) -> None:
    first, second = world.peer(), world.peer()
    first.claim(S, token="a")
    first.hang_up()
    world.move(GRACE - 0.1)
    assert second.claim(S, token="a") == "send"
    assert second.claims == {"a"}
    world.move(LEASE - 0.1)
    assert world.state(S) == "claimed"
    assert second.confirm("a") == "Done"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_claim_that_was_asked_for_from_two_connections_lives_as_long_as_one_of_them(
    world: World, order: tuple[int, int]
) -> None:
    peers = [world.peer(), world.peer()]
    for peer in peers:
        peer.claim(S, token="a")
    peers[order[0]].hang_up()
    world.move(GRACE)
    assert world.state(S) == "claimed"
    peers[order[1]].hang_up()
    world.move(GRACE)
    assert world.state(S) == "doubt"


def test_a_grant_for_a_connection_that_is_gone_already_is_released(world: World) -> None:
    """It closed while the store was writing."""
    peer = world.peer()
    peer.closed = peer.unread = True
    peer.claim(S, token="a")
    assert world.state(S) == "released"
    assert peer.claims == set()
    assert world.alarms == 0


def test_all_claims_of_a_connection_end_with_it(world: World) -> None:
    peer = world.peer()
    for number in range(10):
        peer.claim(f"s{number}", token=f"t{number}")
    peer.confirm("t3")
    peer.hang_up()
    world.move(GRACE)
    assert [world.state(f"s{n}") for n in range(10)] == ["sent" if n == 3 else "doubt" for n in range(10)]
    assert world.store.open_claims() == []


# -- a restart


def test_claims_that_a_start_finds_are_held_for_a_grace(world: World) -> None:
    for number in range(3):
        world.peer().claim(f"s{number}", token=f"t{number}")
    world.begin()
    world.move(GRACE - 0.1)
    back = world.peer()
    assert back.claim("s0", token="t0") == "send"
    assert back.confirm("t1") == "Done"
    assert world.peer().claim("s2") == "held"
    world.move(0.1)
    assert [world.state(f"s{n}") for n in range(3)] == ["claimed", "sent", "doubt"]
    world.move(LEASE)
    assert world.state("s0") == "doubt"


def test_who_waits_for_a_claim_that_a_start_found_is_told_the_outcome(resending: World) -> None:
    resending.peer().claim(S, token="a")
    resending.begin()
    waiting = resending.peer().ask(S, token="b", more=True)
    resending.move(GRACE)
    assert waiting.said == ["held", "send"]


def test_a_claim_that_came_back_after_a_restart_was_read_once(world: World) -> None:
    """Its first answer was given by the gate before: it may well have been read."""
    world.peer().claim(S, token="a")
    world.begin()
    back = world.peer()
    back.claim(S, token="a")
    back.hang_up(unread=True)
    world.move(GRACE)
    assert world.state(S) == "doubt"


# -- a store that fails


def test_while_the_store_fails_nothing_is_granted_and_nothing_is_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    peer = world.peer()
    peer.claim("before", token="a")
    world.store.fault = "before"
    answer = peer.ask(S, token="b").answers[0][0]
    assert isinstance(answer, errors.StoreUnavailable)
    assert answer.parameters == {"retry_after": 1.0}
    assert [peer.claim(S), peer.confirm("a"), peer.release("a"), peer.resend(S)] == ["StoreUnavailable"] * 4
    assert world.engine.problem == "the disk is full"
    assert world.state("before") == "claimed"
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) == 1, "said once, not for every call"
    world.store.fault = ""
    assert peer.confirm("a") == "Done"
    assert world.engine.problem is None
    assert peer.claim(S, token="b") == "send"
    assert "the store can be written again" in caplog.text


def test_an_answer_that_needs_no_writing_does_not_say_that_the_store_is_well(world: World) -> None:
    peer = world.peer()
    world.store.fault = "before"
    peer.claim(S)
    world.store.fault = ""
    assert peer.claim("future", NOON.replace(hour=20)) == "wait"
    assert world.engine.problem is not None
    world.move(1.0)
    assert world.engine.problem is None, "it finds out by itself"
    assert world.alarms == 0


@pytest.mark.parametrize("how", ["lease", "hang up", "unread"])
def test_a_claim_that_ends_while_the_store_fails_ends_when_it_is_back(world: World, how: str) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    world.store.fault = "before"
    if how != "lease":
        peer.hang_up(unread=how == "unread")
    world.move(LEASE)
    assert world.state(S) == "claimed"
    world.store.fault = ""
    world.move(1.0)
    assert world.state(S) == ("released" if how == "unread" else "doubt")
    assert world.alarms == 0


def test_a_holder_that_comes_back_while_the_store_fails_is_not_in_doubt_afterwards(world: World) -> None:
    first, second = world.peer(), world.peer()
    first.claim(S, token="a")
    first.hang_up()
    world.store.fault = "before"
    world.move(GRACE + 5.5)
    world.store.fault = ""
    assert second.claim(S, token="a") == "send"
    world.move(LEASE - 0.1)
    assert world.state(S) == "claimed"


def test_a_claim_that_was_written_although_its_answer_was_lost_is_found_again(world: World) -> None:
    peer = world.peer()
    world.store.fault = "after"
    assert peer.claim(S, token="a") == "StoreUnavailable"
    world.store.fault = ""
    assert peer.claim("other") == "send"
    assert world.peer().claim(S) == "held"
    world.move(GRACE)
    assert world.state(S) == "doubt"


def test_a_claim_whose_answer_was_lost_is_granted_when_it_is_asked_for_again(world: World) -> None:
    peer = world.peer()
    world.store.fault = "after"
    assert peer.claim(S, token="a") == "StoreUnavailable"
    world.store.fault = ""
    assert peer.claim(S, token="a") == "send"
    world.move(LEASE - 0.1)
    assert world.state(S) == "claimed"
    world.move(0.1)
    assert world.state(S) == "doubt"


def test_a_claim_that_nobody_knows_of_ends_though_nothing_else_is_ever_written(resending: World) -> None:
    resending.store.fault = "after"
    assert resending.peer().claim(S, token="a") == "StoreUnavailable"
    resending.store.fault = ""
    waiting = resending.peer().ask(S, token="b", more=True)
    assert waiting.said == ["held"]
    resending.move(GRACE)
    assert waiting.said == ["held", "send"]


@pytest.mark.parametrize("then", ["nothing", "confirmed again", "claimed again", "hung up"])
def test_a_confirm_that_was_written_although_its_answer_was_lost_is_told_to_those_who_wait(
    world: World, then: str
) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    waiting = world.peer().ask(S, token="b", more=True)
    world.store.fault = "after"
    assert peer.confirm("a") == "StoreUnavailable"
    world.store.fault = ""
    match then:
        case "confirmed again":
            assert peer.confirm("a") == "Done"
        case "claimed again":
            assert peer.claim(S, token="a") == "sent"
        case "hung up":
            peer.hang_up()
            world.move(GRACE)
        case _:
            world.move(LEASE)
    assert waiting.said == ["held", "sent"]
    assert peer.claims == set()
    world.move(1.0)
    assert world.alarms == 0


def test_a_doubt_that_was_written_although_its_answer_was_lost_does_not_end_the_claim_that_took_it_over(
    resending: World,
) -> None:
    first, second = resending.peer(), resending.peer()
    first.claim(S, token="a")
    resending.store.fault = "after"
    resending.move(LEASE)
    resending.store.fault = ""
    assert second.claim(S, token="b") == "send"
    resending.move(5.0)
    assert (first.claims, second.claims) == (set(), {"b"})
    waiting = resending.peer().ask(S, token="c", more=True)
    resending.move(LEASE - 5.1)
    assert waiting.said == ["held"]
    resending.move(0.1)
    assert waiting.said == ["held", "send"]


def test_who_waits_is_told_when_the_store_fails(world: World) -> None:
    holder = world.peer()
    holder.claim(S, token="a")
    waiting = world.peer().ask(S, token="b", more=True)
    world.store.fault = "after"
    holder.release("a")
    world.store.fault = "before"
    holder.release("a")
    world.store.fault = ""
    holder.release("a")
    assert waiting.said == ["held", "send"]


def test_a_query_that_fails_is_answered_as_such(world: World) -> None:
    def fails(store: object) -> None:
        raise errors.StoreError("gate.db has vanished")

    outcomes: list[object] = []
    world.engine.background(Work(outcomes.append, query=fails))
    (outcome,) = outcomes
    assert isinstance(outcome, errors.StoreError)


def test_nothing_is_left_behind(world: World) -> None:
    """However claims end, the engine forgets them: no alarm, no holder, no record of a question on its way."""
    for number in range(50):
        peer = world.peer()
        peer.claim(S if number % 2 else f"s{number}", token=f"t{number}", more=bool(number % 3))
        match number % 5:
            case 0:
                peer.confirm(f"t{number}")
            case 1:
                peer.release(f"t{number}")
            case 2:
                peer.hang_up(unread=True)
            case 3:
                peer.hang_up()
            case _:
                pass
    world.move(LEASE + GRACE)
    assert world.alarms == 0
    assert world.store.open_claims() == []
    assert world.engine.pending == 0
