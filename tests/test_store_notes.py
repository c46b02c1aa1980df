"""Notes in the SQLite file: durable, whole or not at all; and a ledger of the first version, which had none."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gate.errors import StoreError
from gate.interface import Decision
from gate.stores import schema
from gate.stores.sqlite import SqliteStore
from tests.support.book import KEEP, NOON, Book, ManualClock

ROOT = Path(__file__).resolve().parent.parent
VERSION_1 = """
PRAGMA application_id = 1195463749;
PRAGMA user_version = 1;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE schedule (
    id INTEGER PRIMARY KEY AUTOINCREMENT, -- no schedule inherits the tokens of one that was forgotten
    name TEXT NOT NULL UNIQUE,
    title TEXT,
    known_since INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    once INTEGER NOT NULL,
    touched INTEGER NOT NULL
);
CREATE INDEX schedule_touched ON schedule (touched);
CREATE INDEX schedule_old ON schedule (once, touched);
CREATE TABLE occurrence (
    schedule INTEGER NOT NULL REFERENCES schedule (id),
    at INTEGER NOT NULL,
    state TEXT NOT NULL,
    token TEXT NOT NULL,
    holder TEXT NOT NULL,
    claimed INTEGER NOT NULL,
    until INTEGER NOT NULL,
    touched INTEGER NOT NULL,
    settled INTEGER,
    reason TEXT NOT NULL,
    grants INTEGER NOT NULL,
    PRIMARY KEY (schedule, at)
) WITHOUT ROWID;
CREATE INDEX occurrence_unsettled ON occurrence (state) WHERE state IN ('claimed', 'doubt');
CREATE INDEX occurrence_touched ON occurrence (touched);
CREATE TABLE token (
    token TEXT PRIMARY KEY,
    schedule INTEGER NOT NULL REFERENCES schedule (id),
    at INTEGER NOT NULL,
    holder TEXT NOT NULL,
    born INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX token_born ON token (born);
INSERT INTO meta VALUES ('ledger', '0123456789abcdef'), ('forgotten', '0');
"""
"""The tables as the first version made them, word for word."""
NOON_MICROSECONDS = 1796040000000000
ONE_SENT = f"""
INSERT INTO schedule VALUES (1, 'nightly', 'Nightly', {NOON_MICROSECONDS}, {NOON_MICROSECONDS}, 0, {NOON_MICROSECONDS});
INSERT INTO occurrence VALUES (1, {NOON_MICROSECONDS}, 'sent', 't', 'h', {NOON_MICROSECONDS}, {NOON_MICROSECONDS},
    {NOON_MICROSECONDS}, {NOON_MICROSECONDS}, 'sent', 1);
INSERT INTO token VALUES ('t', 1, {NOON_MICROSECONDS}, 'h', {NOON_MICROSECONDS});
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gate.db"


@pytest.fixture
def old(path: Path) -> Path:
    """A ledger of the first version with one occurrence that was sent, in WAL mode as the gate leaves it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(VERSION_1 + ONE_SENT)
        connection.execute("PRAGMA journal_mode = WAL")
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path, ManualClock(), KEEP)) as opened:
        yield opened


def version_of(path: Path) -> int:
    """PRAGMA user_version as it stands in the file, whatever is in the log."""
    return int.from_bytes(path.read_bytes()[60:64], "big")


def tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def test_a_ledger_of_the_first_version_is_upgraded_and_keeps_what_it_knew(old: Path) -> None:
    with closing(SqliteStore(old, ManualClock(), KEEP)) as store:
        book = Book(store, ManualClock())
        assert book.claim("nightly", NOON, token="other") is Decision.SENT
        assert store.notes("override") == {}
        store.put_notes("override", {"dicom": b"x"})
        assert version_of(old) == schema.SCHEMA_VERSION, "an older gate must see it, though this one was killed"
    with closing(SqliteStore(old, ManualClock(), KEEP)) as store:
        assert store.notes("override") == {"dicom": b"x"}
        assert Book(store, ManualClock()).claim("nightly", NOON, token="other") is Decision.SENT


def test_an_upgraded_ledger_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    for path in (old, tmp_path / "new.db"):
        SqliteStore(path, ManualClock(), KEEP).close()
    assert tables(old) == tables(tmp_path / "new.db")


def test_an_upgrade_that_fails_leaves_the_ledger_at_its_version(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tables(old)
    broken = {**schema.UPGRADES, 1: f"{schema.UPGRADES[1].strip().rstrip(';')} nonsense"}
    monkeypatch.setattr("gate.stores.file.UPGRADES", broken)
    with pytest.raises(StoreError, match=r"gate\.db cannot be upgraded: "):
        SqliteStore(old, ManualClock(), KEEP)
    monkeypatch.undo()
    assert (tables(old), version_of(old)) == (before, 1)
    SqliteStore(old, ManualClock(), KEEP).close()


def test_a_newer_version_that_only_the_log_tells_of_is_refused(old: Path, tmp_path: Path) -> None:
    """A later gate was killed before its log reached the file."""
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA user_version = 99")
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("gate.db", "gate.db-wal"):
            (copy / name).write_bytes((tmp_path / name).read_bytes())
    assert version_of(copy / "gate.db") == 1
    with pytest.raises(StoreError, match="has schema version 99, this gate knows 3: use the gate that made it"):
        SqliteStore(copy / "gate.db", ManualClock(), KEEP)


def test_a_ledger_without_its_notes_is_damaged(path: Path, store: SqliteStore) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE note")
    with pytest.raises(StoreError, match=r"is damaged \(it lacks note\)"):
        SqliteStore(path, ManualClock(), KEEP)


def test_notes_survive_sigkill(path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from gate.clock import SystemClock;"
        "from gate.stores.sqlite import SqliteStore; store = SqliteStore(Path(sys.argv[1]), SystemClock(), 1e6);"
        "store.put_notes('override', {'dicom': b'x'}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    with closing(SqliteStore(path, ManualClock(), KEEP)) as store:
        assert store.notes("override") == {"dicom": b"x"}


def test_notes_that_cannot_all_be_written_are_not_written_at_all(path: Path, store: SqliteStore) -> None:
    store.put_notes("override", {"a": b"old"})
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON note WHEN new.key = 'z' BEGIN SELECT raise(ABORT, 'no room'); END"
        )
    with pytest.raises(StoreError, match="cannot be written: no room"):
        store.put_notes("override", {"a": None, "b": b"new", "z": b"new"})
    assert store.notes("override") == {"a": b"old"}


def test_many_notes_are_written_at_once(store: SqliteStore) -> None:
    many: dict[str, bytes | None] = {f"rule {n}": b"%d" % n for n in range(1000)}
    store.put_notes("override", many)
    assert store.notes("override") == many


def test_a_note_that_makes_no_sense_is_a_fault(path: Path, store: SqliteStore) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("INSERT INTO note VALUES ('override', 'a', 'a text, though a blob was written')")
    with pytest.raises(StoreError, match="is damaged, a record makes no sense"):
        store.notes("override")
