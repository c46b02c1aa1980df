"""The tables of the SQLite store, and how to tell a file that holds them."""

APPLICATION_ID = 0x47415445
"""PRAGMA application_id: "GATE" in ASCII, at byte 68 of the file."""
SCHEMA_VERSION = 3
"""PRAGMA user_version, at byte 60 of the file."""

UPGRADES = {
    1: """
CREATE TABLE note (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
""",
    2: """
CREATE INDEX occurrence_missed ON occurrence (at) WHERE state = 'missed';
CREATE INDEX occurrence_unsent ON occurrence (schedule, at) WHERE state IN ('doubt', 'released');
""",
}
"""What each older version lacks of the next one."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
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
{UPGRADES[1]}{UPGRADES[2]}"""
