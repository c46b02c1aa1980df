"""Check and Watch: what is answered, who is told, and when. It is noon in UTC; the hours are those of Berlin, 13:00."""

import gc
import weakref
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import errors
from gate.explain import why
from gate.interface import CheckIn, WatchIn, WhyIn
from gate.overrides import NO_OVERRIDES
from gate.wire import Call, Slot
from tests.support.book import NOON
from tests.support.fetch import UNREAD_BYTES, FetchWorld, Worker, rules

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CONFIG = """
timezone = "Europe/Berlin"
[hours]
night = ["daily 20:00-06:00"]
[[fetch]]
name = "dicom"
queues = ["dicom"]
open = ["night"]
[[fetch]]
name = "lunch"
workers = ["eats-*"]
closed = ["daily 13:10-13:20"]
"""
EVENING = datetime(2026, 11, 30, 19, tzinfo=UTC)
"""20:00 in Berlin."""
MORNING = EVENING + 10 * HOUR


@pytest.fixture
def world() -> FetchWorld:
    return FetchWorld(CONFIG)


# -- Check


def test_without_rules_everything_is_open_for_ever() -> None:
    answer = FetchWorld().check("anybody")
    assert (answer.open, answer.queues, answer.excluded, answer.until) == (True, None, None, None)
    assert (answer.limited, answer.place) == (False, True)


def test_check_answers_by_rule_and_hour(world: FetchWorld) -> None:
    closed = world.check("w", ["dicom"])
    assert (closed.open, closed.queues, closed.until) == (False, [], EVENING)
    assert "rule dicom" in closed.reason
    both = world.check("w", ["other", "dicom"])
    assert (both.open, both.queues, both.until) == (True, ["other"], EVENING)
    everything = world.check("w")
    assert (everything.open, everything.queues, everything.excluded) == (True, None, ["dicom"])
    world.move((EVENING - NOON).total_seconds())
    opened = world.check("w", ["dicom"])
    assert (opened.open, opened.queues, opened.until) == (True, ["dicom"], MORNING)


def test_check_asks_no_store(world: FetchWorld) -> None:
    world.slow = True
    assert not world.check("w", ["dicom"]).open


LONG_WORKER, LONG_QUEUE = "w" * 257, "é" * 257


@pytest.mark.parametrize(
    ("worker", "queues", "field", "reason"),
    [
        ("", None, "worker", "0 bytes are given, 1 to 256 are allowed"),
        (LONG_WORKER, None, "worker", "257 bytes are given, 1 to 256 are allowed"),
        ("é" * 129, None, "worker", "258 bytes are given, 1 to 256 are allowed"),
        ("w", ["q"] * 1001, "queues", "1001 names are given, at most 1000 are allowed"),
        ("w", ["q", ""], "queues[1]", "0 bytes are given, 1 to 512 are allowed"),
        ("w", ["q", LONG_QUEUE], "queues[1]", "514 bytes are given, 1 to 512 are allowed"),
    ],
)
def test_a_question_that_may_not_be_is_refused(
    world: FetchWorld, worker: str, queues: list[str] | None, field: str, reason: str
) -> None:
    with pytest.raises(errors.InvalidWorker) as caught:
        world.check(worker, queues)
    assert (caught.value.field, caught.value.reason) == (field, reason)
    with pytest.raises(errors.InvalidWorker, match=r"^invalid question: "):
        world.worker().watch(worker, queues)
    if queues is None or len(queues) <= 2:
        asked = WhyIn(worker=worker, queue=None if queues is None else queues[-1])
        with pytest.raises(errors.InvalidWorker):
            why(world.rules, NO_OVERRIDES, asked, NOON)


def test_the_longest_question_is_answered(world: FetchWorld) -> None:
    answer = world.check("w" * 256, [f"{number:0512}" for number in range(1000)])
    assert answer.open
    assert len(answer.queues or ()) == 1000


@pytest.mark.parametrize("length", [0, 129])
def test_a_session_of_a_wrong_length_is_refused(world: FetchWorld, length: int) -> None:
    slot = Slot(Call(method="io.schedulegate.Fetch.Watch", more=True), None)
    with pytest.raises(errors.InvalidWorker) as caught:
        world.engine.watch(world.worker(), slot, WatchIn(worker="w", session="s" * length))
    assert caught.value.field == "session"


# -- Watch


def test_a_watch_without_more_is_answered_once(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["dicom"], more=False)
    world.move(86_400)
    assert (worker.said, worker.open, worker.watching) == ([False], False, False)
    assert world.alarms == 0


def test_a_watch_that_wants_no_answer_is_no_watch(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["dicom"], oneway=True)
    assert (worker.open, worker.watching) == (False, False)


def test_a_watcher_is_told_now_and_at_every_change(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["dicom"])
    assert worker.said == [False]
    world.move(2 * 86_400)
    assert worker.said == [False, True, False, True, False]
    assert worker.times[1:] == [EVENING, MORNING, EVENING + 24 * HOUR, MORNING + 24 * HOUR]
    assert [answer.until for answer in worker.answers[:2] if not isinstance(answer, Exception)] == [EVENING, MORNING]
    assert worker.open


def test_who_asks_the_same_is_told_together_and_others_are_not(world: FetchWorld) -> None:
    same = [world.worker().watch("eats-1") for _ in range(3)]
    named = world.worker().watch("eats-1", ["dicom", "x"])
    other = world.worker().watch("w", ["x"])
    world.move(15 * 60)
    assert [worker.said for worker in same] == [[True, False]] * 3
    assert named.said == [True, False]
    assert other.said == [True]
    assert world.flushes == 1


def test_a_watcher_that_comes_later_gets_the_answer_of_its_time(world: FetchWorld) -> None:
    first = world.worker().watch("eats-1")
    world.move(15 * 60)
    second = world.worker().watch("eats-1")
    assert (first.said, second.said) == ([True, False], [False])
    world.move(15 * 60)
    assert (first.said, second.said) == ([True, False, True], [False, True])


def test_a_watcher_that_comes_after_an_edge_and_before_its_timer_loses_nothing(world: FetchWorld) -> None:
    first = world.worker().watch("eats-1")
    world.clock.move(10 * MINUTE)
    second = world.worker().watch("eats-1")
    world.move(0.001)
    assert (first.said, second.said) == ([True, False], [False])
    world.move(15 * 60)
    assert (first.said, second.said) == ([True, False, True], [False, True])


def test_a_connection_watches_once(world: FetchWorld) -> None:
    worker = world.worker().watch("w")
    with pytest.raises(errors.InvalidWorker, match="watches already"):
        worker.watch("other")
    worker.hang_up()
    assert not worker.watching


def test_whoever_hangs_up_is_forgotten(world: FetchWorld) -> None:
    stays, goes = world.worker().watch("eats-1"), world.worker().watch("eats-1")
    alone = world.worker().watch("eats-2", ["x"])
    goes.hang_up()
    alone.hang_up()
    world.worker().hang_up()
    assert [watcher for watcher, _ in world.engine.watchers()] == [stays]
    world.move(15 * 60)
    assert (stays.said, goes.said, alone.said) == ([True, False], [True], [True])
    stays.hang_up()
    world.move(86_400)
    assert world.alarms == 0
    gone = weakref.ref(stays)
    del stays, goes, alone
    gc.collect()
    assert gone() is None


def test_whoever_does_not_read_is_told_so_and_no_more(world: FetchWorld) -> None:
    lazy, reads = world.worker().watch("eats-1"), world.worker().watch("eats-1")
    lazy.backlog = UNREAD_BYTES + 1
    reads.backlog = UNREAD_BYTES
    world.move(3600)
    assert reads.said == [True, False, True]
    assert isinstance(lazy.answers[-1], errors.AnswersUnread)
    assert (len(lazy.answers), lazy.open, lazy.watching) == (2, False, False)


# -- edges


@given(st.floats(0.9, 1.1), st.floats(0, 100))
def test_nobody_is_told_early_however_the_clock_is_slewed(slew: float, moved: float) -> None:
    world = FetchWorld(CONFIG)
    world.move(moved)
    worker = world.worker().watch("w", ["dicom"])
    world.move(11 * 3600, slew=slew)
    assert worker.said[:2] == [False, True]
    late = worker.times[1] - EVENING
    assert timedelta() <= late < timedelta(milliseconds=60), "the last hop is half a second, of which a tenth is lost"


def test_an_edge_is_met_to_the_millisecond(world: FetchWorld) -> None:
    world.move(0.0137)
    worker = world.worker().watch("w", ["dicom"])
    world.move(7 * 3600, slew=1 + 500e-6)
    assert timedelta() <= worker.times[1] - EVENING < timedelta(milliseconds=1)


def test_a_wait_that_ends_a_hair_early_is_gone_on_with(world: FetchWorld) -> None:
    """Timers count in floats: an alarm may come a microsecond before its time by the wall clock."""
    world.clock.time = EVENING - timedelta(microseconds=1)
    worker = world.worker().watch("w", ["dicom"])
    assert worker.said == [False]
    world.clock.move(timedelta(seconds=-0.0005))
    world.move(0.0005)
    assert worker.said == [False]
    world.move(0.002)
    assert worker.said == [False, True]


# -- what changes answers


def test_other_rules_reach_those_whose_answer_changes(world: FetchWorld) -> None:
    changed, same = world.worker().watch("w", ["dicom"]), world.worker().watch("w", ["other"])
    world.engine.take(rules('[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\n'))
    assert (changed.said, same.said) == ([False, True], [True])
    assert world.check("w", ["dicom"]).until is None
    world.move(86_400)
    assert changed.said == [False, True], "the old hours are gone"


@pytest.mark.parametrize("hours", [1, -1, 48, -48, 8, -8])
def test_a_step_of_the_clock_tells_everybody_anew(world: FetchWorld, hours: int) -> None:
    watchers = [world.worker().watch("w", ["dicom"]), world.worker().watch("w", ["other"])]
    world.step(hours * HOUR)
    for worker in watchers:
        assert len(worker.answers) == 2
        assert worker.answers[1] == world.check("w", worker.last.queues or ["dicom"])
    assert watchers[0].last.open is (hours in (8, -8)), "20:00 to 06:00 in Berlin"


def test_after_a_step_the_next_edge_is_met(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["dicom"])
    world.step(6 * HOUR)
    world.move(3600)
    assert worker.said == [False, False, True]
    assert worker.times[-1] == EVENING
    world.step(-24 * HOUR)
    assert worker.said[-1] is True
    world.step(-2 * HOUR)
    assert worker.said[-1] is False
    world.move(2 * 3600)
    assert worker.said[-1] is True
    assert worker.times[-1] == EVENING - 24 * HOUR


def test_a_step_without_watchers_does_nothing(world: FetchWorld) -> None:
    world.step(HOUR)
    assert world.alarms == 0


# -- the rules that nobody asks for


def test_check_and_watch_are_remembered_as_asked(world: FetchWorld) -> None:
    assert world.engine.asked.warnings(world.rules.rules) == ["no worker has asked since the gate started"]
    world.engine.check(CheckIn(worker="w", queues=["other"]))
    assert len(world.engine.asked.warnings(world.rules.rules)) == 2
    Worker(world).watch("eats-1", ["dicom"])
    assert world.engine.asked.warnings(world.rules.rules) == []
