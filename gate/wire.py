"""The Varlink codec, without I/O: bytes in, calls out; answers in, bytes out; the same for client and server.

One message is one JSON object and one NUL byte. A driver reads bytes, calls `receive`, acts on what comes out,
and writes what `take` (server) or `call` (client) gives it. Answers leave in the order of their calls, however
late they are made. Nothing here waits, and nothing here grows without a limit.

Source of the rules: the Varlink protocol, https://varlink.org/ (method calls, `more`, `oneway`, `continues`).
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gate import errors
from gate.interface import METHODS, Method, Reply, Wire

MESSAGE_BYTES = 64 * 1024
"""Default limit of one call, NUL not counted."""
REPLY_BYTES = 16 * 1024 * 1024
"""Limit that the clients set to one answer."""
PIPELINED_CALLS = 64
"""Default limit of calls that wait for their answers on one connection."""
FLOOD = 2
"""With so many times the limit waiting, refused ones included, the peer is hung up on."""

_BAD = (msgspec.MsgspecError, RecursionError, UnicodeError)
_FIELD = re.compile(r"`\$\.(\w+)|field `([^`]*)`")


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """The envelope of a call."""

    method: str
    parameters: Raw = Raw(b"{}")
    more: bool = False
    oneway: bool = False
    upgrade: bool = False

    @property
    def streams(self) -> bool:
        """Whether it wants more than one answer: one who wants none waits for nothing."""
        return self.more and not self.oneway


class Answer(Struct, frozen=True):
    """The envelope of an answer: parameters of a reply, or of the error that `error` names."""

    parameters: Raw = Raw(b"{}")
    error: str | None = None
    continues: bool = False


_call_decoder = msgspec.json.Decoder(Call)
_answer_decoder = msgspec.json.Decoder(Answer)
_encoder = msgspec.json.Encoder()


class _Decoders(dict[str, msgspec.json.Decoder[Any]]):
    """A decoder for each method, built when it is first needed: a client needs few of them."""

    def __init__(self, kind: Callable[[Method], type[Struct]]) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, method: str) -> msgspec.json.Decoder[Any]:
        decoder = self[method] = msgspec.json.Decoder(self._kind(METHODS[method]))
        return decoder


_parameter_decoders = _Decoders(lambda method: method.takes)
_reply_decoders = _Decoders(lambda method: method.answers)


class Frames:
    """Cuts a stream of bytes into messages; each byte is looked at once."""

    __slots__ = ("_tail", "ended", "limit", "too_large")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.too_large = False
        self.ended = 0
        """How many messages have ended."""
        self._tail = bytearray()

    @property
    def begun(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._tail)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes; once one exceeds the limit, `too_large` is set and nothing follows."""
        if self.too_large:
            return []
        if self._tail:
            self._tail += data
            if b"\0" not in data:
                self._check_tail()
                return []
            data = bytes(self._tail)
        *frames, tail = data.split(b"\0")
        self.ended += len(frames)
        if tail or self._tail:
            self._tail = bytearray(tail)
        if len(data) <= self.limit:  # no message in it can be longer
            return frames
        for index, frame in enumerate(frames):
            if len(frame) > self.limit:
                self.too_large = True
                self._tail.clear()
                return frames[:index]
        self._check_tail()
        return frames

    def _check_tail(self) -> None:
        if len(self._tail) > self.limit:
            self.too_large = True
            self._tail.clear()


class Slot:
    """One call and the place of its answer in the order of answers."""

    __slots__ = ("call", "done", "end", "parameters", "unsent")

    def __init__(self, call: Call | None, parameters: Wire | None) -> None:
        self.call = call
        self.parameters = parameters
        self.done = False
        self.end: int | None = None
        """Where the answer ended in the stream of answers, once it is among those to be written."""
        self.unsent = b""


class ServerProtocol:
    """The server's side of one connection.

    Call `receive` with what was read, answer every slot that comes out (at once or later, in any order), and
    write what `take` returns. After `hang_up` is set, close once everything is written.
    """

    __slots__ = ("_frames", "_slots", "calls_max", "hang_up", "made", "queued")

    def __init__(self, message_bytes: int = MESSAGE_BYTES, calls_max: int = PIPELINED_CALLS) -> None:
        self._frames = Frames(message_bytes)
        self._slots: deque[Slot] = deque()
        self.calls_max = calls_max
        self.hang_up = False
        self.queued = 0
        """How many bytes `take` has returned so far."""
        self.made = 0
        """How many bytes of answers were made so far."""

    @property
    def begun(self) -> bool:
        """Whether the peer has begun a message and not ended it."""
        return self._frames.begun

    @property
    def frames(self) -> int:
        """How many messages have ended."""
        return self._frames.ended

    @property
    def waiting(self) -> int:
        """How many calls wait for their answers."""
        return len(self._slots)

    def receive(self, data: bytes) -> list[Slot]:
        """The well-formed calls in `data`; the others are answered here, with the error that names their fault."""
        calls: list[Slot] = []
        for frame in self._frames.feed(data):
            if len(self._slots) >= FLOOD * self.calls_max and not self.hang_up:
                self.refuse(errors.TooManyCalls(limit=self.calls_max))
            if self.hang_up:
                break
            slot = self._open(frame)
            if not slot.done:
                calls.append(slot)
        if self._frames.too_large and not self.hang_up:
            self.refuse(errors.MessageTooLarge(limit=self._frames.limit))
        return calls

    def refuse(self, error: errors.CallError) -> None:
        """Say `error` after all answers, then hang up."""
        self.hang_up = True
        slot = Slot(None, None)
        self._slots.append(slot)
        self.fail(slot, error)

    def _open(self, frame: bytes) -> Slot:
        try:
            call = _call_decoder.decode(frame)
        except _BAD as error:
            slot = Slot(None, None)
            self._slots.append(slot)
            self.fail(slot, errors.BadMessage(reason=_one_line(error)))
            return slot
        slot = Slot(call, None)
        self._slots.append(slot)
        if len(self._slots) > self.calls_max:
            too_many = errors.TooManyCalls(limit=self.calls_max)
            self.fail(slot, too_many)
            if call.oneway:
                self.refuse(too_many)
            return slot
        if call.upgrade:
            self.fail(slot, errors.InvalidParameter(parameter="upgrade"))
            return slot
        try:
            slot.parameters = decode_parameters(call)
        except errors.CallError as error:
            self.fail(slot, error)
        return slot

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        """Answer a call; with `continues` more answers follow."""
        end = b',"continues":true}\0' if continues else b"}\0"
        self._answer(slot, b'{"parameters":' + _encoder.encode(reply) + end, done=not continues)

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        """Answer a call with an error."""
        self._answer(slot, _encoder.encode({"error": error.name, "parameters": error.parameters}) + b"\0", done=True)

    def _answer(self, slot: Slot, data: bytes, *, done: bool) -> None:
        slot.done = done
        if slot.call is None or not slot.call.oneway:
            slot.unsent += data
            slot.end = None
            self.made += len(data)

    def take(self) -> bytes:
        """What may be written now: the answers up to the first call that still waits."""
        parts: list[bytes] = []
        while self._slots:
            slot = self._slots[0]
            if slot.unsent:
                parts.append(slot.unsent)
                self.queued += len(slot.unsent)
                slot.end = self.queued
                slot.unsent = b""
            if not slot.done:
                break
            self._slots.popleft()
        return b"".join(parts)


class ClientProtocol:
    """The client's side of one connection: `call` gives bytes to write, `receive` matches answers to calls."""

    __slots__ = ("_frames", "_pending")

    def __init__(self, reply_bytes: int = REPLY_BYTES) -> None:
        self._frames = Frames(reply_bytes)
        self._pending: deque[tuple[str, object]] = deque()

    @property
    def waiting(self) -> int:
        """How many calls wait for their last answer."""
        return len(self._pending)

    def call(self, method: str, parameters: Wire, tag: object = None, *, more: bool = False) -> bytes:
        """The bytes of one call; its answers come back with `tag`."""
        data = encode_call(method, parameters, more=more)
        self._pending.append((method, tag))
        return data

    def receive(self, data: bytes) -> Iterator[tuple[object, Reply | errors.CallError, bool]]:
        """Answers as (tag, reply or error, whether more follow); to be iterated to its end.

        Raises errors.BadMessage when the peer does not speak Varlink, answers what was not asked, or exceeds the
        limit of one answer, after the good answers that came before; the connection is of no use after that.
        """
        for frame in self._frames.feed(data):
            if not self._pending:
                raise _unasked(frame)
            method, tag = self._pending[0]
            answer, result = decode_answer(method, frame)
            if not answer.continues:
                self._pending.popleft()
            yield tag, result, answer.continues
        if self._frames.too_large:
            raise errors.BadMessage(reason=f"an answer is longer than {self._frames.limit} bytes")


def encode_call(method: str, parameters: Wire, *, more: bool = False, oneway: bool = False) -> bytes:
    """One call as bytes; fields that are None are left out."""
    fields: dict[str, Any] = {
        name: value for name in parameters.__struct_fields__ if (value := getattr(parameters, name)) is not None
    }
    call: dict[str, Any] = {"method": method, "parameters": fields}
    if more:
        call["more"] = True
    if oneway:
        call["oneway"] = True
    return _encoder.encode(call) + b"\0"


def decode_parameters(call: Call) -> Wire:
    """The parameters of a call as its struct; raises InterfaceNotFound, MethodNotFound or InvalidParameter."""
    if call.method not in METHODS:
        interface = call.method.rpartition(".")[0]
        if any(name.startswith(interface + ".") for name in METHODS):
            raise errors.MethodNotFound(method=call.method)
        raise errors.InterfaceNotFound(interface=interface)
    try:
        parameters: Wire = _parameter_decoders[call.method].decode(call.parameters)
    except _BAD as error:
        found = _FIELD.search(str(error))
        raise errors.InvalidParameter(parameter=(found and (found[1] or found[2])) or "parameters") from error
    return parameters


def decode_answer(method: str, frame: bytes) -> tuple[Answer, Reply | errors.CallError]:
    """The envelope of an answer and what is in it; raises BadMessage when it is not one."""
    try:
        answer = _answer_decoder.decode(frame)
        if answer.error is None:
            reply: Reply = _reply_decoders[method].decode(answer.parameters)
            return answer, reply
        parameters: Mapping[str, Any] = msgspec.json.decode(answer.parameters, type=dict[str, Any])
    except _BAD as error:
        raise errors.BadMessage(reason=_one_line(error)) from error
    return answer, errors.from_wire(answer.error, parameters)


def _unasked(frame: bytes) -> errors.CallError:
    """A gate that has no room says so without being asked; everything else unasked is a fault."""
    try:
        answer = _answer_decoder.decode(frame)
        if answer.error is not None:
            return errors.from_wire(answer.error, msgspec.json.decode(answer.parameters, type=dict[str, Any]))
    except _BAD as error:
        return errors.BadMessage(reason=_one_line(error))
    return errors.BadMessage(reason="an answer that nobody asked for")


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:200] or type(error).__name__
