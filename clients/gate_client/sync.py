"""The blocking client: `Gate`.

One connection, one conversation at a time: threads take turns. A child after a fork has a connection of its own.
Every call ends: within its timeout, it has an answer or raises GateUnreachable.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

from gate.errors import GateError
from gate.interface import ClaimIn, ClaimOut, Decision, Reply, TokenIn, Wire
from gate_client.core import (
    CLAIM,
    CONFIRM,
    RELEASE,
    SETTLING,
    START,
    TIMEOUT_SECONDS,
    TRANSIENT,
    AskOptions,
    ClaimAnswer,
    ClaimOptions,
    GateUnreachable,
    Granting,
    Request,
    claim_in,
    default_holder,
    method_of,
    pauses,
    replied,
    socket_path,
    start_in,
    token_in,
    unconfirmed,
    unreachable,
)
from gate_client.line import Deadline, Line

R = TypeVar("R", bound=Reply)

OWED_RELEASES = 256


class Claim(ClaimAnswer):
    """An answer, and the means to settle it."""

    __slots__ = ("_gate",)

    def __init__(self, gate: "Gate", schedule: str, reply: ClaimOut) -> None:
        super().__init__(schedule, reply)
        self._gate = gate

    def confirm(self, *, timeout: float | None = None) -> None:
        """It was sent. Raises as `Gate.confirm`."""
        self.settled = True
        self._gate.confirm(self.token, timeout=timeout)

    def release(self, *, timeout: float | None = None) -> None:
        """It was not sent, and will not be. Raises as `Gate.release`."""
        self.settled = True
        self._gate.release(self.token, timeout=timeout)


class Gate:
    """A blocking client, for threads and for the children of a fork.

    `socket`: its path; without one $GATE_SOCKET, /run/gate/gate.sock or $XDG_RUNTIME_DIR/gate/gate.sock.
    `holder`: who asks, as people shall read it; without one `host:pid:program`.
    `timeout`: seconds that a call may take, reconnecting included; each call can have its own.

    Calls raise a CallError for an error that the gate answered, and GateUnreachable if it did not answer in time.
    A claim lives as its connection does: keep the Gate open until the claim is settled. Between calls nothing runs:
    a gate that is restarted while a claim is open hears of its holder with the next call, and lists the claim as in
    doubt until then. `AsyncGate` tells it at once.
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
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._line: Line | None = None
        self._open: dict[str, tuple[Granting, Deadline]] = {}
        """Granted and not settled; a new connection takes them over, so that the gate knows that we live."""
        self._owed: deque[str] = deque(maxlen=OWED_RELEASES)
        """Tokens that may be granted without anybody knowing; released as soon as the gate is back."""

    def _notice_fork(self) -> None:
        """A child has nothing of its parent's: not its connection, not its claims, not a lock that a thread held."""
        if self._pid != os.getpid():
            self._start_anew()

    @property
    def holder(self) -> str:
        """Who asks; another one in a forked child."""
        return self._holder or default_holder()

    def claim(
        self,
        schedule: str,
        at: datetime | str | None = None,
        *,
        wait: float | None = None,
        timeout: float | None = None,
        **options: Unpack[ClaimOptions],
    ) -> Claim:
        """Ask for one occurrence: a cron schedule or one-off `at` an aware instant, or an interval `every` N seconds.

        With `wait`, an occurrence that somebody else is sending (`held`) is waited for, at most that many seconds.
        Raises InvalidClaim (a naive `at` among them), StoreUnavailable and GateUnreachable.
        """
        parameters = claim_in(schedule, self.holder, at, **options)
        reply = self.call(CLAIM, parameters, ClaimOut, timeout=timeout)
        if reply.decision is Decision.HELD and wait:
            reply = self._outcome(parameters, reply, wait)
        return Claim(self, schedule, reply)

    def start(
        self,
        schedule: str,
        at: datetime | str,
        *,
        attempt: int = 0,
        token: str | None = None,
        timeout: float | None = None,
    ) -> Claim:
        """Ask whether to start the task of an occurrence that was sent: of its copies one is `granted`.

        Confirm it when the task has ended, however it did. `sent`: it was started before. `held`: it runs, or, with
        an `until`, ask again then. Raises as `claim`.
        """
        parameters = start_in(schedule, self.holder, at, attempt, token)
        return Claim(self, schedule, self.call(START, parameters, ClaimOut, timeout=timeout))

    def sending(self, schedule: str, at: datetime | str | None = None, **options: Unpack[AskOptions]) -> "Sending":
        """`with gate.sending("nightly", minute) as claim:` send inside, if `claim.granted`.

        Leaving the block confirms. An Exception releases and goes on its way: the gate will offer the occurrence
        again. Anything else that ends it (KeyboardInterrupt, SystemExit) settles nothing, since nobody knows
        whether it was sent: the claim ends in doubt. `claim.confirm()` or `claim.release()` inside settle it
        earlier. Arguments and errors are those of `claim`.
        """
        return Sending(lambda: self.claim(schedule, at, **options))

    def confirm(self, token: str | None, *, timeout: float | None = None) -> None:
        """The claim of `token` was sent. Raises UnknownToken, StoreUnavailable and GateUnreachable."""
        self.call(CONFIRM, token_in(token), timeout=timeout)

    def release(self, token: str | None, *, timeout: float | None = None) -> None:
        """The claim of `token` was not sent, and will not be. Raises as `confirm`."""
        self.call(RELEASE, token_in(token), timeout=timeout)

    @overload
    def call(self, method: str, parameters: Wire, *, timeout: float | None = None) -> Reply: ...
    @overload
    def call(self, method: str, parameters: Wire, answers: type[R], *, timeout: float | None = None) -> R: ...
    def call(
        self, method: str, parameters: Wire, answers: type[Reply] = Reply, *, timeout: float | None = None
    ) -> Reply:
        """Call any method of gate.interface.METHODS; `answers` is the type of its reply."""
        request = Request(method, parameters)
        self._answer_all([request], timeout)
        return replied(request, answers)

    def pipeline(self, calls: Iterable[tuple[str, Wire]], *, timeout: float | None = None) -> list[Reply | GateError]:
        """Many calls at once, at most 64 of them waiting; gives the replies and errors in their order.

        `timeout` is how long the next answer may take. A claim needs a token: `gate_client.core.claim_in` makes one.
        """
        requests = [Request(method, parameters) for method, parameters in calls]
        self._answer_all(requests, timeout)
        return [request.result for request in requests if request.result is not None]

    def close(self) -> None:
        """Hang up. Claims that are not settled end in doubt."""
        self._notice_fork()
        with self._lock:
            self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ---- one conversation

    def _answer_all(self, requests: Sequence[Request], timeout: float | None) -> None:
        """Give every request its result: a reply, or the error that says why there is none."""
        self._notice_fork()
        deadline = Deadline(self.timeout if timeout is None else timeout)
        if not self._lock.acquire(timeout=deadline.left):
            self._no_result(requests, f"other threads have been asking it for {deadline.seconds:.3g} s")
            return
        try:
            self._converse(requests, deadline)
        except BaseException:  # interrupted: nobody gets the answers, those that came and those that are under way
            self._hang_up()
            self._owe([request for request in requests if request.unsettled or request.granted])
            raise
        else:
            self._owe([request for request in requests if request.unsettled])
        finally:
            self._lock.release()

    def _converse(self, requests: Sequence[Request], deadline: Deadline) -> None:
        self._before(requests)
        pause = pauses()
        while waiting := [request for request in requests if request.result is None]:
            self._attempt(waiting, deadline)
            if all(request.result is not None for request in waiting):
                break
            if not deadline.sleep(max(next(pause), *(request.pause for request in waiting))):
                break
        self._no_result(requests, f"no answer within {deadline.seconds:.3g} s")
        self._after(requests)

    def _attempt(self, waiting: Sequence[Request], deadline: Deadline) -> None:
        """Ask what waits, after what is owed; what gets no answer is left with the reason."""
        owed = {token: _release(token) for token in self._owed}
        try:
            self._connected().ask([*owed.values(), *waiting], deadline)
        except (OSError, GateError) as error:
            self._hang_up()
            for request in waiting:
                request.lost(self._unreachable(error))
        if any(isinstance(request.problem, TRANSIENT) for request in waiting):
            self._hang_up()  # the gate has said why it hangs up: what a dead connection would say next is no better
        for token, release in owed.items():
            if release.result is not None:
                self._owed.remove(token)

    def _connected(self) -> Line:
        if self._line is None:
            self._line = Line(socket_path(self._socket))
            self._open = {token: (claim, lease) for token, (claim, lease) in self._open.items() if lease.left}
            self._line.post([Request(method_of(claim), claim) for claim, _ in self._open.values()])
        return self._line

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _no_result(self, requests: Sequence[Request], problem: str) -> None:
        for request in requests:
            request.give_up(GateUnreachable(self._where(), problem))

    def _unreachable(self, error: OSError | GateError) -> GateError:
        return error if isinstance(error, GateError) else unreachable(self._where(), error)

    def _where(self) -> str:
        try:
            return socket_path(self._socket)
        except GateUnreachable as error:
            return error.socket

    # ---- claims that are open, and claims that may be granted without anybody knowing

    def _before(self, requests: Sequence[Request]) -> None:
        """What is claimed again is not owed any more, and what is about to be settled is not open."""
        for request in requests:
            if (token := request.token) is not None and token in self._owed:
                self._owed.remove(token)
            if request.method in SETTLING and isinstance(request.parameters, TokenIn):
                self._open.pop(request.parameters.token, None)

    def _after(self, requests: Sequence[Request]) -> None:
        for request in requests:
            if (lease := request.lease(datetime.now(UTC))) and isinstance(request.parameters, Granting):
                self._open[request.token or ""] = (request.parameters, Deadline(lease))
        while self._open and not self._open[oldest := next(iter(self._open))][1].left:
            del self._open[oldest]

    def _owe(self, claims: Sequence[Request]) -> None:
        """Release claims without waiting for it; with the next call, if that cannot be done now."""
        lost = [token for claim in claims if (token := claim.token) is not None]
        if not lost:
            return
        self._owed.extend(lost)
        try:
            self._connected().post([_release(token) for token in lost])
        except (OSError, GateError):
            self._hang_up()

    # ---- waiting for what somebody else does

    def _outcome(self, parameters: ClaimIn, held: ClaimOut, wait: float) -> ClaimOut:
        """What became of a claim that another holds; `held` itself if nothing did in time."""
        request = Request(CLAIM, parameters, more=True)
        line: Line | None = None
        moved: ClaimOut | None = None
        try:
            line = self._followed(request, Deadline(wait))
            if request.granted:
                # The claim lives as its connection does: asked again, it moves to the one that stays.
                moved = self.call(CLAIM, parameters, ClaimOut)
        finally:
            if line is not None:
                line.close()
            if moved is None and (request.granted or request.unsettled):
                with self._lock:
                    self._owe([request])
        if request.result is None:
            return held
        return moved or replied(request, ClaimOut)

    def _followed(self, request: Request, deadline: Deadline) -> Line | None:
        """Ask with `more`, again after a lost connection, until the outcome is known; None at the deadline."""
        pause = pauses()
        while True:
            line: Line | None = None
            try:
                line = Line(socket_path(self._socket))
                line.ask([request], deadline)
                if request.concluded():
                    found, line = line, None
                    return found
            except (OSError, GateError) as error:
                request.lost(self._unreachable(error))
            finally:
                if line is not None:
                    line.close()
            if not deadline.sleep(max(next(pause), request.pause)):
                return None


class Sending:
    """See `Gate.sending`."""

    def __init__(self, ask: Callable[[], Claim]) -> None:
        self._ask = ask
        self._claim: Claim | None = None

    def __enter__(self) -> Claim:
        self._claim = self._ask()
        return self._claim

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        claim, self._claim = self._claim, None
        if claim is None or claim.settled:
            return
        if error is None:
            try:
                claim.confirm()
            except GateUnreachable as away:
                raise unconfirmed(away, claim.schedule, claim.at) from away
        elif isinstance(error, Exception):
            try:
                claim.release()
            except GateError as failed:
                error.add_note(f"{claim.schedule} at {claim.at} was not released: {failed}")


def _release(token: str) -> Request:
    return Request(RELEASE, TokenIn(token=token))
