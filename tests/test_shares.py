"""How several gates share a limit: never more in force than it, fair, and nothing lost for good."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gate.pools import Given, Limit, Ramp, Share
from gate.shares import RENEW, SETTLE, Mine, Table, fair, settle
from tests.support.permits import NOON

SECOND = timedelta(seconds=1)
POOL = "rule dicom"
LEASE_SECONDS = 15.0
RENEW_SECONDS, SETTLE_SECONDS = RENEW * LEASE_SECONDS, SETTLE * LEASE_SECONDS


class World:
    """A table in a store, and gates that write it; its clock stands unless it is moved."""

    def __init__(self, number: int = 3) -> None:
        self.now = NOON
        self.limit = Limit(number=number, reason=f"limit {number}")
        self.table: Table | None = None
        self.writes = 0
        self.say("first")
        self.now += SETTLE_SECONDS * SECOND

    def say(
        self,
        gate: str,
        taken: int = 0,
        wanted: int = 0,
        given: Given | None = None,
        since: float | None = None,
        keep: int = 0,
    ) -> Share:
        """What a gate gets that says this. `since`: how many seconds ago somebody began to wait there."""
        began = None if not wanted else self.now - (since or 0.0) * SECOND
        mine = {POOL: Mine(limit=self.limit, taken=taken, wanted=wanted, since=began, given=given, keep=keep)}
        table, shares = settle(self.table, gate, mine, LEASE_SECONDS * SECOND, self.now)
        if table is not None:
            self.writes += 1
            self.table = table
        return shares[POOL]

    def move(self, seconds: float) -> None:
        self.now += seconds * SECOND


# -- who may have how many


@pytest.mark.parametrize(
    ("number", "demands", "shares"),
    [
        (3, {"a": 5, "b": 5}, {"a": 1, "b": 2}),
        (3, {"a": 1, "b": 5}, {"a": 1, "b": 2}),
        (8, {"a": 1, "b": 9, "c": 9}, {"a": 1, "b": 4, "c": 3}),
        (1, {"a": 1, "b": 1}, {"a": 0, "b": 1}),
        (0, {"a": 1}, {"a": 0}),
        (9, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        (9, {}, {}),
    ],
)
def test_a_limit_is_shared_evenly_and_what_is_left_over_goes_to_who_waits_longest(
    number: int, demands: Mapping[str, int], shares: Mapping[str, int]
) -> None:
    assert fair(number, demands, {"b": NOON, "a": NOON + SECOND, "c": NOON + SECOND}) == shares


@given(st.integers(0, 20), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 12)))
def test_nobody_has_more_than_one_more_than_another_who_could_use_it(number: int, demands: dict[str, int]) -> None:
    shares = fair(number, demands, {})
    assert sum(shares.values()) == min(number, sum(demands.values()))
    assert all(0 <= shares[gate] <= demands[gate] for gate in demands)
    for gate in demands:
        if shares[gate] < demands[gate]:
            assert all(shares[other] <= shares[gate] + 1 for other in demands)


# -- settling


def test_a_gate_that_is_alone_takes_what_it_needs_and_some_more_and_asks_no_more() -> None:
    world = World(8)
    assert world.say("a", wanted=1).places == 2
    assert world.say("a", taken=2, wanted=1).places == 6
    assert world.say("a", taken=6, wanted=3).places == 8
    before = world.writes
    world.say("a", taken=6, wanted=3)
    assert world.writes == before, "nothing is written that is there already"


def test_a_newcomer_is_given_what_is_not_used_as_soon_as_the_other_hears_of_it() -> None:
    world = World(3)
    assert world.say("a", wanted=3).places == 3
    share = world.say("b", wanted=1)
    assert (share.places, share.elsewhere) == (0, 3)
    assert world.say("a", taken=1).places == 1
    assert world.say("b", wanted=1).places == 2


def test_who_has_more_than_his_part_gives_no_more_until_he_has_not() -> None:
    world = World(4)
    world.say("a", wanted=4)
    assert world.say("a", taken=4, wanted=4).places == 4
    assert world.say("b", wanted=4).places == 0
    share = world.say("a", taken=4, wanted=4)
    assert (share.places, share.counted) == (2, 4)
    assert world.say("b", wanted=4).places == 0, "a job that runs is not stopped"
    assert world.say("a", taken=3, wanted=5).counted == 3
    assert world.say("b", wanted=4).places == 1
    assert world.say("a", taken=2, wanted=6).counted == 2
    assert world.say("b", taken=1, wanted=3).places == 2


def test_what_may_be_taken_while_the_question_is_under_way_is_counted_until_the_next_one() -> None:
    world = World(4)
    world.say("a", wanted=4)
    world.say("b", wanted=4)
    share = world.say("a", taken=1, keep=4)
    assert (share.places, share.counted) == (1, 4)
    assert world.say("b", wanted=4).places == 0
    assert world.say("a", taken=1, keep=1).counted == 1
    assert world.say("b", wanted=4).places == 3


def test_one_place_goes_to_and_fro() -> None:
    world = World(1)
    assert world.say("a", wanted=1).places == 1
    world.say("a", taken=1, wanted=1)
    for gate, other in (("b", "a"), ("a", "b")) * 6:
        world.move(0.1)
        assert world.say(gate, wanted=2, since=0.3).places == 0
        share = world.say(other, taken=1, wanted=2, since=0.1)
        assert (share.places, share.counted) == (0, 1), "the other has waited longer"
        assert world.say(other, wanted=2, since=0.1).places == 0
        assert world.say(gate, wanted=2, since=0.3).places == 1
        world.say(gate, taken=1, wanted=2, since=0.1)


def test_what_a_gate_held_that_is_gone_is_free_after_its_lease() -> None:
    world = World(2)
    world.say("a", wanted=2)
    world.say("a", taken=2)
    for _ in range(int((LEASE_SECONDS - 1) / RENEW_SECONDS)):
        world.move(RENEW_SECONDS)
        assert world.say("b", wanted=2).places == 0
    world.move(2 * RENEW_SECONDS)
    assert world.say("b", wanted=2).places == 2
    share = world.say("a", taken=2, wanted=1)
    assert (share.places, share.counted) == (0, 2), "it is back, its jobs run, and it gives no more"
    assert world.say("b", taken=2, wanted=1).places == 0


def test_after_a_loss_of_the_table_no_share_grows_until_all_have_said_what_they_hold() -> None:
    world = World(3)
    world.say("a", wanted=3)
    world.say("a", taken=3)
    world.table = None
    assert world.say("b", wanted=3).places == 0
    assert world.say("a", taken=3, wanted=1).counted == 3
    world.move(SETTLE_SECONDS)
    assert world.say("b", wanted=3).places == 0


def test_a_store_that_was_away_for_longer_than_the_lease_frees_nothing_that_is_held() -> None:
    world = World(3)
    world.say("a", wanted=3)
    world.say("a", taken=3)
    world.move(LEASE_SECONDS * 10)
    assert world.say("b", wanted=3).places == 0
    assert world.say("a", taken=3, wanted=1).counted == 3
    world.move(SETTLE_SECONDS)
    assert world.say("b", wanted=3).places == 0


def test_a_failover_that_forgot_a_share_is_over_with_what_everybody_says_next() -> None:
    world = World(3)
    world.say("a", wanted=1)
    world.say("a", taken=1)
    before = world.table
    assert world.say("a", taken=1, wanted=2).places == 3
    world.table = before
    assert world.say("b", wanted=3).places == 1, "more than the limit may run now"
    share = world.say("a", taken=3, wanted=1)
    assert (share.places, share.counted) == (2, 3)
    assert world.say("b", taken=1, wanted=1).places == 0
    assert world.say("a", taken=2, wanted=1).counted == 2
    assert world.say("b", taken=1, wanted=1).places == 1, "three run, and no more"


def test_a_smaller_limit_takes_nothing_away() -> None:
    world = World(8)
    world.say("a", wanted=4)
    world.say("a", taken=5)
    world.limit = Limit(number=3, reason="limit 3")
    share = world.say("a", taken=5, wanted=1)
    assert (share.places, share.counted) == (3, 5)
    assert world.say("b", wanted=1).places == 0
    assert world.say("a", taken=2).counted == 2
    assert world.say("b", wanted=1).places == 1


def test_a_ramp_counts_over_all_gates() -> None:
    world = World(8)
    world.limit = Limit(number=8, reason="limit 8", ramp=Ramp(1, 20.0), opening=world.now)
    start = world.now
    assert world.say("a", wanted=5).given == Given(start, 1)
    assert world.say("b", wanted=5).given is None
    assert world.say("a", taken=1, wanted=4, given=Given(start, 1)).given == Given(start, 1)
    world.move(20)
    assert world.say("b", wanted=5).given == Given(start + 20 * SECOND, 1)
    assert world.say("a", taken=1, wanted=4).given is None


# -- as a law


counts = st.integers(0, 4)


class Gates(RuleBasedStateMachine):
    """Three gates on one table. Each gives places by what it was told last, also while it asks, and only while its
    lease lasts; answers are slow, or never come.
    """

    NUMBER = 4

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.NUMBER)
        self.taken = dict.fromkeys("abc", 0)
        self.wanted = dict.fromkeys("abc", 0)
        self.share = dict.fromkeys("abc", Share(places=0))
        self.end = dict.fromkeys("abc", NOON)

    def places(self, gate: str) -> int:
        return self.share[gate].places if self.world.now < self.end[gate] else 0

    @rule(gate=st.sampled_from("abc"), before=counts, after=counts, lost=st.booleans())
    def beat(self, gate: str, before: int = 0, after: int = 0, lost: bool = False) -> None:
        """It gives places before its question is read, and before the answer comes, if that ever comes."""
        taken, wanted, keep, asked = self.taken[gate], self.wanted[gate], self.places(gate), self.world.now
        self.give(gate, before)
        share = self.world.say(gate, taken=taken, wanted=wanted, keep=keep)
        self.give(gate, after)
        if not lost:
            self.share[gate], self.end[gate] = share, asked + LEASE_SECONDS * SECOND

    @rule(gate=st.sampled_from("abc"), wanted=st.integers(0, 6))
    def want(self, gate: str, wanted: int) -> None:
        self.wanted[gate] = wanted

    @rule(gate=st.sampled_from("abc"), count=counts)
    def give(self, gate: str, count: int) -> None:
        """Places, as far as the share has any."""
        self.taken[gate] = max(self.taken[gate], min(self.taken[gate] + count, self.places(gate)))

    @rule(gate=st.sampled_from("abc"), count=counts)
    def end_jobs(self, gate: str, count: int) -> None:
        self.taken[gate] = max(0, self.taken[gate] - count)

    @rule(seconds=st.sampled_from([0.1, 1.0, RENEW_SECONDS]))
    def wait(self, seconds: float) -> None:
        """Gates are heard of often enough."""
        self.world.move(seconds)
        for gate in "abc":
            if self.end[gate] - self.world.now < 2 * RENEW_SECONDS * SECOND:
                self.beat(gate)

    @rule(gate=st.sampled_from("abc"))
    def crash(self, gate: str) -> None:
        """A gate forgets all but what runs, and knows of no share until it has asked."""
        self.share[gate], self.end[gate] = Share(places=0), NOON

    @rule()
    def lose_the_table(self) -> None:
        """What gates know stays with them, and they are heard of before shares grow again."""
        self.world.table = None
        for gate in "abc":
            self.beat(gate)

    @invariant()
    def no_more_than_the_limit(self) -> None:
        assert sum(self.taken.values()) <= self.NUMBER

    def teardown(self) -> None:
        """Once all jobs end and all gates are heard of, somebody who wants all places gets them."""
        for gate in "abc":
            self.taken[gate], self.wanted[gate] = 0, 0
            self.beat(gate)
        self.world.move(SETTLE_SECONDS)
        self.wanted["a"] = self.NUMBER
        for _ in range(3):
            for gate in "abc" * 2:
                self.beat(gate)
        assert self.share["a"].places == self.NUMBER


TestGates = Gates.TestCase
TestGates.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
