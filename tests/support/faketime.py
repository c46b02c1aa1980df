"""A fake clock for real processes, by Debian's libfaketime: minutes that pass in seconds.

Three things to know about it (measured with 0.9.10):

- Wall clock, monotonic clock, sleeps and epoll run at the fake speed, but a lock that is waited for with a timeout
  (`queue.get(timeout=…)`, `Event.wait(…)`) never times out, unless the monotonic clock is left real.
- A process's time starts when the process does, so the child of a process under fake time begins again.
  `FakeTime.env` counts on from the first call; ask it anew for each process that the test starts.
- What kill -9 ends leaves its files in /dev/shm, and a later process with the same pid would trip over them.
"""

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

SHM = Path("/dev/shm")


@functools.cache
def find_library() -> Path | None:
    """Give a libfaketime that works here: the system's, or the one that tests/run.py unpacked into the venv."""
    names = ("libfaketimeMT.so.1", "libfaketime.so.1")
    roots = (Path("/usr"), Path("/usr/local"), Path(sys.prefix) / "debian" / "usr")
    folders = [folder for root in roots for where in ("lib/*/faketime", "lib/faketime") for folder in root.glob(where)]
    found = (folder / name for folder in folders for name in names)
    return next((library for library in found if library.exists() and _works(library)), None)


def _works(library: Path) -> bool:
    env = FakeTime(library, datetime(2001, 9, 9, tzinfo=UTC)).env()
    date = shutil.which("date") or "/bin/date"
    done = subprocess.run([date, "-u", "+%Y"], env=env, check=False, capture_output=True, text=True)
    return done.stdout.strip() == "2001"


class FakeTime:
    """One fake timeline: starts at `start` (aware) when it is made and runs `speed` times as fast as the real clock."""

    def __init__(self, library: Path, start: datetime, speed: float = 1.0) -> None:
        self.library = library
        self.start = start
        self.speed = speed
        self._origin = time.monotonic()

    def now(self) -> datetime:
        return self.start + timedelta(seconds=(time.monotonic() - self._origin) * self.speed)

    def env(self, base: Mapping[str, str] | None = None, *, fake_monotonic: bool = True) -> dict[str, str]:
        """Give the environment for a process that starts now; `base` is the environment to add to (default: our own).

        With `fake_monotonic=False` only the wall clock is fake: timeouts and sleeps are real.
        """
        env = dict(os.environ if base is None else base)
        env["LD_PRELOAD"] = str(self.library)
        env["FAKETIME_FMT"] = "%s"
        env["FAKETIME"] = f"@{self.now().timestamp():.6f} x{self.speed:g}"
        if not fake_monotonic:
            env["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        return env


class StepTime:
    """A wall clock that a test sets while processes run: `step` sets it to the real time plus so much. `file`: its own.

    Monotonic clock, boot time and sleeps stay real, as when somebody sets the clock; `time.sleep` does not work.
    """

    def __init__(self, library: Path, file: Path) -> None:
        self.library = library
        self.file = file
        self.offset = timedelta()
        self.step(timedelta())

    def step(self, offset: timedelta) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset.total_seconds():+.6f}\n")
        new.rename(self.file)
        self.offset = offset

    def now(self) -> datetime:
        return datetime.now(UTC) + self.offset

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Give the environment for a process whose clock is this one."""
        return {
            **(os.environ if base is None else base),
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def remove_leftovers() -> None:
    """Remove what killed processes left in /dev/shm. Those of living processes and of other users stay."""
    for path in SHM.glob("*faketime_s*_*"):
        pid = path.name.rpartition("_")[2]
        if pid.isdecimal() and not Path("/proc", pid).exists() and path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)
