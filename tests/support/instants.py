"""Minutes that have just been: what is older than the ledger remembers would be late."""

from datetime import UTC, datetime, timedelta

_LATEST = datetime.now(UTC).replace(second=0, microsecond=0)


def minute(ago: int = 0) -> str:
    """The minute in which the tests began, or one so many minutes before it, as on the wire."""
    return (_LATEST - timedelta(minutes=ago)).isoformat().replace("+00:00", "Z")


def minutes(count: int) -> list[str]:
    """That many different minutes, the oldest first: `minute(count - 1)` to `minute(0)`."""
    return [minute(ago) for ago in reversed(range(count))]
