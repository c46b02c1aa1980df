"""Fixtures for all tests: a Redis and a PostgreSQL server, a fake clock for processes, gates, hypothesis runs that
repeat.
"""

import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from gate.reactor import Limits
from gate.stores.base import Store
from gate.stores.memory import MemoryStore
from gate.stores.sqlite import SqliteStore
from tests.support import faketime, postgres
from tests.support.book import KEEP, Book, ManualClock
from tests.support.gate_process import GateProcess, RawClient
from tests.support.redis import RedisServer, find_server
from tests.support.redis_store import redis_store

# No deadline: a busy machine is not a bug. `--hypothesis-profile=explore` looks for new cases.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2_000, print_blob=True)
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="session")
def redis_binary() -> Path:
    """A redis-server that can be started."""
    binary = find_server()
    if binary is None:
        pytest.skip("no redis-server on this machine: apt install redis-server, or run tests/run.py")
    return binary


@contextmanager
def running_redis(binary: Path) -> Iterator[RedisServer]:
    server = RedisServer(binary)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def redis_server(redis_binary: Path) -> Iterator[RedisServer]:
    """A running redis-server of our own. A test may stop it; `redis_url` starts it again."""
    with running_redis(redis_binary) as server:
        yield server


@pytest.fixture(scope="session")
def shared_redis(redis_binary: Path) -> Iterator[RedisServer]:
    """A Redis for tests that take a prefix of their own, and leave it running."""
    with running_redis(redis_binary) as server:
        yield server


@pytest.fixture
def server(redis_binary: Path) -> Iterator[RedisServer]:
    """A Redis of this test's own, to be stopped, emptied or filled."""
    with running_redis(redis_binary) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of the running server, emptied for this test."""
    redis_server.start()
    assert redis_server.command("FLUSHALL") == b"+OK"
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """A running PostgreSQL of our own."""
    binaries = postgres.find_server()
    if binaries is None:
        pytest.skip("no PostgreSQL server on this machine: apt install postgresql, or run tests/run.py")
    server = postgres.PostgresServer(binaries)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def fake_time() -> Iterator[Callable[[datetime, float], faketime.FakeTime]]:
    """A function `(start, speed) -> FakeTime`, whose `env()` starts a process inside that time."""
    library = faketime.find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    yield lambda start, speed: faketime.FakeTime(library, start, speed)
    faketime.remove_leftovers()


@pytest.fixture
def step_time(tmp_path: Path) -> Iterator[faketime.StepTime]:
    """A wall clock that the test sets under running processes, which have its `env()`."""
    library = faketime.find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    yield faketime.StepTime(library, tmp_path / "clock")
    faketime.remove_leftovers()


@pytest.fixture
def make_gate(tmp_path: Path) -> Iterator[Callable[..., GateProcess]]:
    """A function that makes gates, not started yet, and stops them at the end.

    Its arguments are those of GateProcess without the folder; `name` gives each of several a folder of its own.
    """
    with ExitStack() as made:

        def make(name: str = "gate", **options: Any) -> GateProcess:
            process = GateProcess(tmp_path / name, **options)
            made.callback(process.close)
            return process

        yield make


@pytest.fixture
def gate(make_gate: Callable[..., GateProcess]) -> GateProcess:
    """A running gate with the built-in configuration. A test may kill and restart it."""
    return make_gate().start()


@pytest.fixture
def client(gate: GateProcess) -> Iterator[RawClient]:
    """A connection to the running gate."""
    with gate.client() as connection:
        yield connection


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """This process may open as many connections as a gate lets in, and some files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = Limits().connections + 200
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may open only {hard} files")
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(params=["memory", "sqlite", "redis"])
def make_book(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Book]:
    """A function from `keep` to a Book over each of the stores."""

    def make(keep: float = KEEP) -> Book:
        clock = ManualClock()
        store: Store
        if request.param == "memory":
            store = MemoryStore(clock, keep)
        elif request.param == "sqlite":
            store = SqliteStore(tmp_path / "gate.db", clock, keep)
        else:
            url = request.getfixturevalue("shared_redis").unix_url
            store = redis_store(url, tmp_path / "journal.db", keep, clock)
        request.addfinalizer(store.close)
        return Book(store, clock)

    return make


@pytest.fixture
def book(make_book: Callable[..., Book]) -> Book:
    return make_book()
