"""The fetch side of gate.toml as data: named hours, holidays, and `[[fetch]]` rules. Texts in, structs out."""

import re
from collections.abc import Callable, Iterable
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, TypeAlias

from msgspec import Struct

from gate import lines
from gate.calendars import Days, UnknownZone, Zone
from gate.globs import EVERYTHING
from gate.ical import Calendar, CalendarError
from gate.lines import Line, LineError
from gate.settings import DaysTable, FetchTable, Findings

CALENDAR = "ics:"
"""What begins the name of an iCalendar file, among holidays and lines."""

LONGEST_NAME = 128
RESERVED = "else"
"""No name of `[hours]`: it is what `at_once` falls back to."""
LAST_START_SECONDS = (60.0, 7 * 86_400.0)

ReadCalendar: TypeAlias = Callable[[str, Zone], Calendar]
"""Reads an iCalendar file: its path as the configuration names it (relative to the configuration file), and the zone of
times that have none. Raises CalendarError."""

_DAY = re.compile(r"([0-9]{4}-)?[0-9]{2}-[0-9]{2}")
_LEAP_YEAR = 2024


class Entry(Struct, frozen=True, kw_only=True):
    """One line of `open` or `closed`: `text` as it was written, `name` that of the `[hours]` that hold it.

    A line of the language is one of `lines`. Of an iCalendar file, all-day events are `lines`, and timed ones `spans`
    (UTC, start and exclusive end).
    """

    text: str
    name: str | None = None
    lines: tuple[Line, ...] = ()
    spans: tuple[tuple[datetime, datetime], ...] = ()

    def __str__(self) -> str:
        return self.text if self.name is None else f"{self.name} ({self.text})"


class FetchRule(Struct, frozen=True, kw_only=True):
    """One `[[fetch]]` table. `workers` and `queues` are globs.

    `open`: None is always. `closed` beats it. `last_start`: no start in so many minutes before it closes.
    `timezone`: whose wall clock its lines read, an IANA name; UTC where a rule has no lines and the file names none.
    """

    name: str
    workers: tuple[str, ...] = (EVERYTHING,)
    queues: tuple[str, ...] = (EVERYTHING,)
    open: tuple[Entry, ...] | None = None
    closed: tuple[Entry, ...] = ()
    last_start: int = 0
    timezone: str = "UTC"


class HolidayEntry(Struct, frozen=True, kw_only=True):
    """One text of `[days] holidays`. `last`: the last day of which it says anything; None for one of every year."""

    text: str
    last: date | None = None
    calendar: bool = False


def no_calendar(path: str, zone: Zone) -> Calendar:
    """For whoever has no files: reads none."""
    raise CalendarError(f"{path} cannot be read here")


class HoursReader:
    """Reads the tables of the fetch side, in the order days, hours, fetch; what is wrong goes into `findings`.

    `timezone` is that of the whole file. Times without a zone in iCalendar files are read by it.
    """

    def __init__(self, timezone: str | None, read_calendar: ReadCalendar, findings: Findings) -> None:
        self.holidays: list[HolidayEntry] = []
        self._read_calendar = read_calendar
        self._findings = findings
        self._zones: dict[str, Zone | None] = {}
        self._timezone = timezone
        self._zone_missing = False
        self._hours: dict[str, list[str]] = {}
        self._used: set[str] = set()
        self._entries: dict[tuple[str, str | None], Entry] = {}
        if timezone is not None:
            self._zone("timezone", timezone)

    # -- [days]

    def days(self, value: Any) -> Days:
        """Read `[days]`."""
        table = self._findings.table("days", value, DaysTable) or DaysTable()
        dates: set[date] = set()
        yearly: set[tuple[int, int]] = set()
        for index, text in enumerate(table.holidays):
            place = f"days.holidays[{index}]"
            if text.startswith(CALENDAR):
                if (calendar := self._calendar(place, text, Zone("UTC"))) is not None:
                    dates |= calendar.days
                    self.holidays.append(HolidayEntry(text=text, last=calendar.last, calendar=True))
            elif (day := self._day(place, text)) is not None:
                if every_year := len(text) == len("MM-DD"):
                    yearly.add((day.month, day.day))
                else:
                    dates.add(day)
                self.holidays.append(HolidayEntry(text=text, last=None if every_year else day))
        return Days(dates=frozenset(dates), yearly=frozenset(yearly))

    def _day(self, place: str, text: str) -> date | None:
        """A date; one without a year gets a leap year, since 29 February is a day of some years."""
        if not _DAY.fullmatch(text):
            self._findings.add(place, f"{text!r} is not a day: write MM-DD, YYYY-MM-DD or ics:FILE")
            return None
        try:
            return date.fromisoformat(text if len(text) > len("MM-DD") else f"{_LEAP_YEAR}-{text}")
        except ValueError:
            self._findings.add(place, f"{text!r}: there is no such day")
            return None

    # -- [hours]

    def hours(self, value: Any) -> None:
        """Read `[hours]`. Each line is read, whether a rule uses it or not."""
        table = self._findings.convert("hours", value, dict[str, Any])
        for name, texts in (table or {}).items():
            if (problem := _name_problem(name)) is None and name == RESERVED:
                problem = f"{name!r} is no name: at_once means all other hours by it"
            if problem is None and name.startswith(CALENDAR):
                problem = f"{name!r} is no name: {CALENDAR} begins the name of an iCalendar file"
            if problem is not None:
                self._findings.add(f"hours.{name}", problem)
            read = self._findings.texts(f"hours.{name}", texts)
            self._hours[name] = [
                text for index, text in enumerate(read) if self._entry(f"hours.{name}[{index}]", text, name) is not None
            ]

    def _entry(self, place: str, text: str, name: str | None) -> Entry | None:
        """One line, or one iCalendar file; what is equal is made once. None if it is wrong."""
        key = (text, name)
        if key not in self._entries:
            made = (
                self._from_calendar(place, text, name) if text.startswith(CALENDAR) else self._line(place, text, name)
            )
            if made is None:
                return None
            self._entries[key] = made
        return self._entries[key]

    def _line(self, place: str, text: str, name: str | None) -> Entry | None:
        try:
            return Entry(text=text, name=name, lines=(lines.parse(text),))
        except LineError as error:
            self._findings.add(place, error)
            return None

    def _from_calendar(self, place: str, text: str, name: str | None) -> Entry | None:
        if self._timezone is None:
            self._zone_missing = True
            return None
        zone = self._zone("timezone", self._timezone)
        calendar = None if zone is None else self._calendar(place, text, zone)
        if calendar is None:
            return None
        days = sorted(calendar.days)
        whole = (f"{day} 00:00 .. {day} 24:00" for day in days)
        return Entry(text=text, name=name, lines=tuple(lines.parse(line) for line in whole), spans=calendar.spans)

    def _calendar(self, place: str, text: str, zone: Zone) -> Calendar | None:
        try:
            return self._read_calendar(text.removeprefix(CALENDAR), zone)
        except CalendarError as error:
            self._findings.add(place, f"{text!r}: {error}")
            return None

    # -- [[fetch]]

    def fetch(self, value: Any) -> tuple[FetchRule, ...]:
        """Read every `[[fetch]]`, then look for names of `[hours]` that none of them uses."""
        tables = list(self._findings.tables("fetch", value, FetchTable))
        names = self._names(tables)
        rules = tuple(self._rule(place, table, name) for (place, table), name in zip(tables, names, strict=True))
        if self._zone_missing:
            self._findings.add("timezone", 'missing: hours need one, such as timezone = "Europe/Berlin"')
        for name in self._hours:
            if name not in self._used:
                self._findings.add(
                    f"hours.{name}", "no rule uses it: name it in open or closed of a [[fetch]], or remove it"
                )
        return rules

    def _names(self, tables: list[tuple[str, FetchTable]]) -> list[str]:
        """The name of each rule. Without one it is called by its queues or workers, or, if that is taken, its place."""
        taken: dict[str, str] = {}
        for place, table in tables:
            if table.name is None:
                continue
            if (problem := _name_problem(table.name)) is not None:
                self._findings.add(f"{place}.name", problem)
            elif (first := taken.setdefault(table.name, place)) != place:
                self._findings.add(f"{place}.name", f"{table.name!r} is the name of {first} too: each rule has its own")
        names: list[str] = []
        for place, table in tables:
            name = table.name
            if name is None:
                derived = ",".join(table.queues or table.workers or (place,))
                name = place if derived in taken or _name_problem(derived) is not None else derived
                taken[name] = place
            names.append(name)
        return names

    def _rule(self, place: str, table: FetchTable, name: str) -> FetchRule:
        if table.timezone is not None:
            self._zone(f"{place}.timezone", table.timezone)
        elif self._timezone is None and (table.open or table.closed):
            self._zone_missing = True
        return FetchRule(
            name=name,
            workers=table.workers or (EVERYTHING,),
            queues=table.queues or (EVERYTHING,),
            open=None if table.open is None else self._lines(f"{place}.open", table.open),
            closed=self._lines(f"{place}.closed", table.closed or ()),
            last_start=self._last_start(f"{place}.last_start", table.last_start),
            timezone=table.timezone or self._timezone or "UTC",
        )

    def _lines(self, place: str, texts: Iterable[str]) -> tuple[Entry, ...]:
        """What `open` or `closed` holds: names of `[hours]`, or lines in place."""
        found: list[Entry | None] = []
        for index, text in enumerate(texts):
            if text in self._hours:
                self._used.add(text)
                found += [self._entry(f"hours.{text}", line, text) for line in self._hours[text]]
            elif lines.is_name(text) and not text.startswith(CALENDAR):
                self._findings.add(f"{place}[{index}]", self._unknown_name(text))
            else:
                found.append(self._entry(f"{place}[{index}]", text, None))
        return tuple(entry for entry in found if entry is not None)

    def _unknown_name(self, text: str) -> str:
        for line in (f"{text} 00:00-24:00", f"daily {text}", f"{text} 00:00 .. {text} 24:00"):
            if _is_line(line):
                return f"{text!r} alone is no line: write {line!r}"
        near = get_close_matches(text, self._hours, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        return f"unknown name {text!r}{hint}: [hours] has {', '.join(self._hours) or 'no names'}"

    def _last_start(self, place: str, text: str | None) -> int:
        """In minutes; 0 if there is none."""
        seconds = self._findings.duration(place, text, LAST_START_SECONDS)
        if seconds is not None and seconds % 60:
            self._findings.add(place, f"{text!r} is not in whole minutes, as hours are")
        return int((seconds or 0.0) // 60)

    def _zone(self, place: str, key: str) -> Zone | None:
        """A zone, made once; None if there is none of this name."""
        if key not in self._zones:
            try:
                self._zones[key] = Zone(key)
            except UnknownZone as error:
                self._zones[key] = None
                self._findings.add(place, error)
        return self._zones[key]


def _name_problem(name: str) -> str | None:
    """Why a text cannot be a name."""
    if not name or not lines.is_name(name) or not name.isprintable():
        return f"{name!r} is no name: a name has no space"
    if name == EVERYTHING:
        return f"{name!r} is no name: it means all of them"
    if len(name) > LONGEST_NAME:
        return f"{name[:20]!r}… is too long for a name: at most {LONGEST_NAME} characters are allowed"
    return None


def _is_line(text: str) -> bool:
    try:
        lines.parse(text)
    except LineError:
        return False
    return True
