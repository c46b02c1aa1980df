"""The parts of a running gate, put together: what answers, what remembers, and the reactor that serves both."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gate import overrides, pauses, pausing
from gate.control import About, Control
from gate.engine import Engine
from gate.fetch import NOTES, FetchEngine
from gate.pausing import Pausing
from gate.placemarks import NOTES as PLACES
from gate.reactor import Connection, Limits, Reactor
from gate.reload import Loaded
from gate.reloader import Reloader
from gate.review import Reviews
from gate.rules import policies
from gate.server import Server
from gate.sharing import Sharing
from gate.stores.base import Store
from gate.timers import Timers
from gate.writer import Work

MOST_COMING = 16
"""How many claims and the like may wait for the store before those who send several calls at once are left for later:
about as many as one transaction takes without making anybody wait for long."""

Aside = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Runs a function beside the event loop, and hands over what it returned, or the exception."""


class Service:
    """A gate that has taken over what its store knows, before it listens.

    `submit`: gives works to whoever owns the store. `timers`, `reactor` and `reloader` are tasks to be run.
    """

    def __init__(
        self,
        about: About,
        store: Store,
        reloader: Reloader,
        limits: Limits,
        now: Callable[[], datetime],
        submit: Callable[[list[Work]], None],
        aside: Aside,
    ) -> None:
        ordered, unreadable = overrides.from_notes(store.notes(NOTES))
        paused, unreadable_too = pauses.from_notes(store.notes(pausing.NOTES))
        loaded = reloader.current
        self.timers = Timers()
        self.engine = Engine(policies(loaded.config.send), submit, self.timers.after, now)
        self.engine.adopt(store.open_claims())
        self.fetch = FetchEngine(
            loaded.rules,
            ordered,
            store.notes(PLACES),
            now,
            self.timers.after,
            self._query,
            self.flush,
            self.engine.failed,
            limits.unread_bytes,
            lease=loaded.config.shared.lease if store.shared else None,
            on_store_down=loaded.config.shared.on_store_down,
        )
        self.pausing = Pausing(loaded.pauses, paused, now, self.engine.query)
        self.engine.paused = self.pausing.paused
        about = about._replace(warnings=[*about.warnings, *unreadable, *unreadable_too, *self.fetch.placing.problems])
        control = Control(
            about,
            self.engine,
            self.fetch,
            self.pausing,
            store,
            lambda: {} if self.sharing is None else self.sharing.gates,
            reloader,
            self._connections,
            limits,
            now,
            aside,
            self.flush,
        )
        reviews = Reviews(self.engine, store, control.large, now)
        self.sharing: Sharing | None = None
        if store.shared:
            self.sharing = Sharing(self.engine, self.fetch, self.pausing, reviews, self.flush)
        server = Server(about.version, self.engine, self.fetch, control, reviews)
        self.reactor = Reactor(limits, self.timers, now, server.serve, self.engine.flush, self._hung_up)
        self.reactor.busy = lambda: self.engine.coming >= MOST_COMING
        reloader.take = self._take

    def flush(self) -> None:
        """End what is no round of calls as a round ends: what was asked goes to the store, answers are written."""
        self.engine.flush()
        self.reactor.flush()

    def _query(self, query: Callable[[Store], Any], then: Callable[[Any], None]) -> None:
        """Ask the store at once, also where no round of calls ends."""
        self.engine.background(Work(then, query=query))

    def _connections(self) -> list[Connection]:
        return list(self.reactor.connections.values())

    def _hung_up(self, connection: Connection) -> None:
        self.fetch.hung_up(connection)
        self.engine.hung_up(connection)

    def _take(self, loaded: Loaded) -> None:
        self.engine.policy = policies(loaded.config.send)
        self.pausing.hours = loaded.pauses
        self.fetch.take(loaded.rules)
