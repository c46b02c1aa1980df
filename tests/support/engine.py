"""An engine without sockets, threads or waiting: peers that a test plays, and a clock that it moves."""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from gate import errors
from gate.engine import Engine, Request
from gate.interface import ClaimIn, ClaimOut, MissedIn, Reply, Reviewed, ReviewIn, ReviewOut, SourceIn, rfc3339
from gate.ledger import Event
from gate.review import Reviews
from gate.rules import DEFAULT_POLICY, SendPolicy
from gate.stores.base import Outcome, Step
from gate.stores.memory import MemoryStore
from gate.wire import Call, Slot
from gate.writer import Inline, Work
from tests.support.book import KEEP, NOON, ManualClock

Answer = Reply | errors.CallError


class Alarm:
    """One call to come."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class FaultyStore(MemoryStore):
    """A store in memory that fails when it is told to.

    `fault`: "" for none; "before": nothing is written; "after": all is written, but the answer is lost.
    """

    fault = ""

    def probe(self) -> None:
        if self.fault == "before":
            raise errors.StoreError("the disk is full")

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        self.probe()
        outcomes = super().apply(steps)
        if self.fault == "after":
            raise errors.StoreError("the answer was lost")
        return outcomes


class World:
    """An engine over a store in memory, at noon. `move` moves both of its clocks and lets alarms go off.

    While it is `slow`, the store does nothing until `work` is called, as when its thread has other things to do.
    """

    def __init__(self, policy: SendPolicy = DEFAULT_POLICY, store: FaultyStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or FaultyStore(self.clock, KEEP)
        self.policy = policy
        self.slow = False
        self._works: list[Work] = []
        self._alarms: list[tuple[datetime, int, Alarm]] = []
        self._count = count()
        self.begin()

    def begin(self) -> None:
        """Start an engine on the store, as a gate that starts does; the one before is gone with all its alarms."""
        self._alarms.clear()
        self._works.clear()
        self._inline = Inline(self.store, self._deliver)
        self.engine = Engine(lambda schedule: self.policy, self._submit, self.after, self.clock.now)
        self.engine.adopt(self.store.open_claims())
        self.reviews = Reviews(self.engine, self.store, self._large, self.clock.now)

    def _large(
        self, request: Request, start: Callable[[Callable[[Any], None]], None], reply: Callable[[Any], Reply]
    ) -> None:
        """As the control does it, for a peer that reads all its answers."""

        def then(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self.engine.failed(request, outcome)
            else:
                request.reply(reply(outcome))

        start(then)

    def _submit(self, works: list[Work]) -> None:
        if self.slow:
            self._works += works
        else:
            self._inline.submit(works)

    def _deliver(self, works: list[Work]) -> None:
        self.engine.delivered(works)

    def work(self) -> None:
        """Do all that waits in one transaction, and what comes of it, until nothing waits."""
        while self._works:
            works, self._works = self._works, []
            self._inline.submit(works)

    def after(self, seconds: float, call: Callable[[], None]) -> Alarm:
        alarm = Alarm(call)
        heapq.heappush(self._alarms, (self.clock.time + timedelta(seconds=seconds), next(self._count), alarm))
        return alarm

    def move(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.time + timedelta(seconds=seconds)
        while self._alarms and self._alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self._alarms)
            self.clock.time = max(when, self.clock.time)
            if alarm.call is not None:
                alarm.call()
        self.clock.time = end

    @property
    def alarms(self) -> int:
        """How many alarms may still go off."""
        return sum(alarm.call is not None for _, _, alarm in self._alarms)

    def peer(self) -> "Peer":
        return Peer(self)

    def state(self, schedule: str, at: datetime = NOON) -> str:
        """Where an occurrence stands in the store."""
        found = [t.occurrence.state.value for t in self.store.history(schedule, None, 99) if t.occurrence.at == at]
        return found[0] if found else "unknown"


class Peer:
    """A connection that a test plays. `unread`: it closes without having read any answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.closed = False
        self.uid = self.pid = 0
        self.claims: set[str] = set()
        self.waits: Counter[tuple[str, datetime]] = Counter()
        self.holder: str | None = None
        self.unread = False
        self._answers: dict[Slot, list[tuple[Answer, bool]]] = {}

    # -- what the engine asks of a connection

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        self._answers[slot].append((reply, continues))

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        self._answers[slot].append((error, False))

    def never_read(self, slot: Slot) -> bool:
        return self.unread

    # -- what the test does

    def ask(
        self, schedule: str, at: datetime | None = NOON, token: str | None = None, *, more: bool = False, **fields: Any
    ) -> "Asking":
        """Claim; flush as the end of a round does."""
        slot = Slot(Call(method="io.schedulegate.Send.Claim", more=more), None)
        asked = ClaimIn(
            schedule=schedule,
            holder=fields.pop("holder", "a peer"),
            at=None if at is None else rfc3339(at),
            token=token,
            **fields,
        )
        call = Asking(self._answers.setdefault(slot, []))
        self.world.engine.claim(Request(self, slot), asked)
        self.world.engine.flush()
        return call

    def claim(self, schedule: str, at: datetime | None = NOON, token: str | None = None, **fields: Any) -> str:
        """The decision of a claim, or the name of its error. Not while the world is slow: see `ask`."""
        return self.ask(schedule, at, token, **fields).said[-1]

    def settle(self, event: Event, token: str) -> str:
        """Confirm or release: "Done", or the name of the error."""
        return self.settle_later(event, token).said[-1]

    def settle_later(self, event: Event, token: str) -> "Asking":
        """The same while the world is slow: the answer comes when it works."""
        slot = Slot(Call(method="io.schedulegate.Send.Confirm"), None)
        call = Asking(self._answers.setdefault(slot, []))
        self.world.engine.settle(Request(self, slot), event, token)
        self.world.engine.flush()
        return call

    def confirm(self, token: str) -> str:
        return self.settle(Event.CONFIRM, token)

    def release(self, token: str) -> str:
        return self.settle(Event.RELEASE, token)

    def resend(self, schedule: str, at: datetime = NOON) -> str:
        slot = Slot(Call(method="io.schedulegate.Control.Resend"), None)
        call = Asking(self._answers.setdefault(slot, []))
        self.world.engine.resend(Request(self, slot), schedule, at)
        self.world.engine.flush()
        return call.said[-1]

    def review(
        self,
        *names: str,
        source: str = "app",
        number: str = "1",
        last: bool = True,
        trigger: str = "* * * * *",
        looked: datetime | None = None,
    ) -> dict[str, Reviewed]:
        """List schedules, in a round of this number; the answers by schedule."""
        so_far = None if looked is None else rfc3339(looked)
        asked = ReviewIn(
            source=source,
            round=number,
            last=last,
            schedules=[SourceIn(schedule=name, trigger=trigger, looked=so_far) for name in names],
        )
        answer = self.call(self.world.reviews.review, "Review", asked)
        if isinstance(answer, errors.CallError):
            raise answer
        assert isinstance(answer, ReviewOut)
        return {review.schedule: review for review in answer.reviews}

    def miss(self, schedule: str, at: datetime, **fields: Any) -> Answer:
        """Report what was missed."""
        asked = MissedIn(schedule=schedule, holder="a peer", at=rfc3339(at), reason="nobody asked", **fields)
        return self.call(self.world.reviews.missed, "Missed", asked)

    def call(self, method: Callable[[Request, Any], None], name: str, asked: Any) -> Answer:
        """Call a method that answers once, at once."""
        slot = Slot(Call(method=f"io.schedulegate.Send.{name}"), None)
        answers = self._answers.setdefault(slot, [])
        method(Request(self, slot), asked)
        self.world.engine.flush()
        ((answer, _),) = answers
        return answer

    def hang_up(self, *, unread: bool = False) -> None:
        self.closed = True
        self.unread = unread
        self.world.engine.hung_up(self)


class Asking:
    """What one call was answered so far."""

    def __init__(self, answers: list[tuple[Answer, bool]]) -> None:
        self.answers = answers

    @property
    def said(self) -> list[str]:
        """Each answer as one word: the decision, or the name of the reply or error."""
        return [a.decision.value if isinstance(a, ClaimOut) else type(a).__name__ for a, _ in self.answers]

    @property
    def open(self) -> bool:
        """Whether more answers follow."""
        return self.answers[-1][1] if self.answers else True

    @property
    def last(self) -> ClaimOut:
        answer = self.answers[-1][0]
        assert isinstance(answer, ClaimOut)
        return answer
