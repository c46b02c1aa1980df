"""One suite for every store: what `apply` promises, the lists, and forgetting. Every refusal has its case."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from gate import errors
from gate.interface import ClaimOut, Decision, Done, State
from gate.ledger import EPOCH, Change, Event, View
from gate.stores.base import Outcome, Step
from tests.support.book import (
    KEEP,
    NOON,
    RESEND,
    Book,
    claim_step,
    resend_step,
    settle_step,
)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
S = "nightly"


def decisions(outcomes: list[Outcome]) -> list[Decision | None]:
    """The decision of each outcome that answers a claim, None for the others."""
    answers = [outcome.answer if isinstance(outcome, Change) else None for outcome in outcomes]
    return [answer.decision if isinstance(answer, ClaimOut) else None for answer in answers]


# -- apply


def test_a_new_store_knows_nothing(book: Book) -> None:
    nothing = View(schedule=None, occurrence=None, token=None, horizon=book.clock.now() - timedelta(seconds=KEEP))
    assert book.view(S, NOON, "t") == nothing
    assert book.view(None) == nothing
    assert book.store.open_claims() == []
    assert book.store.schedules(10) == (0, [])
    assert book.store.doubts(10) == (0, [])
    assert book.store.missed(10) == (0, [])
    assert book.store.history(None, None, 10) == []
    assert book.store.history(S, None, 10) == []
    assert book.store.prune(10) == 0
    assert book.store.apply([]) == []


def test_the_stores_clock_is_the_one_that_it_was_given(book: Book) -> None:
    book.clock.move(5)
    assert book.store.now() == NOON + timedelta(seconds=5)


def test_it_says_what_and_where_it_is(book: Book) -> None:
    assert book.store.url.startswith((f"{book.store.kind}:", "unix:"))
    assert book.store.size() >= 0


def test_all_steps_of_a_batch_see_the_same_now(book: Book) -> None:
    seen: list[datetime] = []

    def decide(view: View, now: datetime) -> Change:
        seen.append(now)
        book.clock.move(1)
        return Change(Done())

    book.store.apply([Step(None, S, NOON, decide)] * 3)
    assert seen == [NOON] * 3


def test_a_step_sees_what_the_steps_before_it_in_the_batch_decided(book: Book) -> None:
    policy = RESEND
    outcomes = book.store.apply(
        [
            claim_step(S, NOON, "a", policy),
            claim_step(S, NOON, "b", policy),
            settle_step(Event.LOST, "a"),
            claim_step(S, NOON, "b", policy),
            settle_step(Event.CONFIRM, "a"),
            claim_step(S, NOON, "c", policy),
            settle_step(Event.CONFIRM, "never"),
            claim_step(S, NOON - MINUTE, "d", policy),
            claim_step(S, NOON - MINUTE, "d", policy),
        ]
    )
    assert decisions(outcomes) == [
        Decision.SEND,
        Decision.HELD,
        None,
        Decision.SEND,
        None,
        Decision.SENT,
        None,
        Decision.SEND,
        Decision.SEND,
    ]
    assert isinstance(outcomes[6], Change)
    assert isinstance(outcomes[6].answer, errors.UnknownToken)
    record = book.record(S)
    assert record is not None
    assert (record.state, record.grants, record.token) == (State.SENT, 2, "b")


def test_an_interval_in_a_batch_sees_the_newest_occurrence_of_the_batch(book: Book) -> None:
    outcomes = book.store.apply([claim_step(S, None, token, every=60.0) for token in ("a", "b", "a")])
    assert decisions(outcomes) == [Decision.SEND, Decision.HELD, Decision.SEND]


def test_a_token_names_an_occurrence_before_schedule_and_at_do(book: Book) -> None:
    book.claim(S, NOON, token="a")
    book.claim("other", NOON - MINUTE, token="b")
    view = book.view("other", NOON - MINUTE, "a")
    assert view.token is not None
    assert view.schedule is not None
    assert view.occurrence is not None
    assert (view.token.token, view.schedule.name, view.occurrence.schedule) == ("a", S, S)


def test_an_unknown_token_leaves_it_to_schedule_and_at(book: Book) -> None:
    book.claim(S, NOON - MINUTE, token="a")
    book.claim(S, NOON, token="b")
    older, newest = book.view(S, NOON - MINUTE, "never").occurrence, book.view(S, None, "never").occurrence
    assert older is not None
    assert newest is not None
    assert (older.token, newest.token) == ("a", "b")
    assert book.view(S, NOON + MINUTE).occurrence is None
    assert book.view(S, NOON - HOUR).occurrence is None
    assert book.view("other", NOON).schedule is None


def test_a_refusal_writes_nothing(book: Book) -> None:
    book.claim(S, NOON, token="a")
    before = book.store.history(None, None, 10), book.store.schedules(10)
    assert book.claim(S, NOON, token="b") is Decision.HELD
    assert book.claim("future", NOON + HOUR, token="c") is Decision.WAIT
    for event in (Event.CONFIRM, Event.RELEASE):
        with pytest.raises(errors.UnknownToken):
            book.settle(event, "b")
    with pytest.raises(errors.NotInDoubt):
        book.resend(S)
    assert (book.store.history(None, None, 10), book.store.schedules(10)) == before
    assert book.view(None, None, "b").token is None


def test_a_fault_of_ours_in_one_decision_is_its_own(book: Book) -> None:
    def broken(view: View, now: datetime) -> Change:
        raise ValueError("a fault of ours")

    steps = [claim_step(S, NOON, "a"), Step(None, S, NOON, broken), claim_step("other", NOON, "b")]
    outcomes = book.store.apply(steps)
    assert decisions(outcomes) == [Decision.SEND, None, Decision.SEND]
    assert isinstance(outcomes[1], ValueError)
    assert {record.schedule for record in book.store.open_claims()} == {S, "other"}


def test_a_fault_that_ends_the_batch_leaves_nothing_of_it(book: Book) -> None:
    def broken(view: View, now: datetime) -> Change:
        raise RuntimeError("the interpreter's, not ours")

    book.claim("before", NOON, token="z")
    with pytest.raises(RuntimeError):
        book.store.apply([claim_step(S, NOON, "a"), settle_step(Event.CONFIRM, "z"), Step(None, S, NOON, broken)])
    assert book.record(S) is None
    assert book.view(None, None, "a").token is None
    before = book.record("before")
    assert before is not None
    assert before.state is State.CLAIMED
    assert book.claim(S, NOON, token="b") is Decision.SEND


def test_claims_of_an_interval_end_also_when_its_clock_was_set_back_meanwhile(book: Book) -> None:
    """Its newest occurrence is then older than those that were granted before."""
    tokens = {"confirmed": State.SENT, "released": State.RELEASED, "lost": State.DOUBT, "resent": State.RELEASED}
    for token in tokens:
        book.claim(token, None, token=token, every=60.0)
    book.clock.move(-DAY)
    for token in tokens:
        assert book.claim(token, None, every=60.0) is Decision.SEND
        view = book.view(token)
        assert view.schedule is not None
        assert view.schedule.newest == NOON - DAY
    book.confirm("confirmed")
    book.release("released")
    book.lose("lost")
    book.lose("resent")
    book.resend("resent", NOON)
    assert {token: found.state for token in tokens if (found := book.view(None, None, token).occurrence)} == tokens


def test_an_operators_resend_reopens_a_doubt(book: Book) -> None:
    book.claim(S, NOON, token="a")
    book.lose("a")
    assert book.claim(S, NOON, token="b") is Decision.DOUBT
    (outcome,) = book.store.apply([resend_step(S, NOON)])
    assert isinstance(outcome, Change)
    assert outcome.answer == Done()
    assert book.claim(S, NOON, token="b") is Decision.SEND


# -- lists


def test_open_claims_are_those_that_are_claimed(book: Book) -> None:
    for number, event in enumerate([None, Event.CONFIRM, Event.RELEASE, Event.LOST, Event.UNREAD, Event.EXPIRED]):
        book.claim(f"s{number}", NOON, token=f"t{number}")
        if event is not None:
            book.settle(event, f"t{number}")
    book.claim("another", NOON, token="a")
    assert {record.schedule for record in book.store.open_claims()} == {"s0", "another"}
    assert all(record.state is State.CLAIMED for record in book.store.open_claims())


def test_schedules_are_counted_and_those_used_last_come_first(book: Book) -> None:
    for number in range(4):
        book.clock.move(MINUTE)
        book.claim(f"s{number}", NOON, token=f"t{number}", title=f"Title {number}")
    book.clock.move(MINUTE)
    book.claim("s1", NOON + MINUTE, token="again")
    total, listed = book.store.schedules(3)
    assert total == 4
    assert [(s.name, s.title, s.newest, o.at, o.state) for s, o in listed] == [
        ("s1", "Title 1", NOON + MINUTE, NOON + MINUTE, State.CLAIMED),
        ("s3", "Title 3", NOON, NOON, State.CLAIMED),
        ("s2", "Title 2", NOON, NOON, State.CLAIMED),
    ]
    assert book.store.schedules(0) == (4, [])
    assert len(book.store.schedules(1000)[1]) == 4


def test_a_schedule_is_listed_with_its_newest_occurrence_not_its_last_claimed(book: Book) -> None:
    book.claim(S, NOON, token="a")
    book.clock.move(1)
    book.claim(S, NOON - MINUTE, token="b")
    ((schedule, newest),) = book.store.schedules(10)[1]
    assert (schedule.newest, newest.at, newest.token) == (NOON, NOON, "a")


def test_schedules_that_were_used_at_the_same_time_have_an_order(book: Book) -> None:
    for name in ("b", "c", "a"):
        book.claim(name, NOON)
    assert [schedule.name for schedule, _ in book.store.schedules(2)[1]] == ["c", "b"]


def test_doubts_are_counted_and_the_newest_come_first(book: Book) -> None:
    for name, at in (("a", NOON), ("b", NOON - HOUR), ("c", NOON), ("d", NOON - DAY), ("sent", NOON)):
        book.claim(name, at, token=name, title=name.upper())
        book.settle(Event.CONFIRM if name == "sent" else Event.EXPIRED, name)
    total, doubts = book.store.doubts(3)
    assert total == 4
    assert [(t.title, t.occurrence.schedule, t.occurrence.at) for t in doubts] == [
        ("C", "c", NOON),
        ("A", "a", NOON),
        ("B", "b", NOON - HOUR),
    ]
    assert all(t.occurrence.state is State.DOUBT for t in doubts)
    book.confirm("c")
    assert [t.occurrence.schedule for t in book.store.doubts(10)[1]] == ["a", "b", "d"]
    assert book.store.doubts(0) == (3, [])


def test_the_history_of_a_schedule_is_its_newest_occurrences(book: Book) -> None:
    for minute in (3, 1, 5, 2, 4):
        book.clock.move(1)
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}", title="Night")
        book.claim("other", NOON - minute * MINUTE, token=f"o{minute}")
    found = book.store.history(S, None, 3)
    assert [(t.title, t.occurrence.schedule, t.occurrence.at) for t in found] == [
        ("Night", S, NOON - minute * MINUTE) for minute in (1, 2, 3)
    ]
    assert len(book.store.history(S, None, 100)) == 5
    assert [t.occurrence.at for t in book.store.history(S, NOON - 2 * MINUTE, 100)] == [
        NOON - MINUTE,
        NOON - 2 * MINUTE,
    ]
    assert book.store.history(S, NOON, 100) == []
    assert book.store.history(S, None, 0) == []
    assert book.store.history("never", None, 100) == []


def test_the_history_of_all_is_what_changed_last_and_shown_by_its_time(book: Book) -> None:
    for number, at in enumerate([NOON, NOON - MINUTE, NOON - 2 * MINUTE, NOON - 3 * MINUTE]):
        book.clock.move(1)
        book.claim(f"s{number}", at, token=f"t{number}")
    book.clock.move(1)
    book.confirm("t0")
    found = book.store.history(None, None, 3)
    assert [(t.occurrence.schedule, t.occurrence.state) for t in found] == [
        ("s0", State.SENT),
        ("s2", State.CLAIMED),
        ("s3", State.CLAIMED),
    ]
    since = book.store.history(None, NOON - 2 * MINUTE, 100)
    assert [t.occurrence.schedule for t in since] == ["s0", "s1", "s2"]
    assert [t.occurrence.schedule for t in book.store.history(None, NOON, 1)] == ["s0"]
    assert book.store.history(None, NOON + MINUTE, 100) == []
    assert book.store.history(None, None, 0) == []
    assert len(book.store.history(None, EPOCH - DAY, 100)) == 4


def test_an_occurrence_that_was_claimed_early_is_in_the_history_since_its_time(book: Book) -> None:
    book.clock.move(-5)
    book.claim(S, NOON)
    assert len(book.store.history(None, NOON, 10)) == 1


# -- forgetting


def known(book: Book, token: str) -> bool:
    return book.view(None, None, token).token is not None


def test_a_token_is_known_for_a_day_and_longer_while_its_claim_lives(book: Book) -> None:
    for name in ("settled", "open"):
        book.claim(name, NOON, token=name, lease=86_400.0)
    book.confirm("settled")
    book.clock.move(DAY)
    assert book.store.prune(100) == 0
    assert known(book, "settled")
    book.clock.move(timedelta(microseconds=1))
    assert book.store.prune(100) == 1, "not that of the open claim"
    assert not known(book, "settled")
    with pytest.raises(errors.UnknownToken):
        book.confirm("settled")
    assert book.claim("settled", NOON, token="settled") is Decision.SENT, "its occurrence is known much longer"
    assert known(book, "open")
    book.confirm("open")
    assert book.store.prune(100) == 1


def test_no_claim_is_stranded_when_the_clock_jumps_ahead(book: Book) -> None:
    """A claim ends by its token, so nothing may forget the token before."""
    book.claim(S, NOON, token="a")
    book.clock.move(timedelta(days=1000))
    book.store.prune(100)
    assert [record.token for record in book.store.open_claims()] == ["a"]
    book.settle(Event.EXPIRED, "a")
    assert book.store.open_claims() == []
    assert book.claim(S, NOON) is Decision.DOUBT


def test_occurrences_are_forgotten_by_their_last_touch_and_the_newest_stays(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=2 * DAY.total_seconds())
    for minute in (3, 2, 1):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.settle(Event.LOST if minute == 2 else Event.CONFIRM, f"t{minute}")
    book.clock.move(DAY)
    book.confirm("t2")
    book.clock.move(DAY + timedelta(seconds=6))
    book.store.prune(100)
    kept = [t.occurrence.token for t in book.store.history(S, None, 10)]
    assert kept == ["t1", "t2"], "t2 was touched a day ago, t1 is the newest"
    book.clock.move(DAY)
    book.store.prune(100)
    assert [t.occurrence.token for t in book.store.history(S, None, 10)] == ["t1"]


def test_what_was_forgotten_is_late(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=2 * DAY.total_seconds())
    for minute in (3, 2, 1):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(3 * DAY)
    book.store.prune(100)
    assert book.claim(S, NOON - 3 * MINUTE) is Decision.LATE
    assert book.claim(S, NOON - 2 * MINUTE) is Decision.LATE
    assert book.claim(S, NOON - MINUTE) is Decision.SENT
    book.clock.move(-3 * DAY)
    assert book.claim(S, NOON - 3 * MINUTE) is Decision.LATE, "a clock that is set back brings nothing back"
    assert book.claim(S, NOON - 2 * MINUTE) is Decision.LATE


def test_what_was_claimed_early_and_forgotten_is_late_too(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=3600.0)
    book.clock.move(-5)
    book.claim(S, NOON, token="a")
    book.confirm("a")
    book.clock.move(MINUTE)
    book.claim(S, NOON + MINUTE, token="b")
    book.clock.move(HOUR - MINUTE)
    for _ in range(14):
        book.clock.move(0.5)
        book.store.prune(100)
        assert book.claim(S, NOON) in {Decision.SENT, Decision.LATE}
    book.clock.move(-HOUR)
    assert book.claim(S, NOON) in {Decision.SENT, Decision.LATE}


def test_a_claim_that_lives_is_not_forgotten(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=3600.0)
    book.claim(S, NOON - MINUTE, token="a")
    book.claim(S, NOON, token="b")
    book.claim("once", NOON, token="c", once=True)
    book.clock.move(500 * DAY)
    book.store.prune(100)
    assert {record.token for record in book.store.open_claims()} == {"a", "b", "c"}
    assert book.store.schedules(10)[0] == 2


@pytest.mark.parametrize(("once", "days"), [(True, 14), (False, 400)])
def test_a_schedule_that_nobody_asks_for_is_forgotten(book: Book, once: bool, days: int) -> None:
    book.claim(S, NOON, token="a", once=once)
    book.confirm("a")
    book.clock.move(days * DAY)
    book.store.prune(100)
    assert book.store.schedules(10)[0] == 1
    assert book.claim(S, NOON, once=once) is Decision.SENT
    book.clock.move(days * DAY + timedelta(seconds=1))
    assert book.store.prune(100) > 0
    assert book.store.schedules(10) == (0, [])
    assert book.store.history(None, None, 10) == []


def test_a_long_memory_is_longer_than_four_hundred_days_for_every_schedule(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=500 * DAY.total_seconds())
    for once in (True, False):
        book.claim(f"once {once}", NOON, token=f"{once}", once=once)
        book.confirm(f"{once}")
    book.clock.move(500 * DAY)
    book.store.prune(100)
    assert book.store.schedules(10)[0] == 2
    book.clock.move(1)
    book.store.prune(100)
    assert book.store.schedules(10)[0] == 0


def test_a_one_off_that_is_listed_is_remembered_however_short_memory_is(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=3600.0)
    book.claim("once", NOON, token="a", once=True)
    book.confirm("a")
    for _ in range(100):
        book.clock.move(HOUR)
        book.store.prune(100)
        assert book.claim("once", NOON, once=True) is Decision.SENT


def test_tokens_of_a_forgotten_schedule_do_not_belong_to_another(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=3600.0)
    book.claim("gone", NOON, token="a", once=True)
    book.confirm("a")
    book.clock.move(-3 * DAY)  # so that the schedule is touched last long before its token is born
    book.claim("gone", NOON - 3 * DAY, token="b", once=True)
    book.confirm("b")
    book.clock.move(3 * DAY)
    book.store.prune(100)
    assert book.store.schedules(10)[0] == 0
    book.claim("new", NOON, token="c", once=True)
    for event in (Event.RELEASE, Event.CONFIRM):
        with pytest.raises(errors.UnknownToken):
            book.settle(event, "a")
    record = book.record("new")
    assert record is not None
    assert record.state is State.CLAIMED


def test_forgetting_goes_in_steps_and_says_how_far_it_came(book: Book) -> None:
    for minute in range(10):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(30 * DAY)
    forgotten = []
    while (count := book.store.prune(4)) > 0:
        forgotten.append(count)
    assert max(forgotten) == 4
    assert sum(forgotten) == 19, "ten tokens and all occurrences but the newest"
    assert [t.occurrence.at for t in book.store.history(S, None, 100)] == [NOON]


def test_what_has_to_stay_does_not_keep_the_rest_from_being_forgotten(book: Book) -> None:
    for number in range(10):
        book.claim(f"idle {number}", NOON - HOUR, token=f"i{number}")
        book.confirm(f"i{number}")
    book.clock.move(1)
    for minute in (2, 1, 0):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(30 * DAY)
    for _ in range(30):
        book.store.prune(3)
    assert [t.occurrence.at for t in book.store.history(S, None, 100)] == [NOON]
    assert book.store.schedules(100)[0] == 11
    book.claim(S, NOON + 30 * DAY)
    for _ in range(30):
        book.store.prune(3)
    assert [t.occurrence.at for t in book.store.history(S, None, 100)] == [NOON + 30 * DAY], "no longer the newest"


@pytest.mark.parametrize("limit", [0, 1])
def test_forgetting_nothing_at_a_time_forgets_nothing(book: Book, limit: int) -> None:
    for minute in (1, 0):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(500 * DAY)
    assert book.store.prune(limit) == limit


@pytest.mark.parametrize("care", ["warm_up", "probe"])
def test_caring_for_the_store_changes_nothing_that_is_known(book: Book, care: str) -> None:
    book.claim(S, NOON, token="a")
    before = book.store.history(None, None, 10), book.store.schedules(10)
    getattr(book.store, care)()
    assert (book.store.history(None, None, 10), book.store.schedules(10)) == before


# -- notes


def test_notes_are_kept_by_kind_and_key(book: Book) -> None:
    assert book.store.notes("override") == {}
    book.store.put_notes("override", {"dicom": b"\0one", "other": b""})
    book.store.put_notes("permit", {"dicom": b"of another kind"})
    assert book.store.notes("override") == {"dicom": b"\0one", "other": b""}
    assert book.store.notes("permit") == {"dicom": b"of another kind"}


def test_a_note_is_replaced_and_forgotten_and_the_others_stay(book: Book) -> None:
    book.store.put_notes("override", {name: name.encode() for name in "abc"})
    book.store.put_notes("override", {"a": b"new", "b": None, "never": None})
    book.store.put_notes("override", {})
    assert book.store.notes("override") == {"a": b"new", "c": b"c"}


def test_what_was_read_of_notes_does_not_change_the_store(book: Book) -> None:
    book.store.put_notes("override", {"a": b"1"})
    book.store.notes("override").clear()
    assert book.store.notes("override") == {"a": b"1"}


def test_forgetting_leaves_notes_alone(book: Book) -> None:
    book.store.put_notes("override", {"a": b"1"})
    book.claim(S, NOON, token="a")
    book.confirm("a")
    book.clock.move(1000 * DAY)
    while book.store.prune(100):
        pass
    assert book.store.notes("override") == {"a": b"1"}
