"""A command that runs as if nobody stood between it and whoever started it."""

import asyncio
import os
import subprocess
from collections.abc import Sequence
from functools import partial

from gate.ctl.asking import Failed
from gate.ctl.signals import Signals

KILLED = 128


class NotFound(Failed):
    """What a shell gives for that."""

    exit_code = 127


class NotExecutable(Failed):
    """What a shell gives for that."""

    exit_code = 126


class Command:
    """A command that has been started: stdin, stdout, stderr, open files and the terminal are its own.

    It is in our process group, so the terminal sends it what it sends us; what a process sends us is passed on. It
    does not outlive us: if we are killed, it gets SIGTERM. Raises NotFound and
    NotExecutable.
    """

    def __init__(self, arguments: Sequence[str], signals: Signals) -> None:
        try:
            self._process = subprocess.Popen(
                arguments, close_fds=False, preexec_fn=partial(signals.in_child, os.getpid())
            )
        except OSError as error:
            kind = NotFound if isinstance(error, FileNotFoundError) else NotExecutable
            raise kind(f"{arguments[0]} cannot be started: {(error.strerror or str(error)).lower()}") from error
        self.job = f"{arguments[0].rpartition('/')[2]}[{self._process.pid}]"
        """What it is called where places are shown."""
        self._ended = asyncio.Event()
        signals.passed_on = self._process.send_signal
        signals.child_ended = self._look

    def _look(self) -> None:
        if self._process.poll() is not None:
            self._ended.set()

    async def wait(self) -> int:
        """Wait until it has ended; gives its exit code, 128 and the number if a signal ended it."""
        await self._ended.wait()
        code = self._process.wait()
        return code if code >= 0 else KILLED - code
