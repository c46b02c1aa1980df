"""The lines of `[hours]`: text in, a Line out.

    DAYS HH:MM-HH:MM                        mon-fri 20:00-06:00
    DAYS HH:MM-HH:MM in MONTHS              first sun 00:00-24:00 in jun-aug
    DAY HH:MM - DAY HH:MM [in MONTHS]       fri 18:00 - mon 08:30
    DATE HH:MM .. DATE HH:MM                2026-12-24 12:00 .. 2027-01-02 06:00
    cron M H D M W                          cron * 1-5 * * *
    cron M H D M W for LENGTH               cron 0 2 * * sun for 4h

DAYS is `daily`, weekdays, `first sun` to `fifth sun` and `last sun`, `day 1`, `day -1`, `workday`, `freeday` or
`holiday`. `in MONTHS` may also stand after DAYS, and means the day on which the line starts.
All times are those of a wall clock; ends are exclusive.
"""

import re
from collections.abc import Callable
from datetime import date
from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct

from gate import cron, durations
from gate.calendars import (
    ALL_MONTHS,
    DAY,
    FIRST_YEAR,
    LAST_YEAR,
    MONTHS,
    WEEKDAYS,
    DayChoice,
    DayWord,
    MonthDay,
    NthWeekday,
    Weekdays,
    longest_month,
)
from gate.cron import Cron

LONGEST = 300
"""Characters of a line: a cron expression may have 256 of them."""
LONGEST_START = 7 * DAY
"""Minutes that one start of `cron … for` may stay open."""

_NTH = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}
_DAY_WORDS: tuple[Literal["workday"], Literal["freeday"], Literal["holiday"]] = ("workday", "freeday", "holiday")
_MEANT = {
    "always": "daily",
    "everyday": "daily",
    "midnight": "00:00",
    "noon": "12:00",
    "weekday": "mon-fri or workday",
    "weekdays": "mon-fri or workday",
    "weekend": "sat,sun",
    "weekends": "sat,sun",
}
_HOURS = re.compile(r"(?P<days>.*?) (?P<start>\S+?) ?- ?(?P<end>[0-9]\S*)(?: in (?P<months>.+))?")
_SPAN = re.compile(r"(?P<first>\S+) (?P<start>[0-9]\S*) ?- ?(?P<last>[a-z]\S*) (?P<end>\S+)(?: in (?P<months>.+))?")
_DATES = re.compile(r"(?P<first>\S+) (?P<start>\S+) ?\.\. ?(?P<last>\S+) (?P<end>\S+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})")
_TIMES = re.compile(r":[0-9]{2},")
_WIDE = re.compile(r"\s+")
_EXAMPLES = (
    "write days and hours, such as 'mon-fri 20:00-06:00', a span, such as 'fri 18:00 - mon 08:30', dates, such as "
    "'2026-12-24 12:00 .. 2027-01-02 06:00', or 'cron' and its five fields"
)


class LineError(ValueError):
    """A line that cannot be; the text names it and says what is allowed."""


class _Line(Struct, frozen=True, kw_only=True):
    """`text`: what the user wrote."""

    text: str

    @property
    def uses_holidays(self) -> bool:
        """Whether `[days] holidays` changes when it is open."""
        return False

    @property
    def until(self) -> date | None:
        """The last day of a line that is over some day."""
        return None


class DayLine(_Line, frozen=True, kw_only=True):
    """Hours of days. `start` and `end` are minutes of the day it starts on; beyond 1440 is the next day."""

    days: DayChoice
    months: frozenset[int]
    start: int
    end: int

    @property
    def uses_holidays(self) -> bool:
        return isinstance(self.days, DayWord)


class SpanLine(_Line, frozen=True, kw_only=True):
    """From a weekday (Monday is 0) and a minute of that day on, for `length` minutes; at most a week."""

    weekday: int
    months: frozenset[int]
    start: int
    length: int


class DatesLine(_Line, frozen=True, kw_only=True):
    """Once. `start` and `end` are minutes of the days `first` and `last`; `end` may be 1440."""

    first: date
    start: int
    last: date
    end: int

    @property
    def until(self) -> date | None:
        return self.last


class CronLine(_Line, frozen=True, kw_only=True):
    """Every minute that matches is open."""

    cron: Cron


class CronForLine(_Line, frozen=True, kw_only=True):
    """Open for `length` minutes of elapsed time from every minute that matches."""

    cron: Cron
    length: int


Line: TypeAlias = DayLine | SpanLine | DatesLine | CronLine | CronForLine


def is_name(text: str) -> bool:
    """Whether a text is a name of `[hours]`: a line has a space, a name has none."""
    return _WIDE.search(text.strip()) is None


def parse(text: str) -> Line:
    """Read a line; raises LineError."""
    if len(text) > LONGEST:
        raise LineError(f"{text[:40]!r}…: {len(text)} characters are too many for a line: at most {LONGEST}")
    try:
        return _parse(text)
    except (LineError, cron.CronError) as error:
        raise LineError(f"{text!r}: {error}") from None


def _parse(text: str) -> Line:
    words = re.sub(r" ?, ?", ",", _WIDE.sub(" ", text.strip())).lower()
    if words.partition(" ")[0] == "cron":
        return _cron(text, words.removeprefix("cron").strip())
    if _TIMES.search(words):
        raise LineError("a line has one start and one end: write a line for each")
    if match := _DATES.fullmatch(words):
        return _dates(text, match)
    if match := _SPAN.fullmatch(words):
        return _span(text, match)
    if match := _HOURS.fullmatch(words):
        return _hours(text, match)
    raise LineError(_what_is_missing(words))


def _what_is_missing(words: str) -> str:
    """A text that has the form of no line."""
    if _DATE.fullmatch(words):
        return f"a date alone is no line: write {words} 00:00 .. {words} 24:00"
    try:
        _days(words)
    except LineError as error:
        return f"no hours: {_EXAMPLES}" if re.search(r"[0-9]:[0-9]", words) or not words else str(error)
    return f"days alone are no line: write {words} 00:00-24:00"


# -- days and hours


def _hours(text: str, match: re.Match[str]) -> DayLine:
    days, months = _days_and_months(match)
    start, end = _time(match["start"]), _end(match["end"])
    if start == end:
        raise LineError(f"start and end are both {match['start']}: write 00:00-24:00 for a whole day")
    _check_possible(days, months)
    return DayLine(text=text, days=days, months=months, start=start, end=end if end > start else end + DAY)


def _days_and_months(match: re.Match[str]) -> tuple[DayChoice, frozenset[int]]:
    """The months stand after the days or after the hours."""
    days, _, months = match["days"].partition(" in ")
    if months and match["months"]:
        raise LineError(f"months are named twice: in {months}, and in {match['months']}")
    choice = _days(days)
    months = months or match["months"]
    return choice, _months(months) if months else ALL_MONTHS


def _days(words: str) -> DayChoice:
    word, _, rest = words.partition(" ")
    if word == "daily" and not rest:
        return Weekdays(frozenset(range(7)))
    if word in _DAY_WORDS and not rest:
        return DayWord(word)
    if word == "day" and rest:
        return MonthDay(_month_day(rest))
    if word in _NTH:
        if rest not in WEEKDAYS:
            raise LineError(f"{words!r}: after {word!r} comes one weekday, such as '{word} sun'{_hint(rest, WEEKDAYS)}")
        return NthWeekday(_NTH[word], WEEKDAYS.index(rest))
    if rest:
        raise LineError(_unknown_days(words if word in WEEKDAYS else word))
    return Weekdays(_listed(words, WEEKDAYS, _unknown_days))


def _month_day(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,2}", text) or not 1 <= abs(int(text)) <= 31:
        raise LineError(
            f"day {text} is not a day of a month: write one of day 1 to day 31, or day -1 (the last) to day -31"
        )
    return int(text)


def _unknown_days(word: str) -> str:
    if _DATE.fullmatch(word):
        return f"{word} is a date: write both dates, such as {word} 00:00 .. {word} 24:00"
    if word in _DAY_WORDS or word == "daily":
        return f"{word!r} stands alone, without other days: write a line for each"
    if word[:1].isdecimal():
        return f"{word!r}: days are names ({', '.join(WEEKDAYS)}); digits for days exist only in cron lines"
    allowed = ("daily", *WEEKDAYS, *_NTH, "day", *_DAY_WORDS)
    return (
        f"unknown days {word!r}{_hint(word, allowed)}: allowed are daily, weekdays such as mon-fri or sat,sun, "
        f"first sun to fifth sun, last sun, day 1, day -1, {', '.join(_DAY_WORDS)}"
    )


def _months(words: str) -> frozenset[int]:
    def unknown(word: str) -> str:
        return f"unknown month {word!r}{_hint(word, MONTHS)}: allowed are {', '.join(MONTHS)}, such as in jun-aug"

    return frozenset(index + 1 for index in _listed(words, MONTHS, unknown))


def _listed(words: str, names: tuple[str, ...], unknown: Callable[[str], str]) -> frozenset[int]:
    """The numbers (from 0) of names and ranges of names in a list; a range may go round the end."""
    found: set[int] = set()
    for item in words.split(","):
        ends = item.split("-")
        for name in ends:
            if name not in names:
                raise LineError(unknown(name if len(ends) <= 2 else item))
        if len(ends) > 2:
            raise LineError(f"{item!r} has more than two ends: write {','.join(ends)}")
        first, last = names.index(ends[0]), names.index(ends[-1])
        if len(ends) == 2 and first == last:
            raise LineError(f"{item!r} begins where it ends: write {ends[0]}")
        found.update((first + step) % len(names) for step in range((last - first) % len(names) + 1))
    return frozenset(found)


def _check_possible(days: DayChoice, months: frozenset[int]) -> None:
    if isinstance(days, MonthDay) and abs(days.day) > longest_month(months):
        raise LineError(f"none of its months has a day {days.day}")


# -- spans and dates


def _span(text: str, match: re.Match[str]) -> SpanLine:
    for name in (match["first"], match["last"]):
        if name not in WEEKDAYS:
            raise LineError(f"a span goes from one weekday to one weekday: {_unknown_days(name)}")
    first, last = WEEKDAYS.index(match["first"]), WEEKDAYS.index(match["last"])
    start, end = _time(match["start"]), _end(match["end"])
    if (first, start) == (last, end):
        raise LineError(f"start and end are both {match['first']} {match['start']}: daily 00:00-24:00 is always")
    length = (last - first) * DAY + end - start
    months = _months(match["months"]) if match["months"] else ALL_MONTHS
    return SpanLine(
        text=text, weekday=first, months=months, start=start, length=length if length > 0 else length + 7 * DAY
    )


def _dates(text: str, match: re.Match[str]) -> DatesLine:
    first, last = _date(match["first"]), _date(match["last"])
    start, end = _time(match["start"]), _end(match["end"])
    if last.toordinal() * DAY + end <= first.toordinal() * DAY + start:
        raise LineError("it ends before it starts")
    return DatesLine(text=text, first=first, start=start, last=last, end=end)


def _date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise LineError(f"{text!r} is not a date: write YYYY-MM-DD, such as 2026-12-24")
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise LineError(f"there is no day {text}") from None
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise LineError(f"{text} is not within {FIRST_YEAR} to {LAST_YEAR}")
    return day


# -- cron


def _cron(text: str, words: str) -> CronLine | CronForLine:
    expression, word, length = words.partition(" for ")
    if not word:
        return CronLine(text=text, cron=cron.read(words))
    try:
        minutes = durations.seconds(length.strip()) / 60
    except ValueError as error:
        raise LineError(str(error)) from None
    if minutes != int(minutes) or not 1 <= minutes <= LONGEST_START:
        raise LineError(f"{length.strip()!r} is not within 1m to {LONGEST_START // DAY}d, in whole minutes")
    return CronForLine(text=text, cron=cron.read(expression), length=int(minutes))


# -- times of day


def _end(text: str) -> int:
    return DAY if text == "24:00" else _time(text)


def _time(text: str) -> int:
    """HH:MM in minutes."""
    if match := _TIME.fullmatch(text):
        hour, minute = int(match[1]), int(match[2])
        if hour < 24 and minute < 60:
            return hour * 60 + minute
    if text == "24:00":
        raise LineError("24:00 can only be an end: write 00:00 of the next day")
    if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}:[0-9.]+", text):
        raise LineError(f"{text!r} has seconds: times are HH:MM, from 00:00 to 23:59, and 24:00 as an end")
    if re.fullmatch(r"[0-9]:[0-5][0-9]", text):
        raise LineError(f"{text!r} is not a time: write 0{text}")
    raise LineError(f"{text!r} is not a time: times are HH:MM, from 00:00 to 23:59, and 24:00 as an end")


def _hint(word: str, allowed: tuple[str, ...]) -> str:
    near = get_close_matches(word, allowed, n=1, cutoff=0.5)
    meant = _MEANT.get(word) or (word[:3] if word[:3] in allowed else None) or (near[0] if near else None)
    return f" (did you mean {meant}?)" if meant else ""
