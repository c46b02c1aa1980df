"""Calls and answers as bytes. Every claim is one that the gate grants: a minute of a schedule, with a new token.

Some hundred schedules are due in each minute, so that those who claim at once mostly claim different ones.
"""

import secrets
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

SCHEDULES = 300
GET_INFO = b'{"method":"org.varlink.service.GetInfo","parameters":{}}\0'
GRANTED = b'"decision":"send"'
KEPT = timedelta(days=14)
"""The ledger remembers as long: an older minute would be late."""


class Shape(NamedTuple):
    """How many connections ask, and how many calls of each wait at once."""

    connections: int
    depth: int = 1

    def __str__(self) -> str:
        return f"{self.connections}" if self.depth == 1 else f"{self.connections}×{self.depth}"


def first_minute() -> datetime:
    """The oldest minute that is surely remembered."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - KEPT + timedelta(hours=1)


def claims(count: int, start: datetime) -> list[bytes]:
    """`count` claims, the minutes beginning with `start`."""
    run = secrets.token_hex(10)
    frames: list[bytes] = []
    for minute in range(-(-count // SCHEDULES)):
        at = (start + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:00Z")
        for schedule in range(min(SCHEDULES, count - len(frames))):
            frames.append(
                b'{"method":"io.schedulegate.Send.Claim","parameters":{"schedule":"bench:%04d","holder":"bench:4711:load",'
                b'"at":"%b","token":"%b%012x"}}\0' % (schedule, at.encode(), run.encode(), len(frames))
            )
    return frames
