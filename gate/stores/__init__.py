"""Where records live. `open_store(url, ...)` gives the store that a URL names.

A store has no rules: it reads what a step names, lets the pure function decide, and writes the result back, all
steps of a batch or none. `base.py` holds the contract, and `tests/test_stores.py` runs one suite over every store.
"""

from pathlib import Path

from gate.clock import Clock
from gate.settings import Shared
from gate.stores.base import Store


def ledger_file(url: str, state: Path) -> Path | None:
    """The file that a store keeps its records in; None when it has none."""
    if not url.startswith("sqlite:"):
        return None
    path = url.removeprefix("sqlite:")
    return Path(path) if path else state / "gate.db"


def open_store(
    url: str, state: Path, keep: float, clock: Clock, shared: Shared | None = None, credentials: str | None = None
) -> Store:
    """Open the store that `url` names: "sqlite:" (gate.db in `state`), "sqlite:PATH", "memory:", or a Redis.

    `keep`: how many seconds the ledger remembers. `shared`: the options of a Redis; `credentials`: systemd's folder of
    them. Raises StoreError when the store cannot be used.
    """
    if "://" in url:
        return _open_redis(url, state, keep, shared or Shared(), credentials)
    path = ledger_file(url, state)
    if path is None:
        from gate.stores.memory import MemoryStore

        return MemoryStore(clock, keep)
    from gate.stores.sqlite import SqliteStore

    return SqliteStore(path, clock, keep)


def _open_redis(url: str, state: Path, keep: float, shared: Shared, credentials: str | None) -> Store:
    from gate.stores.journal import Journal  # redis takes 0.9 s of CPU to import and 20 MB
    from gate.stores.redis import RedisStore
    from gate.stores.redislink import Link, password_from

    password = None if shared.password_file is None else password_from(shared.password_file, credentials)
    link = Link(url, password, shared.wait_replicas)
    warnings = link.check(allow_eviction=shared.allow_eviction)
    return RedisStore(link, Journal(state / "journal.db"), keep, shared.prefix, warnings=warnings)
