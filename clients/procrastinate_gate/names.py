"""Which names of queues can be asked for in one question. Pure."""

from collections.abc import Iterable

import msgspec

QUEUES = 1000
QUEUE_BYTES = 512
"""What the gate takes: so many names, and so long."""
QUESTION_BYTES = 48 * 1024
"""And 64 KiB of a message, of which this is left for the names."""


def askable(names: Iterable[str]) -> set[str]:
    """The names that fit into one question; of too many, the first by the alphabet."""
    found: set[str] = set()
    size = 0
    for name in sorted(names):
        size += len(msgspec.json.encode(name)) + 1
        if len(found) == QUEUES or size > QUESTION_BYTES:
            break
        if len(name.encode()) <= QUEUE_BYTES:
            found.add(name)
    return found
