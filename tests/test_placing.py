"""Places in the engine: a clock that the test moves, a store that fails when told to, connections that it plays."""

import os
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from gate import errors, processes
from gate.engine import Request
from gate.interface import AcquireIn, AcquireOut, BindIn, HeldPermit, PermitIn, Reply, RestoreIn, RestoreOut
from gate.permits import MOST_OF_PROCESS
from gate.placemarks import NOTES
from gate.wire import Call, Slot
from tests.support.fetch import FetchWorld, rules

DICOM = ["dicom"]
RULE = '[[fetch]]\nname = "{0}"\nqueues = ["{0}"]\n'


def limited(at_once: str, more: str = "", name: str = "dicom") -> str:
    return f'timezone = "UTC"\n{RULE.format(name)}at_once = {at_once}\n{more}'


class Hand:
    """A connection of a worker that acquires. `pid`: 0 is one that cannot be told."""

    closed = False
    uid = 1000

    def __init__(self, world: FetchWorld, pid: int = 0) -> None:
        self.world = world
        self.pid = pid
        self.claims: set[str] = set()
        self.waits: Counter[Any] = Counter()
        self.holder: str | None = None
        self.answers: list[Reply | errors.CallError] = []
        self.reads = True

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        self.answers.append(reply)

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        self.answers.append(error)

    def never_read(self, slot: Slot) -> bool:
        return not self.reads

    def _request(self) -> Request:
        return Request(self, Slot(Call(method="", more=False, oneway=False), None))

    def acquire(
        self, session: str = "s", permit: str | None = None, queues: list[str] | None = DICOM, worker: str = "w"
    ) -> Any:
        asked = AcquireIn(worker=worker, queues=queues, session=session, permit=permit)
        self.world.engine.placing.acquire(self._request(), asked)
        return self.answers[-1] if self.answers else None

    def bind(self, permit: str, queue: str) -> Any:
        self.world.engine.placing.bind(self._request(), BindIn(permit=permit, queue=queue))
        return self.answers[-1]

    def release(self, permit: str) -> None:
        self.world.engine.placing.release(self._request(), PermitIn(permit=permit))

    def restore(self, *permits: str) -> Any:
        held = [HeldPermit(permit=permit, queue="dicom") for permit in permits]
        self.world.engine.placing.restore(self._request(), RestoreIn(worker="w", permits=held))
        return self.answers[-1]

    def hang_up(self) -> None:
        self.closed = True
        self.world.engine.placing.hung_up(self)


def granted(answer: Any) -> bool:
    assert isinstance(answer, AcquireOut)
    assert answer.open is (answer.permit is not None)
    return answer.open


def test_check_says_whether_a_limit_applies_and_a_place_is_free() -> None:
    world = FetchWorld(limited("1"))
    assert (world.check("w", ["dicom"]).limited, world.check("w", ["dicom"]).place) == (True, True)
    assert (world.check("w", ["other"]).limited, world.check("w", ["other"]).place) == (False, True)
    assert granted(Hand(world).acquire())
    assert (world.check("w", ["dicom"]).open, world.check("w", ["dicom"]).place) == (True, False)
    assert world.check("w", ["dicom", "other"]).place


def test_a_ramp_lets_one_start_in_each_slot_of_an_opening() -> None:
    world = FetchWorld(limited("8", 'open = ["daily 12:01-20:00"]\nramp = "1 every 20s"\n'))
    hand, started = Hand(world), []
    for second in range(60 + 200):
        if granted(hand.acquire()):
            started.append(second - 60)
        world.move(1)
    assert started == [0, 20, 40, 60, 80, 100, 120, 140]


def test_a_ramp_starts_no_more_in_a_slot_because_the_gate_was_restarted_in_it() -> None:
    world = FetchWorld(limited("8", 'open = ["daily 12:01-20:00"]\nramp = "1 every 20s"\n'))
    world.move(60)
    assert granted(Hand(world).acquire())
    started: list[int] = []
    for second in range(1, 50):
        world.move(1)
        world.begin()
        if granted(Hand(world).acquire()):
            started.append(second)
    assert started == [20, 40]


def test_a_limit_of_nothing_is_closed_and_says_which_line_says_so() -> None:
    world = FetchWorld(limited('["daily 11:00-13:00: 0", "else: 2"]'))
    check = world.check("w", ["dicom"])
    assert not check.open
    assert "daily 11:00-13:00" in check.reason
    refused = Hand(world).acquire()
    assert not granted(refused)
    assert refused.until == check.until == world.clock.now().replace(hour=13)


def test_a_larger_limit_is_offered_to_those_who_wait_and_a_smaller_one_takes_nothing_away() -> None:
    world = FetchWorld(limited("1"))
    hand = Hand(world)
    assert granted(hand.acquire("1"))
    assert not granted(hand.acquire("2"))
    world.engine.take(rules(limited("2")))
    assert not granted(hand.acquire("3"))  # it is kept for the one who waits
    assert granted(hand.acquire("2"))
    world.engine.take(rules(limited("1")))
    assert sum(len(pool.places) for pool in world.engine.placing.pools()) == 2
    assert not granted(hand.acquire("3"))


def test_the_hours_of_a_limit_change_without_anybody_asking() -> None:
    world = FetchWorld(limited('["daily 12:30-13:00: 2", "else: 1"]'))
    hand = Hand(world)
    assert granted(hand.acquire("1"))
    assert not granted(hand.acquire("2"))
    world.move(30 * 60 + 0.5)
    (pool,) = world.engine.placing.pools()
    assert (pool.limit, pool.taken) == (2, 1)
    assert not granted(hand.acquire("3"))  # kept for the one who waits
    assert granted(hand.acquire("2"))


def test_without_the_store_no_place_is_given_and_none_leaks() -> None:
    world = FetchWorld(limited("1"))
    world.store.fault = "before"
    hand = Hand(world)
    assert isinstance(hand.acquire(), errors.StoreUnavailable)
    world.store.fault = ""
    assert granted(hand.acquire("t"))


def test_an_answer_leaves_when_what_a_restart_must_know_is_on_disk() -> None:
    world = FetchWorld(limited("2"))
    world.slow = True
    hand = Hand(world)
    assert hand.acquire(permit="a") is None
    world.work()
    assert granted(hand.answers[-1])
    assert len(world.store.notes(NOTES)) == 1
    hand.release("a")
    assert granted(hand.acquire(permit="b"))  # no more at once than before: nothing to write


def test_a_connection_that_cannot_be_told_loses_its_places_after_the_grace_unless_it_comes_back() -> None:
    world = FetchWorld(limited("1"))
    gone = Hand(world)
    permit = gone.acquire().permit
    gone.hang_up()
    world.move(1)
    back = Hand(world)
    assert back.restore(permit) == RestoreOut(kept=[permit])
    world.move(5)
    assert not granted(Hand(world).acquire("other"))
    back.hang_up()
    world.move(3)
    assert granted(Hand(world).acquire("other"))


def test_a_dead_process_loses_its_places_and_a_living_one_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    living = {41, 42}
    monkeypatch.setattr(processes, "key_of", lambda pid: f"boot:{pid}:1" if pid in living else None)
    world = FetchWorld(limited("2"))
    one, two = Hand(world, 41), Hand(world, 42)
    assert granted(one.acquire("1"))
    assert granted(two.acquire("2"))
    one.hang_up()
    two.hang_up()
    world.move(60)
    other = Hand(world)
    assert not granted(other.acquire("3"))
    living.discard(41)
    world.move(1)
    assert not granted(other.acquire("3"))  # the grace is not over
    world.move(2)
    assert granted(other.acquire("3"))


def test_a_gate_that_starts_counts_what_the_living_held_until_they_say_what_they_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = {41, 42}
    monkeypatch.setattr(processes, "key_of", lambda pid: f"boot:{pid}:1" if pid in living else None)
    world = FetchWorld(limited("3"))
    for pid in (41, 42):
        assert granted(Hand(world, pid).acquire(str(pid)))
    living.discard(42)
    world.begin()
    world.move(3)
    other = Hand(world)
    assert [granted(other.acquire(str(n))) for n in range(3)] == [True, True, False]
    assert Hand(world, 41).restore() == RestoreOut(kept=[])
    assert granted(other.acquire("2"))


def test_a_process_that_hangs_up_with_nothing_is_forgotten_on_disk_too() -> None:
    world = FetchWorld(limited("3"))
    hand = Hand(world)
    permit = hand.acquire().permit
    assert world.store.notes(NOTES)
    hand.release(permit)
    hand.hang_up()
    assert not world.store.notes(NOTES)


def test_a_permit_of_another_process_is_unknown() -> None:
    world = FetchWorld(limited("1"))
    permit = Hand(world).acquire().permit
    stranger = Hand(world)
    with pytest.raises(errors.UnknownPermit):
        stranger.bind(permit, "dicom")
    stranger.release(permit)
    assert not granted(stranger.acquire("other"))


def test_one_process_holds_a_bounded_number_of_permits() -> None:
    world = FetchWorld()
    hand = Hand(world)
    for number in range(MOST_OF_PROCESS):
        assert granted(hand.acquire(permit=str(number)))
    refused = hand.acquire()
    assert not granted(refused)
    assert "release those that are not used" in refused.reason


def test_a_question_for_all_queues_names_what_is_left_out() -> None:
    world = FetchWorld(limited("1"))
    hand = Hand(world)
    first = hand.acquire(queues=None)
    assert (first.queues, first.excluded) == (None, None)
    hand.bind(first.permit, "dicom")
    second = hand.acquire("t", queues=None)
    assert (second.queues, second.excluded) == (None, ["dicom"])


def test_the_pools_say_who_holds_and_who_waits() -> None:
    world = FetchWorld(limited("1"))
    hand = Hand(world)
    permit = hand.acquire("1").permit
    hand.bind(permit, "dicom")
    hand.acquire("2")
    (pool,) = world.engine.placing.pools()
    assert (pool.pool, pool.limit, pool.taken) == ("rule dicom", 1, 1)
    assert [(place.permit, place.queue) for place in pool.places] == [(permit, "dicom")]
    assert len(pool.waiting) == 1
    assert world.engine.placing.words("dicom") == ["rule dicom: limit 1, 1 taken, 1 waiting"]


def test_a_step_of_the_clock_ends_no_place() -> None:
    world = FetchWorld(limited("1"))
    assert granted(Hand(world).acquire())
    for step in (timedelta(days=2), -timedelta(days=4)):
        world.step(step)
        assert not granted(Hand(world).acquire("other"))


# -- answers that were never read


def test_what_becomes_of_grants_is_forgotten_with_them() -> None:
    world = FetchWorld(limited("2"))
    hand, other = Hand(world, os.getpid()), Hand(world, os.getpid())
    hand.acquire(permit="p")
    other.acquire(permit="p")
    other.release("p")
    hand.acquire(permit="q")
    other.release("q")
    hand.acquire(permit="r")
    other.restore("r")
    assert world.engine.placing._grants == {}  # noqa: SLF001 - what leaks shows nowhere else


@pytest.mark.parametrize("reads", [True, False])
def test_a_grant_that_was_never_read_is_given_back_when_its_connection_closes(reads: bool) -> None:
    world = FetchWorld(limited("1"))
    hand, other = Hand(world, os.getpid()), Hand(world, os.getpid())
    assert granted(hand.acquire())
    hand.reads = reads
    hand.hang_up()
    assert granted(other.acquire()) is not reads


def test_what_is_bound_was_read() -> None:
    world = FetchWorld(limited("1"))
    hand, other = Hand(world, os.getpid()), Hand(world, os.getpid())
    hand.acquire(permit="p")
    hand.bind("p", "dicom")
    hand.reads = False
    hand.hang_up()
    assert not granted(other.acquire())


def test_a_grant_that_was_asked_for_again_is_that_of_the_later_connection() -> None:
    world = FetchWorld(limited("1"))
    hand, again, other = (Hand(world, os.getpid()) for _ in range(3))
    hand.acquire(permit="p")
    assert granted(again.acquire(permit="p"))
    hand.reads = False
    hand.hang_up()
    assert not granted(other.acquire())
