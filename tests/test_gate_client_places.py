"""Places for asyncio programs: what the gate is told, in which order, and what becomes of places without a gate."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gate.errors import InvalidWorker
from gate.interface import AcquireIn, BindIn, HeldPermit, PermitIn, RestoreIn, RestoreOut
from gate_client import GateUnreachable, Places
from gate_client.places import ACQUIRE, BIND, RELEASE, RESTORE, RESTORED_AT_ONCE
from tests.support.fake_gate import Answer, Drop
from tests.support.place_gate import PlaceGate

HALF_A_SECOND = 0.5
TENFOLD = 10


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[PlaceGate]:
    with PlaceGate(tmp_path / "gate.sock", limit=2) as fake:
        yield fake


def run(gate: PlaceGate, work: Callable[[Places], Awaitable[Any]], **options: Any) -> None:
    """Do work with the places of a worker in an event loop of its own, and close them."""

    async def main() -> None:
        places = Places("w", socket=gate.path, **options)
        try:
            await work(places)
        finally:
            await places.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


async def acquired(places: Places, *queues: str) -> str:
    answer = await places.acquire(list(queues) or ["a"])
    assert answer.permit is not None, answer.reason
    return answer.permit


def methods(gate: PlaceGate) -> list[str]:
    return [method.rpartition(".")[2] for method, _ in gate.calls]


def released(gate: PlaceGate) -> list[str]:
    """The permits that were given back."""
    return [asked.permit for asked in gate.asked(RELEASE)]


def test_a_place_is_acquired_bound_and_released(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        permit = await acquired(places, "a", "b")
        assert places.held[permit].queues == ["a", "b"]
        assert places.allows(permit, "b")
        assert not places.allows(permit, "c")
        places.bind(permit, "b", "17")
        places.release(permit)
        assert places.held == {}
        places.bind(permit, "b", "17")
        places.release(permit)
        assert not places.allows(permit, "b")
        await places.acquire(["a"])

    run(gate, work, session="s")
    permit, other = (asked.permit for asked in gate.asked(ACQUIRE))
    assert [asked.session for asked in gate.asked(ACQUIRE)] == ["s", "s"]
    assert gate.calls[1:4] == [
        (ACQUIRE, gate.asked(ACQUIRE)[0]),
        (BIND, BindIn(permit=permit, queue="b", job="17")),
        (RELEASE, PermitIn(permit=permit)),
    ]
    assert released(gate) == [permit, other], "closing gives back what is held"


def test_who_is_refused_holds_nothing_and_reads_why(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        gate.limit = 0
        answer = await places.acquire(["a"])
        assert (answer.permit, answer.queues, answer.reason) == (None, [], "all places are taken")
        assert places.held == {}

    run(gate, work)
    assert methods(gate) == ["Restore", "Acquire"]


def test_an_error_of_the_gate_is_raised(gate: PlaceGate) -> None:
    gate.answers[ACQUIRE] = lambda asked: InvalidWorker(field="worker", reason="no")

    async def work(places: Places) -> None:
        with pytest.raises(InvalidWorker):
            await places.acquire(["a"])

    run(gate, work)
    assert RELEASE not in [method for method, _ in gate.calls]


def test_where_all_queues_may_be_fetched_a_place_is_good_for_those_that_were_asked_for(gate: PlaceGate) -> None:
    def acquire(asked: AcquireIn) -> Answer:
        return replace(gate.acquire(asked), queues=None)

    gate.answers[ACQUIRE] = acquire

    async def work(places: Places) -> None:
        permit = await acquired(places, "a")
        assert places.held[permit].queues == ["a"]

    run(gate, work)


# ---- a gate that is slow


def test_a_place_that_comes_too_late_is_given_back_and_it_is_told_that_it_came(gate: PlaceGate) -> None:
    gate.keep_acquires()
    late = asyncio.Event()

    async def work(places: Places) -> None:
        with pytest.raises(GateUnreachable, match=r"no answer within 0\.05 s"):
            await places.acquire(["a"], timeout=0.05)
        assert not late.is_set()
        gate.finish_acquire()
        await asyncio.wait_for(late.wait(), 5.0)
        assert places.held == {}
        await gate.when(lambda: gate.held == {})

    run(gate, work, late=late.set)
    assert methods(gate) == ["Restore", "Acquire", "Release"]


def test_an_acquire_that_is_cancelled_leaves_no_place_behind(gate: PlaceGate) -> None:
    gate.keep_acquires()

    async def work(places: Places) -> None:
        task = asyncio.create_task(places.acquire(["a"]))
        await gate.when(lambda: gate.kept)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        gate.finish_acquire()
        await gate.when(lambda: gate.asked(RELEASE) and gate.held == {})

    run(gate, work)


def test_a_place_whose_answer_comes_with_the_cancellation_is_given_back(gate: PlaceGate) -> None:
    gate.keep_acquires()

    async def work(places: Places) -> None:
        task = asyncio.create_task(places.acquire(["a"]))
        await gate.when(lambda: gate.kept)
        gate.finish_acquire()
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: loop.call_soon(task.cancel))  # after the answer is read, and before the task has seen it
        with pytest.raises(asyncio.CancelledError):
            await task
        await gate.when(lambda: gate.asked(RELEASE) and gate.held == {})
        assert places.held == {}

    run(gate, work)


def test_a_gate_that_hears_nothing_makes_no_heap_of_what_it_is_to_be_told(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        permit = await acquired(places)
        gate.deafen()
        for _ in range(100):
            with suppress(GateUnreachable):
                await places.acquire(["a"], timeout=0.001)
        places.release(permit)
        gate.hear()
        await gate.when(lambda: gate.held == {} and len(released(gate)) == 2)
        assert len(gate.asked(ACQUIRE)) == 2
        permit = await acquired(places)
        assert list(gate.held) == [permit]

    run(gate, work)


# ---- a gate that is away


def test_what_is_held_is_told_first_of_all_over_a_new_connection_within_half_a_second(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        bound, reserved = await acquired(places), await acquired(places, "a", "b")
        places.bind(bound, "a", "17")
        gate.stop()
        await asyncio.sleep(0.3)
        refused = asyncio.create_task(places.acquire(["a"]))
        start = time.monotonic()
        gate.start()
        assert (await refused).permit is None
        assert time.monotonic() - start < HALF_A_SECOND * TENFOLD
        told = [
            HeldPermit(permit=bound, queue="a", job="17"),
            HeldPermit(permit=reserved, queue="a"),
        ]
        assert gate.calls[-2] == (RESTORE, RestoreIn(worker="w", permits=told, session=places.session))
        assert places.allows(reserved, "a")
        assert not places.allows(reserved, "b"), "the gate keeps a place of one queue for it now"

    run(gate, work)


def test_the_connection_is_made_anew_without_being_used_and_also_when_nothing_is_held(gate: PlaceGate) -> None:
    """A gate that was restarted counts whoever ran something before, until it says what it holds."""

    async def work(places: Places) -> None:
        places.release(await acquired(places))
        await gate.when(lambda: gate.asked(RELEASE))
        before = len(gate.asked(RESTORE))
        gate.drop()
        await gate.when(lambda: len(gate.asked(RESTORE)) > before)
        assert gate.asked(RESTORE)[-1] == RestoreIn(worker="w", permits=[], session=places.session)

    run(gate, work)


def test_nothing_is_opened_before_the_first_acquire(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        places.bind("unknown", "a")
        places.release("unknown")

    run(gate, work)
    assert gate.accepted == 0


def test_what_is_released_or_bound_while_the_gate_is_away_is_told_so_when_it_is_back(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        permit, kept = await acquired(places), await acquired(places)
        places.bind(permit, "a", "17")
        gate.stop()
        places.release(permit)
        places.bind(kept, "a", "18")
        before = len(gate.asked(RESTORE))
        gate.start()
        await gate.when(lambda: len(gate.asked(RESTORE)) > before)
        assert gate.asked(RESTORE)[-1].permits == [HeldPermit(permit=kept, queue="a", job="18")]

    run(gate, work)


def test_an_acquire_whose_connection_is_lost_asks_again_with_the_same_permit(gate: PlaceGate) -> None:
    def lose(asked: AcquireIn) -> Answer:
        gate.answers[ACQUIRE] = gate.acquire
        return Drop()

    gate.answers[ACQUIRE] = lose

    async def work(places: Places) -> None:
        permit = await acquired(places)
        assert [asked.permit for asked in gate.asked(ACQUIRE)] == [permit, permit]
        assert gate.asked(RELEASE) == []

    run(gate, work)


def test_a_place_that_is_not_taken_back_is_held_no_longer(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        permit = await acquired(places)
        gate.answers[RESTORE] = lambda asked: RestoreOut(kept=[])
        gate.drop()
        await gate.when(lambda: len(gate.asked(RESTORE)) > 1)
        await acquired(places)
        assert permit not in places.held

    run(gate, work)


def test_many_places_are_told_in_pieces(gate: PlaceGate) -> None:
    count = 3 * RESTORED_AT_ONCE + 1
    gate.limit = 1000
    queue = "q" * 512

    async def work(places: Places) -> None:
        for number in range(count):
            places.bind(await acquired(places, queue), queue, str(number))
        before = len(gate.asked(RESTORE))
        gate.drop()
        await gate.when(lambda: len(gate.asked(RESTORE)) == before + 4)
        told = [one.job for asked in gate.asked(RESTORE)[before:] for one in asked.permits]
        assert told == [str(number) for number in range(count)]

    run(gate, work)


def test_a_place_serves_one_job_after_another_and_the_gate_is_told_at_the_end_which_one_has_it(gate: PlaceGate) -> None:
    gate.reuse = 0.3

    async def work(places: Places) -> None:
        permit = await acquired(places, "a", "b")
        for job in range(5):
            places.bind(permit, "ab"[job % 2], str(job))
            assert places.held[permit].job == str(job)
            places.done(permit)
            assert places.held[permit].job is None
            assert await acquired(places, "a", "b") == permit
        await gate.when(lambda: gate.jobs == ["0"])
        places.bind(permit, "b", "long")
        await gate.when(lambda: gate.jobs == ["long"])
        places.done(permit)
        assert places.held == {}
        await gate.when(lambda: gate.held == {})

    run(gate, work)
    assert methods(gate)[1:] == ["Acquire", "Bind", "Bind", "Release"]


def test_a_place_that_no_job_takes_is_given_back_when_its_time_is_over(gate: PlaceGate) -> None:
    gate.reuse = 0.1

    async def work(places: Places) -> None:
        permit = await acquired(places)
        places.bind(permit, "a", "1")
        places.done(permit)
        assert await acquired(places) == permit
        places.bind(permit, "a", "2")
        places.done(permit)
        await gate.when(lambda: gate.held == {})
        assert places.held == {}
        assert await acquired(places) != permit

    run(gate, work)


def test_a_place_is_kept_for_the_same_queues_only_and_an_empty_fetch_gives_it_back(gate: PlaceGate) -> None:
    gate.reuse = 60.0

    async def work(places: Places) -> None:
        first = await acquired(places, "a")
        places.bind(first, "a", "1")
        places.done(first)
        other = await acquired(places, "b")
        assert other != first
        assert await acquired(places, "a") == first
        places.release(first)
        assert await acquired(places, "a") != first

    run(gate, work)


def test_a_place_that_is_not_for_more_or_was_not_used_is_given_back_at_once(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        first = await acquired(places)
        places.bind(first, "a", "1")
        places.done(first)
        assert places.held == {}
        gate.reuse = 60.0
        second = await acquired(places)
        places.done(second)
        assert places.held == {}
        await gate.when(lambda: gate.held == {})

    run(gate, work)


def test_no_place_is_kept_over_a_lost_connection(gate: PlaceGate) -> None:
    gate.reuse = 60.0

    async def work(places: Places) -> None:
        idle, busy = await acquired(places), await acquired(places)
        for number, permit in enumerate([busy, idle]):
            places.bind(permit, "a", str(number))
        places.done(idle)
        await asyncio.to_thread(gate.stop)
        await asyncio.to_thread(gate.start)
        await gate.when(lambda: RESTORE in dict(gate.calls) and list(gate.held) == [busy])
        places.done(busy)
        await gate.when(lambda: gate.held == {})
        assert await acquired(places) not in {idle, busy}

    run(gate, work)


def test_closing_takes_no_longer_than_it_may_while_the_gate_is_away(gate: PlaceGate) -> None:
    async def main() -> None:
        places = Places("w", socket=gate.path)
        await acquired(places)
        gate.stop()
        start = time.monotonic()
        await places.close(timeout=0.1)
        assert time.monotonic() - start < 0.1 * TENFOLD
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def test_closing_waits_until_the_gate_has_read_what_is_given_back(gate: PlaceGate) -> None:
    async def main() -> None:
        places = Places("w", socket=gate.path)
        await acquired(places)
        gate.deafen()
        closing = asyncio.create_task(places.close(timeout=10.0))
        await asyncio.sleep(0.05)
        assert not closing.done()
        gate.hear()
        await closing
        assert gate.held == {}

    asyncio.run(main())


def test_a_gate_that_accepts_and_hangs_up_is_not_asked_without_a_pause(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        await acquired(places)
        gate.answers[RESTORE] = lambda asked: Drop()
        before = gate.accepted
        gate.drop()
        await asyncio.sleep(0.5)
        assert 2 <= gate.accepted - before <= 8
        gate.answers[RESTORE] = lambda asked: RestoreOut(kept=[])

    run(gate, work)


# ---- other processes and loops


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_holds_nothing_and_gives_nothing_back(gate: PlaceGate) -> None:
    async def work(places: Places) -> None:
        permit = await acquired(places)
        child = os.fork()
        if child == 0:
            held = len(places.held)
            places.release(permit)
            places.bind(permit, "a", "17")
            os._exit(held)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert list(places.held) == [permit]
        await acquired(places)
        assert methods(gate) == ["Restore", "Acquire", "Acquire"]

    run(gate, work)


def test_in_another_event_loop_nothing_is_held(gate: PlaceGate) -> None:
    places = Places("w", socket=gate.path)

    async def first() -> None:
        await acquired(places)
        gate.stop()
        await asyncio.sleep(0)  # the connection is given up before its loop is

    async def second() -> None:
        await acquired(places)
        assert len(places.held) == 1
        await places.close()

    asyncio.run(first())
    gate.start()
    asyncio.run(second())
    assert gate.asked(RESTORE) == [RestoreIn(worker="w", permits=[], session=places.session)] * 2
