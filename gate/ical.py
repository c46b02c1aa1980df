"""iCalendar files: all-day events are days, timed events are spans.

Cancelled and transparent events say nothing. A time zone that nobody knows is an error, since the libraries would read
such times as local ones. Work is bounded: the size, the number of events and of their occurrences, and nothing repeats
within a day.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from msgspec import Struct

from gate.calendars import ALL_MONTHS, Zone, longest_month

MOST_BYTES = 1024 * 1024
MOST_EVENTS = 5_000
MOST_OCCURRENCES = 10_000
FIRST_REPEATED = 1900
"""A repeated event that began earlier would be counted through from there."""

_FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
_WITHIN_A_DAY = ("BYHOUR", "BYMINUTE", "BYSECOND")
_TIMES = ("DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE")
_DAY = timedelta(days=1)


class CalendarError(ValueError):
    """A file that cannot be used; the text names it and says why."""


class Calendar(Struct, frozen=True, kw_only=True):
    """What a file says. `spans`: UTC, start and exclusive end, by start. `last`: the last day that it names, if any."""

    days: frozenset[date]
    spans: tuple[tuple[datetime, datetime], ...]
    last: date | None


def read(data: bytes, source: str, zone: Zone, start: date, end: date) -> Calendar:
    """Read what an iCalendar file says of the days from `start` until before `end`; raises CalendarError.

    `source` names the file in errors. `zone`: whose local time it is where the file names none.
    """
    try:
        return _read(data, zone, start, end)
    except CalendarError as error:
        raise CalendarError(f"{source}: {error}") from None
    except ModuleNotFoundError as error:
        raise CalendarError(f"{source}: {error.name} is missing: pip install 'schedule-gate[ical]'") from None
    except Exception as error:
        raise CalendarError(
            f"{source}: not an iCalendar file that can be read: {str(error) or type(error).__name__}"
        ) from error


def _read(data: bytes, zone: Zone, start: date, end: date) -> Calendar:
    if len(data) > MOST_BYTES:
        raise CalendarError(f"{len(data)} bytes are too large: at most {MOST_BYTES}")
    # Imported here: they take 0.3 s, and most configurations name no file.
    import icalendar

    calendars = icalendar.Calendar.from_ical(data, multiple=True)
    if not calendars:
        raise CalendarError("it holds no calendar")
    days: set[date] = set()
    spans: set[tuple[datetime, datetime]] = set()
    last: list[date] = []
    count = 0
    for calendar in calendars:
        last += [_check(event) for event in _events(calendar)]
        for event in _occurrences(calendar, start, end):
            if (count := count + 1) > MOST_OCCURRENCES:
                raise CalendarError(f"more than {MOST_OCCURRENCES} occurrences from {start} to {end}")
            if _counts(event) and isinstance(event.start, datetime):
                spans.update(_spans(event, zone))
            elif _counts(event):
                days.update(_days(event, start, end))
    last += [*days, *((until - timedelta(microseconds=1)).astimezone(zone.info).date() for _, until in spans)]
    return Calendar(days=frozenset(days), spans=tuple(sorted(spans)), last=max(last, default=None))


def _events(calendar: Any) -> list[Any]:
    if calendar.name != "VCALENDAR":
        raise CalendarError(f"it begins with {calendar.name}, not with VCALENDAR")
    events = calendar.walk("VEVENT")
    if len(events) > MOST_EVENTS:
        raise CalendarError(f"{len(events)} events are too many: at most {MOST_EVENTS}")
    return list(events)


def _occurrences(calendar: Any, start: date, end: date) -> Iterator[Any]:
    """Every event and every repetition that touches the days, one by one; a day more on both sides for other zones."""
    import recurring_ical_events

    for series in recurring_ical_events.of(calendar).series:
        for occurrence in series.between(start - _DAY, end + _DAY):
            yield occurrence.as_component(keep_recurrence_attributes=False)


# -- what may be in a file


def _check(event: Any) -> date:
    """Refuse what would be misread or would not end. Returns the day on which the event itself starts."""
    properties = event.property_items(recursive=False)
    title = next((str(value) for field, value in properties if field in ("SUMMARY", "UID")), "?")
    name = f"event {title[:60]!r}"
    for field, problem in event.errors:
        raise CalendarError(f"{name}: {field} cannot be read: {problem}")
    if "DTSTART" not in event:
        raise CalendarError(f"{name}: DTSTART is missing")
    for field, value in properties:
        if field in _TIMES:
            _check_zone(name, field, value)
        elif field == "RRULE":
            _check_rule(name, value, event.start)
    if event.end < event.start:
        raise CalendarError(f"{name}: it ends before it starts")
    return _day(event.start)


def _check_zone(name: str, field: str, value: Any) -> None:
    zone = value.params.get("TZID")
    for entry in getattr(value, "dts", [value]):
        at = entry.dt if isinstance(entry.dt, date) else entry.dt[0]  # a period is a pair of times, of the same zone
        if zone is not None and isinstance(at, datetime) and at.tzinfo is None:
            raise CalendarError(f"{name}: {field} has the unknown time zone {zone}")


def _check_rule(name: str, rule: Any, start: date) -> None:
    frequencies = [str(value).upper() for value in rule.get("FREQ", [])]
    if len(frequencies) != 1 or frequencies[0] not in _FREQUENCIES:
        found = ", ".join(frequencies) or "nothing"
        raise CalendarError(f"{name}: FREQ is {found}; allowed are {', '.join(_FREQUENCIES)}")
    if finer := [part for part in _WITHIN_A_DAY if len(rule.get(part, [])) > 1]:
        raise CalendarError(f"{name}: it repeats within a day ({', '.join(finer)}), which is not possible here")
    if any(int(value) < 1 for part in ("INTERVAL", "COUNT") for value in rule.get(part, [])):
        raise CalendarError(f"{name}: INTERVAL and COUNT are at least 1")
    months = frozenset(int(month) for month in rule.get("BYMONTH", [])) or ALL_MONTHS
    if any(abs(int(day)) > longest_month(months) for day in rule.get("BYMONTHDAY", [])):
        raise CalendarError(f"{name}: it repeats on a day that none of its months has")
    if start.year < FIRST_REPEATED:
        raise CalendarError(f"{name}: it repeats since {start.year}; {FIRST_REPEATED} is the first year possible")


# -- what an occurrence means


def _counts(event: Any) -> bool:
    return str(event.get("STATUS")).upper() != "CANCELLED" and str(event.get("TRANSP")).upper() != "TRANSPARENT"


def _spans(event: Any, zone: Zone) -> list[tuple[datetime, datetime]]:
    """One, or none if it takes no time."""
    start, end = _utc(event.start, zone), _utc(event.end, zone)
    return [(start, end)] if start < end else []


def _days(event: Any, start: date, end: date) -> list[date]:
    """Those from `start` until before `end`; an event without an end is one day."""
    first, past = max(event.start, start), min(max(_day(event.end), event.start + _DAY), end)
    return [first + n * _DAY for n in range((past - first).days)]


def _utc(at: datetime, zone: Zone) -> datetime:
    return (at if at.tzinfo else at.replace(tzinfo=zone.info)).astimezone(UTC)


def _day(at: date) -> date:
    return at.date() if isinstance(at, datetime) else at
