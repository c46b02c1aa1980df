"""The asyncio client: `AsyncGate`.

All coroutines share one connection, and their calls are under way at the same time. Every call ends: within its
timeout, it has an answer or raises GateUnreachable. A call that is cancelled leaves no claim behind.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from gate.errors import GateError
from gate.interface import ClaimIn, ClaimOut, Decision, Reply, TokenIn, Wire
from gate.wire import PIPELINED_CALLS
from gate_client.core import (
    CLAIM,
    CONFIRM,
    RELEASE,
    SETTLING,
    START,
    TIMEOUT_SECONDS,
    AskOptions,
    ClaimAnswer,
    ClaimOptions,
    GateUnreachable,
    Granting,
    claim_in,
    default_holder,
    method_of,
    pauses,
    replied,
    socket_path,
    start_in,
    token_in,
    too_late,
    unconfirmed,
    unreachable,
)
from gate_client.link import Asked, Link, link_to

R = TypeVar("R", bound=Reply)

Then = Callable[[Reply | GateError], None]

CLOSE_SECONDS = 1.0


class AsyncClaim(ClaimAnswer):
    """An answer, and the means to settle it."""

    __slots__ = ("_gate",)

    def __init__(self, gate: "AsyncGate", schedule: str, reply: ClaimOut) -> None:
        super().__init__(schedule, reply)
        self._gate = gate

    async def confirm(self, *, timeout: float | None = None) -> None:
        """It was sent. Raises as `AsyncGate.confirm`."""
        self.settled = True
        await self._gate.confirm(self.token, timeout=timeout)

    async def release(self, *, timeout: float | None = None) -> None:
        """It was not sent, and will not be. Raises as `AsyncGate.release`."""
        self.settled = True
        await self._gate.release(self.token, timeout=timeout)


class Held:
    """A claim that was granted to us and is not settled."""

    __slots__ = ("end", "link", "parameters")

    def __init__(self, parameters: Granting, link: Link | None, end: float) -> None:
        self.parameters = parameters
        self.link = link
        self.end = end


class AsyncGate:
    """An asyncio client. It belongs to one event loop at a time: make one per loop, or use it again when the first
    loop is closed.

    `socket`, `holder`, `timeout` and the errors are those of `gate_client.Gate`.

    A claim lives as its connection does. While claims are granted and not settled, a lost connection is made anew
    at once and the claims asked for again with their tokens, so that the gate knows that their holder lives.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        holder: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.timeout = timeout
        self._socket = socket
        self._holder = holder
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        """Where the loop runs: a forked child has a copy of it that is nobody's."""

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Start anew in another event loop, if the one before is closed; raises RuntimeError if it is not."""
        loop, process = asyncio.get_running_loop(), os.getpid()
        if loop is self._loop and process == self._process:
            return loop
        if self._loop is not None and not self._loop.is_closed() and process == self._process:
            raise RuntimeError("this AsyncGate belongs to another event loop: make one for each loop")
        self._loop, self._process = loop, process
        self._link: Link | None = None
        self._connecting = asyncio.Lock()
        self._held: dict[str, Held] = {}
        self._claiming: set[str] = set()
        """The tokens of claims that somebody waits for."""
        self._settling: dict[tuple[str, str], asyncio.Task[None]] = {}
        """What is being confirmed or released without anybody waiting, by method and token."""
        self._keeper: asyncio.Task[None] | None = None
        self._closing = False
        return loop

    @property
    def holder(self) -> str:
        """Who asks; another one in a forked child."""
        return self._holder or default_holder()

    async def claim(
        self,
        schedule: str,
        at: datetime | str | None = None,
        *,
        wait: float | None = None,
        timeout: float | None = None,
        **options: Unpack[ClaimOptions],
    ) -> AsyncClaim:
        """Ask for one occurrence, as `Gate.claim` does; cancelled, it leaves no claim behind."""
        parameters = claim_in(schedule, self.holder, at, **options)
        with self._asking_for(parameters):
            reply = await self.call(CLAIM, parameters, ClaimOut, timeout=timeout)
            if reply.decision is Decision.HELD and wait:
                reply = await self._outcome(parameters, reply, wait)
        return AsyncClaim(self, schedule, reply)

    async def start(
        self,
        schedule: str,
        at: datetime | str,
        *,
        attempt: int = 0,
        token: str | None = None,
        timeout: float | None = None,
    ) -> AsyncClaim:
        """Ask whether to start the task of an occurrence, as `Gate.start` does; cancelled, it leaves none behind."""
        parameters = start_in(schedule, self.holder, at, attempt, token)
        with self._asking_for(parameters):
            reply = await self.call(START, parameters, ClaimOut, timeout=timeout)
        return AsyncClaim(self, schedule, reply)

    @contextmanager
    def _asking_for(self, parameters: Granting) -> Generator[None]:
        """While somebody asks with a token, it is not released."""
        token = parameters.token or ""
        self._bind()
        self._reclaim(token)
        try:
            yield
        finally:
            self._claiming.discard(token)

    def sending(self, schedule: str, at: datetime | str | None = None, **options: Unpack[AskOptions]) -> "AsyncSending":
        """`async with gate.sending("nightly", minute) as claim:` send inside, if `claim.granted`.

        As `Gate.sending`. A cancellation inside the block settles nothing, since nobody knows whether it was sent:
        the claim ends in doubt.
        """
        return AsyncSending(lambda: self.claim(schedule, at, **options))

    async def confirm(self, token: str | None, *, timeout: float | None = None) -> None:
        """The claim of `token` was sent. Raises UnknownToken, StoreUnavailable and GateUnreachable."""
        await self.call(CONFIRM, token_in(token), timeout=timeout)

    async def release(self, token: str | None, *, timeout: float | None = None) -> None:
        """The claim of `token` was not sent, and will not be. Raises as `confirm`."""
        await self.call(RELEASE, token_in(token), timeout=timeout)

    def confirm_soon(self, token: str, *, timeout: float | None = None, then: Then | None = None) -> None:
        """Confirm without waiting for it, as `release_soon` releases."""
        self._settle_soon(CONFIRM, token, timeout, then)

    def release_soon(self, token: str, *, timeout: float | None = None, then: Then | None = None) -> None:
        """Release without waiting for it: at once if the connection stands, else within `timeout` seconds.

        Never raises for the gate's reasons. `then` is called with the reply or the error; a claim that cannot be
        settled ends in doubt.
        """
        self._settle_soon(RELEASE, token, timeout, then)

    @overload
    async def call(self, method: str, parameters: Wire, *, timeout: float | None = None) -> Reply: ...
    @overload
    async def call(self, method: str, parameters: Wire, answers: type[R], *, timeout: float | None = None) -> R: ...
    async def call(
        self, method: str, parameters: Wire, answers: type[Reply] = Reply, *, timeout: float | None = None
    ) -> Reply:
        """Call any method of gate.interface.METHODS; `answers` is the type of its reply."""
        request = Asked(method, parameters)
        await self._answer(request, timeout)
        return replied(request, answers)

    async def pipeline(
        self, calls: Iterable[tuple[str, Wire]], *, timeout: float | None = None
    ) -> list[Reply | GateError]:
        """Many calls at once, at most 64 of them waiting; gives the replies and errors in their order.

        `timeout` is how long each call may take. A claim needs a token: `gate_client.core.claim_in` makes one.
        """
        requests = [Asked(method, parameters) for method, parameters in calls]
        queue = iter(requests)

        async def ask_in_turn() -> None:
            for request in queue:
                await self._answer(request, timeout)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(requests), PIPELINED_CALLS)):
                    group.create_task(ask_in_turn())
        except BaseException:
            for request in requests:
                if request.granted:
                    self.release_soon(request.token or "")
            raise
        return [request.result for request in requests if request.result is not None]

    async def drain(self, timeout: float = CLOSE_SECONDS) -> None:
        """Wait until all that is being confirmed or released is answered, at most `timeout` seconds."""
        self._bind()
        try:
            async with asyncio.timeout(timeout):
                if self._link is not None:
                    await self._link.settled(SETTLING)
                if self._settling:
                    await asyncio.wait(list(self._settling.values()))
        except TimeoutError:
            pass

    async def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Drain, then hang up. Claims that are not settled end in doubt."""
        if self._loop is not asyncio.get_running_loop():
            return
        await self.drain(timeout)
        self._closing = True
        self._held.clear()
        tasks = [*self._settling.values(), *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if (link := self._link) is not None:
            link.close()
            await link.gone()
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    # ---- one call

    async def _answer(self, request: Asked, timeout: float | None) -> None:
        """Give the request its result: a reply, or the error that says why there is none."""
        self._bind()
        if isinstance(request.parameters, TokenIn) and request.method in SETTLING:
            self._held.pop(request.parameters.token, None)
        seconds = self.timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(seconds):
                await self._persist(request)
        except TimeoutError:
            request.give_up(too_late(self._where(), seconds))
        self._hold(request)

    async def _persist(self, request: Asked) -> None:
        pause = pauses()
        try:
            while request.result is None:
                try:
                    await (await self._linked()).ask(request)
                except (OSError, GateError) as error:
                    request.lost(self._unreachable(error))
                if request.result is None:
                    await asyncio.sleep(max(next(pause), request.pause))
        except asyncio.CancelledError:
            self._abandon(request)
            raise

    async def _linked(self) -> Link:
        async with self._connecting:
            if self._link is None or self._link.problem is not None:
                self._link = await link_to(socket_path(self._socket), self._lost)
            return self._link

    def _lost(self, link: Link) -> None:
        if link is self._link:
            self._link = None
            self._keep()

    def _unreachable(self, error: OSError | GateError) -> GateError:
        return error if isinstance(error, GateError) else unreachable(self._where(), error)

    def _where(self) -> str:
        try:
            return socket_path(self._socket)
        except GateUnreachable as error:
            return error.socket

    # ---- claims that may be granted without anybody knowing

    def _reclaim(self, token: str) -> None:
        """Somebody wants this token (again): what was to be released of it is not."""
        self._claiming.add(token)
        if (task := self._settling.pop((RELEASE, token), None)) is not None:
            task.cancel()

    def _abandon(self, request: Asked) -> None:
        """Whoever asked has left: a grant that he does not know of is released, now or when it comes."""
        if request.token is None:
            return
        if request.in_flight:
            request.late = self._came_late
        elif request.granted or request.unsettled:
            request.result = None
            self.release_soon(request.token)

    def _came_late(self, request: Asked) -> None:
        token = request.token or ""
        wanted = token in self._claiming or token in self._held
        if not wanted and (request.granted or request.unsettled):
            self.release_soon(token)

    # ---- settling without waiting

    def _settle_soon(self, method: str, token: str, timeout: float | None, then: Then | None) -> None:
        self._bind()
        self._held.pop(token, None)
        request = Asked(method, TokenIn(token=token))

        def come(asked: Asked) -> None:
            if asked.result is None:
                self._settle_later(method, token, timeout, then)
            elif then is not None:
                then(asked.result)

        request.late = come
        if self._link is None or not self._link.write(request):
            come(request)

    def _settle_later(self, method: str, token: str, timeout: float | None, then: Then | None) -> None:
        if self._loop is None or self._loop.is_closed() or self._closing or (method, token) in self._settling:
            return
        request = Asked(method, TokenIn(token=token))
        task = self._settling[method, token] = self._loop.create_task(self._answer(request, timeout))

        def end(task: asyncio.Task[None]) -> None:
            if self._settling.get((method, token)) is task:
                del self._settling[method, token]
            if then is not None:
                then(request.result or GateUnreachable(self._where(), "the client was closed before it answered"))

        task.add_done_callback(end)

    # ---- claims that are ours

    def _hold(self, request: Asked) -> None:
        lease = request.lease(datetime.now(UTC))
        if not lease or not isinstance(request.parameters, Granting) or self._loop is None:
            return
        now = self._loop.time()
        self._held[request.token or ""] = Held(request.parameters, request.link, now + lease)
        while (oldest := next(iter(self._held))) and self._held[oldest].end <= now:
            del self._held[oldest]
        if request.link is not self._link:
            self._keep()

    def _keep(self) -> None:
        """See to it that the gate knows that the holder of its claims is here."""
        if self._keeper is None and self._loop is not None and self._astray():
            self._keeper = self._loop.create_task(self._renew_all())

    def _astray(self) -> list[str]:
        """The claims whose connection is lost and whose lease is not over."""
        assert self._loop is not None
        now = self._loop.time()
        return [
            token
            for token, held in self._held.items()
            if held.end > now and (held.link is None or held.link.problem is not None)
        ]

    async def _renew_all(self) -> None:
        pause = pauses()
        try:
            while tokens := self._astray():
                try:
                    link = await self._linked()
                    await asyncio.gather(*(self._renew(token, link) for token in tokens))
                except (OSError, GateError):
                    pass  # the calls that wait say why
                if self._astray():
                    await asyncio.sleep(next(pause))
        finally:
            self._keeper = None

    async def _renew(self, token: str, link: Link) -> None:
        held = self._held.get(token)
        if held is None:
            return
        request = Asked(method_of(held.parameters), held.parameters)
        await link.ask(request, wanted=lambda: self._held.get(token) is held)
        if request.granted:
            held.link = link
        elif isinstance(request.result, Reply):
            self._held.pop(token, None)

    # ---- waiting for what somebody else does

    async def _outcome(self, parameters: ClaimIn, held: ClaimOut, wait: float) -> ClaimOut:
        """What became of a claim that another holds; `held` itself if nothing did in time."""
        request = Asked(CLAIM, parameters, more=True)
        link: Link | None = None
        try:
            try:
                async with asyncio.timeout(wait):
                    link = await self._followed(request)
            except TimeoutError:
                return held
            if request.granted:
                return await self._moved(parameters)
            return replied(request, ClaimOut)
        finally:
            if link is not None:
                link.close()

    async def _followed(self, request: Asked) -> Link:
        """Ask with `more`, on a connection of its own, until the outcome is known."""
        pause = pauses()
        try:
            while True:
                link: Link | None = None
                try:
                    link = await link_to(socket_path(self._socket), lambda _: None)
                    await link.ask(request)
                    if request.concluded():
                        found, link = link, None
                        return found
                except (OSError, GateError) as error:
                    request.lost(self._unreachable(error))
                finally:
                    if link is not None:
                        link.close()
                await asyncio.sleep(max(next(pause), request.pause))
        except asyncio.CancelledError:
            self._abandon(request)
            raise

    async def _moved(self, parameters: ClaimIn) -> ClaimOut:
        """A claim lives as its connection does: asked again, it moves to the one that stays."""
        try:
            return await self.call(CLAIM, parameters, ClaimOut)
        except BaseException:
            self.release_soon(parameters.token or "")
            raise


class AsyncSending:
    """See `AsyncGate.sending`."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, AsyncClaim]]) -> None:
        self._ask = ask
        self._claim: AsyncClaim | None = None

    async def __aenter__(self) -> AsyncClaim:
        self._claim = await self._ask()
        return self._claim

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        claim, self._claim = self._claim, None
        if claim is None or claim.settled:
            return
        if error is None:
            try:
                await claim.confirm()
            except GateUnreachable as away:
                raise unconfirmed(away, claim.schedule, claim.at) from away
        elif isinstance(error, Exception):
            try:
                await claim.release()
            except GateError as failed:
                error.add_note(f"{claim.schedule} at {claim.at} was not released: {failed}")
