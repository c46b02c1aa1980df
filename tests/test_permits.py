"""Permits: places are reserved, bound and given back; those who wait get them in their order."""

from datetime import timedelta

import pytest

from gate.permit import Ask, Choice
from gate.permits import REUSE_SECONDS
from gate.pools import Limit, Ramp
from tests.support.permits import A_DICOM, A_MAIL, ANY, DICOM, MAIL, NOON, PACS, World

SECOND = timedelta(seconds=1)

# -- asking


def test_a_permit_takes_one_place_in_every_pool_of_every_choice_that_has_room() -> None:
    world = World()
    answer = world.ask("w", A_DICOM, A_MAIL, ANY)
    assert answer.granted == (A_DICOM, A_MAIL, ANY)
    assert answer.left_out == ()
    assert answer.reason == "a place of resource pacs-1, rule dicom, rule mail"
    assert [world.taken(pool) for pool in (DICOM, MAIL, PACS)] == [1, 1, 1]


def test_a_choice_that_lacks_room_in_one_pool_takes_no_place_in_the_others() -> None:
    world = World(pacs=1)
    world.run("other", "mail", A_MAIL)
    answer = world.ask("w", A_DICOM, ANY)
    assert (answer.granted, answer.left_out) == ((ANY,), (A_DICOM,))
    assert world.taken(DICOM) == 0
    assert world.ask("w2", A_DICOM).permit is None


def test_the_same_id_asked_again_gets_the_same_answer() -> None:
    world = World()
    first = world.ask("w", A_DICOM, A_MAIL, permit="p")
    assert world.ask("other", A_DICOM).permit is None
    again = world.ask("w", A_DICOM, permit="p", connection="another")
    assert (again.permit, again.granted, again.left_out, again.reason) == (
        first.permit,
        first.granted,
        first.left_out,
        first.reason,
    )
    assert world.taken() == 1


def test_an_answer_that_was_lost_after_the_fetch_is_still_the_same() -> None:
    world = World()
    first = world.ask("w", A_DICOM, A_MAIL, permit="p")
    world.bind("p", "mail")
    assert world.ask("w", A_DICOM, A_MAIL, permit="p").granted == first.granted
    assert world.taken(DICOM) == 0


def test_an_id_of_another_process_is_refused() -> None:
    world = World(dicom=5)
    world.ask("w", permit="p")
    answer = world.ask("x", permit="p")
    assert answer.permit is None
    assert answer.reason == "permit 'p' belongs to another process: make a new one for each fetch"
    assert world.waiting() == []


def test_a_question_for_nothing_is_refused_in_words() -> None:
    ask = Ask(permit="p", worker="w", session="s", process="p", connection="c", choices=())
    world = World()
    answer = world.permits.acquire(ask, world.limit, world.now)
    assert (answer.permit, answer.reason) == (None, "no queue was asked for")


def test_where_no_limit_applies_nobody_is_counted_or_refused() -> None:
    world = World(dicom=0)
    answer = world.ask("w", ANY)
    assert (answer.permit is not None, answer.reason, answer.record) == (True, "no limit applies", None)
    assert world.permits.pools() == []


# -- binding and releasing


def test_a_bound_permit_keeps_the_pools_of_its_queue_only() -> None:
    world = World()
    permit = world.take("w", A_DICOM, A_MAIL)
    bound = world.bind(permit, "dicom-ct")
    assert (bound.pools, bound.granted) == (frozenset({DICOM, PACS}), True)
    assert [world.taken(pool) for pool in (DICOM, MAIL, PACS)] == [1, 0, 1]
    assert world.bind(permit, "dicom-ct") == bound, "the answer was lost, and is asked for again"


def test_a_job_of_a_queue_that_was_not_granted_counts_all_the_same() -> None:
    world = World()
    world.run("other")
    permit = world.take("w", A_DICOM, A_MAIL)
    bound = world.bind(permit, "dicom")
    assert (bound.pools, bound.granted) == (frozenset({DICOM, PACS}), False)
    assert (world.taken(DICOM), world.taken(MAIL)) == (2, 0)
    assert world.ask("third").reason == "2 places of rule dicom are taken and only 1 may be"


def test_a_job_of_a_queue_that_nobody_asked_for_counts_in_all_places_that_were_reserved() -> None:
    world = World()
    bound = world.bind(world.take("w", A_DICOM, A_MAIL), "other")
    assert (bound.pools, bound.granted) == (frozenset({DICOM, PACS, MAIL}), False)


def test_the_first_choice_that_matches_decides_a_queue() -> None:
    world = World()
    everything = Choice(rule="rest", queues=("*",), pools=(MAIL,))
    assert world.bind(world.take("w", A_DICOM, everything), "dicom").pools == {DICOM, PACS}
    assert world.bind(world.take("x", everything), "dicom").pools == {MAIL}


def test_release_frees_everything_and_may_be_repeated() -> None:
    world = World()
    permit = world.run("w")
    released = world.permits.release(permit)
    assert released is not None
    assert released.job == "job"
    assert world.permits.release(permit) is None
    assert world.permits.release("never seen") is None
    assert world.permits.bind(permit, "dicom", None) is None
    assert [world.taken(pool) for pool in (DICOM, PACS)] == [0, 0]


def test_release_needs_no_limits() -> None:
    world = World()
    permit = world.run("w")
    world.numbers.clear()
    world.permits.release(permit)
    assert world.taken() == 0


# -- limits


def test_no_place_is_given_beyond_the_limit() -> None:
    world = World(dicom=3)
    for number in range(3):
        world.run(f"w{number}")
    answer = world.ask("late")
    assert answer.permit is None
    assert answer.reason == "all 3 places of rule dicom are taken (until one is free)"


def test_the_reason_for_a_number_is_named_where_there_is_one() -> None:
    world = World(dicom=0)
    world.until = NOON + 60 * SECOND
    answer = world.ask("w")
    assert (answer.reason, answer.until) == ("rule dicom: limit 0", NOON + 60 * SECOND)


def test_a_smaller_limit_stops_new_places_only() -> None:
    world = World(dicom=8)
    running = [world.run(f"w{number}") for number in range(8)]
    world.numbers[DICOM] = 3
    assert world.ask("late").permit is None
    for permit in running[:5]:
        assert world.release(permit) == []
    assert world.taken() == 3
    assert world.release(running[5]) == ["late"]


def test_a_larger_limit_offers_places_to_those_who_wait() -> None:
    world = World(dicom=0)
    for number in range(50):
        assert world.ask(f"w{number}").permit is None
    world.numbers[DICOM] = 8
    assert world.woken() == [f"w{number}" for number in range(8)]


# -- who gets the next place


def test_a_freed_place_wakes_one_and_the_one_who_waits_longest() -> None:
    world = World()
    permit = world.run("w")
    for worker in ("a", "b", "c"):
        world.ask(worker)
    assert world.waiting() == ["a", "b", "c"]
    assert world.release(permit) == ["a"]
    assert world.woken() == [], "and only once"


def test_an_offered_place_is_used_for_everybody_else() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.release(permit)
    answer = world.ask("newcomer")
    assert answer.permit is None
    assert answer.reason == "the free places of rule dicom are offered to those who wait longer"
    assert world.ask("a").permit is not None
    assert world.waiting() == ["newcomer"]


def test_a_newcomer_who_is_quicker_than_the_tick_does_not_pass_those_who_wait() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.permits.release(permit)
    assert world.ask("newcomer").permit is None
    assert world.woken() == ["a"]


def test_an_offer_that_nobody_takes_goes_to_the_next_after_a_second() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.ask("b")
    assert world.release(permit) == ["a"]
    assert world.tick().next == world.now + SECOND
    assert world.move(0.999).woken == ()
    assert [waiter.worker for waiter in world.move(0.001).woken] == ["b"]
    assert world.waiting() == ["b"], "who was woken and did not come has to ask again"


def test_a_clock_that_goes_back_keeps_no_place_for_longer() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.ask("b")
    assert world.release(permit) == ["a"]
    assert [waiter.worker for waiter in world.move(-3600).woken] == ["b"]


def test_whoever_leaves_gives_up_the_offer() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.ask("b")
    world.release(permit)
    world.permits.leave("process of a", "session of a")
    assert world.woken() == ["b"]
    world.permits.connection_closed("connection of b")
    assert (world.woken(), world.waiting()) == ([], [])
    assert world.ask("c").permit is not None


def test_whoever_asks_again_keeps_his_place_in_the_order() -> None:
    world = World()
    permit = world.run("w")
    world.ask("a")
    world.ask("b")
    world.ask("a")
    assert world.waiting() == ["a", "b"]
    assert world.release(permit) == ["a"]


def test_whoever_asks_for_more_than_before_waits_anew() -> None:
    world = World()
    world.run("w")
    world.run("m", "mail", A_MAIL)
    world.ask("a", A_DICOM)
    world.ask("b", A_DICOM, A_MAIL)
    world.ask("a", A_DICOM, A_MAIL)
    assert world.waiting(MAIL) == ["b", "a"]


def test_one_who_cannot_use_a_place_does_not_keep_it_from_others() -> None:
    world = World(pacs=2, dicom=1)
    world.run("w")
    mail = world.run("m", "mail", A_MAIL)
    assert world.ask("a", A_DICOM).permit is None, "both are full"
    world.numbers[MAIL] = 2
    assert world.ask("b", A_MAIL).permit is None, "the resource is full"
    assert world.release(mail) == ["b"]


def test_of_an_empty_fetch_the_place_goes_on_to_those_who_were_refused_meanwhile() -> None:
    world = World()
    permit = world.take("w")
    world.ask("a")
    world.ask("b")
    assert world.release(permit) == ["a"]
    assert world.release(world.take("a")) == ["b"]
    assert world.release(world.take("b")) == [], "nobody was refused since: no storm"


def test_of_an_empty_fetch_the_place_goes_on_to_one_who_waited_before() -> None:
    """His queue is another, and may hold jobs; he would else find out at his next poll only."""
    world = World(pacs=1)
    job = world.run("m", "mail", A_MAIL)
    world.ask("d", A_DICOM)
    world.ask("m2", A_MAIL)
    assert world.release(job) == ["d"]
    assert world.release(world.take("d", A_DICOM)) == ["m2"]


def test_a_wake_costs_a_refusal_so_idle_workers_fetch_no_more_than_they_poll() -> None:
    world = World()
    asked = fetched = 0
    woken: list[str] = []
    for poll in range(200):
        for worker in [f"w{poll % 7}", *woken]:
            asked += worker not in woken
            answer = world.ask(worker)
            if answer.permit is not None:
                fetched += 1
                held = answer.permit
                world.ask(f"w{(poll + 3) % 7}")  # polls while the fetch runs
                asked += 1
                woken = world.release(held)
    assert fetched <= asked


def test_a_choice_that_was_left_out_is_waited_for() -> None:
    world = World()
    other = world.run("other")
    permit = world.take("w", A_DICOM, A_MAIL)
    assert world.waiting() == ["w"]
    assert world.release(permit) == []
    assert world.release(other) == ["w"]


def test_whoever_found_a_job_in_what_he_got_does_not_wait_for_the_rest() -> None:
    world = World()
    other = world.run("other")
    world.run("w", "mail", A_DICOM, A_MAIL)
    assert world.waiting() == []
    assert world.release(other) == []


def test_an_offer_is_taken_back_when_the_limit_becomes_smaller() -> None:
    world = World(dicom=2)
    permits = [world.run("v"), world.run("w")]
    world.ask("a")
    world.ask("b")
    assert [*world.release(permits[0]), *world.release(permits[1])] == ["a", "b"]
    world.numbers[DICOM] = 1
    world.tick()
    assert world.permits.status(DICOM).promised == 1
    assert world.ask("b").permit is None
    assert world.release(world.take("a")) == ["b"]


def test_many_who_wait_cost_an_event_no_more_than_a_few() -> None:
    world = World()
    permit = world.run("w")
    for number in range(1000):
        world.ask(f"a{number}")
    looked_up = 0
    limit = world.limit

    def counting(pool: str) -> Limit:
        nonlocal looked_up
        looked_up += 1
        return limit(pool)

    world.permits.release(permit)
    tick = world.permits.tick(counting, world.now)
    assert [waiter.worker for waiter in tick.woken] == ["a0"]
    assert looked_up < 20


# -- one job after another


def test_a_permit_serves_one_job_after_another_while_nobody_else_waits() -> None:
    world = World(dicom=2)
    assert world.ask("w").reuse == REUSE_SECONDS
    assert world.ask("w").reuse == REUSE_SECONDS
    assert world.ask("w").permit is None
    assert world.ask("w", A_DICOM, ANY).reuse is None, "it was refused a part"


def test_a_permit_serves_one_job_only_where_somebody_waits_for_one_of_its_places() -> None:
    world = World()
    world.take("w")
    assert world.ask("x").permit is None
    assert world.ask("m", A_MAIL).reuse is None, "x waits for a place of pacs-1 too"
    apart = Choice(rule="apart", queues=("apart",), pools=("rule apart",))
    world.numbers["rule apart"] = 1
    assert world.ask("m", apart).reuse == REUSE_SECONDS


def test_a_permit_serves_one_job_only_while_a_place_is_kept_for_another_one() -> None:
    world = World(dicom=1)
    first = world.take("w")
    world.ask("x")
    assert world.release(first) == ["x"]
    world.numbers[DICOM] = 2
    assert world.ask("w").reuse is None
    assert world.ask("x").reuse == REUSE_SECONDS, "nobody waits any more"


def test_a_permit_of_queues_that_count_in_different_places_serves_one_job_only() -> None:
    world = World()
    assert world.ask("w", A_DICOM, A_MAIL).reuse is None
    assert world.ask("x", ANY).reuse is None, "no limit applies: there is no place to keep"


def test_a_permit_serves_no_job_beyond_the_hours_of_its_limit() -> None:
    world = World()
    world.until = world.now + timedelta(seconds=0.02)
    assert world.ask("w").reuse == 0.02


def test_a_permit_that_is_bound_again_keeps_its_places_and_has_the_other_job() -> None:
    world = World()
    permit = world.run("w")
    assert world.bind(permit, "dicom-2", "job 2").pools == {DICOM, PACS}
    held = world.permits.get(permit)
    assert held is not None
    assert (held.queue, held.job, world.taken(), world.taken(PACS)) == ("dicom-2", "job 2", 1, 1)


# -- a ramp


@pytest.fixture
def gentle() -> World:
    """A rule of eight places that opens at noon, one place every 20 seconds; 50 workers wait."""
    world = World(dicom=0)
    for number in range(50):
        world.ask(f"w{number}")
    world.numbers[DICOM] = 8
    world.ramps[DICOM] = Ramp(1, 20.0)
    world.opening = NOON
    return world


def test_a_ramp_gives_so_many_new_places_in_each_of_its_slots(gentle: World) -> None:
    started: list[float] = []
    tick = gentle.tick()
    while len(started) < 8:
        for waiter in tick.woken:
            gentle.run(waiter.worker)
            started.append((gentle.now - NOON).total_seconds())
        if len(started) < 8:
            tick = gentle.tick()
            assert tick.next is not None
            tick = gentle.move((tick.next - gentle.now).total_seconds())
    assert started == [0, 20, 40, 60, 80, 100, 120, 140]
    assert gentle.move(20).woken == (), "all are taken"


def test_a_ramp_counts_starts_so_each_permit_serves_one_job(gentle: World) -> None:
    assert gentle.ask("w0").reuse is None
    gentle.move(8 * 20.0)
    gentle.permits = type(gentle.permits)(gentle.now)
    assert gentle.ask("w0").reuse == REUSE_SECONDS, "the ramp is over"


def test_refused_for_the_ramp_says_until_when(gentle: World) -> None:
    assert gentle.woken() == ["w0"]
    gentle.run("w0")
    gentle.move(5)
    answer = gentle.ask("late")
    assert answer.reason == "rule dicom opens slowly, 1 every 20s (ramp)"
    assert answer.until == NOON + 20 * SECOND


def test_after_as_many_slots_as_all_places_need_a_ramp_is_over(gentle: World) -> None:
    gentle.now = NOON + 159.999 * SECOND
    assert len(gentle.woken()) == 1
    gentle.now = NOON + 160 * SECOND
    assert len(gentle.woken()) == 7


def test_two_of_seven_every_slot_last_four_slots() -> None:
    world = World(dicom=0)
    for number in range(9):
        world.ask(f"w{number}")
    world.numbers[DICOM], world.ramps[DICOM], world.opening = 7, Ramp(2, 10.0), NOON
    given: list[int] = []
    for seconds in (0, 10, 10, 10, 10):
        woken = world.move(seconds).woken
        given.append(len(woken))
        for waiter in woken:
            world.run(waiter.worker)
    assert given == [2, 2, 2, 1, 0]


def test_a_place_that_was_not_used_may_be_given_again_in_the_same_slot(gentle: World) -> None:
    for number in range(5):
        assert gentle.woken() == [f"w{number}"]
        gentle.permits.release(gentle.take(f"w{number}"))
    assert gentle.woken() == ["w5"]
    gentle.run("w5")
    assert gentle.ask("w6").permit is None


def test_a_place_of_another_slot_that_was_not_used_gives_nothing_back(gentle: World) -> None:
    assert gentle.woken() == ["w0"]
    early = gentle.take("w0")
    assert [waiter.worker for waiter in gentle.move(20).woken] == ["w1"]
    gentle.run("w1")
    assert gentle.release(early) == []


def test_a_job_that_ends_gives_no_place_back_to_the_ramp(gentle: World) -> None:
    assert gentle.woken() == ["w0"]
    permit = gentle.run("w0")
    assert gentle.release(permit) == []


def test_before_an_opening_and_without_one_there_is_no_ramp() -> None:
    world = World(dicom=5)
    world.ramps[DICOM] = Ramp(1, 20.0)
    assert [world.ask("a").permit is not None, world.ask("b").permit is not None] == [True, True]


# -- for people


def test_status_shows_who_holds_what_and_who_waits() -> None:
    world = World()
    permit = world.run("w")
    world.move(1)
    world.ask("a")
    status = world.permits.status(DICOM)
    assert [(p.id, p.worker, p.process, p.queue, p.job, p.since) for p in status.holders] == [
        (permit, "w", "process of w", "dicom", "job", NOON)
    ]
    assert [(waiter.worker, waiter.since, waiter.pools) for waiter in status.waiters] == [
        ("a", NOON + SECOND, [PACS, DICOM])
    ]
    assert (status.taken, status.unsaid, status.promised) == (1, 0, 0)
    assert world.permits.pools() == [PACS, DICOM]
    assert world.permits.status("rule of nobody").taken == 0
