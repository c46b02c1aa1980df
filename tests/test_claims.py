"""What stands in the way of a claim: memory, the time, deadlines, the cadence of an interval, and wrong fields."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import claims, errors
from gate.interface import ClaimIn, Decision, State, rfc3339
from gate.ledger import Event
from gate.rules import DEFAULT_POLICY, SendPolicy
from tests.support.book import NOON, RESEND, Book, claim_step

S = "nightly"
MINUTE = timedelta(minutes=1)


# -- memory


def test_what_is_older_than_the_horizon_is_late_unless_the_schedule_was_first_seen_after_it() -> None:
    book = Book.in_memory(keep=3600.0)
    book.claim(S, NOON)
    book.clock.move(timedelta(hours=2))
    assert book.claim(S, NOON + MINUTE) is Decision.LATE
    late = book.answer(S, NOON + 59 * MINUTE)
    assert (late.decision, late.reason) == (Decision.LATE, "older than the ledger remembers (2026-11-30T13:00:00Z)")
    assert book.claim(S, NOON + 60 * MINUTE) is Decision.SEND
    assert book.claim("new", NOON) is Decision.SEND, "a schedule that was never seen has forgotten nothing"


def test_an_older_occurrence_that_was_granted_moves_the_date_since_when_a_schedule_is_known() -> None:
    book = Book.in_memory(keep=3600.0)
    book.claim(S, NOON)
    older = NOON - timedelta(days=3)
    assert book.claim(S, older, token="a") is Decision.SEND
    book.confirm("a")
    schedule = book.view(S).schedule
    assert schedule is not None
    assert (schedule.known_since, schedule.newest) == (older, NOON)
    assert book.claim(S, older + MINUTE) is Decision.LATE, "it may have been sent and forgotten"


def test_a_record_beats_the_horizon() -> None:
    book = Book.in_memory(keep=3600.0)
    book.claim(S, NOON, token="a")
    book.confirm("a")
    book.clock.move(timedelta(days=30))
    assert book.claim(S, NOON) is Decision.SENT


def test_a_one_off_may_lie_far_in_the_past_and_within_a_minute() -> None:
    book = Book.in_memory()
    at = datetime(1999, 12, 31, 23, 59, 59, 5, tzinfo=UTC)
    answer = book.answer("once", at, token="a", once=True)
    assert (answer.decision, answer.at) == (Decision.SEND, at)
    book.confirm("a")
    assert book.claim("once", at, once=True) is Decision.SENT


@pytest.mark.parametrize("end", ["sent", "doubt"])
def test_a_one_off_is_remembered_as_long_as_its_source_lists_it(end: str) -> None:
    """However long that is: a source lists a one-off that was sent, or is in doubt, again and again."""
    book = Book.in_memory()
    book.claim("once", NOON, token="a", once=True)
    book.settle(Event.CONFIRM if end == "sent" else Event.LOST, "a")
    for _ in range(40):
        book.clock.move(timedelta(days=1.5))
        book.store.prune(100)
        assert book.claim("once", NOON, once=True).value == end


def test_a_recurring_schedule_is_not_written_again_for_every_refusal() -> None:
    book = Book.in_memory()
    book.claim(S, token="a")
    book.confirm("a")
    book.clock.move(timedelta(days=3))
    change = book.change(claim_step(S, NOON, "b"))
    assert (change.schedule, change.occurrence, change.token) == (None, None, None)


# -- the time


@pytest.mark.parametrize(
    ("ahead", "decision"),
    [
        (5.0, Decision.SEND),
        (5.000001, Decision.WAIT),
        (60.0, Decision.WAIT),
        (0.0, Decision.SEND),
        (-60.0, Decision.SEND),
    ],
)
def test_an_occurrence_may_be_claimed_up_to_five_seconds_early(ahead: float, decision: Decision) -> None:
    book = Book.in_memory()
    book.clock.move(-ahead)
    answer = book.answer(S, NOON)
    assert answer.decision is decision
    assert answer.until == (NOON if decision is Decision.WAIT else book.clock.now() + timedelta(seconds=30))
    if decision is Decision.WAIT:
        assert (answer.reason, answer.token, answer.by) == ("not due yet", None, None)
        assert book.record(S) is None
        assert book.view(S).schedule is None, "a refusal teaches the ledger nothing"


def test_a_grant_that_was_early_stays_one_when_the_clock_is_set_back() -> None:
    book = Book.in_memory()
    book.claim(S, NOON, token="a")
    book.clock.move(timedelta(hours=-1))
    assert book.claim(S, NOON, token="a") is Decision.SEND
    assert book.claim(S, NOON, token="b") is Decision.HELD
    book.confirm("a")
    assert book.claim(S, NOON, token="b") is Decision.SENT


@pytest.mark.parametrize(
    ("own", "rule", "limit"),
    [(60.0, None, 60.0), (None, 60.0, 60.0), (60.0, 30.0, 30.0), (30.0, 60.0, 30.0), (0.0, None, 0.0)],
)
def test_the_stricter_of_the_claims_deadline_and_the_rules_counts(
    own: float | None, rule: float | None, limit: float
) -> None:
    book = Book.in_memory(SendPolicy(deadline=rule))
    book.clock.move(limit)
    assert book.claim("in time", NOON, deadline=own) is Decision.SEND
    book.clock.move(0.000001)
    answer = book.answer("too late", NOON, deadline=own)
    assert (answer.decision, answer.reason) == (Decision.LATE, f"past its deadline of {limit:g} s")
    record = book.record("too late")
    assert record is not None
    assert (record.state, record.reason, record.holder) == (State.MISSED, answer.reason, record.holder)
    assert (record.token, record.grants, record.settled) == ("", 0, book.clock.now())


def test_without_a_deadline_nothing_is_too_late() -> None:
    book = Book.in_memory()
    book.clock.move(timedelta(days=13))
    assert book.claim(S, NOON) is Decision.SEND


def test_a_doubt_past_its_deadline_is_not_taken_over() -> None:
    book = Book.in_memory(RESEND)
    book.claim(S, token="a", deadline=60.0)
    book.lose("a")
    book.clock.move(61)
    assert book.claim(S, token="b", deadline=60.0) is Decision.LATE
    assert book.claim(S, token="b", deadline=120.0) is Decision.SEND


def test_what_was_sent_is_sent_and_not_late() -> None:
    book = Book.in_memory()
    book.claim(S, token="a", deadline=60.0)
    book.confirm("a")
    book.clock.move(3600)
    assert book.claim(S, token="b", deadline=60.0) is Decision.SENT


def test_the_lease_is_thirty_seconds_unless_the_claim_says_otherwise() -> None:
    book = Book.in_memory()
    assert book.answer("a").until == NOON + timedelta(seconds=30)
    assert book.answer("b", lease=1.5).until == NOON + timedelta(seconds=1.5)


# -- intervals


def sent(book: Book, every: float, token: str) -> datetime:
    """Claim and confirm one occurrence of an interval; gives the `at` that the gate picked."""
    answer = book.answer(S, None, token, every=every)
    assert answer.decision is Decision.SEND, answer
    book.confirm(token)
    return answer.at


def test_an_interval_keeps_its_cadence() -> None:
    book = Book.in_memory()
    assert sent(book, 60, "a") == NOON
    book.clock.move(30)
    waits = book.answer(S, None, every=60.0)
    assert (waits.decision, waits.until, waits.at) == (Decision.WAIT, NOON + MINUTE, NOON + MINUTE)
    assert (waits.by, waits.reason) == ("holder of a", "sent in this interval already")
    book.clock.move(37)
    assert sent(book, 60, "b") == NOON + MINUTE, "seven seconds late, and the next one is due on the minute again"
    book.clock.move(53)
    assert sent(book, 60, "c") == NOON + 2 * MINUTE


def test_after_a_pause_an_interval_is_sent_once_and_takes_up_its_cadence() -> None:
    book = Book.in_memory()
    sent(book, 60, "a")
    book.clock.move(60 * 60 + 10)
    assert sent(book, 60, "b") == NOON + 60 * MINUTE
    assert book.claim(S, None, every=60.0) is Decision.WAIT
    book.clock.move(50)
    assert sent(book, 60, "c") == NOON + 61 * MINUTE


@pytest.mark.parametrize(("every", "early"), [(60.0, 1.0), (10.0, 1.0), (5.0, 0.5), (0.1, 0.01)])
def test_an_interval_may_be_claimed_early_by_a_tenth_of_it_but_no_more_than_a_second(
    every: float, early: float
) -> None:
    book = Book.in_memory()
    sent(book, every, "a")
    book.clock.move(timedelta(seconds=every) - timedelta(seconds=early) - timedelta(microseconds=1))
    assert book.claim(S, None, every=every) is Decision.WAIT
    book.clock.move(timedelta(microseconds=1))
    assert sent(book, every, "b") == NOON + timedelta(seconds=every)
    assert book.claim(S, None, every=every) is Decision.WAIT


def test_a_changed_interval_counts_at_once_from_the_newest_occurrence() -> None:
    book = Book.in_memory()
    sent(book, 3600, "a")
    book.clock.move(90)
    assert book.claim(S, None, every=3600.0) is Decision.WAIT
    assert sent(book, 60, "b") == NOON + MINUTE
    assert book.answer(S, None, every=600.0).until == NOON + 11 * MINUTE


def test_an_interval_whose_clock_is_set_back_starts_anew() -> None:
    book = Book.in_memory()
    sent(book, 60, "a")
    book.clock.move(timedelta(days=-1))
    assert sent(book, 60, "b") == NOON - timedelta(days=1)
    assert book.claim(S, None, every=60.0) is Decision.WAIT
    book.clock.move(60)
    assert sent(book, 60, "c") == NOON - timedelta(days=1) + MINUTE


def test_an_interval_whose_clock_is_set_back_a_little_waits_for_its_time() -> None:
    book = Book.in_memory()
    sent(book, 60, "a")
    book.clock.move(-10)
    assert book.answer(S, None, every=60.0).until == NOON + MINUTE


@pytest.mark.parametrize(
    ("end", "skip", "resend"),
    [
        (None, Decision.HELD, Decision.HELD),
        (Event.CONFIRM, Decision.WAIT, Decision.WAIT),
        (Event.LOST, Decision.DOUBT, Decision.SEND),
        (Event.RELEASE, Decision.SEND, Decision.SEND),
    ],
)
def test_within_an_interval_its_newest_occurrence_decides(end: Event | None, skip: Decision, resend: Decision) -> None:
    for policy, expected in ((DEFAULT_POLICY, skip), (RESEND, resend)):
        book = Book.in_memory(policy)
        book.claim(S, None, token="a", every=60.0)
        if end is not None:
            book.settle(end, "a")
        book.clock.move(10)
        answer = book.answer(S, None, token="b", every=60.0)
        assert answer.decision is expected
        assert answer.at == (NOON + MINUTE if expected is Decision.WAIT else NOON)


def test_the_next_interval_does_not_wait_for_the_one_before() -> None:
    book = Book.in_memory()
    book.claim(S, None, token="a", every=60.0, lease=600.0)
    book.clock.move(60)
    assert book.answer(S, None, token="b", every=60.0).at == NOON + MINUTE
    book.confirm("a")
    book.confirm("b")
    assert book.claim(S, None, token="c", every=60.0) is Decision.WAIT


def test_the_token_of_an_interval_keeps_its_occurrence() -> None:
    book = Book.in_memory()
    assert book.answer(S, None, token="a", every=60.0).at == NOON
    book.clock.move(90)
    assert book.answer(S, None, token="a", every=60.0).at == NOON
    book.confirm("a")
    again = book.answer(S, None, token="a", every=60.0)
    assert (again.decision, again.at) == (Decision.SENT, NOON)
    assert book.answer(S, None, token="b", every=60.0).at == NOON + MINUTE


def test_a_token_that_was_forgotten_is_known_by_the_newest_occurrence_of_its_interval() -> None:
    book = Book.in_memory()
    sent(book, 60, "a")
    book.clock.move(timedelta(days=2))
    assert book.store.prune(100) == 1
    again = book.answer(S, None, token="a", every=60.0)
    assert (again.decision, again.at) == (Decision.SENT, NOON)


def test_an_interval_longer_than_memory_is_sent_when_it_is_asked_for_late() -> None:
    """The newest occurrence is always remembered, so the one after it cannot have been sent and forgotten."""
    book = Book.in_memory(keep=3600.0)
    sent(book, 7200, "a")
    book.clock.move(7200 + 5400)
    book.store.prune(100)
    assert sent(book, 7200, "b") == NOON + timedelta(hours=2)


@given(
    st.lists(st.floats(0, 400, allow_nan=False), min_size=1, max_size=30),
    st.sampled_from([0.1, 1.0, 7.0, 60.0, 3600.0]),
)
def test_an_interval_is_sent_once_in_each_of_its_steps(moves: list[float], every: float) -> None:
    book = Book.in_memory()
    ats: list[datetime] = []
    early = timedelta(seconds=min(1.0, every / 10))
    for number, move in enumerate(moves):
        answer = book.answer(S, None, token=f"t{number}", every=every)
        if answer.decision is Decision.SEND:
            book.confirm(f"t{number}")
            ats.append(answer.at)
            assert answer.at - early <= book.clock.now() < answer.at + timedelta(seconds=every)
        else:
            assert answer.decision is Decision.WAIT
            assert ats
            assert book.clock.now() < ats[-1] + timedelta(seconds=every) - early
        book.clock.move(move)
    steps = [(at - NOON) / timedelta(seconds=every) for at in ats]
    assert steps == sorted(set(steps))
    assert all(step == round(step) for step in steps)


# -- wrong fields


def refused(**fields: Any) -> tuple[str, str]:
    """The field and the reason of the InvalidClaim that a claim gets."""
    token = fields.pop("token", "t")
    asked = ClaimIn(**{"schedule": S, "holder": "h", "at": rfc3339(NOON), **fields})
    with pytest.raises(errors.InvalidClaim) as caught:
        claims.ask(asked, token, DEFAULT_POLICY)
    assert caught.value.parameters.keys() == {"field", "reason"}
    return caught.value.field, caught.value.reason


def accepted(**fields: Any) -> claims.Ask:
    token = fields.pop("token", "t")
    asked = ClaimIn(**{"schedule": S, "holder": "h", "at": rfc3339(NOON), **fields})
    return claims.ask(asked, token, DEFAULT_POLICY)


@pytest.mark.parametrize(("field", "limit"), [("schedule", 512), ("holder", 256), ("token", 128)])
def test_names_have_a_byte_and_no_more_than_their_limit(field: str, limit: int) -> None:
    assert refused(**{field: ""}) == (field, f"has 0 bytes: 1 to {limit} are allowed")
    assert refused(**{field: "x" * (limit + 1)}) == (field, f"has {limit + 1} bytes: 1 to {limit} are allowed")
    assert refused(**{field: "é" * (limit // 2) + "x"}) == (field, f"has {limit + 1} bytes: 1 to {limit} are allowed")
    for value in ("x", "x" * limit, "é" * (limit // 2), "\0"):
        assert getattr(accepted(**{field: value}), field) == value


def test_a_title_has_no_more_than_its_limit() -> None:
    assert refused(title="é" * 257) == ("title", "longer than 512 bytes")
    assert accepted(title="é" * 256).title == "é" * 256
    assert accepted(title="").title == ""


TEN_YEARS = 10 * 366 * 86_400.0


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("deadline", 0.0, TEN_YEARS), ("every", 0.1, TEN_YEARS), ("lease", 0.001, 86_400.0)],
)
def test_durations_have_their_limits(field: str, low: float, high: float) -> None:
    at = {"at": None} if field == "every" else {}
    for value in (low, high):
        assert getattr(accepted(**{field: value, **at}), field) == value
    wrong = [math.nextafter(low, -1), math.nextafter(high, math.inf), -1.0, math.inf, -math.inf, math.nan, 1e300]
    for value in wrong:
        assert refused(**{field: value, **at}) == (field, f"{value:g} s is outside {low:g} to {high:g}")


WHEN = "give the nominal instant, or `every` for an interval"
PICKS = "goes without `at` and `once`: the gate picks `at`"


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"at": None}, "at", f"missing: {WHEN}"),
        ({"at": None, "once": True}, "at", f"missing: {WHEN}"),
        ({"every": 60.0}, "every", PICKS),
        ({"every": 60.0, "at": None, "once": True}, "every", PICKS),
        ({"at": "now"}, "at", "'now' is not an RFC 3339 instant such as 2026-11-30T12:00:00Z"),
        (
            {"at": "2026-11-30T12:00:00"},
            "at",
            "'2026-11-30T12:00:00' has no zone: write 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00",
        ),
        (
            {"at": "2026-11-30T12:00:01Z"},
            "at",
            "'2026-11-30T12:00:01Z' is within a minute: name the minute, or set `once` for a one-off",
        ),
        (
            {"at": "2026-11-30T12:00:00.000001Z"},
            "at",
            "'2026-11-30T12:00:00.000001Z' is within a minute: name the minute, or set `once` for a one-off",
        ),
        ({"at": "1969-12-31T23:59:00Z"}, "at", "'1969-12-31T23:59:00Z' is outside the years 1970 to 9000"),
        ({"at": "9001-01-01T00:00:00Z"}, "at", "'9001-01-01T00:00:00Z' is outside the years 1970 to 9000"),
    ],
)
def test_when_is_said_in_one_way(fields: dict[str, Any], field: str, reason: str) -> None:
    assert refused(**fields) == (field, reason)


@pytest.mark.parametrize("at", ["1970-01-01T00:00:00Z", "9000-12-31T23:59:00Z", "2026-11-30T12:00:00+05:45"])
def test_the_minutes_that_may_be_named(at: str) -> None:
    assert accepted(at=at).at is not None


def test_once_that_is_false_is_as_if_it_were_not_said() -> None:
    assert accepted(once=False) == accepted()
    assert accepted(once=False, every=60.0, at=None).every == 60.0


def test_a_title_stays_until_there_is_another_one() -> None:
    book = Book.in_memory()
    for minute, (said, known) in enumerate([(None, None), ("Night", "Night"), (None, "Night"), ("Day", "Day")]):
        book.clock.move(MINUTE)
        book.claim(S, NOON + minute * MINUTE, title=said)
        schedule = book.view(S).schedule
        assert schedule is not None
        assert schedule.title == known
