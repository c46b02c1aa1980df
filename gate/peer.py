"""Who is at the other end of a Unix socket: what the kernel says, never what the caller says."""

import socket
import struct
from typing import NamedTuple

_UCRED = struct.Struct("3i")
_GROUPS_MAX = 1024
_SO_PEERGROUPS = 59
"""Not in the socket module; the number is of Linux's asm-generic/socket.h."""


class Peer(NamedTuple):
    """Process, user and group of the process that connected."""

    pid: int
    uid: int
    gid: int


def credentials(connection: socket.socket) -> Peer:
    """The SO_PEERCRED of a connected Unix socket."""
    return Peer(*_UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def groups(connection: socket.socket) -> frozenset[int]:
    """The supplementary groups of the process that connected."""
    found = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _GROUPS_MAX)
    return frozenset(struct.unpack(f"{len(found) // 4}I", found))
