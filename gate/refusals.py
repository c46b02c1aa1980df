"""Which refusals are logged: one line for each user and while, with the number of those that had none."""

from datetime import datetime, timedelta

EVERY = timedelta(seconds=10)
USERS = 1000
"""More are not told apart: whoever can connect as so many users is no longer counted by user."""


class Refusals:
    """Counts refusals by uid. A user who asks in a loop fills no disk, and hides nobody else's refusals."""

    def __init__(self) -> None:
        self._logged: dict[int, datetime] = {}
        self._unsaid: dict[int, int] = {}

    def count(self, uid: int, now: datetime) -> int | None:
        """How many of this user's were left unsaid before this one, which is to be logged; None to leave it unsaid."""
        last = self._logged.get(uid)
        if last is not None and timedelta() <= now - last < EVERY:
            self._unsaid[uid] = self._unsaid.get(uid, 0) + 1
            return None
        if len(self._logged) >= USERS:
            self._logged.clear()
            self._unsaid.clear()
        self._logged[uid] = now
        return self._unsaid.pop(uid, 0)
