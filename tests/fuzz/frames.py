"""Frames that are calls, or nearly: whole calls of every method with fields, flags and bytes changed.

Names, tokens and instants come from small pools, so that a gate that remembers what it is told has a bounded amount to
remember: what grows beyond that is a leak.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gate.interface import METHODS
from gate.wire import Call

WAITING = ("io.schedulegate.Send.Claim", "io.schedulegate.Fetch.Watch")
"""With `more`, their answers may take as long as somebody else takes: not for a line of calls that are awaited."""
RELOAD = "io.schedulegate.Control.Reload"
_START = datetime.now(UTC).replace(second=0, microsecond=0)
_INSTANTS = [(_START - timedelta(minutes=n)).isoformat() for n in range(8)]
_TEXTS = ["", "a", "reports", "default", "*", "é" * 40, "\0", "x" * 513, "\x7f\u2028", "../..", "%s{0}", "😀"]
_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, 1e308, -1e-308, 2**63, 2**64, -(2**63) - 1, 10**400, [], {}, [None], [[[]]],
    {"a": {"b": []}}, *_TEXTS, "2026-01-01", "2026-01-01T00:00:00",
    "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
]  # fmt: skip
_RAW = [b"NaN", b"Infinity", b"1e999", b'"\\ud800"', b'"\\udc00x"', b"\xff", b"[" * 2000, b'{"a":' * 500, b"9" * 4000]


class Sent(NamedTuple):
    """One frame. `method`: what is answered if it is served; None when it is no call of a known method."""

    data: bytes
    method: str | None
    oneway: bool = False
    """Whether no answer comes."""
    waits: bool = False
    """Whether its answers come in parts, the last of them when somebody else acts, or never."""


class Maker:
    """Makes frames; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._methods = [name for name in METHODS if name != RELOAD]

    def frames(self) -> list[Sent]:
        """A call or what is left of it, in more than one frame when a NUL came into it."""
        data, method = self._call()
        return [_sent(part, method) for part in data.split(b"\0")]

    def _call(self) -> tuple[bytes, str]:
        pick = self._random
        method = pick.choice(self._methods)
        fields = {name: self._value(name) for name in METHODS[method].takes.__struct_fields__ if pick.random() < 0.9}
        call: dict[str, Any] = {"method": method, "parameters": fields}
        kind = pick.random()
        if kind < 0.4 and fields:
            fields[pick.choice(list(fields))] = pick.choice(_ODD)
        elif kind < 0.45:
            fields[pick.choice(_TEXTS)] = pick.choice(_ODD)
        elif kind < 0.5:
            call[pick.choice(["parameters", "upgrade", "method", "x", ""])] = pick.choice(_ODD)
        if pick.random() < 0.1:
            call["more"] = pick.choice([True, False, None, 1])
        if pick.random() < 0.05:
            call["oneway"] = pick.choice([True, True, False, None, "yes"])
        data = json.dumps(call, ensure_ascii=pick.random() < 0.5).encode(errors="surrogatepass")
        return (self._mangled(data) if pick.random() < 0.25 else data), method

    def _value(self, name: str) -> Any:
        pick = self._random
        if name in ("at", "since", "until", "start", "first"):
            return pick.choice(_INSTANTS)
        if name in ("every", "deadline", "lease"):
            return None if pick.random() < 0.7 else pick.choice([0, 1, 30, 60.5])
        if name in ("limit", "days", "count"):
            return pick.randrange(1, 9)
        if name == "queues":
            return pick.choice([None, [], ["default"], ["a", "b"]])
        if name == "permits":
            return [{"permit": f"permit-{pick.randrange(50)}", "queue": "default"}]
        if name == "schedules":
            return [{"schedule": f"s{pick.randrange(50)}", "trigger": "cron 1"}]
        if name in ("once", "last"):
            return pick.choice([True, False])
        if name == "action":
            return pick.choice(["open", "close", "auto", "pause", "resume"])
        if name == "interface":
            return pick.choice(["io.schedulegate.Send", "a.b"])
        return f"{name}-{pick.randrange(50)}"

    def _mangled(self, data: bytes) -> bytes:
        pick = self._random
        place = pick.randrange(len(data))
        kind = pick.randrange(6)
        if kind == 0:
            return data[:place]
        if kind == 1:
            return data[:place] + pick.choice(_RAW) + data[place + 1 :]
        if kind == 2:
            return data[:place] + bytes([pick.randrange(1, 256)]) + data[place + 1 :]
        if kind == 3:
            return data + data
        if kind == 4:
            return data[:place] + b"\0" * pick.randrange(1, 3) + data[place:]
        return data.replace(b'{"method"', b'{"method":"a.b.C","method"', 1)


def _sent(data: bytes, method: str) -> Sent:
    """What comes of a frame, mangled or not: its envelope says so, if it still has one."""
    try:
        call = msgspec.json.decode(data, type=Call)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Sent(data, method)
    return Sent(data, method, oneway=call.oneway, waits=call.more and call.method in WAITING)
