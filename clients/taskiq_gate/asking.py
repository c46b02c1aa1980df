"""Asks the gate until it has decided, and no longer than the limits allow."""

import asyncio
from datetime import UTC, datetime

from msgspec import Struct, structs

from gate.errors import StoreUnavailable
from gate.interface import Decision
from gate_client import AsyncClaim, AsyncGate
from taskiq_gate.occurrence import Trigger

AGAIN_SECONDS = 0.05
"""What lies between two questions at least."""
SKEWED_SECONDS = 1.0
"""And where this clock says that the moment which the gate waits for has come, since one of the two is wrong."""


class Limits(Struct, frozen=True, kw_only=True):
    """Seconds: for an occurrence that another holds, for a gate that is away, for one answer, for the send itself."""

    max_wait: float
    patience: float
    timeout: float
    lease: float | None

    @property
    def altogether(self) -> float:
        """How long the scheduler can be kept waiting for a decision."""
        return self.max_wait + self.patience + self.timeout

    @property
    def listing(self) -> float:
        """How long all answers about what was missed may take, of which each has `timeout`."""
        return 2 * self.timeout


class Question(Struct, frozen=True, kw_only=True):
    """Which occurrence of which schedule."""

    key: str
    title: str
    trigger: Trigger

    def __str__(self) -> str:
        if self.trigger.at is None:
            return self.key
        return f"{self.key} at {self.trigger.at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


async def decide(gate: AsyncGate, question: Question, limits: Limits) -> tuple[Question, AsyncClaim]:
    """The gate's decision and what it is about: the minute that was overlooked, if that can still be sent.

    Raises GateUnreachable, StoreUnavailable and InvalidClaim.
    """
    if (overlooked := question.trigger.overlooked) is not None:
        before = structs.replace(question, trigger=Trigger(at=overlooked))
        claim = await _decided(gate, before, structs.replace(limits, max_wait=0.0))
        if claim.granted:
            return before, claim
    return question, await _decided(gate, question, limits)


async def _decided(gate: AsyncGate, question: Question, limits: Limits) -> AsyncClaim:
    """After what is worth waiting for: an outcome, a moment that is near, a store that is back.

    Patience is for a gate that is away: one that has answered is given the time of an answer again.
    """
    clock = asyncio.get_running_loop().time
    patience_end = clock() + max(limits.patience, limits.timeout)
    wait_end = clock() + limits.max_wait
    while True:
        try:
            timeout = max(patience_end - clock(), limits.timeout)
            claim = await _claim(gate, question, limits.lease, wait_end - clock(), timeout)
        except StoreUnavailable as away:
            pause = max(float(away.parameters.get("retry_after", 1.0)), AGAIN_SECONDS)
            if clock() + pause > patience_end:
                raise
        else:
            pause = _until(claim)
            if claim.decision is not Decision.WAIT or clock() + pause > wait_end:
                return claim
        await asyncio.sleep(pause)


async def _claim(gate: AsyncGate, question: Question, lease: float | None, wait: float, timeout: float) -> AsyncClaim:
    trigger = question.trigger
    return await gate.claim(
        question.key,
        trigger.at,
        once=trigger.once or None,
        every=trigger.every,
        title=question.title,
        lease=lease,
        wait=max(wait, 0.0),
        timeout=max(timeout, 0.001),
    )


def _until(claim: AsyncClaim) -> float:
    """Seconds until the gate wants to be asked again."""
    if claim.until is None:
        return AGAIN_SECONDS
    left = (claim.until - datetime.now(UTC)).total_seconds()
    return max(left, AGAIN_SECONDS) if left > -SKEWED_SECONDS else SKEWED_SECONDS
