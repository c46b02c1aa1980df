"""Sends frames to a gate over several connections, as fast as it answers, and checks every answer."""

import random
import select
import socket
from collections import Counter
from pathlib import Path

import msgspec

from gate import errors
from gate.interface import METHODS
from tests.fuzz.frames import Maker, Sent

BATCH = 48
WAITING = 3
"""So many calls that may wait for somebody else are made on a connection of their own beside each batch."""
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
        assert frame.waits or not answer.continues, f"{frame} is answered in part by {data[:300]!r}"
        if answer.error is None:
            assert frame.method is not None, f"{frame} is answered by {data[:300]!r}"
            _FIELDS[frame.method].decode(answer.parameters)
            return "ok, in part" if answer.continues else "ok"
        assert answer.error in errors.CALL_ERRORS, f"{frame} is answered by an undeclared error: {data[:300]!r}"
        str(errors.from_wire(answer.error, _any.decode(answer.parameters)))
    except (msgspec.MsgspecError, KeyError) as error:
        raise AssertionError(f"{frame} is answered by {data[:300]!r}: {error}") from error
    return answer.error.rpartition(".")[2]


def corpus(seed: int, size: int = CORPUS) -> tuple[list[Sent], list[Sent]]:
    """Frames that are each answered once or, if oneway, not at all; and calls that may wait for somebody else."""
    maker = Maker(seed)
    awaited: list[Sent] = []
    waiting: list[Sent] = []
    while len(awaited) < size:
        for frame in maker.frames():
            (waiting if frame.waits else awaited).append(frame)
    return awaited, waiting


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
        batch = self._pick.choices(self._frames, k=BATCH)
        data = b"".join(frame.data + b"\0" for frame in batch)
        self._waiting = [frame for frame in batch if not frame.oneway]
        self._answers["oneway"] += len(batch) - len(self._waiting)
        cut = self._pick.randrange(len(data))
        self.sock.sendall(data[:cut])
        self.sock.sendall(data[cut:])
        self._waiting.reverse()
        return len(batch)

    def receive(self) -> bool:
        """Check what can be read; whether the batch is answered."""
        data = self.sock.recv(1 << 18)
        assert data, f"the gate hung up before {self._waiting[-1:]}"
        *whole, self._tail = (self._tail + data).split(b"\0")
        for part in whole:
            assert self._waiting, f"nobody asked for {part[:300]!r}"
            self._answers[check(self._waiting.pop(), part)] += 1
        return not self._waiting


class Waiter:
    """One connection with calls that may wait for somebody else; what was answered by the next call is checked."""

    def __init__(self, path: Path, frames: list[Sent], answers: Counter[str]) -> None:
        self._frames = frames[::-1]
        self._answers = answers
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.connect(str(path))
        self._sock.sendall(b"".join(frame.data + b"\0" for frame in frames))

    def close(self) -> None:
        """Check what has come, and hang up on the rest."""
        self._sock.setblocking(False)
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            data = b""
        self._sock.close()
        for part in data.split(b"\0")[:-1]:
            while self._frames[-1].oneway:
                self._frames.pop()
            self._answers[name := check(self._frames[-1], part)] += 1
            if name != "ok, in part":
                self._frames.pop()


def run(path: Path, frames: int, seed: int, connections: int = 4) -> Counter[str]:
    """Send so many frames; the answers by name. Raises AssertionError for the first that is not valid.

    What becomes of calls that wait is counted under "waiting: ..." too, beside the frames that were asked for.
    """
    pick = random.Random(seed)
    answers: Counter[str] = Counter()
    others: Counter[str] = Counter()
    made, waiting = corpus(seed)
    lines = {line.sock.fileno(): line for line in (Line(path, pick, made, answers) for _ in range(connections))}
    poll = select.poll()
    sent = 0
    for fd, line in lines.items():
        poll.register(fd, select.POLLIN)
        sent += line.send()
    waiter = Waiter(path, pick.choices(waiting, k=WAITING), others)
    while answers.total() < sent:
        ready = poll.poll(PATIENCE_MS)
        assert ready, f"no answer within {PATIENCE_MS} ms to {[line.next for line in lines.values()]}"
        for fd, _ in ready:
            if lines[fd].receive() and sent < frames:
                sent += lines[fd].send()
                waiter.close()
                waiter = Waiter(path, pick.choices(waiting, k=WAITING), others)
    waiter.close()
    for line in lines.values():
        line.sock.close()
    answers.update({f"waiting: {name}": count for name, count in others.items()})
    return answers
