"""Pauses of a running gate: what stands in the file, and what operators order, which outlives a restart."""

import logging
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from gate import errors, pauses
from gate.fetch import Who
from gate.interface import Halt, PauseIn, PauseOut
from gate.pauses import PauseHours, Pauses
from gate.rules import Paused
from gate.stores.base import Store

log = logging.getLogger("gate.send")

NOTES = "pause"

Query = Callable[[Callable[[Store], Any], Callable[[Any], None]], None]


class Pausing:
    """Whether a schedule is paused, and orders to pause. `orders` are those that are on disk."""

    def __init__(self, hours: PauseHours, orders: Pauses, now: Callable[[], datetime], query: Query) -> None:
        self.hours = hours
        self.orders = orders
        self._kept = orders
        """The same in the thread of the store, which makes one change after the other."""
        self._now = now
        self._query = query

    def paused(self, schedule: str, at: datetime) -> Paused | None:
        """Why nothing of a schedule is sent at an instant."""
        return pauses.paused(self.hours, self.orders, schedule, at)

    def read_again(self, store: Store) -> Pauses:
        """Read what is on disk, in the thread of the store: other gates may have ordered something."""
        self._kept, _ = pauses.from_notes(store.notes(NOTES))
        return self._kept

    def order(self, asked: PauseIn, who: Who, then: Callable[[PauseOut | Exception], None]) -> None:
        """Take an order: it is on disk before `then` gets the answer.

        `then` gets InvalidPause or NoSuchPause for one that may not be, and StoreError when it cannot be kept.
        """
        self._query(partial(self._keep, asked, who), partial(self._ordered, asked, who, then))

    def _keep(self, asked: PauseIn, who: Who, store: Store) -> Pauses | errors.CallError:
        try:
            after = self._kept.order(asked, who.name, who.uid, store.now())
        except errors.CallError as error:
            return error
        store.put_notes(NOTES, pauses.changes(self._kept, after))
        self._kept = after
        return after

    def _ordered(
        self,
        asked: PauseIn,
        who: Who,
        then: Callable[[PauseOut | Exception], None],
        outcome: Pauses | Exception,
    ) -> None:
        if isinstance(outcome, Exception):
            then(outcome)
            return
        self.orders = outcome
        log.warning("%s", _in_words(asked, who), extra={"schedule": asked.schedule, "uid": who.uid, "pid": who.pid})
        then(PauseOut(pauses=[pause.info() for pause in outcome.in_force(self._now())]))


def _in_words(asked: PauseIn, who: Who) -> str:
    if asked.action is Halt.RESUME:
        return f"{who.name} resumed {asked.schedule}"
    return f"{who.name} paused {asked.schedule} until {asked.until}: {asked.note}"
