"""Where records live. `open_store(url, ...)` gives the store that a URL names.

A store has no rules: it reads what a step names, lets the pure function decide, and writes the result back, all
steps of a batch or none. `base.py` holds the contract, and `tests/test_stores.py` runs one suite over every store.
"""

from pathlib import Path

from gate.clock import Clock
from gate.stores.base import Store


def ledger_file(url: str, state: Path) -> Path | None:
    """The file that a store keeps its records in; None when it has none."""
    if not url.startswith("sqlite:"):
        return None
    path = url.removeprefix("sqlite:")
    return Path(path) if path else state / "gate.db"


def open_store(url: str, state: Path, keep: float, clock: Clock) -> Store:
    """Open the store that `url` names: "sqlite:" (gate.db in `state`), "sqlite:PATH" or "memory:".

    `keep`: how many seconds the ledger remembers. Raises StoreError when the store cannot be used.
    """
    path = ledger_file(url, state)
    if path is None:
        from gate.stores.memory import MemoryStore

        return MemoryStore(clock, keep)
    from gate.stores.sqlite import SqliteStore

    return SqliteStore(path, clock, keep)
