"""One question that is kept answered: pushed by the gate, renewed while nothing changes, asked anew after a loss."""

import asyncio
import logging
import os
from collections.abc import Callable

from gate.errors import GateError
from gate.interface import CheckIn, CheckOut, WatchIn
from gate_client import AsyncGate
from gate_client.core import pauses, socket_path, too_late, unreachable
from gate_client.pushes import Pushes
from procrastinate_gate.answers import Answer, Reading, Verdict, answered, judge, stepped_back
from procrastinate_gate.outage import Outage

log = logging.getLogger("procrastinate_gate")

CHECK = "io.schedulegate.Fetch.Check"
RENEW_SECONDS = 20.0
OVERDUE_SECONDS = 30.0
"""An answer that is older was not renewed in time: a job blocked the event loop, or the machine slept."""
UNANSWERED_SECONDS = 1.0
"""A gate that does not answer is asked again after this, and is called away then."""
CHECK_SECONDS = 5.0


class Watching:
    """What the gate says about one worker's queues, as long as this is open.

    `session` ties it to what the worker acquires. `gate` renews; `news` is called when something has happened that
    `verdict` may show, and calls it; `heard` is set by everything that the gate says.
    """

    def __init__(
        self,
        worker: str,
        queues: list[str] | None,
        *,
        session: str,
        socket: str | os.PathLike[str] | None,
        gate: AsyncGate,
        outage: Outage,
        news: Callable[[], object],
        clocks: Callable[[], Reading],
    ) -> None:
        self.queues = queues
        self.heard = asyncio.Event()
        self.limited = False
        """Whether a limit applied when the gate last said anything."""
        self._worker = worker
        self._session = session
        self._socket = socket
        self._gate = gate
        self._outage = outage
        self._news = news
        self._clocks = clocks
        self._answer: Answer | None = None
        self._pushes: Pushes | None = None
        self._pushed = 0
        """How many answers were pushed so far."""
        self._place = False
        self._stir = asyncio.Event()
        """There is something to do for the keeper."""
        self._asked = float("-inf")
        """When the answer was to be renewed last, in seconds of boot time."""
        self._connect()
        self._keeper = asyncio.create_task(self._keep(), name=f"gate: watch for {worker}")

    @property
    def expects(self) -> bool:
        """Whether an answer is due at any moment, because the gate was asked and is there."""
        return self._pushes is not None and self._pushes.problem is None and not self._answered

    def verdict(self) -> Verdict:
        """What may be fetched now, after all that the gate has said so far; never waits."""
        now = self._drain()
        answer = self._answer
        if answer is not None and now.boot - max(answer.since.boot, self._asked) >= OVERDUE_SECONDS:
            self._stir.set()
        return judge(answer, now)

    def take_place(self) -> bool:
        """Whether, since this was asked last, the gate has said that a place may be had; or has begun to answer, which
        it does too when it was restarted, and knows nothing of those whom it had refused.
        """
        place, self._place = self._place, False
        return place

    def is_late(self, seconds: float) -> None:
        """A fetch has waited so long for the answer that `expects` speaks of."""
        assert self._pushes is not None
        self._outage.begin(too_late(self._pushes.path, seconds), self._clocks())

    def stop(self) -> None:
        """Hang up, and ask no more."""
        self._keeper.cancel()
        if self._pushes is not None:
            self._pushes.close()

    async def close(self) -> None:
        """Stop, and wait until nothing runs any more."""
        self.stop()
        await asyncio.gather(self._keeper, return_exceptions=True)

    # ---- what was pushed

    def _connect(self) -> None:
        """Ask; a gate that is not there begins an outage."""
        self._answered = False
        self._seen = self._clocks()
        """When the pushes were drained last: what comes then is not older."""
        self._stir.clear()
        question = WatchIn(worker=self._worker, queues=self.queues, session=self._session)
        try:
            path = socket_path(self._socket)
            try:
                self._pushes = Pushes(path, question, self._news)
            except OSError as error:
                raise unreachable(path, error) from error
        except GateError as error:
            self._pushes = None
            self._away(error)

    def _drain(self) -> Reading:
        before, now = self._seen, self._clocks()
        self._seen = now
        pushes = self._pushes
        if pushes is None or pushes.problem is not None:
            return now
        for reply in pushes.drain():
            self._pushed += 1
            self._place = self._place or (reply.limited and (reply.place or not self._answered))
            self._take(answered(reply, before, self.queues), now)
        if stepped_back(before, now):
            self._distrust(pushes)
        elif pushes.problem is not None:
            self._away(pushes.problem)
        return now

    def _take(self, answer: Answer, now: Reading) -> None:
        self._answer = answer
        self._answered = True
        self.limited = answer.reply.limited
        self._outage.end(now)
        self.heard.set()

    def _distrust(self, pushes: Pushes) -> None:
        """What came may have been said before the clock was set back: ask on a connection that is younger than that."""
        log.warning("worker %s: the wall clock was set back, the gate is asked anew", self._worker)
        self._answer = None
        pushes.close()
        self._stir.set()

    def _away(self, problem: GateError) -> None:
        self._outage.begin(problem, self._clocks())
        self._stir.set()
        self.heard.set()

    # ---- the keeper

    async def _keep(self) -> None:
        pause = pauses()
        while True:
            if self._pushes is not None:
                await self._renew_until_lost()
                if self._answered:
                    pause = pauses()
            await asyncio.sleep(next(pause))
            self._connect()
            self._news()

    async def _renew_until_lost(self) -> None:
        while True:
            was_answered = self._answered
            try:
                async with asyncio.timeout(RENEW_SECONDS if was_answered else UNANSWERED_SECONDS):
                    await self._stir.wait()
                self._stir.clear()
            except TimeoutError:
                if self._answered and not was_answered:
                    continue
            if self._pushes is None or self._pushes.problem is not None:
                return
            await self._renew()
            self._news()

    async def _renew(self) -> None:
        """Ask whether it still is so; a push that came meanwhile is newer than what was asked for."""
        asked, pushed = self._clocks(), self._pushed
        self._asked = asked.boot
        parameters = CheckIn(worker=self._worker, queues=self.queues)
        try:
            reply = await self._gate.call(CHECK, parameters, CheckOut, timeout=CHECK_SECONDS)
        except GateError as error:
            self._answered = False
            self._outage.begin(error, self._clocks())
            return
        now = self._drain()
        if self._pushed == pushed and not stepped_back(asked, now):
            self._take(answered(reply, asked, self.queues), now)
