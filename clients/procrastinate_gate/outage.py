"""Whether the gate is away, and since when."""

import logging
import time

from procrastinate_gate.answers import TRUST_SECONDS, Reading

log = logging.getLogger("procrastinate_gate")

DOWN_SECONDS = 5.0
"""A gate that is restarted is away for a moment; only after this does `on_gate_down` decide."""


def read_clocks() -> Reading:
    """The machine's clocks, now."""
    return Reading(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))


class Outage:
    """The outages of one worker's gate, each said once when it begins and once when it is over."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._since: float | None = None

    def begin(self, problem: object, now: Reading) -> None:
        """No answer can be had."""
        if self._since is None:
            self._since = now.boot
            log.warning(
                "worker %s: no answer from the gate, what it said last holds for %.0f s at most: %s",
                self._worker,
                TRUST_SECONDS,
                problem,
                extra={"action": "gate_away", "worker": self._worker},
            )

    def end(self, now: Reading) -> None:
        """An answer has come."""
        if self._since is not None:
            seconds, self._since = now.boot - self._since, None
            log.info(
                "worker %s: the gate is back after %.1f s",
                self._worker,
                seconds,
                extra={"action": "gate_back", "worker": self._worker},
            )

    def lasts(self, now: Reading) -> bool:
        """Whether the gate is away for so long that it is down."""
        return self._since is not None and now.boot - self._since >= DOWN_SECONDS
