"""What a store says of missed and unsent occurrences: the conformance suite goes on."""

from collections.abc import Callable
from datetime import timedelta

from gate.interface import Decision, State
from gate.ledger import Event
from tests.support.book import NOON, Book

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
S = "nightly"


def test_missed_ones_are_counted_and_the_newest_come_first(book: Book) -> None:
    for name, at in (("a", NOON - MINUTE), ("b", NOON - HOUR), ("c", NOON - MINUTE)):
        book.miss(name, at, title=name.upper())
    book.claim("sent", NOON, token="t")
    total, missed = book.store.missed(2)
    assert total == 3
    assert [(t.title, t.occurrence.schedule, t.occurrence.at) for t in missed] == [
        ("C", "c", NOON - MINUTE),
        ("A", "a", NOON - MINUTE),
    ]
    assert {t.occurrence.state for t in missed} == {State.MISSED}
    assert book.claim("c", NOON - MINUTE) is Decision.SEND, "it may be sent later"
    assert book.store.missed(0) == (2, [])


def test_what_is_known_of_a_schedule_since_an_instant(book: Book) -> None:
    for minute in (4, 1, 3):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.claim("other", NOON - minute * MINUTE, token=f"o{minute}")
    book.confirm("t3")
    book.miss(S, NOON - 2 * MINUTE)
    assert book.store.known(S, NOON - 3 * MINUTE, 100) == [NOON - minute * MINUTE for minute in (1, 2, 3)]
    assert book.store.known(S, NOON - HOUR, 2) == [NOON - minute * MINUTE for minute in (1, 2)]
    assert book.store.known(S, NOON, 100) == []
    assert book.store.known(S, NOON - HOUR, 0) == []
    assert book.store.known("never", NOON - HOUR, 100) == []


def test_what_is_unsent_of_a_schedule_is_released_or_in_doubt(book: Book) -> None:
    endings = [Event.RELEASE, Event.LOST, Event.CONFIRM, None, Event.UNREAD]
    for minute, event in enumerate(endings):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.claim("other", NOON - minute * MINUTE, token=f"o{minute}")
        if event is not None:
            book.settle(event, f"t{minute}")
    book.miss(S, NOON - 5 * MINUTE)
    found = book.store.unsent(S, NOON - HOUR, 100)
    assert [(o.at, o.state) for o in found] == [
        (NOON, State.RELEASED),
        (NOON - MINUTE, State.DOUBT),
        (NOON - 4 * MINUTE, State.RELEASED),
    ]
    assert [o.at for o in book.store.unsent(S, NOON - MINUTE, 1)] == [NOON]
    assert len(book.store.unsent(S, NOON - MINUTE, 100)) == 2
    book.claim(S, NOON, token="again")
    assert [o.at for o in book.store.unsent(S, NOON - 2 * MINUTE, 100)] == [NOON - MINUTE]


def test_the_horizon_is_how_far_memory_reaches_and_never_goes_back(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=HOUR.total_seconds())
    assert book.store.horizon(book.clock.now()) == NOON - HOUR
    for minute in (1, 0):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(2 * HOUR)
    book.store.prune(100)
    assert book.store.horizon(NOON) > NOON, "what was touched at noon is forgotten"


def test_a_missed_one_that_was_forgotten_is_late(make_book: Callable[..., Book]) -> None:
    book = make_book(keep=2 * DAY.total_seconds())
    book.miss(S, NOON - MINUTE)
    book.claim(S, NOON, token="a")
    book.clock.move(3 * DAY)
    book.store.prune(100)
    assert book.record(S, NOON - MINUTE) is None
    assert book.claim(S, NOON - MINUTE) is Decision.LATE
    book.miss(S, NOON - MINUTE)
    assert book.record(S, NOON - MINUTE) is None, "it may have been sent: nothing is known of it"
