"""The SQLite store and its file: what is kept, what is refused and left as it is, and how it recovers from faults."""

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gate.errors import StoreError
from gate.interface import Decision, Done, State
from gate.ledger import Change, Event, Occurrence, Schedule, Token, View
from gate.stores import open_store
from gate.stores.base import Step
from gate.stores.memory import MemoryStore
from gate.stores.sqlite import SqliteStore
from tests.support.book import KEEP, NOON, Book, ManualClock, claim_step, look, settle_step

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
S = "nightly"
ROOT = Path(__file__).resolve().parent.parent
Opened = Callable[..., Book]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A function that opens the ledger at `path` (default: gate.db in the test's folder) and closes it at the end."""
    books: list[Book] = []

    def open_it(path: Path | None = None, keep: float = KEEP) -> Book:
        clock = ManualClock()
        books.append(Book(SqliteStore(path or tmp_path / "gate.db", clock, keep), clock))
        return books[-1]

    yield open_it
    for book in books:
        book.store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate.db"


def filled(path: Path, schedules: int = 40) -> None:
    """Make a ledger with something in it, closed in good order."""
    store = SqliteStore(path, ManualClock(), KEEP)
    steps = [claim_step(f"schedule {n}", NOON, f"token {n}") for n in range(schedules)]
    store.apply([*steps, *[settle_step(Event.CONFIRM, f"token {n}") for n in range(0, schedules, 2)]])
    store.close()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# -- what is kept


def test_a_url_names_a_store(tmp_path: Path) -> None:
    clock = ManualClock()
    memory = open_store("memory:", tmp_path, KEEP, clock)
    assert isinstance(memory, MemoryStore)
    assert list(tmp_path.iterdir()) == []
    for url, path in (("sqlite:", tmp_path / "gate.db"), (f"sqlite:{tmp_path}/other.db", tmp_path / "other.db")):
        store = open_store(url, tmp_path, KEEP, clock)
        assert isinstance(store, SqliteStore)
        assert (store.path, store.url, store.kind) == (path, f"sqlite:{path}", "sqlite")
        assert store.size() == path.stat().st_size > 0
        store.close()


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
instants = st.datetimes(datetime(1970, 1, 1), datetime(9000, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
schedules = st.builds(
    Schedule,
    name=names,
    title=st.none() | names,
    known_since=instants,
    newest=instants,
    once=st.booleans(),
    touched=instants,
)
occurrences = st.builds(
    Occurrence,
    schedule=names,
    at=instants,
    state=st.sampled_from(State),
    token=names,
    holder=names,
    claimed=instants,
    until=instants,
    touched=instants,
    settled=st.none() | instants,
    reason=st.text(st.characters(codec="utf-8"), max_size=40),
    grants=st.integers(1, 10**9),
)


@given(schedules, occurrences, names)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_back_after_a_restart(
    tmp_path: Path, schedule: Schedule, occurrence: Occurrence, token: str
) -> None:
    occurrence = replace(occurrence, schedule=schedule.name)
    schedule = replace(schedule, newest=max(schedule.newest, occurrence.at))
    born = Token(token=token, schedule=schedule.name, at=occurrence.at, holder=occurrence.holder, born=schedule.touched)
    change = Change(Done(), occurrence, schedule, born)
    clock, found = ManualClock(), list[View]()
    for step in (Step(None, None, None, lambda view, now: change), Step(token, None, None, look(found))):
        store = SqliteStore(tmp_path / "gate.db", clock, KEEP)
        store.apply([step])
        store.close()
    horizon = NOON - timedelta(seconds=KEEP)
    assert found == [View(schedule=schedule, occurrence=occurrence, token=born, horizon=horizon)]


def test_a_restart_keeps_all_that_was_answered(opened: Opened) -> None:
    first = opened()
    for number, event in enumerate([None, Event.CONFIRM, Event.LOST, Event.RELEASE]):
        first.claim(f"s{number}", NOON, token=f"t{number}", title=f"title {number}")
        if event is not None:
            first.settle(event, f"t{number}")
    before = [first.store.history(None, None, 10), first.store.schedules(10), first.store.doubts(10)]
    first.store.close()
    second = opened()
    assert [second.store.history(None, None, 10), second.store.schedules(10), second.store.doubts(10)] == before
    assert [record.schedule for record in second.store.open_claims()] == ["s0"]
    assert [second.claim(f"s{n}", NOON) for n in range(4)] == ["held", "sent", "doubt", "send"]
    second.confirm("t0")


def test_a_restart_keeps_what_was_forgotten(opened: Opened) -> None:
    first = opened()
    for minute in (2, 1):
        first.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        first.confirm(f"t{minute}")
    first.clock.move(20 * DAY)
    assert first.store.prune(100) == 3
    first.store.close()
    second = opened()
    assert second.claim(S, NOON - 2 * MINUTE) is Decision.LATE


def test_what_was_answered_survives_sigkill(path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tests.support.book import *;"
        "from gate.stores.sqlite import SqliteStore;"
        "book = Book(SqliteStore(Path(sys.argv[1]), ManualClock(), KEEP), ManualClock());"
        "book.claim('a', NOON, token='a'); book.claim('b', NOON, token='b'); book.confirm('b');"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    store = SqliteStore(path, ManualClock(), KEEP)
    book = Book(store, ManualClock())
    assert [book.claim(name, NOON) for name in ("a", "b")] == ["held", "sent"]
    assert len(store.open_claims()) == 1
    store.close()


# -- what is refused, and left as it is


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def altered(path: Path, change: Callable[[bytearray], object]) -> None:
    filled(path)
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def spoil(data: bytearray) -> None:
    """Overwrite the middle of the file, from the second page on."""
    data[5000:-2000] = b"\xa5" * len(data[5000:-2000])


def after(sql: str) -> Callable[[Path], None]:
    """A ledger on which somebody ran `sql`."""

    def make(path: Path) -> None:
        filled(path)
        with sqlite3.connect(path) as connection:
            connection.execute(sql)
        connection.close()

    return make


def zeros(path: Path) -> None:
    path.write_bytes(b"\0" * 8192)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a text": (lambda path: path.write_text("notes\n" * 1000), "is not a ledger of schedule-gate: move it away"),
    "a few bytes": (lambda path: path.write_bytes(b"SQLite format 3\0"), "is not a ledger of schedule-gate"),
    "zeros": (zeros, "is not a ledger of schedule-gate"),
    "an empty file": (lambda path: path.touch(), "is empty"),
    "another program's database": (foreign, "is not a ledger of schedule-gate: move it away, or name another file"),
    "a ledger of another version": (
        after("PRAGMA user_version = 4"),
        "has schema version 4, this gate knows 3: use the gate that made it",
    ),
    "a ledger of no version": (after("PRAGMA user_version = 0"), "has schema version 0, this gate knows 3"),
    "a ledger cut in the middle": (lambda path: altered(path, lambda d: d.__delitem__(slice(9000, None))), ""),
    "a ledger cut after its header": (lambda path: altered(path, lambda d: d.__delitem__(slice(100, None))), ""),
    "a ledger with a spoiled middle": (lambda path: altered(path, spoil), ""),
    "a ledger without its name": (after("DELETE FROM meta"), "is damaged"),
    "a ledger with a senseless watermark": (after("UPDATE meta SET value = 'x' WHERE key = 'forgotten'"), "is damaged"),
    "a ledger without a table": (after("DROP TABLE token"), ""),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_that_is_no_sound_ledger_is_refused_and_left_as_it_is(what: str, path: Path) -> None:
    make, text = REFUSED[what]
    make(path)
    before = files(path.parent)
    with pytest.raises(StoreError) as caught:
        SqliteStore(path, ManualClock(), KEEP)
    assert str(caught.value).startswith(f"{path} ")
    assert text in str(caught.value)
    assert files(path.parent) == before


def test_a_damaged_file_keeps_its_write_ahead_log(opened: Opened, tmp_path: Path) -> None:
    """What a killed gate left beside the file may be all that a repair has."""
    live = opened()
    for number in range(50):
        live.claim(f"schedule {number}", NOON, token=f"t{number}")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("gate.db", "gate.db-wal"):
        shutil.copy(tmp_path / name, copy / name)
    assert (copy / "gate.db-wal").stat().st_size > 0
    data = bytearray((copy / "gate.db").read_bytes())
    data[4096:] = b"\xa5" * len(data[4096:])
    (copy / "gate.db").write_bytes(data)
    before = files(copy)
    with pytest.raises(StoreError, match="is damaged"):
        SqliteStore(copy / "gate.db", ManualClock(), KEEP)
    assert {name: data for name, data in files(copy).items() if not name.endswith("-shm")} == before


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        SqliteStore(tmp_path, ManualClock(), KEEP)


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"missing/gate\.db cannot be made: unable to open database file"):
        SqliteStore(tmp_path / "missing" / "gate.db", ManualClock(), KEEP)


@contextmanager
def as_a_plain_user() -> Iterator[None]:
    """Root may read and write everything: put that aside for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a plain user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="gate-store-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_that_may_not_be_read_is_refused(open_folder: Path) -> None:
    path = open_folder / "gate.db"
    filled(path)
    path.chmod(0)
    with as_a_plain_user(), pytest.raises(StoreError, match="cannot be read: Permission denied"):
        SqliteStore(path, ManualClock(), KEEP)
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    SqliteStore(path, ManualClock(), KEEP).close()


def test_a_file_that_may_not_be_written_grants_nothing_and_recovers(open_folder: Path) -> None:
    path = open_folder / "gate.db"
    filled(path)
    path.chmod(0o444)
    open_folder.chmod(0o555)
    before = files(open_folder)
    with as_a_plain_user(), pytest.raises(StoreError, match=r"gate\.db"):
        SqliteStore(path, ManualClock(), KEEP).apply([claim_step(S, NOON, "a")])
    assert files(open_folder) == before
    open_folder.chmod(0o755)
    path.chmod(0o644)
    store = SqliteStore(path, ManualClock(), KEEP)
    assert Book(store, ManualClock()).claim(S, NOON) is Decision.SEND
    store.close()


@given(st.integers(0, 60_000), st.integers(1, 255))
@example(68, 1)
@example(60, 1)
@example(100, 255)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_is_noticed_or_does_no_harm_but_never_an_unnamed_error(
    tmp_path: Path, place: int, flip: int
) -> None:
    sound, path = tmp_path / "sound.db", tmp_path / "gate.db"
    if not sound.exists():
        filled(sound)
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"gate.db{suffix}").unlink(missing_ok=True)
    data = bytearray(sound.read_bytes())
    data[place % len(data)] ^= flip
    path.write_bytes(data)
    store: SqliteStore | None = None
    with suppress(StoreError):
        store = SqliteStore(path, ManualClock(), KEEP)
    if store is None:
        assert path.read_bytes() == data
        return
    for ask in (
        store.open_claims,
        lambda: store.doubts(100),
        lambda: store.schedules(100),
        lambda: store.history(None, None, 100),
        lambda: store.apply([claim_step(f"schedule {n}", NOON, f"new {n}") for n in range(40)]),
        lambda: store.prune(100),
        store.close,
    ):
        with suppress(StoreError):
            ask()


# -- faults while it runs


def moved_away(path: Path) -> Path:
    return path.rename(path.with_name("elsewhere.db"))


def test_a_file_that_vanished_grants_nothing_and_may_be_put_back(opened: Opened, path: Path) -> None:
    book = opened()
    book.claim(S, NOON, token="a")
    away = moved_away(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"gate\.db has vanished .*: put it back, or restart the gate"):
            book.claim("other", NOON)
    for ask in (book.store.open_claims, book.store.size, lambda: book.store.doubts(1), lambda: book.store.prune(1)):
        with pytest.raises(StoreError, match=r"gate\.db has vanished"):
            ask()
    assert not path.exists(), "nothing new is made in its place"
    away.rename(path)
    assert book.claim(S, NOON) is Decision.HELD
    assert book.claim("other", NOON) is Decision.SEND
    book.confirm("a")


def test_a_copy_that_is_put_in_its_place_has_all_that_was_answered(opened: Opened, path: Path) -> None:
    book = opened()
    for number in range(20):
        book.claim(f"s{number}", NOON, token=f"t{number}")
    away = moved_away(path)
    with pytest.raises(StoreError):
        book.claim("s0", NOON)
    shutil.copy(away, path)
    assert [book.claim(f"s{n}", NOON) for n in range(20)] == [Decision.HELD] * 20
    for number in range(20):
        book.confirm(f"t{number}")
    book.store.close()
    assert [opened().claim(f"s{n}", NOON) for n in range(20)] == [Decision.SENT] * 20


def test_a_file_that_was_replaced_by_another_ledger_is_refused_until_it_is_back(
    opened: Opened, path: Path, tmp_path: Path
) -> None:
    book = opened()
    book.claim(S, NOON, token="a")
    filled(tmp_path / "other.db")
    away = moved_away(path)
    shutil.copy(tmp_path / "other.db", path)
    shutil.move(tmp_path / "gate.db-wal", tmp_path / "elsewhere.db-wal")
    other = path.read_bytes()
    for _ in range(2):
        with pytest.raises(StoreError, match="was replaced by another ledger: restart the gate to use it"):
            book.claim("other", NOON)
    assert path.read_bytes() == other
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.move(tmp_path / "elsewhere.db-wal", tmp_path / "gate.db-wal")
    away.rename(path)
    assert book.claim(S, NOON) is Decision.HELD


def test_nothing_that_was_remembered_is_trusted_after_a_fault(opened: Opened, path: Path, tmp_path: Path) -> None:
    """Such as when the ledger's own backup is put in its place: what counts is what the file says."""
    first = opened()
    first.claim(S, NOON, token="a")
    first.store.close()
    backup = shutil.copy(path, tmp_path / "backup.db")
    book = opened()
    book.confirm("a")
    book.claim("other", NOON, token="b")
    path.unlink()
    with pytest.raises(StoreError):
        book.claim(S, NOON)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    shutil.copy(backup, path)
    assert book.claim(S, NOON) is Decision.HELD
    assert book.view("other", NOON, "b").schedule is None


@pytest.mark.parametrize("content", [b"", b"not a ledger at all" * 100])
def test_a_file_that_was_replaced_by_something_else_is_refused_and_left_as_it_is(
    opened: Opened, path: Path, content: bytes
) -> None:
    book = opened()
    book.claim(S, NOON, token="a")
    moved_away(path)
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is not a ledger|is empty"):
            book.claim(S, NOON)
    assert path.read_bytes() == content


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
connection.close()
"""


def test_a_file_that_another_process_locks_grants_nothing_until_it_is_released(opened: Opened, path: Path) -> None:
    book = opened()
    book.claim(S, NOON, token="a")
    locker = subprocess.Popen(
        [sys.executable, "-c", LOCK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with locker:
        assert locker.stdout is not None
        assert locker.stdin is not None
        assert locker.stdout.readline() == "locked\n"
        with pytest.raises(StoreError, match=r"gate\.db cannot be (written|opened): database is locked"):
            book.claim("other", NOON, token="b")
        with pytest.raises(StoreError, match="locked"):
            book.store.probe()
        locker.stdin.write("go\n")
        locker.stdin.flush()
        locker.wait(10)
    assert book.view(None, None, "b").token is None
    assert book.claim("other", NOON, token="b") is Decision.SEND
    assert book.claim(S, NOON) is Decision.HELD


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may be written: to SQLite the same as a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("warm", [False, True])
def test_a_full_disk_grants_nothing_of_a_batch_and_recovers_by_itself(opened: Opened, path: Path, warm: bool) -> None:
    book = opened()
    if warm:
        book.store.warm_up()
    book.claim(S, NOON, token="a")
    faults: list[str] = []
    with no_room():
        for _ in range(3):
            try:
                book.store.apply([claim_step("new", NOON, "b"), settle_step(Event.CONFIRM, "a")])
            except StoreError as error:
                faults.append(str(error))
        with pytest.raises(StoreError, match=r"gate\.db"):
            book.store.probe()
    assert len(faults) == 3
    assert all(str(path) in fault for fault in faults)
    assert book.record("new") is None
    assert book.view(None, None, "b").token is None
    assert book.claim(S, NOON) is Decision.HELD, "the confirm was not written, and that is not forgotten"
    assert book.claim("new", NOON, token="c") is Decision.SEND
    book.confirm("a")
    book.store.close()
    again = opened()
    assert [again.claim(name, NOON) for name in (S, "new")] == [Decision.SENT, Decision.HELD]


def test_a_start_on_a_full_disk_fails_and_the_next_one_works(opened: Opened, path: Path) -> None:
    with no_room(), pytest.raises(StoreError, match=r"gate\.db"):
        opened()
    assert opened().claim(S, NOON) is Decision.SEND


def test_pruning_on_a_full_disk_forgets_nothing(opened: Opened) -> None:
    book = opened()
    for minute in (2, 1):
        book.claim(S, NOON - minute * MINUTE, token=f"t{minute}")
        book.confirm(f"t{minute}")
    book.clock.move(20 * DAY)
    with no_room(), pytest.raises(StoreError):
        book.store.prune(100)
    assert len(book.store.history(S, None, 10)) == 2
    assert book.store.prune(100) == 3


def test_a_record_that_makes_no_sense_is_a_fault_and_never_a_grant(opened: Opened, path: Path) -> None:
    after("UPDATE occurrence SET state = 'clbimed' WHERE token = 'token 1'")(path)
    book = opened()
    outcomes = book.store.apply([claim_step("schedule 1", NOON, "new"), claim_step("schedule 0", NOON, "new")])
    assert isinstance(outcomes[0], ValueError)
    assert isinstance(outcomes[1], Change)
    for ask in (lambda: book.store.history(None, None, 100), lambda: book.store.schedules(100)):
        with pytest.raises(StoreError, match=r"it is damaged, a record makes no sense .'clbimed'"):
            ask()
