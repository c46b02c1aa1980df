"""One trio task that reads and writes all connections.

The connections live in an epoll of their own, and trio waits for that one descriptor: one scheduler pass serves
every connection that is ready. In a round each of them gives up to READ_BYTES, its calls are handed to `serve`, and
when all are handed over `end_round` lets the engine pass them on together. Each connection's answers leave with one
write.

Who asks one thing at a time is served in the round in which it asks. Who sends several calls at once is put in a
queue, of which a round serves some CALLS_A_ROUND calls, each connection in turn: a flood over a thousand connections
delays a lone call by a fraction of a millisecond, and what is in the queue waits for others like it. It waits too while
the store has enough to do (`busy`), so that a lone claim is in the next transaction.

Limits, each with its own error: see `Limits`. A peer that does not read its answers is not read from, and after a
while is closed; nobody else waits for it.
"""

import errno
import logging
import os
import select
import socket
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from functools import partial

import trio
from msgspec import Struct

from gate import errors, peer
from gate.interface import Reply
from gate.timers import Timer, Timers
from gate.wire import MESSAGE_BYTES, PIPELINED_CALLS, ServerProtocol, Slot

log = logging.getLogger("gate.server")

READ_BYTES = 16 * 1024
EVENTS_MAX = 512
CALLS_A_ROUND = 64
ACCEPTED_A_ROUND = 64
FEW_BYTES = 16 * 1024
"""So much may wait to be read on each connection, whatever waits on the others."""
ACCEPT_AGAIN_SECONDS = 0.1
ACCEPT_TOLD_SECONDS = 10.0
"""How often it is said that nobody can be let in."""
_ONLY_IN = select.EPOLLIN
_GONE = (BrokenPipeError, ConnectionResetError)


class Limits(Struct, frozen=True):
    """What one peer may take. Sizes in bytes, durations in seconds."""

    message_bytes: int = MESSAGE_BYTES
    connections: int = 1000
    connections_of_user: int = 750
    """Of one user other than root and the gate's own, so that nobody locks out all others."""
    calls: int = PIPELINED_CALLS
    message_seconds: float = 10.0
    unread_bytes: int = 256 * 1024
    """With more answers unread than this a connection is not read from."""
    unread_seconds: float = 30.0
    """How long a peer may leave answers unread before it is closed."""
    unread_bytes_of_all: int = 32 * 1024 * 1024
    """With more answers unread on all connections together, no large one is made, and whoever left some has to read."""


class Connection:
    """One connection; the engine knows it as the caller of its calls."""

    def __init__(self, reactor: "Reactor", sock: socket.socket, who: peer.Peer, since: datetime) -> None:
        self._reactor = reactor
        self.sock = sock
        self.fd = sock.fileno()
        self.since = since
        self.pid, self.uid, self.gid = who
        self.protocol = ServerProtocol(reactor.limits.message_bytes, reactor.limits.calls)
        self.claims: set[str] = set()
        self.waits: Counter[tuple[str, datetime]] = Counter()
        self.watching = False
        self.session = ""
        """What ties its Watch to what it asks on other connections."""
        self.holder: str | None = None
        self.closed = False
        self.reset = False
        """The peer closed and left something unread."""
        self.ended = False
        """The peer will send no more."""
        self.written = 0
        self.out = b""
        self.watched = _ONLY_IN
        self.begun: Timer | None = None
        """Ends a message that was begun."""
        self.unread: Timer | None = None
        """Looks whether answers that wait are read."""
        self.later = b""
        """What was read, and is looked at when its turn comes."""
        self.todo: deque[Slot] = deque()
        """Calls that are served when more of their answers are read."""
        self.queued = False
        """Whether it waits for its turn."""
        self.queries: deque[Callable[[], None]] = deque()
        """Large answers that were asked for; the first is being made."""

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None:
        """Answer a call of this connection."""
        self.protocol.reply(slot, reply, continues=continues)
        self._reactor.dirty.add(self)

    def fail(self, slot: Slot, error: errors.CallError) -> None:
        """Answer a call of this connection with an error."""
        self.protocol.fail(slot, error)
        self._reactor.dirty.add(self)

    @property
    def backlog(self) -> int:
        """How many bytes of answers were made and not written."""
        return self.protocol.made - self.written

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing."""
        return not (self.out or self.later or self.protocol.waiting)

    def never_read(self, slot: Slot) -> bool:
        """Whether the peer, which is gone, cannot have read this answer whole.

        What was not written was not read. When the peer closed with something unread (ECONNRESET), that was at
        least the end of what was written last.
        """
        return slot.end is None or slot.end > self.written or (self.reset and slot.end == self.protocol.queued)


class Reactor:
    """Accepts, reads, writes and closes."""

    def __init__(
        self,
        limits: Limits,
        timers: Timers,
        now: Callable[[], datetime],
        serve: Callable[[Connection, Slot], None],
        end_round: Callable[[], None],
        hung_up: Callable[[Connection], None],
    ) -> None:
        self.limits = limits
        self.connections: dict[int, Connection] = {}
        self.dirty: set[Connection] = set()
        self._timers = timers
        self._now = now
        self._serve = serve
        self._end_round = end_round
        self._hung_up = hung_up
        self.busy: Callable[[], bool] = lambda: False
        """Whether so much waits for the store that those in the queue have to wait too: what they would add to it
        delays whoever asks one thing at a time."""
        self._epoll = select.epoll()
        self._listeners: dict[int, socket.socket] = {}
        self._watched: dict[int, Callable[[], None]] = {}
        self._emptied = trio.Event()
        self._of_user: Counter[int] = Counter()
        """How many connections each uid has."""
        self._queue: deque[Connection] = deque()
        """Those that have sent several calls at once; each has its turn."""
        self._said = False
        """Whether it was said lately that nobody can be let in."""
        self._backlog: int | None = None
        """How many bytes of answers wait on all connections, once somebody needed to know in this round."""

    # -- the loop

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            if self._queue and not self.busy():
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
            self._backlog = None
            for fd, events in self._epoll.poll(0, EVENTS_MAX):
                if fd in self._listeners:
                    self._accept(self._listeners[fd])
                elif fd in self.connections:
                    self._ready(self.connections[fd], events)
                elif fd in self._watched:
                    self._watched[fd]()
            if self._queue:
                self._serve_queue()
            self._end_round()
            self.flush()

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        """Call `call` in every round in which `fd` is readable; what it answers is written at the end of the round."""
        self._watched[fd] = call
        self._epoll.register(fd, _ONLY_IN)

    def listen(self, sock: socket.socket) -> None:
        """Accept connections of a listening socket."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), _ONLY_IN)

    def stop_listening(self) -> trio.Event:
        """Accept no more, and read no more; the event comes when all that was read is answered."""
        for fd in self._listeners:
            self._epoll.unregister(fd)
        self._listeners.clear()
        for connection in self.connections.values():
            connection.ended = True
        self.dirty.update(self.connections.values())
        self.flush()
        for connection in list(self.connections.values()):
            waits = connection.waits.total() + connection.watching
            if not connection.out and not connection.later and connection.protocol.waiting == waits:
                self._close(connection)  # what it waits for will not come
        if not self.connections:
            self._emptied.set()
        return self._emptied

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self.connections.values()):
            self._close(connection)
        self._epoll.close()

    # -- accepting

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_A_ROUND):
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_later(listener, error)
                return
            sock.setblocking(False)
            who = peer.credentials(sock)
            too_many = self._too_many(who.uid)
            if too_many is not None:
                self._turn_away(sock, too_many)
                continue
            connection = Connection(self, sock, who, self._now())
            self.connections[connection.fd] = connection
            self._of_user[who.uid] += 1
            self._epoll.register(connection.fd, _ONLY_IN)

    def _accept_later(self, listener: socket.socket, error: OSError) -> None:
        """No descriptors, no memory: those who are here go on, the next one waits a moment."""
        if error.errno == errno.ECONNABORTED:
            return
        if not self._said:
            self._said = True
            self._timers.after(ACCEPT_TOLD_SECONDS, self._say_again)
            log.warning("cannot accept a connection: %s", error)
        fd = listener.fileno()
        self._epoll.modify(fd, 0)

        def again() -> None:
            if fd in self._listeners:
                self._epoll.modify(fd, _ONLY_IN)

        self._timers.after(ACCEPT_AGAIN_SECONDS, again)

    def _say_again(self) -> None:
        self._said = False

    def _too_many(self, uid: int) -> errors.CallError | None:
        """Why one more connection of this user is not let in."""
        limits = self.limits
        if len(self.connections) >= limits.connections:
            return errors.TooManyConnections(limit=limits.connections)
        if self._of_user[uid] >= limits.connections_of_user and uid not in (0, os.geteuid()):
            return errors.TooManyConnectionsOfUser(limit=limits.connections_of_user, uid=uid)
        return None

    def _turn_away(self, sock: socket.socket, refusal: errors.CallError) -> None:
        protocol = ServerProtocol()
        protocol.refuse(refusal)
        with sock:
            try:
                sock.send(protocol.take())
            except OSError as error:
                log.debug("one connection too many, gone already: %s", error)

    # -- reading

    def _ready(self, connection: Connection, events: int) -> None:
        if events & select.EPOLLOUT:
            self._write(connection)
        if connection.closed or connection.queued:
            return
        if connection.ended or connection.watched & _ONLY_IN == 0:
            if events & (select.EPOLLHUP | select.EPOLLERR):
                self._lost(connection, None)
            return
        try:
            data = connection.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(connection, error)
            return
        if not data:
            self._end(connection, gone=bool(events & select.EPOLLHUP))
        elif data.count(b"\0") > 1:
            connection.later = data
            self._enqueue(connection)
        else:
            self._read(connection, data)

    def _enqueue(self, connection: Connection) -> None:
        connection.queued = True
        self._queue.append(connection)
        self.dirty.add(connection)

    def _serve_queue(self) -> None:
        """Give each its turn, until so many calls are served: whoever asks one thing meanwhile waits for no more."""
        left = CALLS_A_ROUND
        while self._queue and left > 0 and not self.busy():
            connection = self._queue.popleft()
            connection.queued = False
            if not connection.closed:
                left -= self._take_turn(connection)

    def _take_turn(self, connection: Connection) -> int:
        """Serve what was left for later, and say how many calls these were."""
        if connection.todo:
            return self._go_on(connection)
        before = connection.protocol.frames
        data, connection.later = connection.later, b""
        self._read(connection, data)
        return connection.protocol.frames - before - len(connection.todo)

    def _go_on(self, connection: Connection) -> int:
        before = len(connection.todo)
        while connection.todo and not self.busy() and not self._must_read(connection):
            self._serve(connection, connection.todo.popleft())
        self.dirty.add(connection)
        return before - len(connection.todo)

    def _must_read(self, connection: Connection) -> bool:
        """Whether a peer has to read some of its answers before it gets others."""
        backlog = connection.backlog
        if backlog <= FEW_BYTES:
            return False
        if self._backlog is None:
            self._backlog = sum(other.backlog for other in self.connections.values())
        return backlog > self.limits.unread_bytes or self._backlog > self.limits.unread_bytes_of_all

    def _read(self, connection: Connection, data: bytes) -> None:
        protocol = connection.protocol
        frames, alone = protocol.frames, True
        for slot in protocol.receive(data):
            unread = protocol.made - connection.written > FEW_BYTES
            if connection.todo or (not alone and self.busy()) or (unread and self._must_read(connection)):
                connection.todo.append(slot)
            else:
                self._serve(connection, slot)
            alone = False
        if connection.begun is not None and (protocol.frames != frames or not protocol.begun):
            connection.begun.cancel()
            connection.begun = None
        if protocol.begun and connection.begun is None:
            self._expect_end(connection)
        self.dirty.add(connection)

    def _expect_end(self, connection: Connection) -> None:
        connection.begun = self._timers.after(self.limits.message_seconds, partial(self._overdue, connection))

    def _overdue(self, connection: Connection) -> None:
        if connection.watched & _ONLY_IN == 0:  # it is not read from now, so its end may have come long ago
            self._expect_end(connection)
            return
        connection.begun = None
        connection.protocol.refuse(errors.MessageTimeout(seconds=self.limits.message_seconds))
        self.dirty.add(connection)
        self.flush()

    def _end(self, connection: Connection, *, gone: bool) -> None:
        """The peer sends no more: whoever only shut down its sending side still gets its answers."""
        connection.ended = True
        if gone:
            self._close(connection)
        else:
            self.dirty.add(connection)

    def _lost(self, connection: Connection, error: OSError | None) -> None:
        """The peer is gone: whether it left answers unread shows in the error, or in the one that still waits."""
        waiting = connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        connection.reset = isinstance(error, ConnectionResetError) or waiting == errno.ECONNRESET
        if error is not None and not isinstance(error, _GONE):
            log.warning("a connection failed: %s", error, extra={"uid": connection.uid, "pid": connection.pid})
        self._close(connection)

    # -- writing

    def flush(self) -> None:
        """Write what can be written of all answers that were made since the last flush."""
        while self.dirty:
            self._write(self.dirty.pop())

    def _write(self, connection: Connection) -> None:
        if connection.closed:
            return
        data = connection.out + connection.protocol.take()
        if data:
            try:
                sent = connection.sock.send(data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._lost(connection, error)
                return
            connection.written += sent
            connection.out = data[sent:]
        if connection.out:
            self._wait_until_read(connection)
        elif (connection.protocol.hang_up or connection.ended) and connection.idle:
            self._close(connection)
            return
        if connection.todo and not connection.queued and not self._must_read(connection):
            self._enqueue(connection)
        self._watch(connection)

    def _wait_until_read(self, connection: Connection) -> None:
        """Hang up on a peer that reads nothing for so long; whoever reads a little has time for the rest."""
        if connection.unread is None:
            check = partial(self._check_read, connection, connection.written)
            connection.unread = self._timers.after(self.limits.unread_seconds, check)

    def _check_read(self, connection: Connection, written: int) -> None:
        connection.unread = None
        if not connection.out:
            return
        if connection.written == written:
            log.warning("closed: answers left unread", extra={"uid": connection.uid, "pid": connection.pid})
            self._close(connection)
        else:
            self._wait_until_read(connection)

    def _watch(self, connection: Connection) -> None:
        """Wait for what is of use: for room while answers wait, for calls while the peer reads its answers."""
        reading = not connection.ended and not connection.protocol.hang_up
        reading = reading and not (connection.queued or connection.todo)
        reading = reading and len(connection.out) <= self.limits.unread_bytes
        watched = (_ONLY_IN if reading else 0) | (select.EPOLLOUT if connection.out else 0)
        if watched != connection.watched:
            connection.watched = watched
            self._epoll.modify(connection.fd, watched)

    # -- closing

    def _close(self, connection: Connection) -> None:
        if connection.closed:
            return
        connection.closed = True
        del self.connections[connection.fd]
        self._of_user[connection.uid] -= 1
        if not self._of_user[connection.uid]:
            del self._of_user[connection.uid]
        self._epoll.unregister(connection.fd)
        connection.sock.close()
        for timer in (connection.begun, connection.unread):
            if timer is not None:
                timer.cancel()
        self.dirty.discard(connection)
        self._hung_up(connection)
        if not self.connections and not self._listeners:
            self._emptied.set()
