"""A wall clock for real processes that a test sets while they run, by Debian's libfaketime. Other clocks stay real."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


class StepClock:
    """One wall clock for all processes that are started with its `env()`."""

    def __init__(self, library: Path, file: Path, start: datetime) -> None:
        self._library = library
        self._file = file
        self._ahead = start.timestamp() - time.time()
        self.step(0.0)

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time() + self._ahead, UTC)

    def step(self, seconds: float) -> None:
        """Set the clock forward or back; every process reads that with its next look at the time."""
        self._ahead += seconds
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._ahead:+.6f}\n")
        new.replace(self._file)

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment for a process that starts now."""
        given = dict(os.environ if base is None else base)
        return given | {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
