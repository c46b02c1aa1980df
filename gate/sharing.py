"""What the gates of other hosts do, where all share one store: orders of operators, claims that end, signs of life.

Everything is asked for in the store's thread, twice a second: one small read while nothing happens. What was found is
taken over in the event loop.
"""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import NamedTuple, cast

import trio

from gate import overrides
from gate.engine import Engine
from gate.fetch import NOTES, FetchEngine
from gate.overrides import Overrides
from gate.pauses import Pauses
from gate.pausing import Pausing
from gate.review import Reviews
from gate.stores.base import SharedStore, Sign, Store
from gate.writer import answer

LOOK_SECONDS = 0.4
"""An order given on one host is in force on the others within a second. Source: design 5.2."""
SIGN_LOOKS = 10
"""Looks between two signs of life, and between two searches for claims of gates that are gone."""


class News(NamedTuple):
    """What a look has found. Orders are None where nobody has changed them."""

    changes: int
    orders: Overrides | None
    paused: Pauses | None
    gates: dict[str, Sign] | None


class Sharing:
    """Looks at what others do. `gates`: the last sign of life of each, by its id."""

    def __init__(
        self, engine: Engine, fetch: FetchEngine, pausing: Pausing, reviews: Reviews, flush: Callable[[], None]
    ) -> None:
        self.gates: dict[str, Sign] = {}
        self._engine = engine
        self._fetch = fetch
        self._pausing = pausing
        self._reviews = reviews
        self._flush = flush
        self._changes: int | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        self._engine.alone = False
        for number in count():
            signs = number % SIGN_LOOKS == 0
            self._take(await answer(self._engine.background, partial(self._look, signs)))
            if signs:
                self._engine.look_for_claims()
            if self._fetch.placing.leases is not None:
                self._fetch.placing.leases.beat()
            await trio.sleep(LOOK_SECONDS)

    def _look(self, signs: bool, store: Store) -> News:
        """In the store's thread."""
        shared = cast("SharedStore", store)
        gates = None
        if signs:
            shared.probe()
            gates = shared.gates()
        changes = shared.changes()
        if changes == self._changes:
            return News(changes, None, None, gates)
        self._reviews.read_again(shared)
        orders, _ = overrides.from_notes(shared.notes(NOTES))
        return News(changes, orders, self._pausing.read_again(shared), gates)

    def _take(self, outcome: News | Exception) -> None:
        if isinstance(outcome, Exception):
            self._engine.failed(None, outcome)
            return
        self._changes = outcome.changes
        if outcome.gates is not None:
            self.gates = outcome.gates
        if outcome.orders is not None:
            self._fetch.take_orders(outcome.orders)
        if outcome.paused is not None:
            self._pausing.orders = outcome.paused
        self._engine.ask_again()
        self._flush()
