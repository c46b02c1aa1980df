"""Runs gatectl: in this process, as a process, and on a terminal of a given width."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from gate.ctl.cli import cli

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 60.0
COMMAND = [sys.executable, "-m", "gate.ctl"]
NOBODY = 65534


def gatectl(*arguments: str, env: Mapping[str, str | None] | None = None) -> Result:
    """Run it here; `stdout`, `stderr` and `exit_code` of the result are as those of the process."""
    return CliRunner(env=env).invoke(cli, list(arguments), prog_name="gatectl")


def process(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run it as a process, with `env` added to ours, and pipes for its output."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=cwd, env=os.environ | dict(env or {}), timeout=PATIENCE, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def on_terminal(*arguments: str, columns: int = 80, env: Mapping[str, str] | None = None) -> str:
    """What it writes to a terminal that is so many columns wide."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=ROOT, env=plain | {"TERM": "xterm-256color"} | dict(env or {}),
        stdin=its, stdout=its, stderr=its,
    )  # fmt: skip
    os.close(its)
    written = bytearray()
    with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123 - a descriptor
        while True:
            try:
                data = terminal.read(65_536)
            except OSError:  # EIO: the other end is closed
                break
            if not data:
                break
            written += data
    assert process.wait(PATIENCE) == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


def as_nobody(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it as the user nobody, who may not read where Python is: so it changes its user after it was imported."""
    program = (
        "import os, sys\n"
        "from gate.ctl.cli import run\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "run(sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, timeout=PATIENCE, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
