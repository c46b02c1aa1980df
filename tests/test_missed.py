"""What was missed: refused for good, or reported by a scheduler; listed, and sent later if somebody asks."""

from datetime import timedelta
from typing import Any

import pytest

from gate import claims, errors
from gate.interface import Decision, Done, MissedIn, State, rfc3339
from gate.ledger import Event
from gate.rules import Paused, SendPolicy
from tests.support.book import NOON, RESEND, Book

S = "nightly"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
BACKUP = Paused(reason="paused by backup (daily 02:00-03:00) until 03:00 UTC", until=NOON + HOUR)


def state(book: Book, at: Any = NOON) -> State | None:
    record = book.record(S, at)
    return None if record is None else record.state


# -- paused


def test_a_claim_while_paused_is_told_why_and_until_when() -> None:
    answer = Book.in_memory().answer(S, paused=BACKUP)
    assert (answer.decision, answer.reason, answer.until) == (Decision.PAUSED, BACKUP.reason, BACKUP.until)
    assert (answer.at, answer.token, answer.by) == (NOON, None, None)


def test_what_was_refused_as_paused_is_missed_with_that_reason() -> None:
    book = Book.in_memory()
    book.claim(S, holder="worker:7", title="Night", paused=BACKUP)
    ((title, record),) = book.store.missed(10)[1]
    assert (title, record.schedule, record.at, record.holder) == ("Night", S, NOON, "worker:7")
    assert (record.state, record.reason, record.token) == (State.MISSED, BACKUP.reason, "")
    assert book.claim(S, paused=BACKUP) is Decision.PAUSED
    assert book.claim(S) is Decision.SEND, "a claim after the pause is a claim as any other"


def test_a_pause_takes_nothing_from_a_holder_and_forgets_nothing_that_was_sent() -> None:
    book = Book.in_memory()
    book.claim(S, token="a")
    assert book.claim(S, token="a", paused=BACKUP) is Decision.SEND, "the same token gets the same decision"
    assert book.claim(S, token="b", paused=BACKUP) is Decision.HELD
    book.confirm("a")
    assert book.claim(S, token="b", paused=BACKUP) is Decision.SENT


@pytest.mark.parametrize(("event", "stays"), [(Event.RELEASE, State.RELEASED), (Event.LOST, State.DOUBT)])
def test_what_was_released_or_in_doubt_before_the_pause_stays_so(event: Event, stays: State) -> None:
    book = Book.in_memory(RESEND)
    book.claim(S, token="a")
    book.settle(event, "a")
    assert book.claim(S, token="b", paused=BACKUP) is Decision.PAUSED
    assert state(book) is stays
    assert book.claim(S, token="b") is Decision.SEND


def test_an_interval_that_is_paused_keeps_its_cadence_and_misses_nothing() -> None:
    book = Book.in_memory()
    book.claim(S, None, token="a", every=60.0)
    book.confirm("a")
    book.clock.move(150)
    assert book.claim(S, None, every=60.0, paused=BACKUP) is Decision.PAUSED
    assert book.store.missed(10) == (0, [])
    book.clock.move(30)
    assert book.answer(S, None, every=60.0).at == NOON + 3 * MINUTE


def test_what_is_not_due_is_not_paused_yet() -> None:
    book = Book.in_memory()
    assert book.claim(S, NOON + MINUTE, paused=BACKUP) is Decision.WAIT
    assert book.store.missed(10) == (0, [])


# -- late


def test_what_is_past_its_deadline_is_missed() -> None:
    book = Book.in_memory(SendPolicy(deadline=60.0))
    book.clock.move(61)
    assert book.claim(S) is Decision.LATE
    assert state(book) is State.MISSED
    assert book.claim(S) is Decision.LATE


def test_what_may_have_been_sent_and_forgotten_is_not_called_missed() -> None:
    book = Book.in_memory(keep=HOUR.total_seconds())
    book.claim(S)
    book.clock.move(3 * HOUR)
    assert book.claim(S, NOON + MINUTE) is Decision.LATE
    assert book.claim(S, NOON + MINUTE, deadline=60.0) is Decision.LATE
    assert state(book, NOON + MINUTE) is None


# -- reported


def test_a_report_is_recorded_once_and_changes_no_record() -> None:
    book = Book.in_memory()
    assert book.miss(S, NOON - MINUTE, holder="one").answer == Done()
    again = book.miss(S, NOON - MINUTE, holder="two")
    assert (again.answer, again.written) == (Done(), False)
    record = book.record(S, NOON - MINUTE)
    assert record is not None
    assert (record.holder, record.reason, record.settled) == ("one", "nobody asked in its minute", NOON)
    book.claim(S, NOON, token="a")
    assert not book.miss(S, NOON).written
    assert state(book) is State.CLAIMED


def test_one_report_may_stand_for_many() -> None:
    book = Book.in_memory()
    book.miss(S, NOON - MINUTE, first=rfc3339(NOON - HOUR), count=12)
    (found,) = book.store.missed(10)[1]
    assert found.occurrence.reason == "nobody asked in its minute; stands for 12 since 2026-11-30T11:00:00Z"
    assert book.store.missed(10)[0] == 1


def test_an_operator_may_have_a_missed_one_sent() -> None:
    book = Book.in_memory()
    book.miss(S, NOON)
    book.resend(S)
    assert state(book) is State.RELEASED
    assert book.claim(S) is Decision.SEND


def test_a_report_leaves_a_one_off_a_one_off() -> None:
    book = Book.in_memory()
    book.claim(S, NOON, once=True, token="a")
    book.miss(S, NOON - MINUTE)
    schedule = book.view(S).schedule
    assert schedule is not None
    assert schedule.once
    assert schedule.newest == NOON


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"schedule": ""}, "schedule", "has 0 bytes: 1 to 512 are allowed"),
        ({"holder": ""}, "holder", "has 0 bytes: 1 to 256 are allowed"),
        ({"reason": "x" * 513}, "reason", "has 513 bytes: 1 to 512 are allowed"),
        ({"title": "x" * 513}, "title", "longer than 512 bytes"),
        ({"at": "noon"}, "at", "'noon' is not an RFC 3339 instant such as 2026-11-30T12:00:00Z"),
        ({"at": "2026-11-30T11:59:01Z"}, "at", "'2026-11-30T11:59:01Z' is within a minute: name the minute"),
        (
            {"at": "2026-11-30T12:01:00Z"},
            "at",
            "'2026-11-30T12:01:00Z' is still to come: only the past can be missed",
        ),
        ({"first": "2026-11-30T12:01:00Z"}, "first", "'2026-11-30T12:01:00Z' is after `at`"),
        ({"count": 2}, "count", "2 is outside 1 to 1, the minutes since `first`"),
        ({"count": 0}, "count", "0 is outside 1 to 1, the minutes since `first`"),
        (
            {"first": "2026-11-30T11:00:00Z", "count": 62},
            "count",
            "62 is outside 1 to 61, the minutes since `first`",
        ),
    ],
)
def test_a_report_has_fields_that_make_sense(fields: dict[str, Any], field: str, reason: str) -> None:
    good: dict[str, Any] = {"schedule": S, "holder": "h", "at": rfc3339(NOON), "reason": "away"}
    with pytest.raises(errors.InvalidClaim) as caught:
        claims.miss(MissedIn(**good | fields), NOON)
    assert (caught.value.field, caught.value.reason) == (field, reason)
