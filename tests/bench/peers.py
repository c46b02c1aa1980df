"""The servers that the gate is compared with, each as small as what it stands for allows.

    echo          trio.serve_listeners, a task and a SocketStream per connection; answers what it is told to
    asyncio       an asyncio Protocol that decodes GetInfo and encodes its reply, as the gate does
    fdatasync     blocking, one connection: writes 4 KiB to a file that has its size, fdatasync, answers
    transaction   SQLite, one transaction per claim (WAL, synchronous=FULL), one loop

Started as `python -m tests.bench.peers NAME SOCKET FILE`: for echo and fdatasync `FILE.answer` holds the answer, for
fdatasync and transaction FILE is what is written.
"""

import asyncio
import os
import select
import socket
import sqlite3
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from gate.interface import INTERFACES, ClaimIn, ClaimOut, Decision, GetInfoOut, Reply
from gate.wire import Call, decode_parameters

READ_BYTES = 64 * 1024
BACKLOG = 1024
FILE_BYTES = 4 * 1024 * 1024
BLOCK = bytes(4096)

_decoder = msgspec.json.Decoder(Call)
_encoder = msgspec.json.Encoder()


def _listen(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(path)
    sock.listen(BACKLOG)
    return sock


def _encoded(reply: Reply) -> bytes:
    return b'{"parameters":' + _encoder.encode(reply) + b"}\0"


def echo(path: str, file: Path) -> None:
    """Trio as its documentation teaches it."""
    import trio  # the other servers do without

    answer = file.with_suffix(".answer").read_bytes()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send_all(answer * data.count(b"\0"))

    sock = _listen(path)
    sock.setblocking(False)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    trio.run(partial(trio.serve_listeners, serve, [listener]))


class _GetInfo(asyncio.Protocol):
    transport: asyncio.WriteTransport
    rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        *calls, self.rest = (self.rest + data).split(b"\0")
        self.transport.write(b"".join([self.answer(call) for call in calls]))

    def answer(self, frame: bytes) -> bytes:
        call = _decoder.decode(frame)
        decode_parameters(call)
        return _encoded(
            GetInfoOut(
                vendor="schedule-gate",
                product="schedule-gate",
                version="0.1.0",
                url="https://varlink.org/",
                interfaces=list(INTERFACES),
            )
        )


def protocol(path: str, _: Path) -> None:
    """Asyncio at its fastest without uvloop."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_unix_server(_GetInfo, sock=_listen(path), backlog=BACKLOG)
        await server.serve_forever()

    asyncio.run(serve())


def fdatasync(path: str, file: Path) -> None:
    """The least that a durable answer costs."""
    answer = file.with_suffix(".answer").read_bytes()
    listener = _listen(path)
    write = preallocated(file)
    while True:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(READ_BYTES):
                write()
                connection.sendall(answer * data.count(b"\0"))


def preallocated(file: Path) -> Callable[[], None]:
    """A function that writes a block to a file which keeps its size, and waits until the disk has it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(descriptor, bytes(FILE_BYTES))
    os.fsync(descriptor)
    place = 0

    def write() -> None:
        nonlocal place
        os.pwrite(descriptor, BLOCK, place)
        os.fdatasync(descriptor)
        place = (place + len(BLOCK)) % FILE_BYTES

    return write


class _Ledger:
    """Who was first, and nothing else."""

    def __init__(self, file: Path) -> None:
        self._sql = sqlite3.connect(file, isolation_level=None)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = FULL")
        self._sql.execute(
            "CREATE TABLE claim (schedule TEXT, at TEXT, token TEXT, holder TEXT, PRIMARY KEY (schedule, at))"
            " WITHOUT ROWID"
        )

    def answer(self, frame: bytes) -> bytes:
        claim = decode_parameters(_decoder.decode(frame))
        assert isinstance(claim, ClaimIn)
        assert claim.at is not None
        values = (claim.schedule, claim.at, claim.token, claim.holder)
        won = self._sql.execute("INSERT OR IGNORE INTO claim VALUES (?, ?, ?, ?)", values).rowcount == 1
        return _encoded(
            ClaimOut(
                decision=Decision.SEND if won else Decision.SENT,
                reason="granted" if won else "already sent",
                at=datetime.fromisoformat(claim.at),
                token=claim.token,
                until=datetime.now(UTC) + timedelta(seconds=30),
                by=claim.holder,
            )
        )


def transaction(path: str, file: Path) -> None:
    """A ledger without group commit."""
    ledger, listener, epoll = _Ledger(file), _listen(path), select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    rests: dict[int, bytes] = {}
    while True:
        for fd, _ in epoll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()], rests[connection.fileno()] = connection, b""
                epoll.register(connection.fileno(), select.EPOLLIN)
            elif data := connections[fd].recv(READ_BYTES):
                *calls, rests[fd] = (rests[fd] + data).split(b"\0")
                connections[fd].sendall(b"".join([ledger.answer(call) for call in calls]))
            else:
                epoll.unregister(fd)
                connections.pop(fd).close()


KINDS: dict[str, Callable[[str, Path], None]] = {
    "echo": echo,
    "asyncio": protocol,
    "fdatasync": fdatasync,
    "transaction": transaction,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
