"""Where records live. `open_store(url, ...)` gives the store that a URL names.

A store has no rules: it reads what a step names, lets the pure function decide, and writes the result back, all
steps of a batch or none. `base.py` holds the contract, and `tests/test_stores.py` runs one suite over every store.
"""

from pathlib import Path

from gate.clock import Clock
from gate.stores.base import Store


def open_store(url: str, state: Path, keep: float, clock: Clock) -> Store:
    """Open the store that `url` names: "sqlite:" (gate.db in `state`), "sqlite:PATH" or "memory:".

    `keep`: how many seconds the ledger remembers. Raises StoreError when the store cannot be used.
    """
    if url == "memory:":
        from gate.stores.memory import MemoryStore

        return MemoryStore(clock, keep)
    from gate.stores.sqlite import SqliteStore

    path = url.removeprefix("sqlite:")
    return SqliteStore(Path(path) if path else state / "gate.db", clock, keep)
