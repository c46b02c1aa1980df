"""Reads a configuration with all that it names: its iCalendar files, users and groups, and time zone data."""

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from gate import ical, tzdata
from gate.calendars import Zone
from gate.config import Config, Control, parse
from gate.errors import ConfigError
from gate.fetchrules import FetchRules
from gate.hints import hints
from gate.hours import ReadCalendar
from gate.ical import Calendar, CalendarError
from gate.interface import Tzdata
from gate.pauses import PauseHours

BUILT_IN = "built-in defaults"
MOST_BYTES = 8 * 1024 * 1024
"""The largest configuration that is read: the time to read one grows with it."""
BEHIND = timedelta(days=400)
AHEAD = timedelta(days=9 * 366)
"""Which days of a calendar are read: the next change of a rule is looked for eight years ahead."""


class Steering(NamedTuple):
    """Who may steer besides root and the gate's own user, as numbers."""

    users: frozenset[int]
    groups: frozenset[int]


class Loaded(NamedTuple):
    """A configuration as it is in force.

    `data`: the bytes of its file. `warnings`: what can hardly be meant. `calendars` and `stamp`: what it was read with.
    """

    file: Path | None
    data: bytes
    config: Config
    rules: FetchRules
    pauses: PauseHours
    steering: Steering
    tzdata: Tzdata
    warnings: list[str]
    calendars: Mapping[Path, object]
    stamp: object
    at: datetime

    @property
    def source(self) -> str:
        """What errors and log lines call it."""
        return source_of(self.file)


class _Kept(NamedTuple):
    """A calendar that was read, and what it was read from."""

    stamp: object
    calendar: Calendar


class Calendars:
    """Reads iCalendar files; one that breaks after it was read once keeps its old list.

    `used` and `warnings` are those of the configuration that was read last.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[Path, str], _Kept] = {}
        self.used: dict[Path, object] = {}
        self.warnings: list[str] = []

    def reader(self, folder: Path, today: date) -> ReadCalendar:
        """A function that reads the calendars of one configuration; `folder` is where its file is."""
        self.used, self.warnings = {}, []

        def read(name: str, zone: Zone) -> Calendar:
            path = folder / name
            stamp = self.used[path] = file_stamp(path)
            return self._read(path, zone, (stamp, today), today)

        return read

    def _read(self, path: Path, zone: Zone, stamp: object, today: date) -> Calendar:
        kept = self._kept.get((path, zone.key))
        if kept is not None and kept.stamp == stamp:
            return kept.calendar
        try:
            calendar = ical.read(_content(path), str(path), zone, today - BEHIND, today + AHEAD)
        except CalendarError as error:
            if kept is None:
                raise
            warning = f"a calendar is broken, and what it said before holds: {error}"
            if warning not in self.warnings:
                self.warnings.append(warning)
            return kept.calendar
        self._kept[path, zone.key] = _Kept(stamp, calendar)
        return calendar


def file_stamp(path: Path) -> object:
    """Something that differs once the file was changed."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size


def _content(path: Path) -> bytes:
    """A FIFO that nobody writes to would be waited for, so what is no regular file is refused."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CalendarError(f"{path} cannot be read: not a regular file")
            return file.read(ical.MOST_BYTES + 1)
    except OSError as error:
        raise CalendarError(f"{path} cannot be read: {error.strerror}") from error


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def source_of(file: Path | None) -> str:
    return BUILT_IN if file is None else str(file)


def read_bytes(file: Path | None) -> bytes:
    """The bytes of a configuration, none for the built-in defaults; raises ConfigError."""
    if file is None:
        return b""
    try:
        with file.open("rb") as opened:  # a pipe is read too: gatectl check <(...)
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror}"]) from error
    if len(data) > MOST_BYTES:
        raise ConfigError(str(file), [f"too large: a configuration has at most {MOST_BYTES} bytes"])
    return data


def load(file: Path | None, data: bytes, calendars: Calendars, now: datetime) -> Loaded:
    """Everything that the bytes of a configuration come to; raises ConfigError. None: the built-in defaults.

    From then on, ZoneInfo reads the newest time zone data.
    """
    source = source_of(file)
    used = tzdata.use_newest()
    config = parse(data, source, calendars.reader(Path() if file is None else file.parent, now.date()))
    return Loaded(
        file=file,
        data=data,
        config=config,
        rules=FetchRules(config),
        pauses=PauseHours(config),
        steering=_steering(config.control, source),
        tzdata=used,
        warnings=[*hints(config, now), *calendars.warnings],
        calendars=calendars.used,
        stamp=stamp(config, now),
        at=now,
    )


def stamp(config: Config, now: datetime) -> object:
    """Something that differs once the configuration should be read anew, though its file and calendars are the same."""
    return tzdata.stamp({config.timezone, *(rule.timezone for rule in config.fetch)}), now.date()


def _steering(control: Control, source: str) -> Steering:
    findings: list[str] = []

    def numbers(key: str, names: Iterable[str | int], look_up: Callable[[str], int]) -> frozenset[int]:
        found: set[int] = set()
        for name in names:
            try:
                found.add(name if isinstance(name, int) else look_up(name))
            except KeyError:
                findings.append(f"control.{key}: {name!r} is not known on this machine")
        return frozenset(found)

    steering = Steering(
        users=numbers("users", control.users, lambda name: pwd.getpwnam(name).pw_uid),
        groups=numbers("groups", control.groups, lambda name: grp.getgrnam(name).gr_gid),
    )
    if findings:
        raise ConfigError(source, findings)
    return steering
