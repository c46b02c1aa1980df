"""The default store: one SQLite file for one host.

WAL and `synchronous=FULL`: what was answered survives a power cut. One connection, used by one thread; no other
process writes the file (the state directory is locked), so what was read once may be remembered. A damaged or foreign
file is refused before anything is written to it. After a fault the file is opened anew at the next use.

Instants are integers: microseconds since 1970 in UTC.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from gate.clock import Clock
from gate.errors import StoreError
from gate.interface import State
from gate.ledger import EARLY_SECONDS, EPOCH, Occurrence, Schedule, Token
from gate.stores import file
from gate.stores.base import (
    AFTER_TOUCH,
    TOKEN_DAYS,
    Batch,
    Listed,
    Outcome,
    Step,
    Titled,
    kept_for,
)

REMEMBERED = 20_000
ROWS_AT_ONCE = 32
"""Rows in one statement: each statement hands the interpreter over to the event loop, and waits for it."""
WAL_BYTES = 4 * 1024 * 1024

T = TypeVar("T")
_TOKEN = "SELECT t.token, s.name, t.at, t.holder, t.born FROM token t JOIN schedule s ON s.id = t.schedule"
_START = (-1, 0, 0)
"""Before the first (touched, schedule, at)."""
_MICROSECOND = timedelta(microseconds=1)
_OCCURRENCE = "at, state, token, holder, claimed, until, touched, settled, reason, grants"
_SCHEDULE = "name, title, known_since, newest, once, touched"
_LISTED = (
    f"SELECT s.title, s.name, o.{_OCCURRENCE.replace(', ', ', o.')} FROM occurrence o"
    " JOIN schedule s ON s.id = o.schedule"
)


_NO_START = "substr(s.name, 1, 1) <> char(31)"
"""Starts of tasks are the ledger's own (gate.starts.MARK), and no schedules."""


def _stored(value: datetime) -> int:
    return (value - EPOCH) // _MICROSECOND


def _loaded(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


class SqliteStore:
    """The ledger in a SQLite file. Raises StoreError, naming file and fault; nothing is written then."""

    kind = "sqlite"
    shared = False

    def __init__(self, path: Path, clock: Clock, keep: float, remembered: int = REMEMBERED) -> None:
        """Open the file at `path`, or make it. Of each kind of record about `remembered` stay in memory."""
        self.path = path
        self.url = f"sqlite:{path}"
        self._clock = clock
        self._keep = timedelta(seconds=keep)
        self._remembered = remembered
        self._ids: dict[str, int] = {}
        self._schedules: dict[str, Schedule] = {}
        self._occurrences: dict[tuple[str, datetime], Occurrence] = {}
        self._tokens: dict[str, Token] = {}
        self._unknown: set[str] = set()
        """Tokens of the present batch that are in no record."""
        self._forgotten = EPOCH
        self._looked_at = _START
        self._ledger: str | None = None
        self._file: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = None
        self._open(create=True)

    def warnings(self) -> list[str]:
        return []

    def now(self) -> datetime:
        return self._clock.now()

    # -- opening

    def _open(self, *, create: bool) -> sqlite3.Connection:
        if not file.exists(self.path):
            if not create:
                raise self._vanished("no such file")
            file.create(self.path)
        meta = file.look(self.path)
        if self._ledger not in (None, meta["ledger"]):
            raise StoreError(f"{self.path} was replaced by another ledger: restart the gate to use it")
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=file.BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=64,
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA temp_store = MEMORY")  # a statement of many rows keeps a journal of its own
                file.upgrade(self.path, connection)
            except BaseException:
                connection.close()
                raise
        except file.FAULTS as error:
            raise file.fault(self.path, "cannot be opened", error) from error
        self._ledger, self._forgotten = meta["ledger"], _loaded(int(meta["forgotten"]))
        self._connection, self._file = connection, self._identity()
        return connection

    def _stat(self) -> os.stat_result:
        try:
            return os.stat(self.path)  # noqa: PTH116 - once per transaction, and half the cost of Path.stat
        except OSError as error:
            raise self._vanished(error.strerror or str(error)) from error

    def _vanished(self, how: str) -> StoreError:
        return StoreError(
            f"{self.path} has vanished ({how.lower()}): put it back, or restart the gate to begin an empty ledger"
        )

    def _identity(self) -> tuple[int, int]:
        found = self._stat()
        return found.st_dev, found.st_ino

    def _connected(self) -> sqlite3.Connection:
        """The open file, opened anew if there was a fault, or if another file stands in its place."""
        if self._connection is not None and self._identity() == self._file:
            return self._connection
        self._forget_cached()
        return self._open(create=False)

    def _forget_cached(self) -> None:
        connection, self._connection = self._connection, None
        for cache in (self._ids, self._schedules, self._occurrences, self._tokens):
            cache.clear()
        if connection is not None:
            connection.close()

    def _guarded(self, what: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the open file; after a fault nothing that was remembered is trusted."""
        try:
            return work(self._connected())
        except file.FAULTS as error:
            fault = file.fault(self.path, what, error)
            try:
                self._forget_cached()
            except sqlite3.Error as again:
                fault.add_note(f"closing it failed too: {again}")
            raise fault from error

    # -- reading one record

    def get_schedule(self, name: str) -> Schedule | None:
        found = self._schedules.get(name)
        if found is None:
            row = self._row(f"SELECT id, {_SCHEDULE} FROM schedule WHERE name = ?", (name,))
            if row is not None:
                self._ids[name] = row[0]
                found = self._schedules[name] = _schedule(row[1:])
        return found

    def get_occurrence(self, schedule: Schedule, at: datetime) -> Occurrence | None:
        found = self._occurrences.get((schedule.name, at))
        if found is None and schedule.name in self._ids:
            where = (self._ids[schedule.name], _stored(at))
            row = self._row(f"SELECT {_OCCURRENCE} FROM occurrence WHERE schedule = ? AND at = ?", where)
            if row is not None:
                found = self._occurrences[schedule.name, at] = _occurrence(schedule.name, row)
        return found

    def get_token(self, token: str) -> Token | None:
        found = self._tokens.get(token)
        if found is None:
            row = None if token in self._unknown else self._row(f"{_TOKEN} WHERE t.token = ?", (token,))
            if row is not None:
                found = self._tokens[token] = _token(row)
        return found

    def _row(self, sql: str, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
        assert self._connection is not None
        row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        return row

    # -- the one way to write

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        return self._guarded("cannot be written", lambda connection: self._apply(connection, steps))

    def _apply(self, connection: sqlite3.Connection, steps: Sequence[Step]) -> list[Outcome]:
        self._let_go()
        now = self.now()
        batch = Batch(self, now, self.horizon(now))
        self._look_up_tokens(connection, steps)
        outcomes = [batch.decide(step) for step in steps]
        self._unknown.clear()
        if batch.changed:
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._write(connection, batch)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._schedules |= batch.schedules
            self._occurrences |= batch.occurrences
            self._tokens |= batch.tokens
        return outcomes

    def _look_up_tokens(self, connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
        """Most tokens are new: a statement for many of them, not one for each."""
        self._unknown.clear()
        named = [step.token for step in steps if step.token is not None and step.token not in self._tokens]
        for some in _portions(named):
            rows = connection.execute(f"{_TOKEN} WHERE t.token IN ({', '.join('?' * len(some))})", some).fetchall()
            self._tokens.update((row[0], _token(row)) for row in rows)
            self._unknown.update(token for token in some if token not in self._tokens)

    def _write(self, connection: sqlite3.Connection, batch: Batch) -> None:
        ids = self._ids
        for schedule in batch.schedules.values():
            if schedule.name not in ids:
                self._add_schedule(connection, schedule)
        _put(
            connection,
            _PUT_SCHEDULE,
            [(ids[s.name], *_schedule_row(s)) for s in batch.schedules.values()],
        )
        _put(
            connection,
            _PUT_OCCURRENCE,
            [
                (
                    ids[o.schedule],
                    _stored(o.at),
                    o.state.value,
                    o.token,
                    o.holder,
                    _stored(o.claimed),
                    _stored(o.until),
                    _stored(o.touched),
                    None if o.settled is None else _stored(o.settled),
                    o.reason,
                    o.grants,
                )
                for o in batch.occurrences.values()
            ],
        )
        _put(
            connection,
            _PUT_TOKEN,
            [(t.token, ids[t.schedule], _stored(t.at), t.holder, _stored(t.born)) for t in batch.tokens.values()],
        )

    def _add_schedule(self, connection: sqlite3.Connection, s: Schedule) -> None:
        sql = f"INSERT INTO schedule ({_SCHEDULE}) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name)"
        row = connection.execute(f"{sql} DO UPDATE SET name = excluded.name RETURNING id", _schedule_row(s)).fetchone()
        self._ids[s.name] = row[0]

    def _let_go(self) -> None:
        """Forget what was remembered once it is too much; between batches, since a batch relies on it."""
        if len(self._schedules) > self._remembered:
            self._schedules.clear()
            self._ids.clear()
        if len(self._occurrences) > self._remembered:
            self._occurrences.clear()
        if len(self._tokens) > self._remembered:
            self._tokens.clear()

    # -- lists

    def open_claims(self) -> list[Occurrence]:
        return [titled.occurrence for titled in self._titled("WHERE o.state = 'claimed'")]

    def doubts(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state("doubt", limit)

    def missed(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state("missed", limit)

    def _of_state(self, state: str, limit: int) -> tuple[int, list[Titled]]:
        """The state is written into the statement, or its partial index would not serve."""
        (total,) = self._read(
            _count,
            "SELECT count(*) FROM occurrence o JOIN schedule s ON s.id = o.schedule"
            f" WHERE o.state = '{state}' AND {_NO_START}",
        )
        return total, self._titled(
            f"WHERE o.state = '{state}' AND {_NO_START} ORDER BY o.at DESC, s.name DESC LIMIT ?", limit
        )

    def known(self, schedule: str, since: datetime, limit: int) -> list[datetime]:
        return self._read(
            lambda row: _loaded(row[0]),
            "SELECT o.at FROM occurrence o JOIN schedule s ON s.id = o.schedule"
            " WHERE s.name = ? AND o.at >= ? ORDER BY o.at DESC LIMIT ?",
            schedule,
            _stored(since),
            limit,
        )

    def unsent(self, schedule: str, since: datetime, limit: int) -> list[Occurrence]:
        where = "WHERE s.name = ? AND o.state IN ('doubt', 'released') AND o.at >= ? ORDER BY o.at DESC LIMIT ?"
        return [titled.occurrence for titled in self._titled(where, schedule, _stored(since), limit)]

    def horizon(self, now: datetime) -> datetime:
        return max(now - self._keep, self._forgotten)

    def schedules(self, limit: int) -> tuple[int, list[Listed]]:
        (total,) = self._read(_count, f"SELECT count(*) FROM schedule s WHERE {_NO_START}")
        return total, self._read(
            lambda row: Listed(_schedule(row[:6]), _occurrence(row[0], row[6:])),
            f"SELECT s.{_SCHEDULE.replace(', ', ', s.')}, o.{_OCCURRENCE.replace(', ', ', o.')} FROM schedule s"
            " JOIN occurrence o ON o.schedule = s.id AND o.at = s.newest"
            f" WHERE {_NO_START} ORDER BY s.touched DESC, s.name DESC LIMIT ?",
            limit,
        )

    def history(self, schedule: str | None, since: datetime | None, limit: int) -> list[Titled]:
        start = _stored(since or EPOCH)
        if schedule is not None:
            where = "WHERE s.name = ? AND o.at >= ? ORDER BY o.at DESC LIMIT ?"
            return self._titled(where, schedule, start, limit)
        # Nothing is granted earlier than EARLY_SECONDS before its time, so the index on `touched` serves `since` too.
        where = f"WHERE o.touched >= ? AND o.at >= ? AND {_NO_START} ORDER BY o.touched DESC LIMIT ?"
        found = self._titled(where, start - int(EARLY_SECONDS) * 1_000_000, start, limit)
        return sorted(found, key=lambda t: (t.occurrence.at, t.occurrence.schedule), reverse=True)

    def size(self) -> int:
        return self._stat().st_size

    def _titled(self, where: str, *values: Any) -> list[Titled]:
        return self._read(lambda row: Titled(row[0], _occurrence(row[1], row[2:])), f"{_LISTED} {where}", *values)

    def _read(self, decode: Callable[[tuple[Any, ...]], T], sql: str, *values: Any) -> list[T]:
        def read(connection: sqlite3.Connection) -> list[T]:
            try:
                return [decode(row) for row in connection.execute(sql, values).fetchall()]
            except (ArithmeticError, TypeError, ValueError) as error:
                raise sqlite3.DatabaseError(f"it is damaged, a record makes no sense ({error})") from error

        return self._guarded("cannot be read", read)

    # -- notes

    def notes(self, kind: str) -> dict[str, bytes]:
        return dict(self._read(_note, "SELECT key, value FROM note WHERE kind = ?", kind))

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        self._guarded("cannot be written", lambda connection: self._put_notes(connection, kind, changes))

    def _put_notes(self, connection: sqlite3.Connection, kind: str, changes: Mapping[str, bytes | None]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            gone = [(kind, key) for key, value in changes.items() if value is None]
            connection.executemany("DELETE FROM note WHERE kind = ? AND key = ?", gone)
            put = [(kind, key, value) for key, value in changes.items() if value is not None]
            _put(connection, _PUT_NOTE, put)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    # -- forgetting

    def prune(self, limit: int) -> int:
        return self._guarded("cannot be pruned", lambda connection: self._prune(connection, limit))

    def _prune(self, connection: sqlite3.Connection, limit: int) -> int:
        now = self.now()
        tokens = self._old_tokens(connection, now, limit)
        occurrences = self._old_occurrences(connection, now, limit - len(tokens))
        schedules = self._old_schedules(connection, now, limit - len(tokens) - len(occurrences))
        if not tokens and not occurrences and not schedules:
            return 0
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._delete(connection, tokens, occurrences, schedules)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        for (token,) in tokens:
            self._tokens.pop(token, None)
        if occurrences or schedules:
            self._occurrences.clear()
        if schedules:
            self._schedules.clear()
            self._ids.clear()
        return len(tokens) + len(occurrences) + len(schedules)

    def _old_tokens(self, connection: sqlite3.Connection, now: datetime, limit: int) -> list[tuple[Any, ...]]:
        """A claim that lives ends by its token, which stays as long."""
        return connection.execute(
            "SELECT token FROM token t WHERE born < ? AND NOT EXISTS (SELECT 1 FROM occurrence o"
            " WHERE o.schedule = t.schedule AND o.at = t.at AND o.state = 'claimed') LIMIT ?",
            (_stored(now - timedelta(days=TOKEN_DAYS)), limit),
        ).fetchall()

    def _old_occurrences(self, connection: sqlite3.Connection, now: datetime, limit: int) -> list[tuple[Any, ...]]:
        """The newest occurrence of a schedule stays: an interval counts from it, and people look for it.

        Those that stay are passed over, not looked at again and again: each call goes on where the last one ended.
        """
        if limit <= 0:
            return []
        rows = connection.execute(
            "SELECT o.touched, o.schedule, o.at, o.state <> 'claimed' AND o.at < s.newest FROM (SELECT touched,"
            " schedule, at, state FROM occurrence WHERE touched < ? AND (touched, schedule, at) > (?, ?, ?)"
            " ORDER BY touched, schedule, at LIMIT ?) o JOIN schedule s ON s.id = o.schedule",
            (_stored(now - self._keep), *self._looked_at, limit),
        ).fetchall()
        self._looked_at = _START if len(rows) < limit else max(row[:3] for row in rows)
        return [(schedule, at, touched) for touched, schedule, at, old in rows if old]

    def _old_schedules(self, connection: sqlite3.Connection, now: datetime, limit: int) -> list[tuple[Any, ...]]:
        """One-offs go when they have not been asked for as long as is kept, recurring schedules much later."""
        found: list[tuple[Any, ...]] = []
        for once, kept in kept_for(self._keep).items():
            found += connection.execute(
                "SELECT id FROM schedule s WHERE once = ? AND touched < ? AND NOT EXISTS"
                " (SELECT 1 FROM occurrence o WHERE o.schedule = s.id AND o.state = 'claimed') LIMIT ?",
                (once, _stored(now - kept), max(limit - len(found), 0)),
            ).fetchall()
        return found

    def _delete(
        self,
        connection: sqlite3.Connection,
        tokens: list[tuple[Any, ...]],
        occurrences: list[tuple[Any, ...]],
        schedules: list[tuple[Any, ...]],
    ) -> None:
        connection.executemany("DELETE FROM token WHERE token = ?", tokens)
        connection.executemany("DELETE FROM occurrence WHERE schedule = ? AND at = ?", [row[:2] for row in occurrences])
        connection.executemany("DELETE FROM occurrence WHERE schedule = ?", schedules)
        connection.executemany("DELETE FROM schedule WHERE id = ?", schedules)
        if occurrences:
            self._forgotten = max(self._forgotten, _loaded(max(row[2] for row in occurrences)) + AFTER_TOUCH)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'forgotten'", (str(_stored(self._forgotten)),))

    # -- care

    def probe(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE meta SET value = value WHERE key = 'forgotten'")

        self._guarded("cannot be written", write)

    def warm_up(self) -> None:
        """Let the write-ahead log grow to its usual size, so that a commit need not extend the file."""

        def grow(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS room (x BLOB)")
            connection.execute("INSERT INTO room VALUES (zeroblob(?))", (WAL_BYTES,))
            connection.execute("DROP TABLE room")
            connection.execute("PRAGMA wal_checkpoint(RESTART)")

        self._guarded("cannot be written", grow)

    def close(self) -> None:
        self._forget_cached()


_PUT_SCHEDULE = (
    f"INSERT INTO schedule (id, {_SCHEDULE}) VALUES {{rows}} ON CONFLICT (id) DO UPDATE SET title = excluded.title,"
    " known_since = excluded.known_since, newest = excluded.newest, once = excluded.once, touched = excluded.touched"
)
_PUT_OCCURRENCE = "INSERT OR REPLACE INTO occurrence VALUES {rows}"
_PUT_TOKEN = "INSERT OR REPLACE INTO token VALUES {rows}"
_PUT_NOTE = "INSERT OR REPLACE INTO note VALUES {rows}"


def _put(connection: sqlite3.Connection, sql: str, rows: list[tuple[Any, ...]]) -> None:
    for some in _portions(rows):
        row = f"({', '.join('?' * len(some[0]))})"
        values = [value for each in some for value in each]
        connection.execute(sql.format(rows=", ".join([row] * len(some))), values)


def _portions(rows: list[T]) -> Iterator[list[T]]:
    """Cut into lengths of powers of two, so that few different statements are ever made, and all stay compiled."""
    start = 0
    while left := len(rows) - start:
        length = min(1 << (left.bit_length() - 1), ROWS_AT_ONCE)
        yield rows[start : start + length]
        start += length


def _count(row: tuple[Any, ...]) -> int:
    return int(row[0])


def _note(row: tuple[Any, ...]) -> tuple[str, bytes]:
    key, value = row
    return key, bytes(value)


def _schedule_row(s: Schedule) -> tuple[Any, ...]:
    return s.name, s.title, _stored(s.known_since), _stored(s.newest), s.once, _stored(s.touched)


def _schedule(row: Iterable[Any]) -> Schedule:
    name, title, known_since, newest, once, touched = row
    return Schedule(
        name=name,
        title=title,
        known_since=_loaded(known_since),
        newest=_loaded(newest),
        once=bool(once),
        touched=_loaded(touched),
    )


def _token(row: tuple[Any, ...]) -> Token:
    return Token(token=row[0], schedule=row[1], at=_loaded(row[2]), holder=row[3], born=_loaded(row[4]))


def _occurrence(schedule: str, row: Iterable[Any]) -> Occurrence:
    at, state, token, holder, claimed, until, touched, settled, reason, grants = row
    return Occurrence(
        schedule=schedule,
        at=_loaded(at),
        state=State(state),
        token=token,
        holder=holder,
        claimed=_loaded(claimed),
        until=_loaded(until),
        touched=_loaded(touched),
        settled=None if settled is None else _loaded(settled),
        reason=reason,
        grants=grants,
    )
