"""One thread of a child stands still while the others go on: what a disk that never answers does to it."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
"""Requests of ptrace(2)."""
WALL = 0x40000000
"""waitpid also waits for threads."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def threads(pid: int) -> list[int]:
    """The threads of a process in the order in which they were made; the first is its main one."""
    return sorted(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())


@contextmanager
def frozen(thread: int) -> Iterator[None]:
    """While the block runs; raises PermissionError where the machine does not let us."""
    _trace(SEIZE, thread)
    try:
        _trace(INTERRUPT, thread)
        os.waitpid(thread, WALL)
        yield
    finally:
        _trace(DETACH, thread)


def _trace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None):
        error = ctypes.get_errno()
        raise OSError(error, f"ptrace: {os.strerror(error)}")
