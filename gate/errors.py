"""The error tree: one class per error that a peer can get, with its wire name, its fields and its text.

    GateError                     everything that the gate or a client raises on purpose
    ├── CallError                 answers a call; travels as {"error": name, "parameters": {...}}
    │   ├── the peer broke a rule: MethodNotFound, InvalidParameter, InvalidClaim, UnknownToken, ...
    │   ├── the peer may not:      PermissionDenied
    │   └── the store failed:      StoreUnavailable
    ├── StoreError                the ledger's file is damaged, foreign, full, locked or gone
    ├── ConfigError               the configuration, every finding at once
    └── StartError                the service cannot start here (state or socket is held by another)

Texts are lower case without a final stop: what is wrong, the value, what is allowed or what to do.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

SERVICE = "org.varlink.service."
SEND = "io.schedulegate.Send."
FETCH = "io.schedulegate.Fetch."
CONTROL = "io.schedulegate.Control."


class GateError(Exception):
    """Base of everything that schedule-gate raises on purpose."""


class CallError(GateError):
    """An error reply: `name` on the wire, `parameters` as its fields, `str()` as its text."""

    name: ClassVar[str] = ""
    text: ClassVar[str] = ""

    def __init__(self, /, **parameters: Any) -> None:
        super().__init__(parameters)
        self.parameters = parameters

    def __str__(self) -> str:
        return self.text.format_map(_Shown({field: _shown(value) for field, value in self.parameters.items()}))

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.parameters)

    def __getattr__(self, field: str) -> Any:
        try:
            return self.__dict__["parameters"][field]
        except KeyError:
            raise AttributeError(field) from None


class _Shown(dict[str, Any]):
    """What a text shows; a peer may leave out fields."""

    def __missing__(self, field: str) -> str:
        return "?"


def _shown(value: Any) -> Any:
    """A list as people write it."""
    items: Iterable[Any] = value
    return ", ".join(map(str, items)) if isinstance(value, list) else value


def _again(cls: type[CallError], parameters: dict[str, Any]) -> CallError:
    """Copying and pickling keep the fields: a pool of processes may carry an error home."""
    error = cls.__new__(cls)
    CallError.__init__(error, **parameters)
    return error


class InterfaceNotFound(CallError):
    name = SERVICE + "InterfaceNotFound"
    text = "unknown interface {interface!r}: org.varlink.service.GetInfo lists those that exist"


class MethodNotFound(CallError):
    name = SERVICE + "MethodNotFound"
    text = "unknown method {method!r}: org.varlink.service.GetInterfaceDescription shows those that exist"


class InvalidParameter(CallError):
    name = SERVICE + "InvalidParameter"
    text = "invalid parameter {parameter!r}: unknown, missing or of a wrong type"


class PermissionDenied(CallError):
    name = SERVICE + "PermissionDenied"
    text = "not allowed: steering needs root, the gate's own user, or a user or group listed in [control]"


class ExpectedMore(CallError):
    name = SERVICE + "ExpectedMore"
    text = 'this method streams its answers: call it with "more"'


class InvalidClaim(CallError):
    name = SEND + "InvalidClaim"
    text = "invalid claim: {field}: {reason}"


class UnknownToken(CallError):
    name = SEND + "UnknownToken"
    text = "unknown token {token!r}: no claim with it was granted, or it is older than the ledger remembers tokens"


class StoreUnavailable(CallError):
    name = SEND + "StoreUnavailable"
    text = "the ledger cannot be written now, so nothing is granted: ask again in {retry_after} s"


class UnknownPermit(CallError):
    name = FETCH + "UnknownPermit"
    text = "unknown permit {permit!r}: no place is held with it by this process"


class InvalidWorker(CallError):
    name = FETCH + "InvalidWorker"
    text = "invalid question: {field}: {reason}"


class NoSuchRule(CallError):
    name = CONTROL + "NoSuchRule"
    text = "no [[fetch]] rule is named {rule!r}: the configuration has {known}"


class InvalidOverride(CallError):
    name = CONTROL + "InvalidOverride"
    text = "invalid override: {field}: {reason}"


class NoSuchPause(CallError):
    name = CONTROL + "NoSuchPause"
    text = "no pause in force is of {schedule!r}: there are those of {known}"


class InvalidPause(CallError):
    name = CONTROL + "InvalidPause"
    text = "invalid pause: {field}: {reason}"


class InvalidConfig(CallError):
    name = CONTROL + "InvalidConfig"
    text = "{source} is not taken over, and what ran before goes on: {findings}"


class NotInDoubt(CallError):
    name = CONTROL + "NotInDoubt"
    text = "{schedule} at {at} is neither in doubt nor missed but {state}: only such a one can be sent again"


class BadMessage(CallError):
    name = CONTROL + "BadMessage"
    text = "not a Varlink call: {reason}"


class MessageTooLarge(CallError):
    name = CONTROL + "MessageTooLarge"
    text = "a message is longer than {limit} bytes"


class MessageTimeout(CallError):
    name = CONTROL + "MessageTimeout"
    text = "a message that was begun did not end within {seconds} s"


class TooManyCalls(CallError):
    name = CONTROL + "TooManyCalls"
    text = "more than {limit} calls of this connection wait for their answers"


class AnswersUnread(CallError):
    name = CONTROL + "AnswersUnread"
    text = "more than {limit} bytes of answers wait to be read: read them, then ask for this again"


class TooManyConnections(CallError):
    name = CONTROL + "TooManyConnections"
    text = "more than {limit} connections"


class TooManyConnectionsOfUser(TooManyConnections):
    name = CONTROL + "TooManyConnectionsOfUser"
    text = "more than {limit} connections of the user {uid}: the others are kept for other users"


class UnknownError(CallError):
    """An error reply whose name this version does not know; `wire_name` holds it."""

    text = "the peer answered {wire_name}: {parameters}"

    def __init__(self, wire_name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(wire_name=wire_name, parameters=dict(parameters))


CALL_ERRORS: dict[str, type[CallError]] = {
    cls.name: cls
    for cls in (
        InterfaceNotFound,
        MethodNotFound,
        InvalidParameter,
        PermissionDenied,
        ExpectedMore,
        InvalidClaim,
        UnknownToken,
        StoreUnavailable,
        UnknownPermit,
        InvalidWorker,
        NoSuchRule,
        InvalidOverride,
        NoSuchPause,
        InvalidPause,
        InvalidConfig,
        NotInDoubt,
        BadMessage,
        MessageTooLarge,
        MessageTimeout,
        TooManyCalls,
        AnswersUnread,
        TooManyConnections,
        TooManyConnectionsOfUser,
    )
}


def from_wire(name: str, parameters: Mapping[str, Any]) -> CallError:
    """The exception for an error reply; a name that is not ours gives an UnknownError."""
    known = CALL_ERRORS.get(name)
    return UnknownError(name, parameters) if known is None else known(**parameters)


class StoreError(GateError):
    """The store cannot be used now; the text says what and where. Nothing of the batch was written."""


class StartError(GateError):
    """The service cannot start: the text says what stands in the way and who holds it."""


class ConfigError(GateError):
    """The configuration is refused; `findings` holds every error of the file, one line each."""

    def __init__(self, source: str, findings: list[str]) -> None:
        super().__init__(source, findings)
        self.source = source
        self.findings = findings

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {finding}" for finding in self.findings)
