"""What a test tells the application of once_app."""

from datetime import datetime

from msgspec import Struct

VARIABLE = "GATE_ONCE"
NAME = "once"


class Settings(Struct, frozen=True, kw_only=True):
    """`many` occurrences, `rate` of them due in a second from `base` on; a task takes `seconds`, a kick `slow` more.

    `stop`: the scheduler stops for good after its first kick, before it confirms. `fails`: how often a task fails.
    """

    redis: str
    socket: str
    journal: str
    base: datetime
    many: int = 1
    rate: float = 50.0
    seconds: float = 0.0
    slow: float = 0.0
    idle: float = 600.0
    stream: bool = True
    stop: bool = False
    fails: int = 0
    on_gate_down: str = "wait"
