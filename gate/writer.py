"""The thread that owns the store.

Everything that waits when the thread is free goes into one transaction (group commit), so that sixteen claims cost
about as much as one. Results return to the event loop by `deliver`, which is called in the thread.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import trio

from gate.errors import StoreError
from gate.stores.base import Step, Store

log = logging.getLogger("gate.store")


class Work:
    """One piece of work: a step that is decided with others, or a `query` that runs alone.

    `outcome` is set before it is delivered: a Change, what the query returned, or the exception.
    """

    __slots__ = ("outcome", "query", "step", "then")

    def __init__(
        self, then: Callable[[Any], None], *, step: Step | None = None, query: Callable[[Store], Any] | None = None
    ) -> None:
        self.then = then
        """What the event loop does with the outcome."""
        self.step = step
        self.query = query
        self.outcome: Any = None


async def answer(background: Callable[[Work], None], query: Callable[[Store], Any]) -> Any:
    """Ask the store from a task: what `query` returned, or the exception. `background`: hands over a work."""
    done = trio.Event()
    work = Work(lambda _: done.set(), query=query)
    background(work)
    await done.wait()
    return work.outcome


Deliver = Callable[[list[Work]], None]


def perform(store: Store, works: list[Work]) -> None:
    """Do all works: every step in one transaction, then the queries. Sets their outcomes, raises nothing of theirs."""
    stepping = [(work, work.step) for work in works if work.step is not None]
    if stepping:
        try:
            outcomes: list[Any] = list(store.apply([step for _, step in stepping]))
        except StoreError as error:
            outcomes = [error] * len(stepping)
        except Exception as error:
            log.exception("the store failed in a way that it should not")
            outcomes = [error] * len(stepping)
        for (work, _), outcome in zip(stepping, outcomes, strict=True):
            work.outcome = outcome
    for work in works:
        if work.query is not None:
            try:
                work.outcome = work.query(store)
            except StoreError as error:
                work.outcome = error
            except Exception as error:
                log.exception("a query failed in a way that it should not")
                work.outcome = error


class Inline:
    """Does work at once, in the caller's thread: for tests, where worker threads and a mock clock do not mix."""

    def __init__(self, store: Store, deliver: Deliver) -> None:
        self._store = store
        self._deliver = deliver

    def submit(self, works: list[Work]) -> None:
        """Do the works and deliver them."""
        perform(self._store, works)
        self._deliver(works)


class Writer:
    """Does work in a thread of its own. `submit` never blocks."""

    def __init__(self, store: Store, deliver: Deliver) -> None:
        self._store = store
        self._deliver = deliver
        self._queue: SimpleQueue[list[Work] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="gate-store", daemon=True)
        self._thread.start()

    def submit(self, works: list[Work]) -> None:
        """Hand over works; they are delivered together with whatever else is done in the same transaction."""
        self._queue.put(works)

    def stop(self, seconds: float) -> bool:
        """Finish the steps that were submitted and end the thread; False when that takes longer than `seconds`."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        queries: deque[Work] = deque()
        going_on = True
        while going_on:
            steps: list[Work] = []
            for work in self._take(wait=not queries):
                if work is None:
                    going_on = False
                else:
                    (queries if work.step is None else steps).append(work)
            self._do(steps)
            if queries and going_on:  # one at a time: whoever claims waits for one at most
                self._do([queries.popleft()])

    def _take(self, *, wait: bool) -> Iterator[Work | None]:
        """All that was submitted, and None for the end; waits for the first of it if `wait`."""
        while wait or not self._queue.empty():
            wait = False
            batch = self._queue.get()
            yield from (None,) if batch is None else batch

    def _do(self, works: list[Work]) -> None:
        if works:
            perform(self._store, works)
            self._deliver(works)
