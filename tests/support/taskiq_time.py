"""taskiq's own scheduler loop and the gate's own engine in minutes that pass at once, in one event loop.

Whenever nothing is ready to run, the clock leaps to the next timer. There are no sockets and no threads, which would
take real time: `Here` is a client that hands its calls to the engine itself.
"""

import asyncio
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pytest
from taskiq import ScheduleSource, TaskiqScheduler
from taskiq.cli.scheduler.run import SchedulerLoop

from gate import errors
from gate.engine import Engine, Request
from gate.interface import ClaimIn, ClaimOut, Decision, Done, Reply, TokenIn
from gate.ledger import Event
from gate.review import Reviews
from gate.rules import Paused, SendPolicy
from gate.stores.memory import MemoryStore
from gate.wire import Call, Slot
from gate.writer import Inline
from gate_client import AsyncGate, GateUnreachable
from gate_client.core import CLAIM, CONFIRM, RELEASE
from gate_client.link import Asked
from taskiq_gate import GatedScheduleSource
from taskiq_gate.identity import task_id
from taskiq_gate.review import MISSED, REVIEW
from tests.support.book import KEEP
from tests.support.taskiq_app import Broker, ListSource, scheduled

START = datetime(2026, 11, 30, 12, 0, 20, tzinfo=UTC)
"""Twenty seconds into a minute."""
POLL_SECONDS = 0.1
KEY = "a:nightly"
"""What a scheduler calls the schedule of `scheduled()`."""


class Leaping(selectors.DefaultSelector):
    """Does not wait: it tells how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits, and for nothing"
            self.seconds += max(timeout, 0.0)
        return ready


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its selector."""

    def __init__(self) -> None:
        self.leaping = Leaping()
        super().__init__(self.leaping)

    def time(self) -> float:
        return self.leaping.seconds


class World:
    """A clock and a gate; schedulers come and go. `sent`: the task ids of all messages, in order.

    `shift`: what the wall clock is set forward. `away`: whether the gate answers nobody. `policy`: of all schedules.
    """

    def __init__(self, loop: LeapingLoop, policy: SendPolicy) -> None:
        self.loop = loop
        self.policy = policy
        self.paused: Paused | None = None
        self.shift = timedelta()
        self.away = False
        self.store = MemoryStore(self, KEEP)
        self._start_gate()

    def _start_gate(self) -> None:
        inline = Inline(self.store, lambda works: self.engine.delivered(works))
        self.engine = Engine(lambda schedule: self.policy, inline.submit, self.loop.call_later, self.now)
        self.engine.paused = lambda schedule, at: self.paused
        self.reviews = Reviews(self.engine, self.store, _large, self.now)
        self.methods: dict[str, Callable[[Request, Any], None]] = {
            CLAIM: self.engine.claim,
            CONFIRM: lambda request, asked: self.engine.settle(request, Event.CONFIRM, asked.token),
            RELEASE: lambda request, asked: self.engine.settle(request, Event.RELEASE, asked.token),
            REVIEW: self.reviews.review,
            MISSED: self.reviews.missed,
        }

    def now(self) -> datetime:
        return START + timedelta(seconds=self.loop.time()) + self.shift

    def resend(self, schedule: str, at: datetime) -> None:
        """As `gatectl resend`."""
        caller, slot = Caller(), Slot(Call(method="io.schedulegate.Control.Resend"), None)
        self.engine.resend(Request(caller, slot), schedule, at)
        self.engine.flush()
        assert isinstance(caller.answers[slot], Done)

    async def until(self, text: str) -> None:
        """Sleep until the wall clock shows this: "12:10", "12:10:30"."""
        at = datetime.fromisoformat(f"{self.now().date()}T{text}+00:00")
        await asyncio.sleep(max((at - self.now()).total_seconds(), 0.0))

    def states(self, schedule: str) -> dict[str, str]:
        """What the ledger says of a schedule's minutes, oldest first: {"12:01": "sent"}."""
        found = self.store.history(schedule, None, 10_000)
        return {f"{each.occurrence.at:%H:%M}": each.occurrence.state.value for each in reversed(found)}

    def reasons(self, schedule: str) -> dict[str, str]:
        """And why."""
        return {f"{t.occurrence.at:%H:%M}": t.occurrence.reason for t in self.store.history(schedule, None, 10_000)}


class Here(AsyncGate):
    """A connection to the world's gate: claims live as long as it. `asked`: all calls that reached the gate."""

    def __init__(self, world: World) -> None:
        super().__init__("here", holder="a scheduler")
        self._world = world
        self.caller = Caller()
        self.asked: list[tuple[str, Any]] = []

    async def _answer(self, request: Asked, timeout: float | None) -> None:
        self._bind()
        end = self._world.loop.time() + (self.timeout if timeout is None else timeout)
        while self._world.away or self.caller.closed:
            if self._world.loop.time() + POLL_SECONDS > end:
                request.give_up(GateUnreachable("here", "it is away"))
                return
            await asyncio.sleep(POLL_SECONDS)
        request.result = self._ask(request.method, request.parameters)

    def _ask(self, method: str, parameters: Any) -> Reply | errors.CallError:
        self.asked.append((method, parameters))
        slot = Slot(Call(method=method), None)
        self._world.methods[method](Request(self.caller, slot), parameters)
        self._world.engine.flush()
        return self.caller.answers.pop(slot)

    def _settle_soon(self, method: str, token: str, timeout: float | None, then: Any) -> None:
        if self.caller.closed:
            return
        if self._world.away:
            self._settle_later(method, token, timeout, then)
            return
        answer = self._ask(method, TokenIn(token=token))
        if then is not None:
            then(answer)

    async def _outcome(self, parameters: ClaimIn, held: ClaimOut, wait: float) -> ClaimOut:
        end = self._world.loop.time() + wait
        while held.decision is Decision.HELD and self._world.loop.time() < end:
            await asyncio.sleep(POLL_SECONDS)
            held = await self.call(CLAIM, parameters, ClaimOut)
        return held

    def hang_up(self) -> None:
        """As a process that was killed."""
        self.caller.closed = True
        self._world.engine.hung_up(self.caller)


class Caller:
    """The gate's side of it."""

    def __init__(self) -> None:
        self.closed = False
        self.uid = self.pid = 0
        self.claims: set[str] = set()
        self.waits: Counter[tuple[str, datetime]] = Counter()
        self.holder: str | None = None
        self.answers: dict[Slot, Reply | errors.CallError] = {}

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        self.answers[slot] = reply

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        self.answers[slot] = error

    def never_read(self, slot: Slot) -> bool:
        return False


def _large(request: Request, start: Callable[[Callable[[Any], None]], None], reply: Callable[[Any], Reply]) -> None:
    start(lambda outcome: request.answer(outcome if isinstance(outcome, errors.CallError) else reply(outcome)))


class Scheduler:
    """A process with `taskiq scheduler` and gated sources, named a, b, ...; it runs until `kill` or `stop`.

    `gated`: the sources as taskiq has them. `kind`: the class of the scheduler. `arguments`: those of its loop;
    `options`: of its sources.
    """

    def __init__(
        self,
        world: World,
        *sources: ScheduleSource,
        kind: Callable[..., TaskiqScheduler] = TaskiqScheduler,
        broker: Broker | None = None,
        arguments: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.broker = broker or Broker()
        self.gate = Here(world)
        self.gated: list[ScheduleSource] = [
            GatedScheduleSource(source, name="ab"[number], gate=self.gate, **options)
            for number, source in enumerate(sources)
        ]
        self.loop = SchedulerLoop(kind(self.broker, self.gated))
        self._before = asyncio.all_tasks()
        self._running = asyncio.ensure_future(self._run(arguments or {}))

    async def _run(self, arguments: dict[str, Any]) -> None:
        for source in self.gated:
            await source.startup()
        await self.loop.run(**arguments)

    async def kill(self) -> None:
        """SIGKILL: nothing is released, nothing shut down."""
        self.gate.hang_up()
        await self._end()

    async def stop(self) -> None:
        """SIGINT."""
        for source in self.gated:
            await source.shutdown()
        self.gate.hang_up()
        await self._end()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def task_ids(self) -> list[str]:
        """Of the messages that it sent."""
        return [message.task_id for message in self.broker.sent]


Story = Callable[[World], Coroutine[Any, Any, None]]


def play(story: Story, patch: pytest.MonkeyPatch, **fields: Any) -> World:
    """Play a story, in which `fields` are the policy of all schedules."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, LeapingLoop)
        world = World(loop, SendPolicy(**fields))
        clock = _clock(world)
        for module in ("taskiq.cli.scheduler.run", "taskiq_gate.asking", "taskiq_gate.source"):
            patch.setattr(f"{module}.datetime", clock)
        runner.run(story(world))
    return world


def _clock(world: World) -> type[datetime]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return world.now().astimezone(tz)

    return Clock


# ---- what many tests say


def minute(text: str) -> datetime:
    """That minute of the day: "12:10"."""
    return datetime.fromisoformat(f"2026-11-30T{text}:00+00:00")


def ids(*minutes: str, key: str = KEY) -> list[str]:
    """The task ids of some of its minutes."""
    return [task_id(key, minute(text)) for text in minutes]


def minutes(first: str, count: int) -> list[str]:
    """So many, from the first on."""
    return [f"{minute(first) + timedelta(minutes=number):%H:%M}" for number in range(count)]


async def down_for_ten_minutes(world: World, source: Callable[[], ListSource] | None = None) -> Scheduler:
    """A scheduler that is killed after 12:01, and the one that follows it at 12:11:30, some seconds later."""
    make = source or (lambda: ListSource(scheduled()))
    first = Scheduler(world, make())
    await world.until("12:01:30")
    await first.kill()
    await world.until("12:11:30")
    second = Scheduler(world, make())
    await world.until("12:11:34")
    return second
