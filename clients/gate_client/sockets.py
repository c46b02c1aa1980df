"""Connections that a forked child gives up.

A child that kept its parent's connection open would hide the parent's death from the gate, and one that wrote
into it would mix two conversations.
"""

import os
from socket import AF_UNIX, SOCK_STREAM, socket
from weakref import WeakSet

_mine: WeakSet[socket] = WeakSet()


def connect(path: str) -> socket:
    """A connection that never blocks; raises OSError at once if nobody listens or the queue of the gate is full."""
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
