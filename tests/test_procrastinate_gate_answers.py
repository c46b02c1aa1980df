"""For how long an answer is trusted, and what it allows."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.interface import CheckOut
from procrastinate_gate.answers import COMMIT_SECONDS, Reading, Verdict, answered, judge, stepped_back
from tests.support.fetch_gate import says

SAID = Reading(wall=1_800_000_000.0, boot=1_000.0)
END = SAID.wall + 30


def after(seconds: float, *, wall: float | None = None) -> Reading:
    """The clocks so many seconds later; the wall clock may have gone its own way."""
    return Reading(SAID.wall + (seconds if wall is None else wall), SAID.boot + seconds)


def verdict(reply: CheckOut, now: Reading, asked: list[str] | None = None) -> Verdict:
    return judge(answered(reply, SAID, asked), now)


def at(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)


def test_nothing_is_open_before_the_first_answer() -> None:
    found = judge(None, SAID)
    assert (found.open, found.settled) == (False, False)


@pytest.mark.parametrize(
    ("asked", "reply", "queues"),
    [
        (None, says(None), None),
        (None, says([]), []),
        (["a", "b"], says(["b"]), ["b"]),
        (["a", "b"], says([]), []),
        (["a", "b"], says(None), ["a", "b"]),
        (["a", "b"], says(["b", "c"]), ["b"]),
        (None, says(["b"]), ["b"]),
    ],
)
def test_no_queue_is_allowed_that_was_not_asked_for(
    asked: list[str] | None, reply: CheckOut, queues: list[str] | None
) -> None:
    found = verdict(reply, SAID, asked)
    assert found.queues == queues
    assert found.open == (queues != [])
    assert (found.settled, found.by_name) == (True, False)


def test_where_some_of_all_queues_are_excluded_they_must_be_asked_for_by_name() -> None:
    assert verdict(says(None, excluded=["night-*"]), SAID).by_name
    assert not verdict(says(None, excluded=[]), SAID).by_name
    assert not verdict(says([], excluded=["*"]), SAID).by_name


@pytest.mark.parametrize(
    ("now", "trusted"),
    [
        (after(59.999), True),
        (after(60.0), False),
        (after(5.0, wall=4.6), True),
        (after(5.0, wall=4.4), False),
        (after(5.0, wall=-3600.0), False),
        (after(5.0, wall=3600.0), True),
        (after(61.0, wall=5.0), False),
    ],
)
def test_an_answer_is_trusted_for_sixty_seconds_of_boot_time_and_until_the_wall_clock_is_set_back(
    now: Reading, trusted: bool
) -> None:
    for reply in (says(None), says([])):
        found = verdict(reply, now)
        assert found.settled == trusted
        assert found.open == (trusted and reply.open)


@pytest.mark.parametrize(
    ("reply", "wall", "settled"),
    [
        (says(None, until=at(END)), END - COMMIT_SECONDS - 0.01, True),
        (says(None, until=at(END)), END - COMMIT_SECONDS + 0.01, False),
        (says([], until=at(END)), END - 0.01, True),
        (says([], until=at(END)), END, False),
    ],
)
def test_an_answer_ends_at_its_until_by_the_wall_clock_and_an_open_one_a_commit_earlier(
    reply: CheckOut, wall: float, settled: bool
) -> None:
    assert verdict(reply, after(1.0, wall=wall - SAID.wall)).settled == settled


@given(
    boot=st.floats(-1e3, 1e5),
    wall=st.floats(-1e6, 1e6),
    until=st.none() | st.floats(-1e5, 1e5),
)
def test_what_is_open_was_said_within_sixty_seconds_and_is_not_over(
    boot: float, wall: float, until: float | None
) -> None:
    now = after(boot, wall=wall)
    reply = says(["a"], until=None if until is None else at(SAID.wall + until))
    if verdict(reply, now, ["a"]).open:
        assert boot < 60
        assert wall - boot >= -0.5 - 1e-6
        assert until is None or wall < until


@given(st.floats(0, 1e6), st.floats(-0.4, 1e6))
def test_no_clock_is_set_back_that_only_runs_on_or_jumps_forward(boot: float, jump: float) -> None:
    assert not stepped_back(SAID, after(boot, wall=boot + jump))


def test_all_queues_cover_every_queue_and_only_all_cover_all() -> None:
    every, some, none = (Verdict(queues=queues, reason="") for queues in (None, ["a", "b"], []))
    assert every.covers(some)
    assert every.covers(every)
    assert some.covers(none)
    assert some.covers(Verdict(queues=["b"], reason=""))
    assert not some.covers(every)
    assert not some.covers(Verdict(queues=["b", "c"], reason=""))
    assert every.allows("x")
    assert some.allows("a")
    assert not some.allows("x")
