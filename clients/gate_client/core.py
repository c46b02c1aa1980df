"""What the blocking and the asyncio client share: requests, when one is asked again, texts, where the socket is.

Nothing here waits or touches a socket.
"""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TypedDict, TypeVar, Unpack

from gate.errors import CallError, GateError, InvalidClaim, MessageTimeout, StoreUnavailable, TooManyConnections
from gate.interface import ClaimIn, ClaimOut, Decision, NotAnInstant, Reply, StartIn, TokenIn, Wire, instant, rfc3339

CLAIM = "io.schedulegate.Send.Claim"
START = "io.schedulegate.Send.Start"
CONFIRM = "io.schedulegate.Send.Confirm"
RELEASE = "io.schedulegate.Send.Release"
NOT_IDEMPOTENT = frozenset({"io.schedulegate.Control.Resend"})
"""Every other call may be asked twice: a claim by its token, the rest by what they are."""
SETTLING = frozenset({CONFIRM, RELEASE})
"""Worth asking again while the store is away: the caller has nothing better to do with what was sent already."""
TRANSIENT = (MessageTimeout, TooManyConnections)
"""Answers of a gate that did not look at the call."""

R = TypeVar("R", bound=Reply)
Granting = ClaimIn | StartIn
"""Parameters of calls that grant something which lives as its connection does."""

TIMEOUT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.02
LAST_PAUSE_SECONDS = 0.5
HOLDER_BYTES = 256
SYSTEM_SOCKET = "/run/gate/gate.sock"

START_IT = "start it with `gate`, or name its socket by $GATE_SOCKET"
LOOK_AT_IT = "its log may say why, and `gatectl status` asks it as well"
HINTS: dict[type[BaseException], str] = {
    PermissionError: "ask for membership in its group (gate-clients)",
    FileNotFoundError: START_IT,
    ConnectionRefusedError: START_IT,
}


class GateUnreachable(GateError):
    """No answer: no gate at the socket, or none in time. `socket`: its path; `problem`: what happened."""

    def __init__(self, socket: str, problem: str, hint: str = LOOK_AT_IT) -> None:
        super().__init__(socket, problem, hint)
        self.socket = socket
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"the gate at {self.socket} cannot be reached: {self.problem}: {self.hint}"


def unreachable(socket: str, error: OSError) -> GateUnreachable:
    """The GateUnreachable for what the system said about a socket."""
    return GateUnreachable(socket, (error.strerror or str(error)).lower(), HINTS.get(type(error), LOOK_AT_IT))


def too_late(socket: str, seconds: float) -> GateUnreachable:
    """The GateUnreachable for a call that nobody answered in time."""
    return GateUnreachable(socket, f"no answer within {seconds:.3g} s", LOOK_AT_IT)


def unconfirmed(error: GateUnreachable, schedule: str, at: datetime) -> GateUnreachable:
    """The error for a send that happened, but that the gate could not be told of."""
    hint = f"{schedule} at {rfc3339(at)} was sent, but is not confirmed: the gate will list it as in doubt"
    return GateUnreachable(error.socket, error.problem, hint)


def socket_path(socket: str | os.PathLike[str] | None) -> str:
    """Where the gate listens: the argument, $GATE_SOCKET, the system's gate, or the user's own.

    Raises GateUnreachable when there is no place to look at.
    """
    if socket:
        return os.fspath(socket)
    if named := os.environ.get("GATE_SOCKET"):
        return named
    if os.geteuid() == 0 or os.access(SYSTEM_SOCKET, os.F_OK):
        return SYSTEM_SOCKET
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return f"{runtime}/gate/gate.sock"
    raise GateUnreachable(SYSTEM_SOCKET, "no such file, and neither $GATE_SOCKET nor $XDG_RUNTIME_DIR is set", START_IT)


def default_holder() -> str:
    """Who asks, when nobody says so: `host:pid:program`."""
    folder, _, program = (sys.argv[0] if sys.argv else "").rpartition("/")
    if program == "__main__.py":
        program = folder.rpartition("/")[2]
    return cut(f"{os.uname().nodename}:{os.getpid()}:{program or 'python'}", HOLDER_BYTES)


def cut(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8; what UTF-8 cannot say becomes a question mark."""
    return text.encode(errors="replace")[:limit].decode(errors="ignore")


def new_token() -> str:
    """128 random bits, as hexadecimal."""
    return os.urandom(16).hex()


class ClaimOptions(TypedDict, total=False):
    """What a claim may say besides its schedule and `at`; seconds. See gate/io.schedulegate.Send.varlink."""

    every: float | None
    once: bool | None
    deadline: float | None
    lease: float | None
    token: str | None
    title: str | None


class AskOptions(ClaimOptions, total=False):
    """And how long to wait: for an occurrence that another is sending, and for the gate."""

    wait: float | None
    timeout: float | None


def claim_in(schedule: str, holder: str, at: datetime | str | None, **options: Unpack[ClaimOptions]) -> ClaimIn:
    """The parameters of a claim, with a token of its own if none is given; raises InvalidClaim for a naive `at`."""
    options["token"] = options.get("token") or new_token()
    return ClaimIn(schedule=schedule, holder=holder, at=None if at is None else _at(at), **options)


def start_in(schedule: str, holder: str, at: datetime | str, attempt: int, token: str | None) -> StartIn:
    """The parameters of a start, with a token of its own if none is given; raises InvalidClaim for a naive `at`."""
    return StartIn(schedule=schedule, holder=holder, at=_at(at), attempt=attempt, token=token or new_token())


def method_of(parameters: Granting) -> str:
    """The method that these are the parameters of."""
    return CLAIM if isinstance(parameters, ClaimIn) else START


def _at(at: datetime | str) -> str:
    try:
        return rfc3339(instant(at) if isinstance(at, str) else at)
    except NotAnInstant as error:
        raise InvalidClaim(field="at", reason=str(error)) from None


def pauses() -> Iterator[float]:
    """Seconds between attempts to connect: 20 ms, doubling to 500 ms."""
    pause = FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(pause * 2, LAST_PAUSE_SECONDS)


class Request:
    """One call until it has its result, over as many connections as that takes."""

    __slots__ = ("astray", "in_flight", "method", "more", "parameters", "problem", "result")

    def __init__(self, method: str, parameters: Wire, *, more: bool = False) -> None:
        self.method = method
        self.parameters = parameters
        self.more = more
        self.in_flight = False
        """Written to a connection that lives, and not answered."""
        self.astray = False
        """Written to a connection that was lost before the answer."""
        self.problem: GateError | None = None
        """Why there is no result yet."""
        self.result: Reply | GateError | None = None

    @property
    def token(self) -> str | None:
        """The token of a claim."""
        return self.parameters.token if isinstance(self.parameters, Granting) else None

    @property
    def pause(self) -> float:
        """How long the gate asked to be left alone, in seconds."""
        asked = self.problem.parameters.get("retry_after", 0.0) if isinstance(self.problem, CallError) else 0.0
        return asked if isinstance(asked, int | float) else 0.0

    @property
    def unsettled(self) -> bool:
        """Whether this is a claim that may be granted without anybody here knowing."""
        return self.token is not None and (self.in_flight or self.astray) and not isinstance(self.result, Reply)

    @property
    def granted(self) -> bool:
        """Whether this is a claim that was granted."""
        return isinstance(self.result, ClaimOut) and self.result.decision is Decision.SEND

    def lease(self, now: datetime) -> float:
        """How many seconds the claim that was granted has left; 0 if none was."""
        if not self.granted or not isinstance(self.result, ClaimOut) or self.result.until is None:
            return 0.0
        return max((self.result.until - now).total_seconds(), 0.0)

    def asked(self) -> None:
        """It is being written."""
        self.in_flight = True
        self.problem = None

    def answered(self, result: Reply | CallError, *, continues: bool) -> None:
        """Take an answer; one that only says `not now` leaves the request without a result."""
        self.in_flight = continues
        if isinstance(result, TRANSIENT) or (isinstance(result, StoreUnavailable) and self.method in SETTLING):
            self.problem = result
        elif not continues:
            self.result = result

    def concluded(self) -> bool:
        """Whether the outcome of a claim is known; `held` once more, by whomever, is none."""
        if isinstance(self.result, ClaimOut) and self.result.decision is Decision.HELD:
            self.result = None
        return self.result is not None

    def lost(self, problem: GateError) -> None:
        """The connection is gone: only what may be asked twice waits for the next one."""
        was_in_flight, self.in_flight = self.in_flight, False
        if self.result is not None:
            return
        self.problem = problem
        self.astray = self.astray or was_in_flight
        if was_in_flight and self.method in NOT_IDEMPOTENT:
            self.result = problem

    def give_up(self, error: GateError) -> None:
        """The deadline has come."""
        if self.result is None:
            self.result = self.problem or error


class ClaimAnswer:
    """What the gate answered to a claim. `granted`: you, and nobody else, may send, until `until`."""

    __slots__ = ("reply", "schedule", "settled")

    def __init__(self, schedule: str, reply: ClaimOut) -> None:
        self.schedule = schedule
        self.reply = reply
        self.settled = not self.granted
        """Whether there is nothing left to confirm or release."""

    @property
    def granted(self) -> bool:
        return self.reply.decision is Decision.SEND

    @property
    def decision(self) -> Decision:
        return self.reply.decision

    @property
    def reason(self) -> str:
        return self.reply.reason

    @property
    def at(self) -> datetime:
        """The occurrence that the answer is about, in UTC."""
        return self.reply.at

    @property
    def token(self) -> str | None:
        """What settles the claim; None if it was not granted."""
        return self.reply.token

    @property
    def until(self) -> datetime | None:
        return self.reply.until

    @property
    def by(self) -> str | None:
        """The holder that sent, or that holds the claim."""
        return self.reply.by

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.schedule} {rfc3339(self.at)}: {self.decision}: {self.reason}>"


def token_in(token: str | None) -> TokenIn:
    """The parameters that settle `token`; raises ValueError for the None of a claim that was not granted."""
    if token is None:
        raise ValueError("this claim was not granted: there is nothing to confirm or release")
    return TokenIn(token=token)


def replied(request: Request, answers: type[R]) -> R:
    """The reply that a request got; raises the error that it got instead."""
    if isinstance(request.result, answers):
        return request.result
    if isinstance(request.result, GateError):
        raise request.result
    raise TypeError(f"{request.method} answered {type(request.result).__name__}, not {answers.__name__}")
