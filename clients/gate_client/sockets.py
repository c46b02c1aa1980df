"""Connections that a forked child gives up.

A child that kept its parent's connection open would hide the parent's death from the gate, and one that wrote
into it would mix two conversations.
"""

import os
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from socket import socket

_mine: "WeakSet[socket]" = WeakSet()


def connect(path: str) -> "socket":
    """A connection that never blocks; raises OSError at once if nobody listens or the queue of the gate is full."""
    from socket import AF_UNIX, SOCK_STREAM, socket  # the dearest import of all: only whoever connects pays for it

    sock = socket(AF_UNIX, SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    _mine.add(sock)
    return sock


def _give_up() -> None:
    for sock in list(_mine):
        sock.close()
    _mine.clear()


os.register_at_fork(after_in_child=_give_up)
