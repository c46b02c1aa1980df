"""The occurrence that a command is the send of: claimed before it starts, kept while it runs, settled at its end."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any

from gate.claims import LEASE_SECONDS
from gate.errors import GateError
from gate.interface import rfc3339
from gate_client.aio import AsyncClaim, AsyncGate

RETRY_SECONDS = 0.5
SETTLE_SECONDS = 20.0
"""How long a command that has ended waits for a gate that is away."""


class Confirm(StrEnum):
    """What the gate shall take for a send."""

    START = "start"
    SUCCESS = "success"


class Claimed:
    """A claim that was granted. It raises nothing for the gate's reasons: a command that runs is let run.

    `lease`: what it was claimed with, in seconds. `settle`: how long `ended` takes at most. `warn` gets a line for
    people.
    """

    def __init__(
        self,
        gate: AsyncGate,
        claim: AsyncClaim,
        confirm: Confirm,
        warn: Callable[[str], object],
        *,
        lease: float = LEASE_SECONDS,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        self._gate = gate
        self._claim = claim
        self._confirm = confirm
        self._warn = warn
        self._lease = lease
        self._settle = settle
        self._over = asyncio.Event()
        self._doing: asyncio.Task[None] | None = None
        self._what = f"{claim.schedule} at {rfc3339(claim.at)}"

    async def not_started(self) -> None:
        """The command could not be started: somebody else may try."""
        await self._in_time(self._release())

    def started(self, _: str) -> None:
        """The command has started: confirm that, or keep the claim until it has ended."""
        self._doing = asyncio.create_task(self._send() if self._confirm is Confirm.START else self._keep())

    async def ended(self, exit_code: int) -> None:
        """The command has ended: settle what is not settled yet."""
        self._over.set()
        await self._in_time(self._end(exit_code))

    async def _end(self, exit_code: int) -> None:
        if self._doing is not None:
            await self._doing
        if self._confirm is Confirm.SUCCESS:
            await (self._send() if exit_code == 0 else self._release())

    async def _in_time(self, settling: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(self._settle):
                await settling
        except TimeoutError:
            self._warn(f"{self._what} ends in doubt: the gate did not hear within {self._settle:g} s what became of it")

    async def _send(self) -> None:
        try:
            await self._claim.confirm(timeout=math.inf)
        except GateError as error:
            self._warn(f"{self._what} cannot be confirmed: {error}")

    async def _release(self) -> None:
        try:
            await self._claim.release(timeout=math.inf)
        except GateError as error:
            self._warn(f"{self._what} cannot be released: {error}")

    async def _keep(self) -> None:
        """Ask again with the same token, well before the lease is over."""
        claim, pause = self._claim, self._lease / 3
        while not await happens(self._over, pause):
            try:
                again = await self._gate.claim(claim.schedule, claim.at, token=claim.token, lease=self._lease)
            except GateError:
                pause = RETRY_SECONDS
                continue
            if not again.granted:
                self._warn(f"{self._what} was given to another while the command runs: {again.reason}")
                return
            pause = self._lease / 3


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long; gives whether it has happened."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
