"""A fetch engine without sockets, threads or waiting: workers that a test plays, and a clock that it moves."""

import heapq
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from gate import config, errors, overrides
from gate.engine import Request
from gate.fetch import NOTES, FetchEngine, Who
from gate.fetchrules import FetchRules
from gate.interface import CheckIn, CheckOut, OverrideIn, OverrideOut, Reply, Steer, WatchIn, rfc3339
from gate.placemarks import NOTES as PLACES
from gate.stores.base import Store
from gate.wire import Call, Slot
from tests.support.book import KEEP, NOON, ManualClock
from tests.support.engine import Alarm, FaultyStore

UNREAD_BYTES = 1000
OPERATOR = Who("ops", 1000, 42)

Then = Callable[[Any], None]


def rules(text: str) -> FetchRules:
    """The `[[fetch]]` rules of a configuration."""
    return FetchRules(config.parse(text.encode(), "gate.toml"))


class NotesStore(FaultyStore):
    """A store in memory that writes no notes while it has a fault "before"."""

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        self.probe()
        super().put_notes(kind, changes)


def _failed(request: Request | None, error: Exception) -> None:
    """What the engine says when the store fails."""
    assert isinstance(error, errors.StoreError)
    if request is not None:
        request.fail(errors.StoreUnavailable(retry_after=1.0))


class FetchWorld:
    """A fetch engine at noon over a store in memory. `move` moves both of its clocks, `step` the wall clock alone.

    While it is `slow`, the store answers nothing until `work` is called.
    """

    def __init__(self, text: str = "") -> None:
        self.clock = ManualClock()
        self.passed = 0.0
        """What the monotonic clock says."""
        self.store = NotesStore(self.clock, KEEP)
        self.rules = rules(text)
        self.slow = False
        self.flushes = 0
        self._asked: list[tuple[Callable[[Store], Any], Then]] = []
        self._alarms: list[tuple[float, int, Alarm]] = []
        self._count = count()
        self.begin()

    def begin(self) -> None:
        """Start an engine on the store, as a gate that starts does; the one before is gone with all its alarms."""
        self._alarms.clear()
        ordered, problems = overrides.from_notes(self.store.notes(NOTES))
        assert problems == []
        self.engine = FetchEngine(
            self.rules,
            ordered,
            self.store.notes(PLACES),
            self.clock.now,
            self.after,
            self._query,
            self._flush,
            _failed,
            UNREAD_BYTES,
        )

    def after(self, seconds: float, call: Callable[[], None]) -> Alarm:
        alarm = Alarm(call)
        heapq.heappush(self._alarms, (self.passed + seconds, next(self._count), alarm))
        return alarm

    def _query(self, query: Callable[[Store], Any], then: Then) -> None:
        self._asked.append((query, then))
        if not self.slow:
            self.work()

    def _flush(self) -> None:
        self.flushes += 1

    def work(self) -> None:
        """Let the store answer all that waits."""
        while self._asked:
            self.work_once()

    def work_once(self) -> None:
        """Let the store answer what waits longest."""
        query, then = self._asked.pop(0)
        try:
            outcome = query(self.store)
        except errors.StoreError as error:
            outcome = error
        then(outcome)

    @property
    def unanswered(self) -> int:
        """How many questions the store has not answered."""
        return len(self._asked)

    def move(self, seconds: float, *, slew: float = 1.0) -> None:
        """Let time pass by the monotonic clock; the wall clock runs `slew` times as fast."""
        end = self.passed + seconds
        while self._alarms and self._alarms[0][0] <= end:
            when, _, alarm = heapq.heappop(self._alarms)
            self._pass(max(when, self.passed), slew)
            if alarm.call is not None:
                alarm.call()
        self._pass(end, slew)

    def _pass(self, end: float, slew: float) -> None:
        self.clock.move(timedelta(seconds=(end - self.passed) * slew))
        self.passed = end

    def step(self, by: timedelta) -> None:
        """Set the wall clock, as an administrator does; it is noticed."""
        self.clock.move(by)
        self.engine.jumped()

    @property
    def alarms(self) -> int:
        """How many alarms may still go off."""
        return sum(alarm.call is not None for _, _, alarm in self._alarms)

    def worker(self) -> "Worker":
        return Worker(self)

    def check(self, worker: str, queues: list[str] | None = None) -> CheckOut:
        return self.engine.check(CheckIn(worker=worker, queues=queues))

    def order(
        self,
        action: str,
        rule: str,
        until: datetime | timedelta | None = None,
        note: str | None = "the clinic called",
        then: Then | None = None,
    ) -> Any:
        """An override; returns its answer or error. `until`: an instant, or how long. `then` gets it when it comes."""
        got: list[OverrideOut | Exception] = []
        end = self.clock.now() + until if isinstance(until, timedelta) else until
        asked = OverrideIn(rule=rule, action=Steer(action), until=None if end is None else rfc3339(end), note=note)
        self.engine.order(asked, OPERATOR, then or got.append)
        return got[0] if got else None


class Worker:
    """A connection of a worker that a test plays. `backlog`: how many bytes of answers it has not read."""

    def __init__(self, world: FetchWorld) -> None:
        self.world = world
        self.closed = False
        self.watching = False
        self.session = ""
        self.uid, self.gid, self.pid = 1000, 1000, 4711
        self.since = NOON
        self.backlog = 0
        self.answers: list[CheckOut | errors.CallError] = []
        self.times: list[datetime] = []
        """When each answer came, by the wall clock."""
        self.open = False
        """Whether more answers follow."""

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        assert isinstance(reply, CheckOut)
        self._take(reply, more=continues)

    def never_read(self, slot: Slot) -> bool:
        return False

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        self._take(error, more=False)

    def _take(self, answer: CheckOut | errors.CallError, *, more: bool) -> None:
        self.answers.append(answer)
        self.times.append(self.world.clock.now())
        self.open = more

    def watch(
        self, worker: str, queues: list[str] | None = None, *, more: bool = True, oneway: bool = False
    ) -> "Worker":
        call = Call(method="io.schedulegate.Fetch.Watch", more=more, oneway=oneway)
        self.world.engine.watch(self, Slot(call, None), WatchIn(worker=worker, queues=queues, session="s"))
        return self

    def hang_up(self) -> None:
        self.closed = True
        self.world.engine.hung_up(self)

    @property
    def said(self) -> list[bool]:
        """Open or closed, for each answer."""
        return [answer.open for answer in self.answers if isinstance(answer, CheckOut)]

    @property
    def last(self) -> CheckOut:
        answer = self.answers[-1]
        assert isinstance(answer, CheckOut)
        return answer
