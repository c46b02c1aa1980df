"""A table that several gates agree on, in a real Redis."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import redis

from gate.errors import StoreError
from gate.stores.redis import RedisStore
from tests.support.book import KEEP, ManualClock
from tests.support.redis import RedisServer
from tests.support.redis_store import new_prefix, redis_store


@pytest.fixture
def stores(server: RedisServer, tmp_path: Path) -> Iterator[list[RedisStore]]:
    prefix, clock = new_prefix(), ManualClock()
    made = [redis_store(server.unix_url, tmp_path / f"{n}.db", KEEP, clock, prefix) for n in range(2)]
    yield made
    for store in made:
        store.close()


def test_what_one_gate_writes_the_others_are_asked_about(stores: list[RedisStore]) -> None:
    seen: list[bytes | None] = []

    def decide(held: bytes | None, now: datetime) -> bytes | None:
        assert now == stores[0].now()
        seen.append(held)
        return (held or b"") + b"."

    for store in (*stores, *stores):
        store.agree("table", decide)
    stores[0].agree("other", lambda held, _: seen.append(held))
    assert seen == [None, b".", b"..", b"...", None]


def test_who_was_slower_is_asked_again_and_nothing_is_lost(stores: list[RedisStore]) -> None:
    seen: list[bytes | None] = []

    def decide(held: bytes | None, now: datetime) -> bytes | None:
        seen.append(held)
        if len(seen) < 3:
            stores[1].agree("table", lambda other, _: (other or b"") + b"2")
        return (held or b"") + b"1"

    stores[0].agree("table", decide)
    assert seen == [None, b"2", b"22"]
    stores[0].agree("table", lambda held, _: seen.append(held))
    assert seen[-1] == b"221"


def test_without_the_server_nothing_is_agreed_on(server: RedisServer, stores: list[RedisStore]) -> None:
    stores[0].agree("table", lambda held, now: b"1")
    server.stop()
    with pytest.raises(StoreError):
        stores[0].agree("table", lambda held, now: b"2")
    server.start()
    stores[0].agree("table", lambda held, now: (held or b"") + b"3")


def test_a_table_has_an_end(server: RedisServer, stores: list[RedisStore]) -> None:
    stores[0].agree("table", lambda held, now: b"1")
    with redis.Redis.from_url(server.unix_url) as client:
        (key,) = client.keys("*:a:table")
        assert 0 < client.pttl(key) <= timedelta(days=1).total_seconds() * 1000
