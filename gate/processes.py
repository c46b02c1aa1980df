"""Which process is which, and whether it still lives: a pid alone is used again."""

from functools import cache
from pathlib import Path

DEAD = frozenset("ZXx")
"""States of /proc/PID/stat after which a process runs no more, though its parent has not looked yet."""


def key_of(pid: int) -> str | None:
    """What identifies a living process, also after a restart of the machine; None for one that cannot be told.

    That is one in another pid namespace, whose pid is 0 here, or one of another user where /proc hides those.
    """
    start = _start(pid)
    return None if start is None else f"{_boot()}:{pid}:{start}"


def lives(key: str) -> bool:
    """Whether the process of a key lives."""
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


@cache
def _boot() -> str:
    """Which run of the machine this is; "" where /proc shows processes only, so that start times have to do."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
