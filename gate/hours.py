"""The fetch side of gate.toml as data: named hours, holidays, and `[[fetch]]` rules. Texts in, structs out."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from difflib import get_close_matches
from typing import Any, TypeAlias

from msgspec import Struct

from gate import atonce, lines
from gate.calendars import Days, UnknownZone, Zone
from gate.globs import EVERYTHING
from gate.ical import Calendar, CalendarError
from gate.lines import Line, LineError
from gate.pools import Ramp
from gate.settings import DaysTable, FetchTable, Findings, ResourceTable

CALENDAR = "ics:"
"""What begins the name of an iCalendar file, among holidays and lines."""

LONGEST_NAME = 128
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


class Case(Struct, frozen=True, kw_only=True):
    """One entry of `at_once`: the number that holds while one of `entries` does. None: at all other times."""

    number: int
    entries: tuple[Entry, ...] | None = None


AtOnce: TypeAlias = tuple[Case, ...]
"""How many at once: the first case that holds decides, and the last one always does."""


def entries_of(at_once: AtOnce | None) -> Iterator[Entry]:
    """All entries of a limit."""
    for case in at_once or ():
        yield from case.entries or ()


class FetchRule(Struct, frozen=True, kw_only=True):
    """One `[[fetch]]` table. `workers` and `queues` are globs.

    `needs`: names of resources. `open`: None is always. `closed` beats it. `at_once`: None is any number. `last_start`:
    no start in so many minutes before it closes. `timezone`: whose wall clock its lines read, an IANA name; UTC where a
    rule has no lines and the file names none.
    """

    name: str
    workers: tuple[str, ...] = (EVERYTHING,)
    queues: tuple[str, ...] = (EVERYTHING,)
    needs: tuple[str, ...] = ()
    open: tuple[Entry, ...] | None = None
    closed: tuple[Entry, ...] = ()
    at_once: AtOnce | None = None
    last_start: int = 0
    ramp: Ramp | None = None
    timezone: str = "UTC"

    @property
    def limited(self) -> bool:
        """Whether a job of it needs a place."""
        return self.at_once is not None or bool(self.needs)


class Resource(Struct, frozen=True, kw_only=True):
    """One `[[resource]]` table: a limit that several rules share."""

    name: str
    at_once: AtOnce
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
        self._resources: dict[str, str] = {}
        """The place of each, by name."""
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
            if (problem := _name_problem(name)) is None and name == atonce.ELSE:
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

    # -- [[resource]] and [[fetch]]

    def resources(self, value: Any) -> tuple[Resource, ...]:
        """Read every `[[resource]]`."""
        read: list[Resource] = []
        for place, table in self._findings.tables("resource", value, ResourceTable):
            if table.name is None:
                self._findings.add(f"{place}.name", "missing: rules name a resource in their needs")
            elif (problem := _name_problem(table.name)) is not None:
                self._findings.add(f"{place}.name", problem)
            elif (first := self._resources.setdefault(table.name, place)) != place:
                problem = f"{table.name!r} is the name of {first} too: each resource has its own"
                self._findings.add(f"{place}.name", problem)
            if table.at_once is None:
                self._findings.add(f"{place}.at_once", "missing: write a number, or a list as ['night: 8', 'else: 3']")
            at_once, timezone = self._at_once(place, table) or (), self._timezone_of(place, table)
            read.append(Resource(name=table.name or "", at_once=at_once, timezone=timezone))
        return tuple(read)

    def fetch(self, value: Any) -> tuple[FetchRule, ...]:
        """Read every `[[fetch]]`."""
        tables = list(self._findings.tables("fetch", value, FetchTable))
        names = self._names(tables)
        return tuple(self._rule(place, table, name) for (place, table), name in zip(tables, names, strict=True))

    def pause(self, place: str, texts: Iterable[str]) -> tuple[Entry, ...]:
        """What `pause` of a `[[send]]` holds: names of `[hours]`, or lines in place, read by the zone of the file."""
        entries = self._lines(place, texts)
        if entries and self._timezone is None:
            self._zone_missing = True
        return entries

    def finish(self, rules: tuple[FetchRule, ...]) -> None:
        """When all is read: look for a zone that is missing, and for what no rule uses."""
        if self._zone_missing:
            self._findings.add("timezone", 'missing: hours need one, such as timezone = "Europe/Berlin"')
        for name in self._hours:
            if name not in self._used:
                places = "open, closed or at_once of a [[fetch]], or in pause of a [[send]]"
                self._findings.add(f"hours.{name}", f"no rule uses it: name it in {places}, or remove it")
        needed = {name for rule in rules for name in rule.needs}
        for name, place in self._resources.items():
            if name not in needed:
                self._findings.add(place, f"no rule needs {name!r}: name it in needs of a [[fetch]], or remove it")

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
        if table.ramp is not None and table.at_once is None:
            self._findings.add(f"{place}.ramp", "it goes with at_once: without a limit, there is nothing to lead up to")
        return FetchRule(
            name=name,
            workers=table.workers or (EVERYTHING,),
            queues=table.queues or (EVERYTHING,),
            needs=self._needs(f"{place}.needs", table.needs or ()),
            open=None if table.open is None else self._lines(f"{place}.open", table.open),
            closed=self._lines(f"{place}.closed", table.closed or ()),
            at_once=self._at_once(place, table),
            last_start=self._last_start(f"{place}.last_start", table.last_start),
            ramp=atonce.ramp(f"{place}.ramp", table.ramp, self._findings),
            timezone=self._timezone_of(place, table),
        )

    def _timezone_of(self, place: str, table: FetchTable | ResourceTable) -> str:
        """Whose wall clock the lines of a table read; it is an error if it has some, and nobody says so."""
        has_lines = isinstance(table.at_once, tuple) and len(table.at_once) > 1
        if isinstance(table, FetchTable):
            has_lines = bool(has_lines or table.open or table.closed)
        if table.timezone is not None:
            self._zone(f"{place}.timezone", table.timezone)
        elif self._timezone is None and has_lines:
            self._zone_missing = True
        return table.timezone or self._timezone or "UTC"

    def _at_once(self, place: str, table: FetchTable | ResourceTable) -> AtOnce | None:
        if table.at_once is None:
            return None
        read = atonce.parts(f"{place}.at_once", table.at_once, self._findings)
        return tuple(
            Case(number=part.number, entries=None if part.when is None else self._line_or_name(part.place, part.when))
            for part in read
        )

    def _needs(self, place: str, names: Iterable[str]) -> tuple[str, ...]:
        """The resources of a rule, each once."""
        for index, name in enumerate(names):
            if name not in self._resources:
                near = get_close_matches(name, self._resources, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                known = ", ".join(self._resources) or "none"
                self._findings.add(f"{place}[{index}]", f"unknown resource {name!r}{hint}: there is {known}")
        return tuple(dict.fromkeys(names))

    def _lines(self, place: str, texts: Iterable[str]) -> tuple[Entry, ...]:
        """What `open` or `closed` holds: names of `[hours]`, or lines in place."""
        return tuple(
            entry for index, text in enumerate(texts) for entry in self._line_or_name(f"{place}[{index}]", text)
        )

    def _line_or_name(self, place: str, text: str) -> tuple[Entry, ...]:
        """A line in place, or all lines of a name of `[hours]`; none if it is wrong."""
        found: list[Entry | None] = []
        if text in self._hours:
            self._used.add(text)
            found += [self._entry(f"hours.{text}", line, text) for line in self._hours[text]]
        elif lines.is_name(text) and not text.startswith(CALENDAR):
            self._findings.add(place, self._unknown_name(text))
        else:
            found.append(self._entry(place, text, None))
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
