"""Laws of Review, whatever schedulers, brokers, operators and restarts do in between."""

from datetime import datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gate.interface import CatchUp, Reviewed, rfc3339
from gate.rules import Paused, SendPolicy
from tests.support.book import NOON
from tests.support.engine import Peer, World

S = "nightly"
MINUTE = timedelta(minutes=1)
WITHIN = 20 * MINUTE
POLICY = SendPolicy(catch_up=CatchUp.ALL, catch_up_within=WITHIN.total_seconds())

AGO = st.integers(0, 4)
WHICH = st.integers(0, 1)
OFTEN = [
    st.tuples(st.just("claim"), AGO),
    st.tuples(st.just("release"), WHICH),
    st.tuples(st.just("list"), st.just("* * * * *")),
    st.tuples(st.just("wait"), st.sampled_from([5, 60, 300])),
]
SELDOM = st.one_of(
    st.tuples(st.sampled_from(["confirm", "hang up"]), WHICH),
    st.tuples(st.just("list"), st.just("*/5 * * * *")),
    st.tuples(st.sampled_from(["leave out", "half a round", "restart"]), st.just(0)),
    st.tuples(st.sampled_from(["claim while paused", "report", "report many"]), AGO),
)
CALLS = st.one_of(*OFTEN, SELDOM)


class Play:
    """What a scheduler does, and what must hold of every answer that it gets."""

    def __init__(self) -> None:
        self.world = World(POLICY)
        self.peer: Peer = self.world.peer()
        self.began: datetime | None = None
        self.trigger = ""
        self.granted: list[tuple[str, datetime]] = []
        self.sent: set[datetime] = set()
        self.paused: set[datetime] = set()
        self.released: set[datetime] = set()
        self.reported = NOON
        self.count = 0

    def minute(self, ago: int) -> datetime:
        return self.world.clock.now().replace(second=0, microsecond=0) - ago * MINUTE

    def claim(self, ago: int) -> None:
        self.count += 1
        at, token = self.minute(ago), f"t{self.count}"
        decision = self.peer.claim(S, at, token)
        if decision == "send":
            assert at not in self.sent, "sent stays sent"
            self.granted.append((token, at))
            self.released.discard(at)
        elif decision == "paused" and at not in self.released:
            self.paused.add(at)

    def settle(self, what: str, which: int) -> None:
        if len(self.granted) <= which:
            return
        token, at = self.granted.pop(-1 - which)
        state = self.world.state(S, at)
        if what == "confirm":
            self.peer.confirm(token)
            self.sent.add(at)
            self.released.discard(at)
        else:
            self.peer.release(token)
            if state in {"claimed", "doubt"} and self.world.state(S, at) == "released":
                self.released.add(at)

    def list(self, trigger: str) -> None:
        now = self.world.clock.now()
        if self.began is None or trigger != self.trigger:
            self.began, self.trigger = now, trigger
        self.count += 1
        self.hold(self.peer.review(S, trigger=trigger, number=str(self.count))[S], self.began, now)

    def hold(self, found: Reviewed, began: datetime, now: datetime) -> None:
        """The laws."""
        known, offered = set(found.known), {again.at for again in found.again}
        start = found.since.replace(second=0, microsecond=0)
        missed = {start + n * MINUTE for n in range(40) if found.since <= start + n * MINUTE <= now - MINUTE} - known
        minute = began.replace(second=0, microsecond=0)
        assert all(at >= max(began, now - WITHIN) for at in missed), "never back-filled"
        assert all(at >= max(minute, now - WITHIN) for at in offered), "never back-filled"
        assert not (missed | offered) & self.sent, "nothing that was sent is offered again"
        assert not missed & self.paused, "what was refused as paused is not offered again"
        assert not missed & self.released, "what has a record was not missed"
        due = {at for at in self.released if at >= max(minute, now - WITHIN)}
        assert due <= offered, "what was released is offered until it is sent, or forgotten"

    def do(self, what: str, value: Any) -> None:
        if what == "claim":
            self.claim(value)
        elif what in {"confirm", "release"}:
            self.settle(what, value)
        elif what == "list":
            self.list(value)
        elif what == "leave out":
            self.count += 1
            self.peer.review("another", number=str(self.count))
            self.began = None
        elif what == "half a round":
            self.count += 1
            self.peer.review("another", number=str(self.count), last=False)
        elif what == "restart":
            self.world.begin()
            self.peer = self.world.peer()
        elif what == "hang up":
            self.peer.hang_up()
            self.peer = self.world.peer()
        elif what == "report":
            self.peer.miss(S, self.minute(value))
        elif what == "report many":
            at = self.minute(value)
            self.peer.miss(S, at, first=rfc3339(at - 3 * MINUTE), count=4)
        elif what == "claim while paused":
            self.world.engine.paused = lambda schedule, at: Paused(reason="paused by backup", until=None)
            self.claim(value)
            self.world.engine.paused = lambda schedule, at: None
        else:
            self.world.move(value)


@settings(max_examples=300)
@given(st.lists(CALLS, min_size=30, max_size=60))
def test_what_is_offered_obeys_the_laws(calls: list[tuple[str, Any]]) -> None:
    play = Play()
    play.world.move(3600)
    for what, value in calls:
        play.do(what, value)
    play.list("* * * * *")
