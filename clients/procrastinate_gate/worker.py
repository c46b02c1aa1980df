"""One run of a worker: its name, what the gate says to it, the places that its jobs have, and how it is woken."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from gate.errors import GateError
from gate.interface import CheckIn, CheckOut, rfc3339
from gate_client import AsyncGate
from procrastinate_gate.answers import Reading, Verdict, closed_for_now
from procrastinate_gate.names import askable
from procrastinate_gate.outage import Outage
from procrastinate_gate.permits import NONE, Leave, Permits
from procrastinate_gate.settings import Settings
from procrastinate_gate.waking import Waking
from procrastinate_gate.watching import CHECK, Watching

log = logging.getLogger("procrastinate_gate")

NAMES_SECONDS = 3.0
"""How old the list of queues may be when a fetch begins."""
NAMES_AFTER_NONE_SECONDS = 1.0
"""And when a fetch found nothing: the job that woke the worker may be the first of a new queue."""
NAMES_SHARE = 20.0
"""Listing the queues takes a twentieth of the time at most, however slow the database is."""

NAMES_SHOWN = 10
"""In one line of the log."""

TICK_SECONDS = 1.0
"""How long a periodic tick waits for the gate."""

ListQueues = Callable[[], Awaitable[Iterable[dict[str, Any]]]]


class GatedWorker:
    """What stands between one worker and its job manager, from its first fetch on; nothing is opened before."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings
        self.waking = Waking()
        self.permits = Permits(name, settings.socket, self.waking)
        self._outage = Outage(name)
        self._gate = AsyncGate(settings.socket)
        self._asked: list[str] | None = None
        self._main: Watching | None = None
        self._named: Watching | None = None
        self._names: set[str] = set()
        self._names_age: tuple[float, float] = (float("-inf"), 0.0)
        """When the queues were listed (seconds of boot time), and how long that took."""
        self._told_left_out = False
        self._by_name = False
        """Whether some of all queues are closed, so that those that are open must be named."""
        self._last: Verdict = closed_for_now("the gate was not asked yet")
        self._told: Verdict = self._last
        """The last verdict that was logged."""

    # ---- a fetch

    async def decide(self, queues: list[str] | None, list_queues: ListQueues) -> Leave:
        """What this fetch may take; `permits.fetched` ends it. It waits `timeout` seconds for the gate at most."""
        if self._main is None:
            self._asked = queues
            self._main = self._watch(queues)
        verdict, patience = self.look(), self.settings.timeout
        if not verdict.settled:
            verdict, patience = await self._settled(patience)
        if self._by_name:
            await self._list(list_queues, NAMES_SECONDS)
            verdict, patience = await self._settled(patience)
        if not verdict.open:
            return NONE
        self.waking.fetch_knows()
        if not verdict.limited:
            return Leave(queues=verdict.queues)
        return await self.permits.acquire(verdict.queues, patience)

    def still_allows(self, leave: Leave, queue: str) -> bool:
        """Whether the job that the fetch has taken from this queue may start."""
        verdict = self.look()
        return verdict.allows(queue) and self.permits.allow(leave, queue, verdict)

    async def found_nothing(self, list_queues: ListQueues) -> None:
        """The fetch gives no job: what woke the worker may be the first one of a queue that is not known yet."""
        if self._by_name:
            await self._list(list_queues, NAMES_AFTER_NONE_SECONDS)

    def look(self) -> Verdict:
        """What may be fetched now, after all that the gate has said so far. Never waits; wakes the worker for what
        has opened.
        """
        verdict = self._main.verdict() if self._main is not None else self._last
        named = self._named.verdict() if self._named is not None else None
        self._by_name = verdict.by_name
        if verdict.by_name:
            verdict = named or closed_for_now("no queue is known yet")
        for watching in self._watchings:
            if watching.take_place():
                self.permits.place_told()
        if verdict is self._last and verdict is self._told:
            return verdict
        if not verdict.settled and self._outage.lasts(self._now()):
            verdict = self._without_gate()
        if verdict.settled and _differ(self._told, verdict):
            self._told = verdict
            self._tell(verdict)
        if verdict.open and not self._last.covers(verdict):
            self.waking.wake()
        self._last = verdict
        return verdict

    async def closed_for(self, queue: str) -> bool:
        """Whether this queue is closed now, also one that the worker does not serve. False when nobody can tell."""
        parameters = CheckIn(worker=self.name, queues=[queue])
        try:
            return not (await self._gate.call(CHECK, parameters, CheckOut, timeout=TICK_SECONDS)).open
        except GateError as error:
            log.debug("worker %s: whether %s is closed cannot be told: %s", self.name, queue, error)
            return False

    def stop(self) -> None:
        """The worker has ended: hang up."""
        for watching in self._watchings:
            watching.stop()

    async def close(self) -> None:
        """Stop, and wait until nothing runs any more."""
        self.stop()
        await self.waking.close()
        for watching in self._watchings:
            await watching.close()
        await self.permits.close()
        await self._gate.close()

    # ---- asking

    @property
    def _watchings(self) -> list[Watching]:
        return [watching for watching in (self._main, self._named) if watching is not None]

    def _now(self) -> Reading:
        return self.settings.clocks()

    def _watch(self, queues: list[str] | None) -> Watching:
        return Watching(
            self.name,
            queues,
            session=self.permits.session,
            socket=self.settings.socket,
            gate=self._gate,
            outage=self._outage,
            news=self.look,
            clocks=self.settings.clocks,
        )

    async def _settled(self, patience: float) -> tuple[Verdict, float]:
        """The verdict, when it is settled or `patience` seconds are over; and what is left of these."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while True:
            verdict = self.look()
            waits_for = next((watching for watching in self._watchings if watching.expects), None)
            if verdict.settled or waits_for is None:
                return verdict, end - loop.time()
            if loop.time() >= end:
                waits_for.is_late(self.settings.timeout)
                return verdict, 0.0
            waits_for.heard.clear()
            try:
                async with asyncio.timeout_at(end):
                    await waits_for.heard.wait()
            except TimeoutError:
                pass

    # ---- a worker of all queues, some of which are closed or limited

    async def _list(self, list_queues: ListQueues, age: float) -> None:
        """List the queues that jobs wait in, if that is due, and watch those that are known so far."""
        listed, took = self._names_age
        start = self._now().boot
        if start - listed < max(age, took * NAMES_SHARE):
            return
        names = {row["name"] for row in await list_queues()}
        end = self._now().boot
        self._names_age = (end, end - start)
        if names <= self._names:
            return
        known = askable(names | self._names)
        if not names <= known:
            known = askable(names)  # those that no job waits in any more make room
            self._tell_left_out(len(names - known))
        if known == self._names:
            return
        self._names = known
        before, self._named = self._named, self._watch(sorted(self._names))
        if before is not None:
            await before.close()

    # ---- what is said of it

    def _tell_left_out(self, count: int) -> None:
        if count and not self._told_left_out:
            self._told_left_out = True
            log.warning(
                "worker %s: jobs wait in more queues than the gate can be asked about at once, %d are left out while"
                " some queues are closed: let a worker with --queues serve them",
                self.name,
                count,
            )

    def _without_gate(self) -> Verdict:
        if any(watching.limited for watching in self._watchings):
            return Verdict(queues=[], reason="the gate is away, and a limit applies")
        if self.settings.on_gate_down == "open":
            return Verdict(queues=self._asked, reason="the gate is away, and on_gate_down is 'open'")
        return Verdict(queues=[], reason="the gate is away, and on_gate_down is 'closed'")

    def _tell(self, verdict: Verdict) -> None:
        until = "further notice" if verdict.until is None else rfc3339(verdict.until)
        what = f"open for {_listed(verdict.queues)}" if verdict.open else "closed"
        log.info(
            "worker %s: %s until %s: %s",
            self.name,
            what,
            until,
            verdict.reason,
            extra={
                "action": "gate_open" if verdict.open else "gate_closed",
                "worker": self.name,
                "queues": verdict.queues,
                "until": None if verdict.until is None else until,
                "reason": verdict.reason,
            },
        )


def _listed(queues: list[str] | None) -> str:
    if queues is None:
        return "all queues"
    more = len(queues) - NAMES_SHOWN
    return ", ".join(queues[:NAMES_SHOWN]) + (f" and {more} more queues" if more > 0 else "")


def _differ(before: Verdict, now: Verdict) -> bool:
    """Whether there is something new to say. For the same reason as before, more queues are not: jobs wait in one that
    was empty, or what is open is known without names.
    """
    same = (before.open, before.until, before.reason) == (now.open, now.until, now.reason)
    return not (same and now.covers(before))
