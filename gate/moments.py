"""Instants that may never come."""

from collections.abc import Iterable
from datetime import UTC, datetime

FOREVER = datetime.max.replace(tzinfo=UTC)


def earliest(instants: Iterable[datetime | None]) -> datetime | None:
    """The first of some instants; None is never."""
    return min((instant for instant in instants if instant is not None), default=None)
