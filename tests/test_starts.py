"""Starts in the engine: one for each occurrence and attempt, again only after the worker's death, and never listed."""

import os
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

import pytest

from gate import errors, ledger, starts
from gate.interface import ClaimOut, Decision, StartIn, rfc3339
from gate.ledger import Event
from gate.stores.base import Step
from tests.support.book import KEEP, NOON, Book, settle_step
from tests.support.engine import Peer, World

S = "nightly"


def start(peer: Peer, token: str = "t", *, attempt: int | None = None, schedule: str = S, at: str = "") -> ClaimOut:
    asked = StartIn(schedule=schedule, holder="worker", at=at or rfc3339(NOON), attempt=attempt, token=token)
    answer = peer.call(peer.world.engine.start, "Start", asked)
    if isinstance(answer, errors.CallError):
        raise answer
    assert isinstance(answer, ClaimOut)
    return answer


def start_step(token: str, at: datetime) -> Step:
    ask = starts.ask(StartIn(schedule=S, holder="worker", at=rfc3339(at)), token, None)
    return Step(token, ask.schedule, at, partial(ledger.claim, ask))


def worker(world: World, pid: int = 0) -> Peer:
    peer = world.peer()
    peer.pid = pid
    return peer


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running
        running.kill()


def test_one_copy_starts_while_it_runs_and_after_it_has_ended() -> None:
    world = World()
    first, other = worker(world), worker(world)
    assert start(first, "a").decision == "send"
    told = start(other, "b")
    assert (told.decision, told.by, told.until) == ("held", "worker", None)
    world.move(400 * 86_400 - 60 * 86_400)
    assert start(other, "b").decision == "held", "a task may run for long"
    assert first.confirm("a") == "Done"
    assert start(other, "b").decision == "sent"
    assert start(first, "a").decision == "sent"


def test_an_answer_that_was_lost_is_given_again() -> None:
    peer = worker(World())
    assert [start(peer, "a").decision for _ in range(2)] == ["send", "send"]


def test_each_retry_is_a_start_of_its_own() -> None:
    peer = worker(World())
    assert [start(peer, f"t{n}", attempt=n).decision for n in (0, 1, 2)] == ["send"] * 3
    assert start(peer, "again", attempt=1).decision == "held"


def test_what_was_not_started_after_all_may_be() -> None:
    peer = worker(World())
    start(peer, "a")
    assert peer.release("a") == "Done"
    assert start(peer, "b").decision == "send"


def test_a_worker_that_lives_keeps_its_start_through_a_lost_connection_and_a_new_gate(
    process: subprocess.Popen[bytes],
) -> None:
    world = World()
    first = worker(world, process.pid)
    start(first, "a")
    first.hang_up()
    world.move(60)
    assert start(worker(world), "b").decision == "held"
    world.begin()
    world.move(60)
    assert start(worker(world), "b").decision == "held"


@pytest.mark.parametrize("restarted", [False, True])
def test_after_the_workers_death_a_copy_starts_at_once(process: subprocess.Popen[bytes], restarted: bool) -> None:
    world = World()
    first = worker(world, process.pid)
    start(first, "a")
    process.kill()
    process.wait()
    if restarted:
        world.begin()
    else:
        first.hang_up()
    assert start(worker(world, os.getpid()), "b").decision == "send"
    assert first.confirm("a") == "Done"
    assert start(worker(world), "c").decision == "sent", "the first had ended: nothing starts it again"


def test_a_process_that_cannot_be_told_has_a_grace() -> None:
    world = World()
    first = worker(world)
    start(first, "a")
    first.hang_up()
    told = start(worker(world), "b")
    assert (told.decision, told.until) == ("held", NOON + timedelta(seconds=2))
    world.move(2)
    assert start(worker(world), "b").decision == "send"


def test_it_is_never_too_early_nor_too_old() -> None:
    peer = worker(World())
    start(peer, "a")
    for days in (-400, 1):
        assert start(peer, f"t{days}", at=rfc3339(NOON + timedelta(days=days))).decision == "send"


def test_starts_do_not_touch_the_schedule_nor_the_counts() -> None:
    world = World()
    peer = worker(world)
    peer.claim(S, token="c")
    start(peer, "a")
    start(peer, "b")
    peer.confirm("a")
    assert peer.confirm("c") == "Done"
    assert world.state(S) == "sent"
    assert world.engine.tallies.of(S).sent == 1
    assert world.engine.tallies.refusals(S, None) == []
    assert world.engine.counts[Decision.HELD] == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"schedule": ""}, "schedule"), ({"schedule": "\x1f0"}, "schedule"), ({"attempt": -1}, "attempt")],
)
def test_a_wrong_field_is_named(fields: dict[str, str], field: str) -> None:
    with pytest.raises(errors.InvalidClaim) as caught:
        start(worker(World()), **fields)  # type: ignore[arg-type]
    assert caught.value.parameters["field"] == field


def test_a_claim_cannot_take_the_name_of_a_start() -> None:
    assert World().peer().claim("\x1f0\x1fnightly") == "InvalidClaim"


def test_stores_keep_starts_and_list_none(book: Book) -> None:
    name = "\x1f0\x1fnightly"
    book.store.apply([start_step("a", NOON), start_step("b", NOON + timedelta(minutes=1))])
    assert len(book.store.open_claims()) == 2
    book.store.apply([settle_step(Event.LOST, "a")])
    book.claim(S)
    assert book.store.schedules(10)[0] == len(book.store.schedules(10)[1]) == 1
    assert book.store.doubts(10) == (0, [])
    assert [titled.occurrence.schedule for titled in book.store.history(None, None, 10)] == [S]
    assert len(book.store.history(name, None, 10)) == 2
    book.confirm("b")
    book.clock.move(KEEP + 3 * 86_400)
    while book.store.prune(100):
        pass
    assert book.store.history(name, None, 10) == []
