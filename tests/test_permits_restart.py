"""Permits through closed connections, dead processes and restarts of the gate: no leak, and nothing given twice."""

from datetime import timedelta

import pytest

from gate.permit import Ask, Held
from gate.permits import AWAY_SECONDS
from gate.pools import Given, Ramp
from tests.support.permits import A_DICOM, A_MAIL, ANY, DICOM, MAIL, NOON, PACS, World

SECOND = timedelta(seconds=1)

# -- connections and processes


def test_a_permit_outlives_its_connection() -> None:
    world = World()
    permit = world.run("w")
    world.permits.connection_closed("connection of w")
    held = world.permits.get(permit)
    assert held is not None
    assert held.connection is None
    assert world.move(3600).lost == ()
    assert world.taken() == 1


def test_a_dead_process_loses_its_places_after_the_grace() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.permits.connection_closed("connection of w")
    world.permits.process_dead("process of w", world.now)
    assert world.tick().next == world.now + 2 * SECOND
    assert world.move(1.999).lost == ()
    tick = world.move(0.001)
    assert [held.id for held in tick.lost] == [permit]
    assert tick.gone == (("process of w", "session of w"),)
    assert [waiter.worker for waiter in tick.woken] == ["a"]
    assert world.move(60).gone == ()


def test_a_clock_that_goes_back_makes_no_grace_longer() -> None:
    world = World()
    world.run("w")
    world.permits.process_dead("process of w", world.now)
    world.move(-3600)
    assert len(world.move(2).lost) == 1


def test_the_death_of_a_process_that_holds_nothing_is_nobodys_business() -> None:
    world = World()
    world.permits.process_dead("process of w", world.now)
    assert world.tick().next is None


def test_a_process_that_comes_back_within_the_grace_keeps_its_places() -> None:
    for come_back in ("acquire", "restore", "bind", "ask again"):
        world = World(dicom=2)
        permit = world.take("w")
        world.permits.connection_closed("connection of w")
        world.permits.process_dead("process of w", world.now)
        world.move(1)
        if come_back == "acquire":
            world.ask("w")
        elif come_back == "restore":
            assert world.restore("w", Held(permit, "dicom")).kept == (permit,)
        elif come_back == "bind":
            world.bind(permit, "dicom")
        else:
            world.ask("w", permit=permit)
        assert world.move(60).lost == (), come_back


def test_one_that_cannot_be_told_takes_its_permits_back_as_another_within_the_grace() -> None:
    world = World()
    permit = world.run("w")
    world.permits.connection_closed("connection of w")
    world.permits.process_dead("process of w", world.now)
    assert world.restore("w", Held(permit, "dicom", "job"), process="next").kept == (permit,)
    tick = world.move(60)
    assert (tick.lost, tick.gone) == ((), (("process of w", "session of w"),))
    held = world.permits.get(permit)
    assert held is not None
    assert (held.process, held.job, world.taken()) == ("next", "job", 1)


# -- restore


def test_restore_takes_back_what_runs_even_above_a_limit() -> None:
    world = World()
    world.run("other")
    restored = world.restore("w", Held("p", "dicom", "7"), Held("q", "mail", None))
    assert restored.kept == ("p", "q")
    assert restored.record is not None
    assert restored.record.marks == {DICOM: 1, PACS: 2, MAIL: 1}
    assert (world.taken(DICOM), world.taken(MAIL), world.taken(PACS)) == (2, 1, 3)
    status = world.permits.status(DICOM)
    assert [(held.worker, held.queue, held.job) for held in status.holders if held.id == "p"] == [("w", "dicom", "7")]


def test_restore_of_a_queue_without_a_limit_counts_nowhere() -> None:
    world = World()
    assert world.restore("w", Held("p", "other")).kept == ("p",)
    assert world.permits.pools() == []


def test_restore_does_not_take_what_belongs_to_another_process() -> None:
    world = World()
    permit = world.run("w")
    assert world.restore("x", Held(permit, "dicom"), Held("own", "mail")).kept == ("own",)
    held = world.permits.get(permit)
    assert held is not None
    assert held.process == "process of w"


def test_restore_after_a_lost_connection_counts_nothing_twice() -> None:
    world = World()
    permit = world.run("w")
    world.permits.connection_closed("connection of w")
    assert world.restore("w", Held(permit, "dicom", "job")).kept == (permit,)
    assert world.taken() == 1
    world.permits.connection_closed("connection of w")
    held = world.permits.get(permit)
    assert held is not None
    assert held.connection == "new connection of w", "it has moved"


def test_a_reservation_that_has_become_a_job_is_restored_as_one() -> None:
    world = World()
    permit = world.take("w", A_DICOM, A_MAIL)
    world.permits.connection_closed("connection of w")
    world.restore("w", Held(permit, "mail", "7"))
    assert (world.taken(DICOM), world.taken(MAIL)) == (0, 1)


def test_what_a_process_does_not_name_is_lost_after_the_grace() -> None:
    """Its release was lost with the connection."""
    world = World(dicom=3)
    named, unnamed = world.run("w"), world.run("w")
    world.permits.connection_closed("connection of w")
    elsewhere = world.take("w")
    world.restore("w", Held(named, "dicom", "job"))
    assert world.move(1.999).lost == ()
    assert [held.id for held in world.move(0.001).lost] == [unnamed]
    assert world.permits.get(elsewhere) is not None, "its connection is open"


def test_another_client_of_the_same_process_names_its_own() -> None:
    world = World(dicom=3)
    first = world.ask("w", process="both", connection="1").permit
    second = world.ask("x", process="both", connection="2").permit
    third = world.ask("w", process="both", connection="3").permit
    assert first is not None
    assert second is not None
    assert third is not None
    for connection in ("1", "2", "3"):
        world.permits.connection_closed(connection)
    world.restore("w", Held(first, "dicom"), process="both")
    world.move(1)
    world.restore("w", Held(first, "dicom"), Held(third, "dicom"), process="both")
    world.restore("x", Held(second, "dicom"), process="both")
    assert world.move(3600).lost == ()
    assert world.taken() == 3


def test_a_worker_that_does_not_come_back_though_another_of_its_process_has_loses_its_places_later() -> None:
    """It ended while the gate was away; or its event loop is busy."""
    world = World(dicom=2)
    first = world.ask("w", process="both", connection="1").permit
    second = world.ask("x", process="both", connection="2").permit
    assert first is not None
    assert second is not None
    for connection in ("1", "2"):
        world.permits.connection_closed(connection)
    world.move(60)
    assert world.restore("w", Held(first, "dicom"), process="both").kept == (first,)
    assert world.tick().next == world.now + AWAY_SECONDS * SECOND
    assert world.move(AWAY_SECONDS - 0.001).lost == ()
    assert [permit.id for permit in world.move(0.001).lost] == [second]


def test_a_client_that_names_no_session_speaks_for_those_of_its_name() -> None:
    world = World(dicom=2)
    named, unnamed = world.run("w"), world.run("w")
    world.permits.connection_closed("connection of w")
    world.restore("w", Held(named, "dicom"), names_session=False)
    assert [held.id for held in world.move(2).lost] == [unnamed]


# -- what is on disk


def test_a_fetch_is_written_down_only_when_a_process_holds_more_than_ever() -> None:
    world = World(dicom=3)
    for _ in range(100):
        permits = [world.run("w"), world.run("w")]
        for permit in permits:
            world.permits.release(permit)
    assert world.written == 2
    assert world.disk == {("process of w", "session of w"): {DICOM: 2, PACS: 2}}


def test_until_it_is_on_disk_each_answer_that_needs_it_has_the_record() -> None:
    world = World(dicom=3)
    first = world.permits.acquire(asking(world, "p"), world.limit, world.now)
    assert first.record is not None
    world.permits.release("p")
    second = world.permits.acquire(asking(world, "q"), world.limit, world.now)
    assert second.record is not None
    world.permits.recorded(second.record)
    again = world.permits.acquire(asking(world, "q"), world.limit, world.now)
    assert again.record is None


def asking(world: World, permit: str) -> Ask:
    return Ask(permit=permit, worker="w", session="s", process="p", connection="c", choices=(A_DICOM,))


def test_a_job_of_a_queue_that_was_not_granted_is_written_down_too() -> None:
    world = World()
    world.run("other")
    bound = world.bind(world.take("w", A_DICOM, A_MAIL), "dicom")
    assert bound.record is not None
    assert bound.record.marks == {DICOM: 1, MAIL: 1, PACS: 1}


def test_what_holds_nothing_may_be_forgotten() -> None:
    world = World()
    permit = world.run("w")
    assert not world.permits.forget("process of w")
    world.permits.release(permit)
    assert world.permits.forget("process of w") == [("process of w", "session of w")]
    assert not world.permits.forget("process of w"), "there is nothing left to forget"
    world.run("w")
    assert world.written == 2


def test_a_record_from_before_it_was_forgotten_says_nothing() -> None:
    world = World()
    late = world.permits.acquire(asking(world, "p"), world.limit, world.now).record
    assert late is not None
    world.permits.release("p")
    assert world.permits.forget("p")
    assert world.permits.acquire(asking(world, "q"), world.limit, world.now).record is not None
    world.permits.recorded(late)
    assert world.permits.acquire(asking(world, "q"), world.limit, world.now).record is not None


# -- a restart of the gate


def two_in_one(world: World) -> tuple[str, str]:
    """A process with two workers, that have a job each; and the gate starts anew."""
    permits = [world.ask(worker, process="both").permit for worker in ("w", "x")]
    world.start()
    assert permits[0] is not None
    assert permits[1] is not None
    return permits[0], permits[1]


def test_each_worker_of_a_process_counts_until_it_has_said_itself_what_it_holds() -> None:
    world = World(dicom=2)
    first, second = two_in_one(world)
    world.restore("w", Held(first, "dicom"), process="both")
    assert world.ask("a").reason == "after the restart of the gate 1 process has not said yet what it holds"
    world.move(2)
    assert world.ask("a").permit is None
    assert (world.taken(), world.permits.status(DICOM).unsaid) == (2, 1)
    world.restore("x", Held(second, "dicom"), process="both")
    assert (world.taken(), world.permits.status(DICOM).unsaid) == (2, 0)
    assert world.move(3600).woken == ()


def test_a_worker_that_ended_while_the_gate_was_away_counts_for_a_while_after_another_of_its_process_came() -> None:
    world = World(dicom=2)
    first, _ = two_in_one(world)
    world.move(3600)
    assert world.taken() == 2
    world.restore("w", Held(first, "dicom"), process="both")
    assert world.ask("a").permit is None
    assert world.tick().next == world.now + AWAY_SECONDS * SECOND
    assert world.move(AWAY_SECONDS - 0.001).woken == ()
    assert [waiter.worker for waiter in world.move(0.001).woken] == ["a"]
    assert world.permits.forget("both") == [("both", "session of x")]


def test_a_client_that_names_no_session_speaks_for_its_whole_process() -> None:
    world = World(dicom=2)
    first, _ = two_in_one(world)
    world.restore("w", Held(first, "dicom"), process="both", names_session=False)
    assert (world.taken(), world.permits.status(DICOM).unsaid) == (1, 0)


def test_a_session_that_holds_nothing_is_forgotten_when_its_connection_closes_and_others_are_not() -> None:
    world = World(dicom=2)
    for worker in ("w", "x"):
        world.permits.release(world.ask(worker, process="both").permit or "")
    assert world.permits.forget("both", "connection of w") == [("both", "session of w")]
    assert world.permits.forget("both", "connection of w") == []
    world.ask("x", process="both")
    assert world.written == 2, "what the disk says of it is still so"


def test_after_a_restart_nothing_limited_is_given_before_all_have_said_what_they_hold() -> None:
    world = World(dicom=5)
    permit = world.run("w")
    world.run("v")
    world.start()
    answer = world.ask("a", A_DICOM, ANY)
    assert (answer.granted, answer.left_out) == ((ANY,), (A_DICOM,))
    refused = world.ask("b")
    assert refused.reason == "after the restart of the gate 2 processes have not said yet what they hold"
    assert refused.until == NOON + 2 * SECOND
    world.restore("w", Held(permit, "dicom"))
    assert world.ask("b").reason == "after the restart of the gate 1 process has not said yet what it holds"
    assert world.woken() == []
    world.restore("v")
    assert world.woken() == ["a", "b"]


def test_a_process_that_says_nothing_counts_with_the_most_it_ever_held() -> None:
    world = World(dicom=3)
    permits = [world.run("w"), world.run("w")]
    for permit in permits:
        world.permits.release(permit)
    world.start()
    assert world.ask("a").permit is None
    assert world.tick().next == NOON + 2 * SECOND
    assert [waiter.worker for waiter in world.move(2).woken] == ["a"]
    assert world.ask("a").permit is not None
    assert world.ask("b").permit is None
    assert (world.taken(), world.permits.status(DICOM).unsaid) == (3, 2)
    assert world.move(3600).woken == ()
    assert world.restore("w").kept == ()
    assert world.woken() == ["b"]


def test_a_process_that_died_meanwhile_holds_nobody_up_but_counts_for_the_grace() -> None:
    world = World(dicom=2)
    world.run("w")
    world.start()
    world.permits.process_dead("process of w", world.now)
    assert world.ask("a").permit is not None
    assert world.ask("b").permit is None
    tick = world.move(2)
    assert tick.gone == (("process of w", "session of w"),)
    assert [waiter.worker for waiter in tick.woken] == ["b"]


def test_a_process_that_holds_more_before_it_has_said_so_is_written_down() -> None:
    world = World(dicom=9)
    world.run("w")
    world.start()
    world.move(2)
    world.run("w")
    assert world.disk["process of w", "session of w"] == {DICOM: 2, PACS: 2}
    assert world.taken() == 2


def test_what_has_not_said_what_it_holds_is_not_forgotten() -> None:
    world = World()
    world.run("w")
    world.start()
    assert not world.permits.forget("process of w")


@pytest.fixture
def slow() -> World:
    """It opens at noon, one every 20 s."""
    world = World(dicom=4)
    world.ramps[DICOM], world.opening = Ramp(1, 20.0), NOON
    return world


def test_a_ramp_goes_on_where_it_was(slow: World) -> None:
    started = [0] if slow.ask("w").permit else []
    for second in range(1, 80):
        slow.move(1)
        if second % 7 == 0:
            slow.start()
            slow.restore("w", Held("permit 1", "dicom"))
        if slow.ask("w").permit is not None:
            started.append(second)
    assert started == [0, 20, 40, 60]


def test_what_a_ramp_gave_is_written_once_for_each_start_and_not_again_for_one_that_was_given_back(slow: World) -> None:
    for _ in range(10):
        permit = slow.ask("w").permit
        assert permit is not None
        slow.permits.release(permit)
    assert slow.written == 1
    slow.move(20)
    assert slow.ask("w").permit is not None
    assert slow.written == 2
    assert slow.disk_of_ramps == {DICOM: Given(NOON + 20 * SECOND, 1)}


def test_without_a_process_from_before_a_start_holds_nobody_up() -> None:
    assert World().ask("w").permit is not None
