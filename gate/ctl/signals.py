"""Signals of this process as events, with whoever sent them; and what a child is given of them.

Blocked signals are read from a signalfd(2): unlike a handler, that says whether a process or the terminal sent one.
"""

import asyncio
import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KERNEL = 0x80
"""SI_KERNEL: what a terminal makes of Ctrl-C has it, what kill(2) sends has not."""
SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_libc = ctypes.CDLL(None, use_errno=True)
_MASK = ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong))
"""sigset_t, in every libc of Linux."""
_INFO = struct.Struct("=Iii116x")
"""struct signalfd_siginfo: ssi_signo, ssi_errno, ssi_code, and what nobody asks for here."""


class Signals:
    """While this is open, signals come to `passed_on` (with their number) and `child_ended`, in the event loop.

    Those that were ignored, as by nohup, stay ignored. What the terminal sends to its whole foreground group is left
    out: the command is in it and has it already. Open it in the main thread and before the command is started.
    """

    def __init__(self) -> None:
        self.passed_on: Callable[[int], object] = lambda _: None
        self.child_ended: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # were it ignored, the exit code of a child would be lost
        self._heard = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [*self._heard, signal.SIGCHLD])
        self._fd = _signalfd([*self._heard, signal.SIGCHLD])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def _read(self) -> None:
        for number, _, code in _INFO.iter_unpack(os.read(self._fd, 16 * _INFO.size)):
            if number == signal.SIGCHLD:
                self.child_ended()
            elif not _went_to_the_group(number, code):
                self.passed_on(number)

    def in_child(self, parent: int) -> None:
        """Between fork and exec: signals as they were before, and SIGTERM when `parent` dies without a word."""
        _libc.prctl(SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        for number in self._heard:
            signal.signal(number, signal.SIG_DFL)  # one that came meanwhile must not end in a handler of Python
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)


def _went_to_the_group(number: int, code: int) -> bool:
    """Whether the terminal sent it, and not to us alone: a hangup is told to the leader of the session only."""
    return code == FROM_KERNEL and not (number == signal.SIGHUP and os.getsid(0) == os.getpid())


def _signalfd(numbers: Iterable[int]) -> int:
    mask = _MASK()
    _libc.sigemptyset(mask)
    for number in numbers:
        _libc.sigaddset(mask, number)
    fd: int = _libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd
