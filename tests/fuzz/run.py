"""Sends frames to a gate over several connections, as fast as it answers, and checks every answer."""

import random
import select
import socket
from collections import Counter
from pathlib import Path

import msgspec

from gate import errors
from gate.interface import METHODS
from tests.fuzz.frames import Maker, Sent, unanswered

BATCH = 48
CORPUS = 4000
PATIENCE_MS = 60_000
_FIELDS = {name: msgspec.json.Decoder(method.answers) for name, method in METHODS.items()}


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    error: str | None = None
    continues: bool = False


_answer = msgspec.json.Decoder(_Answer)
_any = msgspec.json.Decoder(dict[str, object])


def check(frame: Sent, data: bytes) -> str:
    """The name of the error that was answered, or "ok"; raises AssertionError for what is no valid answer."""
    try:
        answer = _answer.decode(data)
        assert not answer.continues, f"{frame} is answered in part by {data[:300]!r}"
        if answer.error is None:
            assert frame.method is not None, f"{frame} is answered by {data[:300]!r}"
            _FIELDS[frame.method].decode(answer.parameters)
            return "ok"
        assert answer.error in errors.CALL_ERRORS, f"{frame} is answered by an undeclared error: {data[:300]!r}"
        str(errors.from_wire(answer.error, _any.decode(answer.parameters)))
    except (msgspec.MsgspecError, KeyError) as error:
        raise AssertionError(f"{frame} is answered by {data[:300]!r}: {error}") from error
    return answer.error.rpartition(".")[2]


def corpus(seed: int, size: int = CORPUS) -> list[Sent]:
    """Frames that are each answered once."""
    maker = Maker(seed)
    found: list[Sent] = []
    while len(found) < size:
        frame = maker.frame()
        if b"\0" not in frame.data and not unanswered(frame.data):
            found.append(frame)
    return found


class Line:
    """One connection: a batch is written in pieces, its answers are checked in order."""

    def __init__(self, path: Path, pick: random.Random, frames: list[Sent], answers: Counter[str]) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(path))
        self._pick = pick
        self._frames = frames
        self._answers = answers
        self._waiting: list[Sent] = []
        self._tail = b""

    @property
    def next(self) -> Sent | None:
        """The frame whose answer comes next."""
        return self._waiting[-1] if self._waiting else None

    def send(self) -> int:
        """Write a batch, torn at any place; how many frames it has."""
        self._waiting = self._pick.choices(self._frames, k=BATCH)
        data = b"".join(frame.data + b"\0" for frame in self._waiting)
        cut = self._pick.randrange(len(data))
        self.sock.sendall(data[:cut])
        self.sock.sendall(data[cut:])
        self._waiting.reverse()
        return len(self._waiting)

    def receive(self) -> bool:
        """Check what can be read; whether the batch is answered."""
        data = self.sock.recv(1 << 18)
        assert data, f"the gate hung up before {self._waiting[-1:]}"
        *whole, self._tail = (self._tail + data).split(b"\0")
        for part in whole:
            assert self._waiting, f"nobody asked for {part[:300]!r}"
            self._answers[check(self._waiting.pop(), part)] += 1
        return not self._waiting


def run(path: Path, frames: int, seed: int, connections: int = 4) -> Counter[str]:
    """Send so many frames; the answers by name. Raises AssertionError for the first that is not valid."""
    pick = random.Random(seed)
    answers: Counter[str] = Counter()
    made = corpus(seed)
    lines = {line.sock.fileno(): line for line in (Line(path, pick, made, answers) for _ in range(connections))}
    poll = select.poll()
    sent = 0
    for fd, line in lines.items():
        poll.register(fd, select.POLLIN)
        sent += line.send()
    while answers.total() < sent:
        ready = poll.poll(PATIENCE_MS)
        assert ready, f"no answer within {PATIENCE_MS} ms to {[line.next for line in lines.values()]}"
        for fd, _ in ready:
            if lines[fd].receive() and sent < frames:
                sent += lines[fd].send()
    for line in lines.values():
        line.sock.close()
    return answers
