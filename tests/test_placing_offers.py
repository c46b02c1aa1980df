"""Who is told of a free place, by a Watch: the one for whom it is kept, whatever else happens, and nobody else."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from gate import errors, processes
from gate.engine import Request
from gate.interface import AcquireIn, AcquireOut, CheckOut, HeldPermit, PermitIn, Reply, RestoreIn, WatchIn
from gate.permits import MOST_OF_PROCESS
from gate.placemarks import NOTES
from gate.poolinfo import POOLS_SHOWN
from gate.wire import Call, Slot
from tests.support.fetch import FetchWorld, Worker, rules

DICOM = ["dicom"]
ONE = 'timezone = "UTC"\n[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\nat_once = 1\n'
MIDDAY = """
timezone = "UTC"
[[fetch]]
name = "dicom"
queues = ["dicom"]
at_once = ["daily 12:00-12:10: 1", "daily 12:10-13:00: 0", "else: 2"]
"""


class Peer(Worker):
    """A connection that watches or acquires. `pid`: 0 is one that cannot be told. `got`: answers but those to Watch."""

    def __init__(self, world: FetchWorld, pid: int) -> None:
        super().__init__(world)
        self.pid = pid
        self.got: list[Reply | errors.CallError] = []
        self.claims: set[str] = set()
        self.waits: Counter[Any] = Counter()
        self.holder: str | None = None

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        if isinstance(reply, CheckOut):
            super().reply(slot, reply, continues=continues)
        else:
            self.got.append(reply)

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        self.got.append(error)

    def never_read(self, slot: Slot) -> bool:
        return False

    @property
    def request(self) -> Request:
        return Request(self, Slot(Call(method=""), None))

    def watch_as(self, session: str) -> "Peer":
        call = Call(method="io.schedulegate.Fetch.Watch", more=True)
        self.world.engine.watch(self, Slot(call, None), WatchIn(worker="w", queues=DICOM, session=session))
        return self

    def acquire(self, session: str, permit: str | None = None, queues: list[str] | None = DICOM) -> AcquireOut:
        asked = AcquireIn(worker="w", queues=queues, session=session, permit=permit)
        self.world.engine.placing.acquire(self.request, asked)
        answer = self.got[-1]
        assert isinstance(answer, AcquireOut)
        return answer

    def take(self, session: str = "holder") -> str:
        permit = self.acquire(session).permit
        assert permit is not None
        return permit

    def release(self, permit: str) -> None:
        self.world.engine.placing.release(self.request, PermitIn(permit=permit))

    def restore(self, *permits: str, job: str | None = None) -> Reply | errors.CallError:
        held = [HeldPermit(permit=permit, queue="dicom", job=job) for permit in permits]
        self.world.engine.placing.restore(self.request, RestoreIn(worker="w", permits=held))
        return self.got[-1]


@pytest.fixture(autouse=True)
def living(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The pids of processes that live; all that a test plays do."""
    pids = set(range(1, 1000))
    monkeypatch.setattr(processes, "key_of", lambda pid: f"boot:{pid}:1" if pid in pids else None)
    return pids


def waiting(world: FetchWorld, number: int, first_pid: int = 1) -> list[Peer]:
    """Workers that watch, and have been refused, in this order."""
    peers = [Peer(world, first_pid + n).watch_as(str(n)) for n in range(number)]
    for n, peer in enumerate(peers):
        assert peer.acquire(str(n)).permit is None
    return peers


def told(peers: list[Peer]) -> list[int]:
    """How many answers each has got so far."""
    return [len(peer.answers) for peer in peers]


# -- one place, one who is told


def test_one_free_place_is_one_push_to_the_first_who_waits() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    peers = waiting(world, 5)
    holder.release(permit)
    assert told(peers) == [2, 1, 1, 1, 1]
    assert peers[0].last.place
    world.move(1.5)  # it did not come, so the next one is told
    assert told(peers) == [2, 2, 1, 1, 1]


def test_those_who_join_cause_no_push_to_those_who_watch() -> None:
    world = FetchWorld(ONE)
    first, holder = Peer(world, 1).watch_as("1"), Peer(world, 99)
    permit = holder.take()
    assert not Peer(world, 2).watch_as("2").last.place
    holder.release(permit)
    assert Peer(world, 3).watch_as("3").last.place
    assert told([first]) == [1]


def test_nobody_is_told_of_a_place_that_is_kept_for_another() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    (first,) = waiting(world, 1)
    holder.release(permit)
    assert first.last.place
    assert not Peer(world, 50).watch_as("new").last.place
    assert not world.check("w", DICOM).place
    assert Peer(world, 1).watch_as("0").last.place  # he comes back over another connection


def test_whoever_a_place_is_kept_for_hears_so_whatever_else_is_told() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    first, second = waiting(world, 2)
    holder.release(permit)
    world.step(timedelta(0))  # everybody is told anew
    assert (first.last.place, second.last.place) == (True, False)


def test_at_an_opening_those_who_waited_before_are_told_and_no_others() -> None:
    world = FetchWorld(MIDDAY)
    holder = Peer(world, 99)
    permit = holder.take()
    peers = waiting(world, 5)
    newcomer = Peer(world, 50).watch_as("new")
    world.move(605)
    holder.release(permit)
    assert [peer.last.open for peer in peers] == [False] * 5
    world.move(3600 - 605)
    assert [(peer.last.open, peer.last.place) for peer in peers] == [(True, True)] * 2 + [(True, False)] * 3
    assert (newcomer.last.open, newcomer.last.place) == (True, False)
    assert told(peers) == [3] * 5, "open, closed, open: once each"


@pytest.mark.parametrize("first", ["hours", "limits"])
def test_at_an_opening_it_does_not_matter_which_timer_goes_off_first(first: str) -> None:
    world = FetchWorld(MIDDAY)
    holder = Peer(world, 99)
    permit = holder.take()
    peers = waiting(world, 3)
    world.move(3599.6)
    holder.release(permit)
    # Whichever is armed last goes off last; this arms both, the hours last.
    world.engine.take(rules(MIDDAY))
    if first == "hours":
        world.engine.placing.changed()
    world.move(0.4)
    assert [(peer.last.open, peer.last.place) for peer in peers] == [(True, True)] * 2 + [(True, False)]


def test_a_worker_whose_process_cannot_be_told_is_told_all_the_same() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    watch, hand, stranger = Peer(world, 0).watch_as("mine"), Peer(world, 0), Peer(world, 0).watch_as("another")
    assert hand.acquire("mine").permit is None
    holder.release(permit)
    assert (told([watch]), watch.last.place, told([stranger])) == ([2], True, [1])
    world.engine.jumped()
    assert (watch.last.place, stranger.last.place) == (True, False)
    assert hand.acquire("mine").permit is not None


def test_who_waits_for_a_rule_that_a_reload_removed_is_told_to_ask_again() -> None:
    world = FetchWorld(ONE)
    Peer(world, 99).take()
    (peer,) = waiting(world, 1)
    renamed = ONE.replace('name = "dicom"', 'name = "other"')
    world.engine.take(rules(renamed))
    assert peer.last.place
    assert peer.acquire("0").permit is not None, "places of the old rule do not count in the new one"


def test_who_is_told_to_ask_again_then_waits_for_what_the_new_rule_needs() -> None:
    text = 'timezone = "UTC"\n[[resource]]\nname = "pacs"\nat_once = 1\n'
    text += '[[fetch]]\nname = "urgent"\nqueues = ["urgent"]\nneeds = ["pacs"]\n'
    text += '[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\nneeds = ["pacs"]\n'
    world = FetchWorld(text)
    holder = Peer(world, 99)
    permit = holder.acquire("holder", queues=["urgent"]).permit
    assert permit is not None
    (peer,) = waiting(world, 1)
    world.engine.take(rules(text.replace('name = "dicom"', 'name = "other"')))
    assert peer.last.place
    assert peer.acquire("0").permit is None
    before = len(peer.answers)
    holder.release(permit)
    assert (len(peer.answers), peer.last.place) == (before + 1, True)


def test_at_the_end_of_an_override_those_who_waited_before_are_told() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    (peer,) = waiting(world, 1)
    newcomer = Peer(world, 50).watch_as("new")
    world.order("close", "dicom", timedelta(hours=1))
    holder.release(permit)
    world.order("auto", "dicom")
    assert (told([peer, newcomer]), peer.last.place, newcomer.last.place) == ([3, 3], True, False)


def test_who_watches_no_more_is_offered_nothing() -> None:
    world = FetchWorld(ONE)
    holder, watch, hand = Peer(world, 99), Peer(world, 1).watch_as("mine"), Peer(world, 1)
    permit = holder.take()
    assert hand.acquire("mine").permit is None
    (second,) = waiting(world, 1, first_pid=2)
    watch.hang_up()
    holder.release(permit)
    assert second.last.place


def test_a_place_of_one_who_hung_up_is_offered_to_the_next() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 99)
    permit = holder.take()
    first, second = waiting(world, 2)
    holder.release(permit)
    assert (first.last.place, second.last.place) == (True, False)
    first.hang_up()
    assert second.last.place


def test_a_limit_that_applies_when_it_opens_is_said_while_it_is_closed() -> None:
    world = FetchWorld(ONE + 'open = ["daily 20:00-06:00"]\n')
    answer = world.check("w", DICOM)
    assert (answer.open, answer.limited, answer.place) == (False, True, False)


# -- answers


def test_the_same_permit_gets_the_same_answer_after_closing_too() -> None:
    world = FetchWorld(ONE + 'open = ["daily 12:00-12:10"]\n')
    peer = Peer(world, 1)
    assert peer.acquire("s", "p").permit == "p"
    world.move(700)
    assert peer.acquire("s", "p").permit == "p"
    refused = peer.acquire("s", "q")
    assert (refused.permit, refused.queues) == (None, [])
    assert "outside its hours" in refused.reason


def test_what_an_earlier_rule_has_no_place_for_is_excluded_from_a_later_ones_pattern() -> None:
    text = 'timezone = "UTC"\nuncovered = "closed"\n'
    text += '[[fetch]]\nname = "urgent"\nqueues = ["dicom-urgent"]\nat_once = 1\n'
    text += '[[fetch]]\nname = "rest"\nqueues = ["dicom-*"]\nat_once = 9\n'
    world = FetchWorld(text)
    assert Peer(world, 1).acquire("s", queues=["dicom-urgent"]).permit is not None
    answer = Peer(world, 2).acquire("s", queues=None)
    assert (answer.queues, answer.excluded) == (["dicom-*"], ["dicom-urgent"])


def test_why_tells_of_places_now_and_of_limits_at_other_times() -> None:
    world = FetchWorld(MIDDAY)
    Peer(world, 1).take()
    waiting(world, 2, first_pid=2)
    words = world.engine.placing.words
    assert words("dicom") == ["rule dicom: limit 1 by daily 12:00-12:10, 1 taken, 2 waiting"]
    assert words("dicom", world.clock.now() + timedelta(hours=2)) == ["rule dicom: limit 2 by else"]


# -- bounds


def test_one_process_waits_in_a_bounded_number_of_sessions() -> None:
    world = FetchWorld(ONE)
    peer = Peer(world, 1)
    peer.take()
    for number in range(MOST_OF_PROCESS + 50):
        peer.acquire(f"session {number}")
    answer = peer.acquire("one more")
    assert answer.reason == f"this process has {MOST_OF_PROCESS} permits and waiters: release those that are not used"
    (pool,) = world.engine.placing.pools()
    assert len(pool.places) + len(pool.waiting) == MOST_OF_PROCESS
    assert peer.acquire("session 0").permit is None, "whoever waits already goes on waiting"
    assert Peer(world, 2).acquire("s").reason != answer.reason


def test_one_process_restores_a_bounded_number_of_permits() -> None:
    world = FetchWorld(ONE)
    peer = Peer(world, 1)
    for start in range(0, MOST_OF_PROCESS + 500, 100):
        peer.restore(*(str(number) for number in range(start, start + 100)))
    (pool,) = world.engine.placing.pools()
    assert pool.taken == MOST_OF_PROCESS


def test_of_thousands_of_limits_those_in_use_are_shown() -> None:
    rule = '[[fetch]]\nname = "{0}"\nqueues = ["{0}"]\nat_once = 1\n'
    world = FetchWorld('timezone = "UTC"\n' + "".join(rule.format(f"q{number}") for number in range(1500)))
    assert Peer(world, 1).acquire("s", queues=["q1400"]).permit is not None
    pools = world.engine.placing.pools()
    assert (len(pools), pools[0].pool, pools[0].taken, pools[1].pool) == (POOLS_SHOWN, "rule q1400", 1, "rule q0")


@pytest.mark.parametrize(("permit", "job"), [("", "j"), ("p" * 129, "j"), ("p", ""), ("p", "é" * 257)])
def test_what_may_not_be_restored_is_named(permit: str, job: str) -> None:
    with pytest.raises(errors.InvalidWorker, match=r"permits\[0\]"):
        Peer(FetchWorld(ONE), 1).restore(permit, job=job)


# -- processes and the disk


def test_a_dead_process_loses_its_places_though_a_child_keeps_its_connection_open(living: set[int]) -> None:
    world = FetchWorld(ONE)
    Peer(world, 7).take()
    (peer,) = waiting(world, 1)
    living.discard(7)
    world.move(2)
    assert not peer.last.place
    world.move(0.5)
    assert peer.last.place
    assert world.store.notes(NOTES).keys().isdisjoint({"boot:7:1"})


def test_nothing_is_looked_at_while_nobody_holds_a_place() -> None:
    world = FetchWorld(ONE)
    holder = Peer(world, 1)
    before = world.alarms
    holder.release(holder.take())
    world.move(1)
    assert world.alarms == before


def test_a_note_that_cannot_be_read_is_a_warning_and_no_reason_not_to_start() -> None:
    world = FetchWorld(ONE)
    world.store.put_notes(NOTES, {"boot:1:1": b"{", "boot:2:1": b'{"rule dicom": 1}'})
    world.begin()
    (problem,) = world.engine.placing.problems
    assert "boot:1:1" in problem
    assert world.engine.placing.pools()[0].taken == 1


def test_many_first_places_at_once_take_two_writes() -> None:
    world = FetchWorld(ONE.replace("at_once = 1", "at_once = 50"))
    world.slow = True
    peers = [Peer(world, pid) for pid in range(1, 51)]
    for peer in peers:
        asked = AcquireIn(worker="w", queues=DICOM, session="s")
        world.engine.placing.acquire(peer.request, asked)
    writes = 0
    while world.unanswered:
        world.work_once()
        writes += 1
    assert writes == 2
    assert all(isinstance(peer.got[-1], AcquireOut) for peer in peers)
