"""A gate that a test plays: every answer is the test's own, and so is every fault.

It speaks through gate.wire.ServerProtocol, in a thread of its own, so that blocking and asyncio clients can be
tested with it, also from the same thread.
"""

import asyncio
import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

from gate import errors
from gate.interface import (
    CatchUp,
    ClaimIn,
    ClaimOut,
    Decision,
    Done,
    Reply,
    Reviewed,
    ReviewIn,
    ReviewOut,
    TokenIn,
    Wire,
    instant,
)
from gate.wire import ServerProtocol, Slot

PATIENCE = 10.0
CLAIM = "io.schedulegate.Send.Claim"
CONFIRM = "io.schedulegate.Send.Confirm"
RELEASE = "io.schedulegate.Send.Release"
REVIEW = "io.schedulegate.Send.Review"
MISSED = "io.schedulegate.Send.Missed"


class Keep(NamedTuple):
    """Not answered now: the test does it later, through `FakeGate.finish`. `first`: a reply that continues."""

    first: Reply | None = None


class Drop(NamedTuple):
    """The connection is closed instead of an answer."""


Answer = Reply | errors.CallError | Keep | Drop


def reply(decision: Decision | str, parameters: ClaimIn, **fields: Any) -> ClaimOut:
    """An answer to a claim; a `send` has its token and a lease."""
    at = datetime.now(UTC) if parameters.at is None else instant(parameters.at)
    if decision == Decision.SEND:
        until = datetime.now(UTC) + timedelta(seconds=parameters.lease or 30.0)
        fields = {"token": parameters.token, "until": until, "by": parameters.holder, **fields}
    return ClaimOut(decision=Decision(decision), reason=fields.pop("reason", "the test says so"), at=at, **fields)


def grant(parameters: Wire) -> Answer:
    """The answer to a claim that nobody else has."""
    assert isinstance(parameters, ClaimIn)
    return reply(Decision.SEND, parameters)


def done(parameters: Wire) -> Answer:
    """The answer to a settling."""
    return Done()


def nothing_missed(parameters: Wire) -> Answer:
    """The answer to a listing of schedules that the gate has never heard of."""
    assert isinstance(parameters, ReviewIn)
    now = datetime.now(UTC)
    return ReviewOut(now=now, reviews=[reviewed(each.schedule, now) for each in parameters.schedules])


def reviewed(schedule: str, since: datetime, catch_up: str = "none", **fields: Any) -> Reviewed:
    """One schedule in the answer to a listing."""
    given: dict[str, Any] = {"known": [], "again": [], "paused": None} | fields
    return Reviewed(schedule=schedule, catch_up=CatchUp(catch_up), since=since, **given)


class FakeGate:
    """Grants everything, until `answers[method]`, a function of the parameters, says something else.

    `calls`: what was asked so far, as (method, parameters). `accepted`: how many connections came so far; `live`:
    those that are open. `kept`: calls that wait for `finish`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Callable[[Any], Answer]] = {
            CLAIM: grant,
            CONFIRM: done,
            RELEASE: done,
            REVIEW: nothing_missed,
            MISSED: done,
        }
        self.calls: list[tuple[str, Wire]] = []
        self.accepted = 0
        self.live: set[Peer] = set()
        self.kept: list[tuple[Peer, Slot]] = []
        self.deaf = False
        self.changed = threading.Condition()
        self._commands: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._running = False

    # ---- what the test does

    def start(self) -> Self:
        """Listen (again)."""
        self.path.unlink(missing_ok=True)
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen(128)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._bell, selectors.EVENT_READ, self._obey)
        self._running = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close everything and listen no more; the socket's file stays, as after a kill."""
        if self._running:
            self._run(self._end)
            self._thread.join(PATIENCE)

    def drop(self) -> None:
        """Close every connection, and go on."""
        self._run(self._drop_all)

    def deafen(self) -> None:
        """Accept connections, but read nothing, as a stopped process does."""
        self._run(lambda: self._hearing(deaf=True))

    def hear(self) -> None:
        """Read again, beginning with what has come meanwhile."""
        self._run(lambda: self._hearing(deaf=False))

    def finish(self, answer: Reply | errors.CallError) -> None:
        """Answer the call that was kept first; when this returns, the answer is in the client's socket."""
        peer, slot = self.kept.pop(0)
        self._run(lambda: peer.say(slot, answer))

    def until(self, happened: Callable[[], Any]) -> None:
        """Wait for something to be true; it is looked at after every call and every connection."""
        with self.changed:
            assert self.changed.wait_for(happened, PATIENCE), f"never happened; calls: {self.calls}"

    async def when(self, happened: Callable[[], Any]) -> None:
        """`until`, for coroutines."""
        await asyncio.to_thread(self.until, happened)

    def asked(self, method: str) -> list[Any]:
        """The parameters of the calls of one method."""
        return [parameters for name, parameters in self.calls if name == method]

    def tokens(self, method: str) -> list[str]:
        """The tokens of the calls of one method."""
        return [p.token for p in self.asked(method) if isinstance(p, ClaimIn | TokenIn) and p.token is not None]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    # ---- in its thread

    def _serve(self) -> None:
        while self._running:
            for key, _ in self._selector.select():
                # What is ready may have been closed by what was ready before it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
        self._selector.close()

    def _run(self, act: Callable[[], Any]) -> None:
        """Do something in the thread, and wait until it is done."""
        finished = threading.Event()

        def command() -> None:
            act()
            finished.set()

        self._commands.put(command)
        self._ring.send(b"!")
        assert finished.wait(PATIENCE)

    def _obey(self) -> None:
        self._bell.recv(1)
        self._commands.get()()

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        peer = Peer(self, sock)
        with self.changed:
            self.live.add(peer)
            self.accepted += 1
            if not self.deaf:
                self.watch(peer)
            self.changed.notify_all()

    def _hearing(self, *, deaf: bool) -> None:
        if deaf != self.deaf:
            self.deaf = deaf
            for peer in self.live:
                (self.unwatch if deaf else self.watch)(peer)

    def watch(self, peer: "Peer") -> None:
        self._selector.register(peer.sock, selectors.EVENT_READ, peer.read)

    def unwatch(self, peer: "Peer") -> None:
        self._selector.unregister(peer.sock)

    def _drop_all(self) -> None:
        for peer in list(self.live):
            peer.drop()

    def _end(self) -> None:
        self._running = False
        self._drop_all()
        for sock in (self._listener, self._bell):
            self._selector.unregister(sock)
            sock.close()
        self._ring.close()

    def left(self, peer: "Peer") -> None:
        with self.changed:
            if not self.deaf:
                self.unwatch(peer)
            self.live.discard(peer)
            self.kept = [(other, slot) for other, slot in self.kept if other is not peer]
            self.changed.notify_all()

    def called(self, peer: "Peer", slot: Slot) -> None:
        assert slot.call is not None
        assert slot.parameters is not None
        with self.changed:
            self.calls.append((slot.call.method, slot.parameters))
            answer = self.answers[slot.call.method](slot.parameters)
            if isinstance(answer, Keep):
                self.kept.append((peer, slot))
                if answer.first is not None:
                    peer.say(slot, answer.first, continues=True)
            elif isinstance(answer, Drop):
                peer.drop()
            else:
                peer.say(slot, answer)
            self.changed.notify_all()


class Peer:
    """One connection to the fake."""

    def __init__(self, gate: FakeGate, sock: socket.socket) -> None:
        self.sock = sock
        self._gate = gate
        self._protocol = ServerProtocol()

    def read(self) -> None:
        try:
            data = self.sock.recv(65_536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.drop()
        for slot in self._protocol.receive(data):
            self._gate.called(self, slot)

    def say(self, slot: Slot, answer: Reply | errors.CallError, *, continues: bool = False) -> None:
        if isinstance(answer, errors.CallError):
            self._protocol.fail(slot, answer)
        else:
            self._protocol.reply(slot, answer, continues=continues)
        if self in self._gate.live:
            with suppress(BrokenPipeError, ConnectionResetError):
                self.sock.sendall(self._protocol.take())

    def drop(self) -> None:
        if self in self._gate.live:
            self._gate.left(self)
            self.sock.close()
