"""Claims and the connections that ask for them: which one a claim lives by, and who is woken when it ends."""

import threading
from collections import Counter
from pathlib import Path

from gate.config import Config
from gate.errors import StoreUnavailable
from gate.interface import Done
from gate.rules import DEFAULT_POLICY, SendPolicy, SendRule, policies
from gate.stores import ledger_file
from gate.stores.memory import MemoryStore
from gate.wire import ServerProtocol
from gate.writer import Work, Writer
from tests.support.book import KEEP, NOON, Book, ManualClock, claim_step
from tests.support.engine import World

S = "s"
GRACE, LEASE = 2.0, 30.0


def test_a_late_question_on_a_dead_connection_takes_no_claim_away() -> None:
    """The holder asked on a connection that was lost, and again on another; the gate reads the second first."""
    world = World(SendPolicy(on_doubt="resend"))
    stale, alive, other = world.peer(), world.peer(), world.peer()
    assert alive.claim(S, token="t") == "send"
    assert stale.claim(S, token="t") == "send"
    stale.hang_up()

    world.move(LEASE - 1)

    assert world.state(S) == "claimed"
    assert other.claim(S, token="o") == "held"
    alive.hang_up()
    world.move(GRACE)
    assert other.claim(S, token="o") == "send"


def test_a_grant_that_was_repeated_is_never_taken_for_unread() -> None:
    """The first may have been read, or was oneway; only the repeat was left unread."""
    world = World()
    holder, other = world.peer(), world.peer()
    assert holder.claim(S, token="t") == "send"
    assert holder.claim(S, token="t") == "send"

    holder.hang_up(unread=True)

    assert other.claim(S, token="o") == "held"
    world.move(GRACE)
    assert other.claim(S, token="o") == "doubt"


def test_of_many_who_wait_one_is_woken_by_a_release_and_all_by_a_confirm() -> None:
    world = World()
    holder, waiters = world.peer(), [world.peer() for _ in range(50)]
    holder.claim(S, token="t")
    calls = [peer.ask(S, token=f"w{n}", more=True) for n, peer in enumerate(waiters)]
    asked = Counter(world.engine.counts)

    holder.release("t")

    assert [call.said for call in calls] == [["held", "send"]] + [["held"]] * 49
    assert sum(world.engine.counts.values()) - sum(asked.values()) == 1
    waiters[0].confirm("w0")
    assert [call.said for call in calls[1:]] == [["held", "sent"]] * 49
    assert not any(call.open for call in calls)
    assert not any(peer.waits for peer in waiters)


def test_who_may_not_send_passes_its_turn_on() -> None:
    world = World()
    holder, late, next_one = world.peer(), world.peer(), world.peer()
    holder.claim(S, token="t")
    too_late = late.ask(S, token="l", more=True, deadline=1.0)
    waiting = next_one.ask(S, token="n", more=True)
    world.move(5)

    holder.release("t")

    assert too_late.said == ["held", "late"]
    assert waiting.said == ["held", "send"]


def test_a_store_that_is_back_is_noticed_though_nobody_asks() -> None:
    world = World()
    world.store.fault = "before"
    assert world.peer().claim(S, token="t") == StoreUnavailable.__name__
    world.move(5)
    assert world.engine.problem is not None

    world.store.fault = ""
    world.move(2)

    assert world.engine.problem is None
    assert world.alarms == 0


def test_a_name_that_is_too_long_is_not_remembered() -> None:
    asked: list[str] = []

    def policy(schedule: str) -> SendPolicy:
        asked.append(schedule)
        return DEFAULT_POLICY

    world = World()
    world.engine.policy = policy

    assert world.peer().claim("x" * 60_000) == "InvalidClaim"
    assert asked == []


def test_a_minute_claimed_early_does_not_set_the_cadence_of_an_interval_back() -> None:
    """One schedule with both a cron and an interval shorter than what may be claimed ahead of time."""
    book = Book.in_memory()
    book.clock.move(-4)
    assert book.answer(S, NOON, token="a").decision == "send"

    book.answer(S, None, token="b", every=2.0)

    assert book.answer(S, NOON, token="c").decision != "send"


def test_an_interval_past_its_deadline_begins_its_cadence_anew() -> None:
    book = Book.in_memory()
    assert book.answer(S, None, token="a", every=3600.0, deadline=600.0).decision == "send"
    book.confirm("a")
    book.clock.move(80 * 60)

    again = book.answer(S, None, token="b", every=3600.0, deadline=600.0)

    assert (again.decision, again.at) == ("send", book.clock.time)


def test_an_answer_that_is_made_anew_is_unread_until_it_is_written() -> None:
    """A waiter was told `held`; it dies while the grant is on its way."""
    protocol = ServerProtocol()
    (slot,) = protocol.receive(b'{"method":"org.varlink.service.GetInfo","more":true}\0')
    protocol.reply(slot, Done(), continues=True)
    protocol.take()
    assert slot.end is not None

    protocol.reply(slot, Done())

    assert slot.end is None


def test_claims_do_not_wait_for_a_row_of_queries() -> None:
    """Each step is delivered before the next query runs, however many queries wait."""
    store = MemoryStore(ManualClock(), KEEP)
    delivered: list[str] = []
    first_runs, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def first(_: object) -> None:
        first_runs.set()
        go_on.wait(10)

    def note(name: str) -> Work:
        return Work(lambda _: None, query=lambda _: delivered.append(name))

    def deliver(works: list[Work]) -> None:
        delivered.extend("step" for work in works if work.step is not None)
        if len(delivered) == 4:
            done.set()

    writer = Writer(store, deliver)
    writer.submit([Work(lambda _: None, query=first), *(note(f"query {n}") for n in range(3))])
    assert first_runs.wait(10)
    writer.submit([Work(lambda _: None, step=claim_step(S, NOON, "t"))])
    go_on.set()

    assert done.wait(10)
    assert delivered == ["step", "query 0", "query 1", "query 2"]
    assert writer.stop(10)


def test_the_file_of_a_ledger_is_known_so_that_it_can_be_locked() -> None:
    state = Path("/state")
    assert ledger_file("sqlite:", state) == Path("/state/gate.db")
    assert ledger_file("sqlite:/some/file", state) == Path("/some/file")
    assert ledger_file("memory:", state) is None


def test_policies_come_from_the_first_rule_that_matches() -> None:
    rule = SendRule(schedules=("a:*",), policy=SendPolicy(on_doubt="resend"))
    policy = policies(Config(send=(rule,)).send)
    assert (policy("a:x").on_doubt, policy("b").on_doubt) == ("resend", "skip")
