"""The sends that are under way, from the grant to the confirmation.

taskiq has no hook for a send that fails, hangs or is cancelled. But the task that runs `pre_send` runs `post_send`
too: when it ends and `post_send` never came, nothing was sent.
A scheduler of the user's own must keep to that: both hooks in one task.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from gate.errors import GateError, UnknownToken
from gate.interface import Reply
from gate_client import AsyncClaim, AsyncGate
from taskiq_gate.asking import Limits, Question
from taskiq_gate.occurrence import Trigger

log = logging.getLogger("taskiq_gate")

STOP_SECONDS = 1.0
"""How long a shutdown waits for sends that are under way, and then for those that it cancelled."""


class Send:
    """One send: what is sent, and the claim that allows it (None: sent without the gate)."""

    __slots__ = ("claim", "gate", "question", "what")

    def __init__(
        self,
        what: str,
        question: Question | None = None,
        gate: AsyncGate | None = None,
        claim: AsyncClaim | None = None,
    ) -> None:
        self.what = what
        self.question = question
        self.gate = gate
        self.claim = claim


class UnderWay(NamedTuple):
    """What a task of the scheduler asks for or sends. `offered`: it was lost before."""

    key: str
    trigger: Trigger
    offered: bool


class Sends:
    """All sends of one source."""

    def __init__(self, limits: Limits) -> None:
        self.lost: Callable[[Question, str], None] = lambda question, why: None
        """Called with what was not sent, and why."""
        self._limits = limits
        self._asking: set[asyncio.Task[Any]] = set()
        self._open: dict[asyncio.Task[Any], Send] = {}
        self._under_way: dict[asyncio.Task[Any], UnderWay] = {}

    def enter(self, key: str, trigger: Trigger, *, offered: bool) -> None:
        """The scheduler's task has begun with it; it is under way until the task ends."""
        task = _this_task()
        if task not in self._under_way:
            task.add_done_callback(lambda ended: self._under_way.pop(ended, None))
        self._under_way[task] = UnderWay(key, trigger, offered)

    def minutes(self, key: str) -> set[datetime]:
        """The minutes of a schedule that are under way."""
        found = [each.trigger for each in self._under_way.values() if each.key == key and not each.trigger.once]
        return {at for trigger in found for at in (trigger.at, trigger.overlooked) if at is not None}

    def offered(self) -> set[str]:
        """The keys of schedules with an offer under way: one that hangs shall not become many."""
        return {each.key for each in self._under_way.values() if each.offered}

    @contextmanager
    def asking(self) -> Generator[None]:
        """While the scheduler's task waits for the gate's decision."""
        task = _this_task()
        self._asking.add(task)
        try:
            yield
        finally:
            self._asking.discard(task)

    def begin(self, send: Send) -> None:
        """The scheduler's task may send now."""
        task = _this_task()
        if (before := self._open.pop(task, None)) is not None:
            log.error("%s was not sent: its task went on to something else", before.what)
            self._release(before)
        self._open[task] = send
        task.add_done_callback(self._ended)

    def sent(self) -> Send | None:
        """The scheduler's task says that it has sent; gives what it was, None if that was no send of ours."""
        return self._open.pop(_this_task(), None)

    async def confirm(self, send: Send) -> None:
        """Tell the gate; if it is away, go on trying after this has returned."""
        if send.gate is None or send.claim is None:
            return
        try:
            await send.claim.confirm(timeout=self._limits.timeout)
        except asyncio.CancelledError:
            self._confirm_later(send)
            raise
        except UnknownToken as error:
            log.error("%s was sent, but the gate does not know its claim: %s", send.what, error)  # noqa: TRY400
        except GateError as error:
            log.warning("%s was sent, but is not confirmed yet: %s", send.what, error)
            self._confirm_later(send)

    def _confirm_later(self, send: Send) -> None:
        def told(result: Reply | GateError) -> None:
            if isinstance(result, GateError):
                log.error("%s was sent, but could not be confirmed, and will be in doubt: %s", send.what, result)
            else:
                log.info("%s is confirmed", send.what)

        if send.gate is not None and send.claim is not None and send.claim.token is not None:
            send.gate.confirm_soon(send.claim.token, timeout=self._limits.patience, then=told)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """The scheduler's task is over: if it has not sent, somebody may."""
        send = self._open.pop(task, None)
        if send is None:
            return
        cause = None if task.cancelled() else task.exception()
        if task.cancelled():
            how = "was cancelled"
        elif cause is None:
            how = "ended without a word, as after a send timeout"
        else:
            how = f"failed: {cause}"
        log.error("%s was not sent: the send %s", send.what, how, exc_info=cause)
        if send.question is not None:
            self.lost(send.question, f"the send {how}")
        self._release(send)

    def _release(self, send: Send) -> None:
        if send.gate is not None and send.claim is not None and send.claim.token is not None:
            send.claim.settled = True
            send.gate.release_soon(send.claim.token, timeout=max(self._limits.patience, self._limits.timeout))

    async def finish(self) -> None:
        """Let what is under way end, cancel what does not, release what was not sent."""
        asking = set(self._asking)
        for task in asking:
            task.cancel()
        await _over({*asking, *self._open}, STOP_SECONDS)
        for task in self._open:
            task.cancel()
        await _over(set(self._open), STOP_SECONDS)
        for send in self._open.values():
            log.error("%s was still being sent when the scheduler stopped: its claim is released", send.what)
            self._release(send)
        self._open.clear()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _over(tasks: set[asyncio.Task[Any]], seconds: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
