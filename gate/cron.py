"""Cron expressions: a strict grammar, and croniter's reading of what passes it.

Refused is what cron programs read differently, or what nobody means: texts with more or fewer than five fields, macros,
`L W # H R ?`, ranges that are equal or reversed, `5/15`, `*` in a list, and a day of month together with a day of week
where one of them has a `*` (some take both, some either).
"""

import re
from typing import Any

from msgspec import Struct

from gate.calendars import ALL_MONTHS, MONTHS, WEEKDAYS, CronDays, longest_month

LONGEST = 256
"""Characters; croniter needs seconds for a long list."""

_SUNDAY_FIRST = (*WEEKDAYS[-1:], *WEEKDAYS[:-1])
_ITEM = re.compile(r"(\*|[0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?(?:/([0-9]{1,3}))?")
_SPECIAL = re.compile(r"[@#?]|(?<![a-z])(?:lw|[lwhr])(?![a-z])")


class CronError(ValueError):
    """A cron expression that is refused; the text says why."""


class Cron(Struct, frozen=True, kw_only=True):
    """An expression as it is evaluated. `minutes`: a bit for each minute of a matching day.

    `wildcard`: the minute or the hour begins with `*`, so that a start follows the wall clock, as cronie has it.
    """

    minutes: int
    months: frozenset[int]
    days: CronDays
    wildcard: bool


class _Field(Struct, frozen=True, kw_only=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0


_FIELDS = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _Field(name="day of month", low=1, high=31),
    _Field(name="month", low=1, high=12, names=MONTHS, first=1),
    _Field(name="day of week", low=0, high=7, names=_SUNDAY_FIRST),
)


def read(expression: str) -> Cron:
    """Read five fields; raises CronError."""
    if len(expression) > LONGEST:
        raise CronError(f"{len(expression)} characters are too many for a cron expression: at most {LONGEST}")
    texts = expression.lower().split()
    if not expression.isascii() or len(texts) != len(_FIELDS):
        raise CronError(
            f"{expression!r} has not the five fields of cron (minute, hour, day of month, month, day of week)"
            "; seconds, years and macros such as @daily are not possible"
        )
    for field, text in zip(_FIELDS, texts, strict=True):
        for item in text.split(","):
            _check_item(field, text, item)
    _check_days(texts[2], texts[4])
    minutes, hours, month_days, months, weekdays = _expand(texts)
    cron = Cron(
        minutes=sum(1 << hour * 60 + minute for hour in hours or range(24) for minute in minutes or range(60)),
        months=frozenset(months or ALL_MONTHS),
        days=CronDays(
            month_days=None if month_days is None else frozenset(month_days),
            weekdays=None if weekdays is None else frozenset((day + 6) % 7 for day in weekdays),
        ),
        wildcard=texts[0].startswith("*") or texts[1].startswith("*"),
    )
    _check_possible(expression, cron)
    return cron


def _check_item(field: _Field, text: str, item: str) -> None:
    """An item is `*`, `*/step`, `value`, `first-last` or `first-last/step`."""
    match = _ITEM.fullmatch(item)
    if match is None:
        if _SPECIAL.search(item):
            raise CronError(f"{field.name} {text!r}: L, W, #, H, R and ? mean different things to different crons")
        raise CronError(f"{field.name} {text!r}: {item!r} is not a value, a range, * or */step{_example(field)}")
    first, last, step = match.groups()
    if first == "*" and last is not None:
        raise CronError(f"{field.name} {text!r}: {item!r} is not a range: write {field.low}-{field.high} or *")
    if item == "*" and text != "*":
        raise CronError(f"{field.name} {text!r}: * in a list makes the rest of it useless: write * alone")
    if first != "*":
        _check_range(field, text, item, _number(field, text, first), last and _number(field, text, last))
        if step is not None and last is None:
            raise CronError(
                f"{field.name} {text!r}: {item!r} is not read by every cron: write {first}-{field.high}/{step}"
            )
    if step is not None and not 1 <= int(step) <= field.high:
        raise CronError(f"{field.name} {text!r}: step {step} is not within 1-{field.high}")


def _check_range(field: _Field, text: str, item: str, first: int, last: int | str | None) -> None:
    if not isinstance(last, int) or first < last:
        return
    low, high = item.partition("/")[0].split("-")
    if first == last:
        raise CronError(f"{field.name} {text!r}: {item!r} means the whole field to some crons: write {low}")
    top = 6 if field.names == _SUNDAY_FIRST else field.high
    ends = [f"{low}-{top}" if first < top else low, f"{field.low}-{high}" if last > field.low else high]
    raise CronError(
        f"{field.name} {text!r}: {item!r} is reversed, which some crons never match: write {','.join(ends)}"
    )


def _number(field: _Field, text: str, value: str) -> int:
    if value in field.names:
        return field.names.index(value) + field.first
    if not value.isdecimal():
        raise CronError(f"{field.name} {text!r}: {value!r} is not known{_example(field)}")
    if not field.low <= int(value) <= field.high:
        raise CronError(f"{field.name} {text!r}: {value} is not within {field.low}-{field.high}")
    return int(value)


def _example(field: _Field) -> str:
    names = f", {', '.join(field.names)}" if field.names else ""
    return f"; allowed are {field.low}-{field.high}{names}"


def _check_days(month_days: str, weekdays: str) -> None:
    if "*" not in (month_days, weekdays) and "*" in month_days + weekdays:
        raise CronError(
            f"day of month {month_days!r} with day of week {weekdays!r}: some crons take both, some either; write days "
            "without *, which means either"
        )


def _expand(texts: list[str]) -> list[list[int] | None]:
    """What croniter makes of the fields: their values, None for any."""
    # Imported here: it takes 60 ms, and most configurations have no cron line.
    import croniter

    fields: list[Any] = croniter.croniter.expand(" ".join(texts))[0]
    return [None if field == ["*"] else [int(value) for value in field] for field in fields]


def _check_possible(expression: str, cron: Cron) -> None:
    days = cron.days.month_days
    if days is None or cron.days.weekdays is not None:
        return
    if min(days) > longest_month(cron.months):
        raise CronError(f"{expression!r} names a day that none of its months has")
