"""Which refusals are logged."""

from datetime import UTC, datetime, timedelta

from gate.refusals import EVERY, USERS, Refusals

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_one_line_for_each_user_and_while_says_how_many_had_none() -> None:
    refusals = Refusals()
    assert refusals.count(1000, NOW) == 0
    assert [refusals.count(1000, NOW + timedelta(seconds=n)) for n in (0, 1, 9)] == [None] * 3
    assert refusals.count(1001, NOW) == 0, "another user's is logged at once"
    assert refusals.count(1000, NOW + EVERY) == 3
    assert refusals.count(1000, NOW + 2 * EVERY) == 0


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    refusals = Refusals()
    assert refusals.count(1000, NOW) == 0
    assert refusals.count(1000, NOW - timedelta(hours=1)) == 0


def test_users_without_number_take_no_memory_without_bound() -> None:
    refusals = Refusals()
    assert all(refusals.count(uid, NOW) == 0 for uid in range(3 * USERS))
    assert len(refusals._logged) <= USERS  # noqa: SLF001 - what it remembers is the point
