"""The ledger's file before SQLite may write to it: made whole, upgraded, or looked at and refused as it is.

Everything here raises StoreError, naming file and fault. Looking opens the file read-only, so that a refused one
keeps every byte, and so does the write-ahead log that a killed gate left beside it: a repair may need both.
"""

import os
import re
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from gate.errors import StoreError
from gate.stores.schema import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, UPGRADES

CHECK_BYTES = 64 * 1024 * 1024
"""Up to this size a file is checked whole."""
BUSY_SECONDS = 0.25
FAULTS = (sqlite3.Error, UnicodeError)
"""What sqlite3 raises; its words about a damaged file need not be UTF-8."""
_CREATED = re.compile(r"CREATE (?:TABLE|INDEX) (\w+)")


def fault(path: Path, what: str, error: BaseException) -> StoreError:
    """The StoreError for what SQLite or the system said."""
    return StoreError(f"{path} {what}: {getattr(error, 'strerror', None) or ' '.join(str(error).split())}")


def exists(path: Path) -> bool:
    """Whether there is a ledger of this version or an older one; False if there is nothing. Refuses everything else."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise fault(path, "cannot be read", error) from error
    if not header:
        raise StoreError(f"{path} is empty: restore it, or move it away to begin anew")
    version = int.from_bytes(header[60:64], "big")
    if not header.startswith(b"SQLite format 3\0") or int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise StoreError(f"{path} is not a ledger of schedule-gate: move it away, or name another file")
    _check_version(path, version)
    return True


def _check_version(path: Path, version: int) -> None:
    if not 1 <= version <= SCHEMA_VERSION:
        raise StoreError(
            f"{path} has schema version {version}, this gate knows {SCHEMA_VERSION}: use the gate that made it"
        )


def create(path: Path) -> None:
    """Make an empty ledger, whole or not at all: a start that is cut short leaves nothing under this name."""
    new = path.with_name(path.name + ".new")
    try:
        new.unlink(missing_ok=True)
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA journal_mode = MEMORY; PRAGMA synchronous = FULL; BEGIN; {SCHEMA}"
                f"INSERT INTO meta VALUES ('ledger', '{secrets.token_hex(8)}'), ('forgotten', '0'); COMMIT;"
            )
        new.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (*FAULTS, OSError) as error:
        raise fault(path, "cannot be made", error) from error


def look(path: Path) -> dict[str, str]:
    """The `meta` of a sound ledger; refuses a damaged one."""
    try:
        with closing(sqlite3.connect(_read_only(path), uri=True, timeout=BUSY_SECONDS)) as connection:
            if path.stat().st_size <= CHECK_BYTES:
                verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise _damaged(path, " ".join(verdict.split()))
            version = _version(connection)  # the log may hold a newer one than the header
            _check_version(path, version)
            lacks = _names(version) - {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            if lacks:
                raise _damaged(path, f"it lacks {', '.join(sorted(lacks))}")
            meta = dict(connection.execute("SELECT key, value FROM meta"))
    except (sqlite3.OperationalError, OSError) as error:
        raise fault(path, "cannot be opened", error) from error
    except FAULTS as error:
        raise _damaged(path, str(error)) from error
    if not meta.get("ledger") or not re.fullmatch(r"[0-9]{1,17}", meta.get("forgotten", "")):
        raise _damaged(path, "its table meta makes no sense")
    return meta


def upgrade(path: Path, connection: sqlite3.Connection) -> None:
    """Bring a ledger of an older version up to this one, in one transaction."""
    if _version(connection) == SCHEMA_VERSION:
        return
    try:
        connection.execute("BEGIN EXCLUSIVE")
        for version in range(_version(connection), SCHEMA_VERSION):
            for statement in UPGRADES[version].split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the header tells an older gate
    except FAULTS as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise fault(path, "cannot be upgraded", error) from error


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _names(version: int) -> set[str]:
    """The tables and indexes of a version."""
    later = {name for step in range(version, SCHEMA_VERSION) for name in _CREATED.findall(UPGRADES[step])}
    return set(_CREATED.findall(SCHEMA)) - later


def _read_only(path: Path) -> str:
    """Without a log beside it the file is all there is, and SQLite need not make one."""
    log = path.with_name(path.name + "-wal")
    whole = not log.exists() or log.stat().st_size == 0
    return f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is damaged ({what}): restore it, or move it away to begin anew")
