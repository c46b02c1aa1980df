"""Stores in a Redis, each with a ledger of its own unless a test says otherwise."""

from itertools import count
from pathlib import Path

from gate.clock import Clock
from gate.stores.journal import Journal
from gate.stores.redis import RedisStore
from gate.stores.redislink import Link

_prefixes = count()


def new_prefix() -> str:
    """A prefix under which there is nothing yet."""
    return f"test-{next(_prefixes)}"


def redis_store(
    url: str, journal: Path, keep: float, clock: Clock | None = None, prefix: str | None = None, replicas: int = 0
) -> RedisStore:
    """A store at a URL, as one gate has it; `clock` stands for the server's."""
    link = Link(url, None, replicas)
    now = None if clock is None else clock.now
    return RedisStore(link, Journal(journal), keep, prefix or new_prefix(), clock=now)
