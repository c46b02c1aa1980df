"""Which process is which, and whether it still lives: a pid alone is used again."""

import os
import select
from functools import cache
from pathlib import Path
from uuid import uuid4

HIDDEN = "hidden"
"""Stands for the start of a process that /proc does not show."""
DEAD = frozenset("ZXx")
"""States of /proc/PID/stat after which a process runs no more, though its parent has not looked yet."""


def key_of(pid: int) -> str | None:
    """What identifies a living process, also after a restart of the machine; None for one that cannot be told.

    That is one in another pid namespace, whose pid is 0 here. Of one that /proc hides (ProtectProc=invisible), when it
    was started is not known: should its pid be used again, it is taken to live on, which frees no place too early.
    """
    start = _start(pid) or (HIDDEN if _runs(pid) else None)
    return None if start is None else f"{_boot()}:{pid}:{start}"


def lives(key: str) -> bool:
    """Whether the process of a key lives."""
    if key.endswith(f":{HIDDEN}"):
        pid = pid_of(key)
        return key == f"{_boot()}:{pid}:{HIDDEN}" and _runs(pid)
    return key_of(pid_of(key)) == key


def pid_of(key: str) -> int:
    """The pid in a key; 0 if it has none."""
    parts = key.split(":")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0


def _start(pid: int) -> str | None:
    """When a living process was started, in ticks since the machine was."""
    if pid <= 0:
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold blanks and brackets
    return None if fields[0] in DEAD else fields[19]


def _runs(pid: int) -> bool:
    """Whether a process runs, by a descriptor of it, which needs no /proc. A zombie runs no more."""
    if pid <= 0:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(descriptor)


@cache
def _boot() -> str:
    """Which run of the machine this is. Where /proc shows processes only, a file in a folder that ends with the run of
    the machine tells it (RuntimeDirectory=); "" where there is neither, so that start times have to do.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        pass
    folder = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if not folder:
        return ""
    file = Path(folder) / "boot"
    try:
        if not file.exists():
            file.write_text(uuid4().hex)
        return file.read_text()
    except OSError:
        return ""
