"""What `install` was told."""

import os
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gate_client.core import cut
from procrastinate_gate.answers import Reading
from procrastinate_gate.outage import read_clocks

WORKER_BYTES = 256
"""What the gate takes as a worker's name."""

OnGateDown = Literal["closed", "open"]
Periodic = Literal["keep", "collapse", "skip"]


class Settings(Struct, frozen=True, kw_only=True):
    """See `install`. `timeout`: seconds that the gate may keep a fetch waiting. `clocks`: a test's own."""

    socket: str | os.PathLike[str] | None = None
    worker: str | None = None
    on_gate_down: OnGateDown = "closed"
    periodic: Periodic = "keep"
    timeout: float = 0.25
    clocks: Callable[[], Reading] = read_clocks

    def name(self, own: str | None) -> str:
        """What the gate knows a worker by: our argument, $GATE_WORKER, the worker's own name, or the host's."""
        return cut(self.worker or os.environ.get("GATE_WORKER") or own or os.uname().nodename, WORKER_BYTES)
