"""What taskiq's cron code makes of an expression: found by asking it, since its reading of cron is its own."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

FIELDS = ("minute", "hour", "day of the month", "month", "weekday")
YEARS = 8
"""How far days are looked at: 29 February may be that far ahead."""
START = datetime(2024, 1, 1, tzinfo=UTC)
"""A Monday, the first day of a leap year."""
MOMENTS: tuple[tuple[datetime, ...], ...] = (
    tuple(START + timedelta(minutes=number) for number in range(60)),
    tuple(START + timedelta(hours=number) for number in range(24)),
    tuple(START + timedelta(days=number) for number in range(31)),
    tuple(START.replace(month=number) for number in range(1, 13)),
    tuple(START + timedelta(days=number) for number in range(7)),
)
"""For each field, instants at which it has each of its values."""

Fires = Callable[[str, datetime], bool]
"""Whether an expression fires in a minute; raises Refused, or what else the cron code raises."""


class Refused(ValueError):
    """The cron code says that it cannot read an expression: taskiq warns at every tick, and goes on."""


class _Fault(Exception):
    """What is wrong with the whole expression; the text says it."""


def faults(cron: str, fires: Fires) -> list[str]:
    """What a user should know of an expression, as texts; none if it fires as a whole."""
    try:
        return list(_faults(cron, fires))
    except _Fault as fault:
        return [str(fault)]


def _faults(cron: str, fires: Fires) -> Iterator[str]:
    fields = cron.split(" ")
    _ask(fires, cron, START)
    if len(fields) != len(FIELDS):
        raise _Fault(f"it has {len(fields)} fields, not {len(FIELDS)}")
    never = False
    for index, field in enumerate(fields):
        items = [item for item in field.split(",") if item]
        dead = [item for item in items if _first(fires, _alone(index, item), MOMENTS[index]) is None]
        if len(dead) == len(items):
            never = True
            yield f"it never fires: {field!r} matches no {FIELDS[index]}"
        else:
            yield from (f"{item!r} in {field!r} matches no {FIELDS[index]}" for item in dead)
    if not never and not _ever(fields, fires):
        yield f"it never fires: no day of {YEARS} years is one of {' '.join(fields[2:])!r}"


def _ever(fields: list[str], fires: Fires) -> bool:
    """Whether there is a minute in which all fields match. Hours and minutes are the same on all days."""
    days = (START + timedelta(days=number) for number in range(YEARS * 366))
    day = _first(fires, " ".join(["*", "*", *fields[2:]]), days)
    hour = _first(fires, _alone(1, fields[1]), MOMENTS[1])
    minute = _first(fires, _alone(0, fields[0]), MOMENTS[0])
    if day is None or hour is None or minute is None:
        return False
    return _ask(fires, " ".join(fields), day.replace(hour=hour.hour, minute=minute.minute))


def _alone(index: int, item: str) -> str:
    """An expression in which one field says something."""
    return " ".join(item if number == index else "*" for number in range(len(FIELDS)))


def _first(fires: Fires, cron: str, moments: Iterator[datetime] | tuple[datetime, ...]) -> datetime | None:
    return next((moment for moment in moments if _ask(fires, cron, moment)), None)


def _ask(fires: Fires, cron: str, moment: datetime) -> bool:
    try:
        return fires(cron, moment)
    except Refused as error:
        raise _Fault(f"it never fires: taskiq cannot read it and warns at every tick ({error})") from error
    except Exception as error:
        raise _Fault(f"it ends the loop of taskiq's scheduler: {type(error).__name__}: {error}") from error
