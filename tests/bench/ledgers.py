"""A ledger with many rows, as a gate has it that has run for a fortnight; filled by SQL, which is quicker."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.bench.frames import SCHEDULES, first_minute
from tests.bench.processes import Bench
from tests.support.gate_process import RawClient

MINUTES = 5000
"""How many of each schedule; the minutes after them are those to be claimed."""
KNOWN_TOKENS = 14
"""Tokens are known for a day of these."""

_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"
_SCHEDULES = f"""
INSERT INTO schedule (id, name, known_since, newest, once, touched)
{_NUMBERS} SELECT i + 1, printf('bench:%04d', i), :start, :start + (:minutes - 1) * 60000000, 0, :now FROM n
"""
_OCCURRENCES = f"""
INSERT INTO occurrence (schedule, at, state, token, holder, claimed, until, touched, settled, reason, grants)
{_NUMBERS}, o (schedule, at) AS (SELECT i / :minutes + 1, :start + i % :minutes * 60000000 FROM n)
SELECT schedule, at, 'sent', lower(hex(randomblob(16))), 'bench:4711:load', at, at + 30000000, at, at, 'confirmed', 1
FROM o
"""
_TOKENS = """
INSERT INTO token (token, schedule, at, holder, born)
SELECT token, schedule, at, holder, :now FROM occurrence
WHERE at >= :start + (:minutes - :minutes / :known) * 60000000 ORDER BY token
"""
_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"


def make(bench: Bench, rows: int) -> Path:
    """A folder for a gate whose ledger has so many occurrences."""
    gate = bench.make_gate()
    with gate, RawClient(gate.socket) as client:
        client.call("Control.Status", limit=0)
    file = gate.state / "gate.db"
    schedules = max(SCHEDULES, rows // MINUTES)
    values = {
        "start": _microseconds(first_minute()),
        "now": _microseconds(datetime.now(UTC)),
        "minutes": rows // schedules,
        "known": KNOWN_TOKENS,
    }
    with closing(sqlite3.connect(file, isolation_level=None)) as sql:
        sql.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        indexes = sql.execute(_INDEXES).fetchall()
        for name, _ in indexes:
            sql.execute(f"DROP INDEX {name}")
        sql.execute(_SCHEDULES, values | {"count": schedules})
        sql.execute(_OCCURRENCES, values | {"count": schedules * values["minutes"]})
        sql.execute(_TOKENS, values)
        for _, create in indexes:
            sql.execute(create)
    with file.open("rb") as written:
        os.fsync(written.fileno())
    return gate.state.parent


def settle(folder: Path) -> datetime:
    """Confirm what was claimed, so that the next gate has nothing to take over; gives the first unclaimed minute."""
    with closing(sqlite3.connect(folder / "state" / "gate.db", isolation_level=None)) as sql:
        sql.execute("UPDATE occurrence SET state = 'sent', settled = touched WHERE state = 'claimed'")
        newest: int = sql.execute("SELECT max(newest) FROM schedule").fetchone()[0]
    return datetime.fromtimestamp(newest / 1e6, UTC) + timedelta(minutes=1)


def _microseconds(value: datetime) -> int:
    return int(value.timestamp()) * 1_000_000
