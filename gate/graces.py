"""Graces: what is over at an instant unless something happens before. A wall clock that goes back makes none longer."""

from collections.abc import Hashable, Iterator
from datetime import datetime, timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Graces(Generic[K]):
    """By key, when the grace of something ends."""

    def __init__(self) -> None:
        self._ends: dict[K, tuple[datetime, timedelta]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._ends

    def begin(self, key: K, now: datetime, length: timedelta) -> None:
        """Begin a grace; of two of the same key the one counts that ends first."""
        end = now + length
        if key not in self._ends or end < self._ends[key][0]:
            self._ends[key] = end, length

    def stop(self, key: K) -> None:
        """It happened in time; harmless where no grace runs."""
        self._ends.pop(key, None)

    def over(self, now: datetime) -> list[K]:
        """Those that are over now; they are known no longer."""
        over = [key for key, (end, _) in self._ends.items() if now >= end]
        for key in over:
            del self._ends[key]
        for key, (end, length) in self._ends.items():
            self._ends[key] = min(end, now + length), length
        return over

    def ends(self) -> Iterator[datetime]:
        """When each is over."""
        return (end for end, _ in self._ends.values())
