"""The thread that owns the store: group commit, order, faults, and its end."""

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from gate.errors import StoreError
from gate.interface import Done
from gate.ledger import Change
from gate.stores.base import Outcome, Step
from gate.stores.memory import MemoryStore
from gate.writer import Inline, Work, Writer, perform
from tests.support.book import KEEP, ManualClock, claim_step

PATIENCE = 10.0


class SlowStore(MemoryStore):
    """Counts its batches, and waits in each until it may go on."""

    def __init__(self) -> None:
        super().__init__(ManualClock(), KEEP)
        self.batches: list[int] = []
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.fault: Exception | None = None

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        self.batches.append(len(steps))
        self.entered.set()
        assert self.go_on.wait(PATIENCE)
        if self.fault is not None:
            raise self.fault
        return super().apply(steps)


def work(name: str) -> Work:
    return Work(lambda outcome: None, step=claim_step(name, ManualClock().now(), f"token of {name}"))


def outcomes(works: list[Work]) -> list[str]:
    """What became of works: "done", or the text of what went wrong."""
    return [str(w.outcome) if isinstance(w.outcome, Exception) else "done" for w in works]


def test_all_that_waits_goes_in_one_transaction_and_returns_in_its_order() -> None:
    store, delivered = SlowStore(), SimpleQueue[list[Work]]()
    writer = Writer(store, delivered.put)
    first, rest = [work("first")], [work(f"s{number}") for number in range(40)]
    writer.submit(first)
    assert store.entered.wait(PATIENCE)
    for one in rest:
        writer.submit([one])
    store.go_on.set()
    assert delivered.get(timeout=PATIENCE) == first
    assert delivered.get(timeout=PATIENCE) == rest
    assert store.batches == [1, 40]
    assert outcomes([*first, *rest]) == ["done"] * 41
    assert all(isinstance(w.outcome, Change) for w in rest)
    assert writer.stop(PATIENCE)


def test_stopping_finishes_what_was_submitted() -> None:
    store, delivered = SlowStore(), SimpleQueue[list[Work]]()
    writer = Writer(store, delivered.put)
    writer.submit([work("a")])
    assert store.entered.wait(PATIENCE)
    writer.submit([work("b")])
    assert not writer.stop(0.01), "it is still at work, and says so"
    store.go_on.set()
    assert writer.stop(PATIENCE)
    assert [len(delivered.get(timeout=PATIENCE)) for _ in range(2)] == [1, 1]
    assert len(store.open_claims()) == 2


def test_the_store_is_used_by_one_thread_and_results_come_from_it() -> None:
    threads: list[str] = []
    done = SimpleQueue[list[Work]]()

    def deliver(works: list[Work]) -> None:
        threads.append(threading.current_thread().name)
        done.put(works)

    writer = Writer(MemoryStore(ManualClock(), KEEP), deliver)
    query = Work(lambda outcome: None, query=lambda store: threading.current_thread().name)
    writer.submit([query])
    assert done.get(timeout=PATIENCE) == [query]
    assert writer.stop(PATIENCE)
    assert (query.outcome, threads) == ("gate-store", ["gate-store"])


@pytest.mark.parametrize("fault", [StoreError("the disk is full"), RuntimeError("a fault of ours")])
def test_a_store_that_fails_fails_every_step_of_its_batch_and_the_thread_goes_on(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    store, delivered = SlowStore(), SimpleQueue[list[Work]]()
    store.go_on.set()
    store.fault = fault
    writer = Writer(store, delivered.put)
    writer.submit([work("a"), work("b")])
    assert outcomes(delivered.get(timeout=PATIENCE)) == [str(fault)] * 2
    store.fault = None
    writer.submit([work("a")])
    assert outcomes(delivered.get(timeout=PATIENCE)) == ["done"]
    assert writer.stop(PATIENCE)
    loud = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert bool(loud) is isinstance(fault, RuntimeError), "a store's fault is the engine's to tell"


def test_a_query_runs_after_the_steps_that_came_with_it_and_fails_alone() -> None:
    def fails(store: Any) -> None:
        raise StoreError("gate.db has vanished")

    def breaks(store: Any) -> None:
        raise LookupError("a fault of ours")

    works = [
        Work(lambda outcome: None, query=lambda store: len(store.open_claims())),
        work("a"),
        Work(lambda outcome: None, query=fails),
        Work(lambda outcome: None, query=breaks),
        work("b"),
    ]
    perform(MemoryStore(ManualClock(), KEEP), works)
    assert works[0].outcome == 2
    assert outcomes(works) == ["done", "done", "gate.db has vanished", "a fault of ours", "done"]


def test_inline_does_the_same_at_once() -> None:
    seen: list[list[Work]] = []
    one = Work(lambda outcome: None, step=Step(None, None, None, lambda view, now: Change(Done())))
    Inline(MemoryStore(ManualClock(), KEEP), seen.append).submit([one])
    assert seen == [[one]]
    assert one.outcome == Change(Done())
