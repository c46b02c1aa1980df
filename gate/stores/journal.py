"""What this host itself has written to a shared store, kept beside it: a store that failed over may have lost it.

A copy of records in SQLite, of as long as the ledger remembers. It survives this process, and need not survive the
machine: that is what the shared store is for, so a commit does not wait for the disk. Notes that concern this host
alone, such as the processes that hold places, live here too.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from gate.errors import StartError, StoreError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (key TEXT PRIMARY KEY, value BLOB NOT NULL, touched INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS record_touched ON record (touched);
CREATE TABLE IF NOT EXISTS note (
    kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


class Journal:
    """`gate`: the id of this gate, made once. All methods raise StoreError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_SCHEMA)
            self._connection.execute("INSERT OR IGNORE INTO meta VALUES ('gate', ?)", (secrets.token_hex(8),))
        except sqlite3.Error as error:
            raise StartError(f"{path} cannot be opened: {error}") from error
        self.gate = self.meta("gate") or ""

    def meta(self, key: str) -> str | None:
        """A fact about this journal."""
        row = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str) -> None:
        """Remember a fact."""
        self._do([("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))])

    def get(self, key: str) -> bytes | None:
        """What this host wrote last under a key."""
        row = self._one("SELECT value FROM record WHERE key = ?", (key,))
        return None if row is None or not isinstance(row[0], bytes) else row[0]

    def put(self, records: Iterable[tuple[str, bytes, int]]) -> None:
        """Remember records: key, value, and when they were touched, in microseconds."""
        self._do([("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", record) for record in records])

    def forget(self, keys: Iterable[str]) -> None:
        """Forget records."""
        self._do([("DELETE FROM record WHERE key = ?", (key,)) for key in keys])

    def prune(self, before: int, limit: int) -> None:
        """Forget at most `limit` records that were touched before."""
        self._do(
            [("DELETE FROM record WHERE key IN (SELECT key FROM record WHERE touched < ? LIMIT ?)", (before, limit))]
        )

    def notes(self, kind: str) -> dict[str, bytes]:
        """All notes of a kind."""
        try:
            return dict(self._connection.execute("SELECT key, value FROM note WHERE kind = ?", (kind,)))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        """Write notes, and forget those whose value is None."""
        self._do(
            [
                ("DELETE FROM note WHERE kind = ? AND key = ?", (kind, key))
                if value is None
                else ("INSERT OR REPLACE INTO note VALUES (?, ?, ?)", (kind, key, value))
                for key, value in changes.items()
            ]
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _one(self, query: str, arguments: tuple[str, ...]) -> tuple[object, ...] | None:
        try:
            row: tuple[object, ...] | None = self._connection.execute(query, arguments).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return row

    def _do(self, statements: list[tuple[str, tuple[object, ...]]]) -> None:
        if not statements:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, arguments in statements:
                self._connection.execute(statement, arguments)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"{self._path}: {error}")
