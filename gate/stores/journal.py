"""What this host itself has written to a shared store, kept beside it: a store that failed over may have lost it.

A copy of records in SQLite, of as long as the ledger remembers. It survives this process, and need not survive the
machine: that is what the shared store is for, so a commit does not wait for the disk. Notes that concern this host
alone, such as the processes that hold places, live here too.
"""

import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gate.errors import StartError, StoreError
from gate.stores.redisplan import Ref

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (key BLOB PRIMARY KEY, value BLOB NOT NULL, touched INTEGER NOT NULL) WITHOUT ROWID;
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
        self._do(("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, value)]))

    def get(self, ref: Ref) -> bytes | None:
        """What this host wrote last in a place."""
        row = self._one("SELECT value FROM record WHERE key = ?", (_key(ref),))
        return None if row is None or not isinstance(row[0], bytes) else row[0]

    def get_all(self, refs: Sequence[Ref]) -> dict[Ref, bytes | None]:
        """The same of some hundred places."""
        if not refs:
            return {}
        query = f"SELECT key, value FROM record WHERE key IN ({','.join('?' * len(refs))})"
        keys = [_key(ref) for ref in refs]
        try:
            found: dict[bytes, bytes] = dict(self._connection.execute(query, keys))
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return {ref: found.get(key) for ref, key in zip(refs, keys, strict=True)}

    def put(self, records: Iterable[tuple[Ref, bytes, int]]) -> None:
        """Remember records: place, value, and when they were touched, in microseconds."""
        rows = [(_key(ref), value, touched) for ref, value, touched in records]
        self._do(("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", rows))

    def forget(self, refs: Iterable[Ref]) -> None:
        """Forget records."""
        self._do(("DELETE FROM record WHERE key = ?", [(_key(ref),) for ref in refs]))

    def prune(self, before: int, limit: int) -> None:
        """Forget at most `limit` records that were touched before."""
        old = "DELETE FROM record WHERE key IN (SELECT key FROM record WHERE touched < ? LIMIT ?)"
        self._do((old, [(before, limit)]))

    def notes(self, kind: str) -> dict[str, bytes]:
        """All notes of a kind."""
        try:
            return dict(self._connection.execute("SELECT key, value FROM note WHERE kind = ?", (kind,)))
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        """Write notes, and forget those whose value is None."""
        self._do(
            (
                "INSERT OR REPLACE INTO note VALUES (?, ?, ?)",
                [(kind, key, value) for key, value in changes.items() if value is not None],
            ),
            (
                "DELETE FROM note WHERE kind = ? AND key = ?",
                [(kind, key) for key, value in changes.items() if value is None],
            ),
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _one(self, query: str, arguments: tuple[object, ...]) -> tuple[object, ...] | None:
        try:
            row: tuple[object, ...] | None = self._connection.execute(query, arguments).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return row

    def _do(self, *statements: tuple[str, Sequence[tuple[object, ...]]]) -> None:
        """Run each statement for each of its rows, all in one transaction; nothing where there are no rows."""
        todo = [(statement, rows) for statement, rows in statements if rows]
        if not todo:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, rows in todo:
                self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise self._failed(error) from error

    def _failed(self, error: sqlite3.Error) -> StoreError:
        return StoreError(f"{self._path}: {error}")


def _key(ref: Ref) -> bytes:
    key, field = ref
    return key + b":" + field
