"""Those who wait for an outcome, and questions that are on their way while something ends."""

import gc
import weakref

import pytest

from gate.ledger import Event
from gate.rules import SendPolicy
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


# -- those who wait


@pytest.mark.parametrize(
    ("end", "skip", "resend"),
    [
        ("confirm", "sent", "sent"),
        ("release", "send", "send"),
        ("lease", "doubt", "send"),
        ("hang up", "doubt", "send"),
        ("unread", "send", "send"),
    ],
)
def test_who_waits_is_told_the_outcome(end: str, skip: str, resend: str) -> None:
    for policy, outcome in ((SendPolicy(), skip), (RESEND, resend)):
        world = World(policy)
        holder, waiter = world.peer(), world.peer()
        holder.claim(S, token="a")
        waiting = waiter.ask(S, token="b", more=True)
        assert (waiting.said, waiting.open) == (["held"], True)
        match end:
            case "confirm" | "release":
                holder.settle(Event[end.upper()], "a")
            case "lease":
                world.move(LEASE)
            case "hang up":
                holder.hang_up()
                assert waiting.said == ["held"]
                world.move(GRACE)
            case "unread":
                holder.hang_up(unread=True)
        assert (waiting.said, waiting.open) == (["held", outcome], False)
        if outcome == "send":
            assert waiter.claims == {"b"}
            assert waiter.confirm("b") == "Done"


def test_a_takeover_goes_to_the_first_who_waits_and_the_others_wait_for_that_one(resending: World) -> None:
    holder, waiters = resending.peer(), [resending.peer() for _ in range(3)]
    holder.claim(S, token="a")
    waiting = [peer.ask(S, token=f"b{n}", more=True, holder=f"waiter {n}") for n, peer in enumerate(waiters)]
    resending.move(LEASE)
    assert [call.said for call in waiting] == [["held", "send"], ["held"], ["held"]]
    assert [call.open for call in waiting] == [False, True, True]
    waiters[0].confirm("b0")
    assert [call.said[-1] for call in waiting] == ["send", "sent", "sent"]
    assert not any(call.open for call in waiting)


@pytest.mark.parametrize("asks", ["late", "wrong"])
def test_who_waits_and_may_not_send_leaves_it_to_the_next(world: World, asks: str) -> None:
    holder, first, second = (world.peer() for _ in range(3))
    holder.claim(S, token="a")
    fields = {"deadline": 5.0} if asks == "late" else {"token": "b"}
    waiting = [first.ask(S, more=True, **fields), second.ask(S, token="c", more=True)]
    if asks == "wrong":
        world.peer().claim("other", token="b")
    world.move(10.0)
    holder.release("a")
    assert [call.said[-1] for call in waiting] == ["late" if asks == "late" else "InvalidClaim", "send"]


def test_whoever_waits_learns_the_outcome_though_the_first_in_turn_leaves_in_the_middle(world: World) -> None:
    holder, first, second = (world.peer() for _ in range(3))
    holder.claim(S, token="a")
    first.ask(S, token="b", more=True)
    waiting = second.ask(S, token="c", more=True)
    holder.release("a")
    assert first.claims == {"b"}
    first.hang_up(unread=True)
    assert waiting.said == ["held", "send"]


def test_all_calls_of_one_connection_that_wait_are_told(world: World) -> None:
    holder, waiter = world.peer(), world.peer()
    holder.claim(S, token="a")
    waiting = [waiter.ask(S, token=f"b{n}", more=True) for n in range(3)]
    holder.confirm("a")
    assert [call.said for call in waiting] == [["held", "sent"]] * 3
    assert not waiter.waits


def test_who_waits_and_hangs_up_is_passed_over(resending: World) -> None:
    holder, gone, next_one = (resending.peer() for _ in range(3))
    holder.claim(S, token="a")
    lost = gone.ask(S, token="b", more=True)
    waiting = next_one.ask(S, token="c", more=True)
    gone.hang_up()
    holder.release("a")
    assert lost.said == ["held"]
    assert waiting.said == ["held", "send"]


def test_without_more_nobody_is_told_later(world: World) -> None:
    holder, asker = world.peer(), world.peer()
    holder.claim(S, token="a")
    asked = asker.ask(S, token="b")
    holder.confirm("a")
    assert (asked.said, asked.open) == (["held"], False)


def test_more_changes_nothing_for_who_need_not_wait(world: World) -> None:
    for schedule, at, said in ((S, NOON, "send"), ("future", NOON.replace(hour=13), "wait")):
        call = world.peer().ask(schedule, at, more=True)
        assert (call.said, call.open) == ([said], False)


def test_who_waits_for_an_interval_is_told_when_its_turn_is_over(world: World) -> None:
    holder, waiter = world.peer(), world.peer()
    holder.ask("every", None, token="a", every=60.0)
    waiting = waiter.ask("every", None, token="b", every=60.0, more=True)
    assert waiting.said == ["held"]
    holder.confirm("a")
    assert waiting.said == ["held", "wait"]


def test_those_who_waited_and_left_take_no_room(world: World) -> None:
    holder = world.peer()
    holder.claim(S, token="a", lease=86_400.0)
    seen: list[weakref.ref[object]] = []
    for _ in range(20):
        waiter = world.peer()
        waiter.ask(S, more=True)
        waiter.hang_up()
        seen.append(weakref.ref(waiter))
        del waiter
    gc.collect()
    assert [ref() for ref in seen] == [None] * 20


def test_what_ends_with_a_connection_is_not_offered_to_that_connection(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    waiting = peer.ask(S, token="b", more=True)
    peer.hang_up(unread=True)
    assert waiting.said == ["held"]
    assert world.state(S) == "released"


# -- while the store is at work


def test_a_lease_does_not_end_while_its_holder_asks_again(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    world.slow = True
    again = peer.ask(S, token="a")
    world.move(LEASE + 5)
    world.work()
    assert again.said == ["send"]
    world.move(LEASE - 0.1)
    world.work()
    assert world.state(S) == "claimed"
    world.move(0.1)
    world.work()
    assert world.state(S) == "doubt"


@pytest.mark.parametrize("unread", [True, False])
def test_a_connection_that_closes_does_not_end_a_claim_whose_holder_asks_from_another(
    world: World, unread: bool
) -> None:
    first, second, third = (world.peer() for _ in range(3))
    first.claim(S, token="a")
    world.slow = True
    again = second.ask(S, token="a")
    first.hang_up(unread=unread)
    other = third.ask(S, token="b")
    world.move(GRACE)
    world.work()
    assert (again.said, other.said) == (["send"], ["held"])
    world.move(LEASE - 0.1)
    world.work()
    assert world.state(S) == "claimed"


def test_a_confirm_that_is_on_its_way_beats_the_end_of_the_lease(world: World) -> None:
    peer = world.peer()
    peer.claim(S, token="a")
    world.slow = True
    peer.settle_later(Event.CONFIRM, "a")
    world.move(LEASE + GRACE)
    peer.hang_up()
    world.work()
    assert world.state(S) == "sent"
    assert world.alarms == 0


def test_all_that_came_together_is_answered_in_the_order_it_came(world: World) -> None:
    world.slow = True
    peers = [world.peer() for _ in range(4)]
    calls = [peer.ask(S, token=f"t{n}", more=True) for n, peer in enumerate(peers)]
    peers[0].settle_later(Event.RELEASE, "t0")
    assert [call.said for call in calls] == [[]] * 4
    world.work()
    assert [call.said for call in calls] == [["send"], ["held", "send"], ["held"], ["held"]]


def test_who_leaves_before_it_is_told_to_wait_does_not_wait(world: World) -> None:
    holder, waiter = world.peer(), world.peer()
    holder.claim(S, token="a")
    world.slow = True
    waiter.ask(S, token="b", more=True)
    waiter.hang_up()
    world.work()
    assert not waiter.waits
    holder.settle_later(Event.RELEASE, "a")
    world.work()
    assert world.state(S) == "released"


def test_who_leaves_while_its_turn_comes_leaves_it_to_the_next(world: World) -> None:
    holder, first, second = (world.peer() for _ in range(3))
    holder.claim(S, token="a")
    first.ask(S, token="b", more=True)
    waiting = second.ask(S, token="c", more=True)
    world.slow = True
    holder.settle_later(Event.RELEASE, "a")
    first.hang_up(unread=True)
    world.work()
    assert waiting.said == ["held", "send"]
    assert second.claims == {"c"}
