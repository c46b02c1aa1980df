"""Clients, faults, operators and clocks in any order: both stores answer as a simple model does, and the laws hold."""

import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from gate import errors
from gate.interface import ClaimOut, Done
from gate.ledger import Change, Event
from gate.rules import Paused, SendPolicy
from gate.stores.base import Outcome, Step
from gate.stores.memory import MemoryStore
from gate.stores.sqlite import SqliteStore
from tests.support.book import NOON, Book, ManualClock, claim_step, missed_step, resend_step, settle_step
from tests.support.model import Asked, Expected, Laws, Model

KEEP = timedelta(days=3)
EVENTS = {
    "confirm": Event.CONFIRM,
    "release": Event.RELEASE,
    "lost": Event.LOST,
    "expired": Event.EXPIRED,
    "unread": Event.UNREAD,
}
MINUTE = timedelta(minutes=1)

pauses = st.sampled_from([False, False, False, True])
deadlines = st.sampled_from([None, None, None, 30.0, 3600.0])
leases = st.sampled_from([0.5, 30.0])
crons = st.sampled_from(["cron a", "cron b"])
minutes = st.integers(-3, 1).map(lambda number: number * MINUTE)
waits = st.one_of(
    st.floats(0, 5).map(lambda seconds: timedelta(seconds=seconds)),
    st.sampled_from([MINUTE, 10 * MINUTE, timedelta(hours=7), timedelta(days=1.5), KEEP + MINUTE]),
)


class LedgerMachine(RuleBasedStateMachine):
    """Every rule does the same to both stores and to the model, and compares."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        folder = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="gate-machine-", dir=folder if folder.is_dir() else None))
        self.clock = ManualClock()
        self.memory = Book(MemoryStore(self.clock, KEEP.total_seconds()), self.clock)
        self.sqlite = Book(self.open_sqlite(), self.clock)
        self.model = Model(KEEP)
        self.laws = Laws()
        self.count = 0

    def open_sqlite(self) -> SqliteStore:
        return SqliteStore(self.folder / "gate.db", self.clock, KEEP.total_seconds(), remembered=2)

    def new_token(self) -> str:
        self.count += 1
        return f"token {self.count}"

    # -- what happens

    def apply(self, steps: list[Step]) -> list[Outcome]:
        """Give the same batch to both stores; their outcomes are equal."""
        ours, theirs = self.memory.store.apply(steps), self.sqlite.store.apply(steps)
        assert [shown(outcome) for outcome in ours] == [shown(outcome) for outcome in theirs]
        return ours

    def step(self, asked: Asked) -> Step:
        return claim_step(
            asked.schedule,
            asked.at,
            asked.token,
            SendPolicy(on_doubt="resend" if asked.resend else "skip"),
            holder=asked.holder,
            every=asked.every,
            once=asked.once,
            deadline=asked.deadline,
            lease=asked.lease,
            paused=None if asked.paused is None else Paused(reason="paused by backup", until=asked.paused),
        )

    def answer(self, asked: Asked, outcome: Outcome) -> None:
        """Compare an answer with the model's and with the laws."""
        now = self.clock.now()
        seen = self.model.schedules.get(asked.schedule)
        set_back = asked.every is not None and seen is not None and seen.newest > now + timedelta(seconds=asked.every)
        new = asked.token not in self.model.tokens
        expected = self.model.claim(asked, now)
        assert isinstance(outcome, Change)
        answer = outcome.answer
        if isinstance(answer, errors.CallError):
            assert isinstance(answer, errors.InvalidClaim)
            assert expected == Expected("invalid")
            return
        assert isinstance(answer, ClaimOut)
        assert Expected(answer.decision.value, answer.at, answer.by, answer.until) == expected
        assert answer.token == (asked.token if answer.decision == "send" else None)
        self.laws.answered(asked, answer.decision.value, answer.at, fresh=set_back and new)

    def ask(self, *claims: Asked) -> None:
        for asked, outcome in zip(claims, self.apply([self.step(asked) for asked in claims]), strict=True):
            self.answer(asked, outcome)

    @initialize()
    def begin(self) -> None:
        self.clock.move(3.25)

    def paused(self, paused: bool) -> datetime | None:
        return self.clock.now() + MINUTE if paused else None

    @rule(
        target=tokens,
        schedule=crons,
        minute=minutes,
        deadline=deadlines,
        lease=leases,
        resend=st.booleans(),
        paused=pauses,
    )
    def claim(
        self, schedule: str, minute: timedelta, deadline: float | None, lease: float, resend: bool, paused: bool
    ) -> tuple[str, Asked]:
        at = self.clock.now().replace(second=0, microsecond=0) + minute
        asked = Asked(schedule, at, self.new_token(), None, False, deadline, lease, resend, self.paused(paused))
        self.ask(asked)
        return asked.token, asked

    @rule(target=tokens, schedule=crons, lease=leases, resend=st.booleans(), of=tokens)
    def compete(self, schedule: str, lease: float, resend: bool, of: tuple[str, Asked]) -> tuple[str, Asked]:
        """Somebody else asks for what one asked for before, in one batch with a second one."""
        first, second = (of[1]._replace(token=self.new_token(), resend=resend, lease=lease) for _ in range(2))
        self.ask(first, second)
        return first.token, first

    @rule(target=tokens, days=st.integers(-40, 0), resend=st.booleans())
    def claim_once(self, days: int, resend: bool) -> tuple[str, Asked]:
        asked = Asked(
            f"once {days}", NOON + timedelta(days=days, seconds=7), self.new_token(), None, True, None, 30.0, resend
        )
        self.ask(asked)
        return asked.token, asked

    @rule(
        target=tokens, every=st.sampled_from([7.5, 60.0, 86_400.0, 5 * 86_400.0]), resend=st.booleans(), paused=pauses
    )
    def claim_interval(self, every: float, resend: bool, paused: bool) -> tuple[str, Asked]:
        asked = Asked("interval", None, self.new_token(), every, False, None, 30.0, resend, self.paused(paused))
        self.ask(asked)
        return asked.token, asked

    @rule(of=tokens, resend=st.booleans(), paused=pauses)
    def ask_again(self, of: tuple[str, Asked], resend: bool, paused: bool) -> None:
        self.ask(of[1]._replace(resend=resend, paused=self.paused(paused)))

    @rule(schedule=crons, minutes_ago=st.integers(0, 3))
    def report_a_miss(self, schedule: str, minutes_ago: int) -> None:
        now = self.clock.now()
        at = now.replace(second=0, microsecond=0) - minutes_ago * MINUTE
        (outcome,) = self.apply([missed_step(schedule, at, now)])
        assert isinstance(outcome, Change)
        assert outcome.answer == Done()
        self.model.missed((schedule, at), "a scheduler", now)

    @rule(of=tokens, other=crons)
    def take_a_token_elsewhere(self, of: tuple[str, Asked], other: str) -> None:
        self.ask(of[1]._replace(schedule=other, at=of[1].at or NOON, every=None))

    @rule(of=tokens, what=st.sampled_from(sorted(EVENTS)))
    def settle(self, of: tuple[str, Asked], what: str) -> None:
        token = of[0]
        (outcome,) = self.apply([settle_step(EVENTS[what], token)])
        assert isinstance(outcome, Change)
        expected = self.model.settle(what, token, self.clock.now())
        assert ("unknown" if isinstance(outcome.answer, errors.UnknownToken) else "done") == expected
        if expected == "done":
            self.laws.settled(what, token)

    @rule(of=tokens)
    def send_whole(self, of: tuple[str, Asked]) -> None:
        """Claim, confirm and a late release in one batch."""
        token = of[0]
        now = self.clock.now()
        outcomes = self.apply([self.step(of[1]), settle_step(Event.CONFIRM, token), settle_step(Event.RELEASE, token)])
        self.answer(of[1], outcomes[0])
        for what in ("confirm", "release"):
            if self.model.settle(what, token, now) == "done":
                self.laws.settled(what, token)

    @rule(of=tokens)
    def resend(self, of: tuple[str, Asked]) -> None:
        granted = self.model.tokens.get(of[0])
        key = (of[1].schedule, of[1].at or NOON) if granted is None else granted.key
        (outcome,) = self.apply([resend_step(*key)])
        assert isinstance(outcome, Change)
        expected = self.model.resend(key, self.clock.now())
        assert ("not in doubt" if isinstance(outcome.answer, errors.NotInDoubt) else "done") == expected
        if expected == "done":
            self.laws.resent(key)

    @rule(wait=waits)
    def wait(self, wait: timedelta) -> None:
        self.clock.move(wait)

    @rule(back=st.sampled_from([2.0, 60.0, 3600.0, 2 * 86_400.0]))
    def set_the_clock_back(self, back: float) -> None:
        self.clock.move(-back)

    @rule()
    def prune(self) -> None:
        before = set(self.model.schedules)
        ours, theirs = self.memory.store.prune(10_000), self.sqlite.store.prune(10_000)
        assert ours == self.model.prune(self.clock.now())
        assert ours <= theirs, "SQLite forgets the tokens of a forgotten schedule only when they are old"
        for key in [key for key in self.laws.last if key not in self.model.occurrences]:
            if key[0] in before - set(self.model.schedules):
                self.laws.forget(key)
            else:
                self.laws.pruned.add(key)

    @rule()
    def restart(self) -> None:
        self.sqlite.store.close()
        self.sqlite.store = self.open_sqlite()

    # -- what must hold

    @invariant()
    def both_stores_and_the_model_know_the_same(self) -> None:
        for book in (self.memory, self.sqlite):
            assert {(o.schedule, o.at) for o in book.store.open_claims()} == self.model.claimed()
            total, listed = book.store.schedules(1000)
            assert total == len(listed) == len(self.model.schedules)
            assert {s.name: (s.known_since, s.newest, s.once, s.touched) for s, _ in listed} == {
                name: (seen.since, seen.newest, seen.once, seen.touched) for name, seen in self.model.schedules.items()
            }
            found = book.store.history(None, None, 10_000)
            assert {(o.schedule, o.at): (o.state.value, o.token, o.holder, o.until, o.touched) for _, o in found} == {
                key: (k.state, k.token, k.holder, k.until, k.touched) for key, k in self.model.occurrences.items()
            }
        assert self.memory.store.doubts(1000) == self.sqlite.store.doubts(1000)
        assert self.memory.store.missed(1000) == self.sqlite.store.missed(1000)
        assert self.memory.store.unsent("cron a", NOON, 3) == self.sqlite.store.unsent("cron a", NOON, 3)
        assert self.memory.store.known("cron a", NOON, 5) == self.sqlite.store.known("cron a", NOON, 5)
        assert self.memory.store.schedules(1000) == self.sqlite.store.schedules(1000)
        assert self.memory.store.history("cron a", NOON, 5) == self.sqlite.store.history("cron a", NOON, 5)

    def teardown(self) -> None:
        try:
            for record in self.memory.store.open_claims():
                self.apply([settle_step(Event.LOST, record.token)])
            assert self.memory.store.open_claims() == [], "every claim ends"
            assert self.sqlite.store.open_claims() == [], "every claim ends"
        finally:
            self.sqlite.store.close()
            shutil.rmtree(self.folder)


def shown(outcome: Outcome) -> object:
    """An outcome as a value that can be compared."""
    assert isinstance(outcome, Change)
    answer = outcome.answer
    said = (answer.name, answer.parameters) if isinstance(answer, errors.CallError) else answer
    return said, outcome.occurrence, outcome.schedule, outcome.token


LedgerMachine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 10,  # type: ignore[union-attr]
    stateful_step_count=50,
    report_multiple_bugs=False,
)
TestLedger = LedgerMachine.TestCase
