"""What only the Redis store has: other gates, lost outcomes, failovers, emptied and evicting servers."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from gate.errors import StartError, StoreError
from gate.interface import Decision, State
from gate.ledger import Event
from gate.settings import Shared
from gate.stores import open_store
from gate.stores.journal import Journal
from gate.stores.redis import RedisStore
from gate.stores.redislink import Link, password_from, shown
from tests.support.book import KEEP, NOON, RESEND, Book, ManualClock, claim_step, settle_step
from tests.support.redis import RedisServer
from tests.support.redis_store import new_prefix, redis_store

MINUTE = timedelta(minutes=1)
S = "nightly"


class Hosts:
    """Gates on several hosts that share a ledger: each has a journal of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.clock = ManualClock()
        self._folder = folder
        self._prefix = new_prefix()
        self._stores: list[RedisStore] = []

    def host(self, name: str) -> Book:
        """The gate of a host; asked for again, it is one that was restarted."""
        store = redis_store(self.url, self._folder / f"{name}.db", KEEP, self.clock, self._prefix)
        self._stores.append(store)
        return Book(store, self.clock)

    def close(self) -> None:
        for store in self._stores:
            store.close()


@pytest.fixture
def hosts(server: RedisServer, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(server.unix_url, tmp_path)
    yield made
    made.close()


def calls(server: RedisServer) -> int:
    """How many scripts the server was asked to run."""
    with redis.Redis.from_url(server.unix_url) as client:
        stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def commands(server: RedisServer) -> int:
    """How many commands the server was asked to carry out, those of scripts as well."""
    with redis.Redis.from_url(server.unix_url) as client:
        stats = client.info("commandstats")
    return sum(stat["calls"] for name, stat in stats.items() if name not in ("cmdstat_info", "cmdstat_client|setinfo"))


# -- one round trip


def test_a_grant_takes_one_round_trip_and_what_another_gate_took_takes_two(server: RedisServer, hosts: Hosts) -> None:
    here, there = hosts.host("a"), hosts.host("b")
    here.claim(S, NOON - MINUTE)
    there.claim(S, NOON - 2 * MINUTE)  # knows the schedule as it is now
    before = calls(server)
    assert there.claim(S, NOON) is Decision.SEND
    assert calls(server) == before + 1
    assert here.claim(S, NOON) is Decision.HELD
    assert calls(server) == before + 3
    steps = [claim_step(f"schedule {n}", NOON, f"token {n}") for n in range(200)]
    here.store.apply(steps)
    assert calls(server) == before + 4


def test_a_batch_takes_as_many_commands_as_there_are_hashes_and_lists(server: RedisServer, hosts: Hosts) -> None:
    store = hosts.host("a").store
    for confirms in (False, True):
        counted = []
        for numbers in (range(1), range(1, 200)):
            claims = [claim_step(f"schedule {n}", NOON, f"token {n}") for n in numbers]
            before = commands(server)
            store.apply([settle_step(Event.CONFIRM, f"token {n}") for n in numbers] if confirms else claims)
            counted.append(commands(server) - before)
        assert counted[0] == counted[1] < 30


def test_a_ledger_of_another_format_is_refused(server: RedisServer, tmp_path: Path) -> None:
    clock, prefix = ManualClock(), new_prefix()
    with redis.Redis.from_url(server.unix_url) as client:
        client.set(f"{{{prefix}}}:epoch", "of the first format")
        with pytest.raises(StoreError, match="has format 1, this gate knows 2: use the gate that made"):
            redis_store(server.unix_url, tmp_path / "a.db", KEEP, clock, prefix)
        client.delete(f"{{{prefix}}}:epoch")
        book = Book(redis_store(server.unix_url, tmp_path / "b.db", KEEP, clock, prefix), clock)
        assert book.claim(S, NOON - MINUTE) is Decision.SEND
        client.hset(f"{{{prefix}}}:epoch", "format", "3")
        for _ in range(2):
            with pytest.raises(StoreError, match="has format 3, this gate knows 2"):
                book.claim(S, NOON)
        book.store.close()


def test_two_gates_never_grant_one_occurrence(hosts: Hosts) -> None:
    books = [hosts.host(name) for name in "abc"]
    for minute in range(30):
        first = minute % 3
        asked = [book.claim(S, NOON - (30 - minute) * MINUTE) for book in books[first:] + books[:first]]
        assert asked == [Decision.SEND, Decision.HELD, Decision.HELD]


def test_a_confirm_and_a_release_may_come_through_any_gate(hosts: Hosts) -> None:
    here, there = hosts.host("a"), hosts.host("b")
    here.claim(S, NOON, token="t")
    there.confirm("t")
    assert here.claim(S, NOON) is Decision.SENT
    here.claim(S, NOON - MINUTE, token="u")
    there.release("u")
    assert there.claim(S, NOON - MINUTE) is Decision.SEND


def test_a_gate_adopts_its_own_claims_and_those_of_gates_that_are_gone(hosts: Hosts) -> None:
    here, there = hosts.host("a"), hosts.host("b")
    for book in (here, there):
        book.store.probe()
    here.claim(S, NOON, token="mine", lease=30.0)
    there.claim(S, NOON - MINUTE, token="theirs", lease=30.0)
    there.claim("long", NOON, token="long", lease=3600.0)
    assert [one.token for one in hosts.host("a").store.open_claims()] == ["mine"]
    hosts.clock.move(36)
    assert sorted(one.token for one in here.store.open_claims()) == ["mine", "theirs"], "long past its lease"
    hosts.clock.move(300)
    here.store.probe()
    assert sorted(one.token for one in here.store.open_claims()) == ["long", "mine", "theirs"], "no sign of life"


# -- outcomes that are not known


class Flaky(Link):
    """A connection that is lost right after the server has done what it was asked, so many times."""

    lose = 0

    def _evaluate(self, client: object, keys: list[bytes], words: bytes) -> object:
        answer = super()._evaluate(client, keys, words)
        if self.lose:
            type(self).lose -= 1
            raise redis.TimeoutError("timeout reading from socket")
        return answer


@pytest.fixture
def flaky(server: RedisServer, tmp_path: Path) -> Iterator[Book]:
    clock = ManualClock()
    store = RedisStore(Flaky(server.unix_url, None, 0), Journal(tmp_path / "j.db"), KEEP, "p", clock=clock.now)
    yield Book(store, clock)
    Flaky.lose = 0
    store.close()


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_grant_whose_outcome_was_lost_is_granted_to_its_token_alone(flaky: Book, lost: int) -> None:
    Flaky.lose = lost
    for _ in range(lost - 1):  # the first call tries twice; while nothing is answered, each tries once
        with pytest.raises(StoreError, match="timeout reading from socket"):
            flaky.claim(S, NOON, token="t")
    assert flaky.claim(S, NOON, token="t") is Decision.SEND
    assert flaky.claim(S, NOON, token="other") is Decision.HELD
    record = flaky.record(S)
    assert record is not None
    assert (record.token, record.grants, record.state) == ("t", 1, State.CLAIMED)


def test_an_interval_whose_outcome_was_lost_is_not_granted_twice(flaky: Book) -> None:
    Flaky.lose = 1
    first = flaky.answer(S, None, "t", every=60.0)
    assert flaky.answer(S, None, "u", every=60.0).decision is Decision.HELD
    assert flaky.store.known(S, NOON - MINUTE, 10) == [first.at]


# -- what a failover or an operator takes away


def forget(server: RedisServer, *patterns: str) -> None:
    """What a replica that took over did not have."""
    with redis.Redis.from_url(server.unix_url) as client:
        for pattern in patterns:
            keys = client.keys(pattern)
            assert keys
            client.delete(*keys)


def test_what_a_failover_forgot_this_host_still_refuses(server: RedisServer, hosts: Hosts) -> None:
    here, there = hosts.host("a"), hosts.host("b")
    here.claim(S, NOON - MINUTE, token="older")
    here.confirm("older")
    here.claim(S, NOON, token="t")
    here.confirm("t")
    forget(server, "*}:o", "*}:s", "*}:t", "*}:of", "*}:touched", "*}:schedules")
    for book in (here, hosts.host("a")):
        assert book.claim(S, NOON) is Decision.SENT
        assert book.claim(S, NOON - MINUTE) is Decision.SENT
    assert there.claim(S, NOON) is Decision.SENT, "it was told again"
    assert [one.occurrence.at for one in there.store.history(S, None, 10)] == [NOON, NOON - MINUTE]


def test_a_confirm_that_a_failover_forgot_stays_confirmed(server: RedisServer, hosts: Hosts) -> None:
    here = hosts.host("a")
    here.claim(S, NOON, token="t")
    with redis.Redis.from_url(server.unix_url) as client:
        (key,) = client.keys("*}:o")
        claimed = client.hgetall(key)
        hosts.clock.move(1)
        here.confirm("t")
        client.hset(key, mapping=claimed)
    assert here.claim(S, NOON, policy=RESEND) is Decision.SENT
    assert here.settle(Event.LOST, "t").occurrence is None


@pytest.mark.parametrize("how", ["flushed", "replaced"])
def test_an_emptied_server_is_noticed_and_nothing_from_before_is_granted(
    server: RedisServer, hosts: Hosts, how: str
) -> None:
    here, there = hosts.host("a"), hosts.host("b")
    for at in (NOON - 2 * MINUTE, NOON - MINUTE):
        token = f"{at}"
        here.claim(S, at, token=token)
        here.confirm(token)
    here.claim("theirs", NOON - 2 * MINUTE)
    hosts.clock.move(30)
    if how == "flushed":
        server.command("FLUSHALL")
    else:
        server.stop()
        server.start()  # it keeps nothing on disk
    assert here.claim(S, NOON - MINUTE) is Decision.SENT, "this host remembers"
    assert there.claim(S, NOON - MINUTE) is Decision.SENT, "and tells the others"
    assert there.claim("never heard of", NOON) is Decision.LATE
    assert here.claim(S, NOON - 3 * MINUTE) is Decision.LATE
    for book in (here, there, hosts.host("a"), hosts.host("c")):
        assert [text.partition(":")[0] for text in book.store.warnings()] == ["amnesia"]
    hosts.clock.move(30)
    assert there.claim(S, NOON + MINUTE) is Decision.SEND, "what comes after goes on"
    assert here.answer("every", None, "i", every=60.0).decision is Decision.SEND


def test_a_gate_that_was_away_when_the_server_was_emptied_notices_it_too(server: RedisServer, hosts: Hosts) -> None:
    hosts.host("a").claim(S, NOON - MINUTE)
    server.command("FLUSHALL")
    new = hosts.host("new")
    assert new.store.warnings() == []
    hosts.clock.move(30)
    back = hosts.host("a")
    assert back.store.warnings()[0].startswith("amnesia: at 2026-11-30 12:00:30 UTC unix:")
    assert new.claim("unknown", NOON) is Decision.LATE


def test_a_new_ledger_has_lost_nothing(hosts: Hosts) -> None:
    assert hosts.host("a").store.warnings() == []
    assert hosts.host("b").claim(S, NOON - 60 * MINUTE) is Decision.SEND


# -- servers that are not there, or will not do


def test_nothing_is_granted_without_the_server_and_it_is_found_again_at_once(server: RedisServer, hosts: Hosts) -> None:
    book = hosts.host("a")
    server.stop()
    with pytest.raises(StoreError, match="unix:"):
        book.claim(S, NOON)
    server.start()
    assert book.claim(S, NOON, token="t") is Decision.SEND


def test_a_server_that_hangs_holds_nobody_up_for_long(server: RedisServer, hosts: Hosts) -> None:
    book = hosts.host("a")
    with server.suspended(), pytest.raises(StoreError, match="timeout"):
        book.claim(S, NOON, token="t")
    assert book.claim(S, NOON, token="t") is Decision.SEND, "whether or not it was done meanwhile"
    with redis.Redis.from_url(server.unix_url) as client:
        client.client_pause(1300)  # longer than an answer may take, and over before the second try is
    assert book.claim(S, NOON - MINUTE) is Decision.SEND


def test_a_full_server_writes_nothing_and_goes_on_when_there_is_room(server: RedisServer, hosts: Hosts) -> None:
    book = hosts.host("a")
    server.command("CONFIG SET maxmemory 1")
    with pytest.raises(StoreError, match="maxmemory"):
        book.claim(S, NOON)
    server.command("CONFIG SET maxmemory 0")
    assert book.store.history(None, None, 10) == []
    assert book.claim(S, NOON) is Decision.SEND


def test_too_few_replicas_are_no_grant(server: RedisServer, tmp_path: Path) -> None:
    clock, prefix = ManualClock(), new_prefix()
    redis_store(server.unix_url, tmp_path / "begun.db", KEEP, clock, prefix).close()
    store = redis_store(server.unix_url, tmp_path / "j.db", KEEP, clock, prefix, replicas=1)
    book = Book(store, clock)
    for _ in range(3):  # asking again reads what is written, and must not make a grant of it
        with pytest.raises(StoreError, match="only 0 of wait_replicas = 1 replicas have it yet"):
            book.claim(S, NOON, token="t")
    store.close()
    again = Book(redis_store(server.unix_url, tmp_path / "j.db", KEEP, clock, prefix, replicas=1), clock)
    with pytest.raises(StoreError, match="only 0 of"):
        again.claim(S, NOON, token="t")
    again.store.close()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_server_that_evicts_is_refused_unless_it_is_allowed(
    server: RedisServer, tmp_path: Path, *, allowed: bool
) -> None:
    server.command("CONFIG SET maxmemory 100mb")
    server.command("CONFIG SET maxmemory-policy allkeys-lru")
    options = Shared(allow_eviction=allowed)
    if allowed:
        store = open_store(server.unix_url, tmp_path, KEEP, ManualClock(), options)
        assert "maxmemory-policy is allkeys-lru" in store.warnings()[0]
        store.close()
    else:
        with pytest.raises(StartError, match="set it to noeviction, or allow_eviction = true"):
            open_store(server.unix_url, tmp_path, KEEP, ManualClock(), options)


@pytest.fixture
def locked(server: RedisServer) -> RedisServer:
    server.command("ACL SETUSER gate on >secret ~{gate}* &* +@all")
    server.command("ACL SETUSER default off")
    return server


def test_a_password_comes_from_a_file_or_a_credential_and_is_never_shown(locked: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "redis-password").write_text("secret\n")
    for file, credentials in ((str(tmp_path / "redis-password"), None), ("redis-password", str(tmp_path))):
        url = f"redis://gate@127.0.0.1:{locked.port}"
        store = open_store(url, tmp_path, KEEP, ManualClock(), Shared(password_file=file), credentials)
        assert store.url == url
        store.close()
    with pytest.raises(StoreError) as told:
        open_store(f"redis://gate:wrong-one@127.0.0.1:{locked.port}", tmp_path, KEEP, ManualClock())
    assert "invalid username-password" in str(told.value)
    assert "wrong-one" not in str(told.value)
    with pytest.raises(StartError, match="it is a credential, and there are none"):
        password_from("redis-password", None)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://u:p@h:1/2", "redis://u@h:1/2"),
        ("redis://:p@h", "redis://h"),
        ("redis+sentinel://u:p@a:1,b:2/main", "redis+sentinel://u@a:1,b:2/main"),
        ("redis://h?password=p&db=1", "redis://h?db=1"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, text: str) -> None:
    assert shown(url) == text


def test_a_sentinel_url_without_a_service_is_refused() -> None:
    with pytest.raises(StartError, match="name the service"):
        Link("redis+sentinel://h:1", None, 0)


# -- its clock, and its keys


def test_the_servers_clock_is_the_clock(server: RedisServer, tmp_path: Path) -> None:
    link = Link(server.unix_url, None, 0, wall=lambda: 0.0)
    with redis.Redis.from_url(server.unix_url) as client:
        before = client.time()
        now = link.now().timestamp()
        after = client.time()
    assert before[0] + before[1] / 1e6 - 0.01 <= now <= after[0] + after[1] / 1e6 + 0.01
    assert link.skew == pytest.approx(-now, abs=1)
    store = RedisStore(link, Journal(tmp_path / "j.db"), KEEP, "p")
    assert f" s behind that of {server.unix_url}" in store.warnings()[0]
    store.close()


def test_every_key_has_the_prefix_and_an_end(server: RedisServer, hosts: Hosts) -> None:
    book = hosts.host("a")
    for n, event in enumerate([Event.CONFIRM, Event.RELEASE, Event.LOST, None]):
        book.claim(f"schedule {n}", NOON, token=f"{n}")
        if event is not None:
            book.settle(event, f"{n}")
    book.miss("missed")
    book.store.put_notes("override", {"k": b"v"})
    book.store.probe()
    with redis.Redis.from_url(server.unix_url) as client:
        keys = client.keys("*")
        assert len(keys) > 12
        assert {key.partition(b":")[0] for key in keys} == {keys[0].partition(b":")[0]}
        assert [key for key in keys if client.ttl(key) < 0] == []


def test_notes_of_one_host_stay_there_and_the_others_count_as_changes(hosts: Hosts) -> None:
    here, there = hosts.host("a").store, hosts.host("b").store
    assert isinstance(there, RedisStore)
    before = there.changes()
    here.put_notes("place", {"k": b"1"})
    assert (there.notes("place"), there.changes()) == ({}, before)
    here.put_notes("override", {"k": b"1"})
    assert there.notes("override") == {"k": b"1"}
    assert there.changes() == before + 1
    assert hosts.host("a").store.notes("place") == {"k": b"1"}
