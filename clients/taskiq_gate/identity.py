"""What makes two schedules the same one, in every process and after every restart.

Pure: nothing here knows taskiq, the clock or the process. A schedule is named by the id that its user gave it, else
by a fingerprint of what it is. Ids that taskiq draws at random, anew at each start of a label source, name nothing.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any, Protocol, cast
from uuid import NAMESPACE_URL, UUID, uuid5

KEY_BYTES = 512
TITLE_BYTES = 200
DEPTH_MAX = 64
VALUES_MAX = 10_000
OCCURRENCE = "gate_occurrence"
"""The label of a message that says which occurrence it was sent for."""
NOT_IDENTITY = frozenset({"schedule_id", "schedule", OCCURRENCE})
"""Labels that taskiq itself adds (the first at every send, the second to schedules that a kicker makes), and ours."""

_RANDOM_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_TASKS = uuid5(NAMESPACE_URL, "schedule-gate/taskiq/task-id")


class Schedule(Protocol):
    """What is read of a taskiq ScheduledTask."""

    task_name: str
    schedule_id: str
    cron: str | None
    cron_offset: str | timedelta | None
    interval: int | timedelta | None
    time: datetime | None
    args: list[Any]
    kwargs: dict[str, Any]
    labels: dict[str, Any]


def keys(name: str, schedules: Iterable[Schedule]) -> dict[str, str]:
    """The key of each schedule of one listing, by schedule id: at most 512 bytes, the same in every process.

    `name:id` for an id that was given; else `name:task#fingerprint`. Of schedules that are the same in everything those
    with a cron or an interval have one key: a deployment that adds its schedules anew has not made another one.
    One-offs have `~1`, `~2`, ... from the second on: each is a send that somebody asked for.
    """
    seen: dict[str, int] = {}
    found: dict[str, str] = {}
    for schedule in schedules:
        key = base_key(name, schedule)
        twins = seen.get(key, 0)
        if not is_random(schedule.schedule_id) or schedule.cron is not None or schedule.interval is not None:
            found[schedule.schedule_id] = key
            continue
        seen[key] = twins + 1
        found[schedule.schedule_id] = f"{key}~{twins}" if twins else key
    return found


def base_key(name: str, schedule: Schedule) -> str:
    """The key of a schedule by itself, as if it had no twins."""
    if is_random(schedule.schedule_id):
        return _limited(f"{name}:{schedule.task_name}", f"#{fingerprint(schedule)}")
    return _limited(f"{name}:{schedule.schedule_id}", "")


def is_random(schedule_id: str) -> bool:
    """Whether an id looks like a random UUID, which taskiq draws where the user gave none."""
    return _RANDOM_ID.fullmatch(schedule_id) is not None


def title(schedule: Schedule) -> str:
    """What people call the schedule: task and time."""
    return _utf8(f"{schedule.task_name} {_triggers(schedule)[0]}", TITLE_BYTES)


def trigger_text(schedule: Schedule) -> str:
    """When the schedule is due, in words that change when that does: at most 512 bytes."""
    return _limited("; ".join(_triggers(schedule)), "")


def _triggers(schedule: Schedule) -> list[str]:
    found: list[str] = []
    if schedule.cron is not None:
        found.append(schedule.cron if schedule.cron_offset is None else f"{schedule.cron} {schedule.cron_offset}")
    if schedule.interval is not None:
        found.append(f"every {seconds(schedule.interval):g} s")
    if schedule.time is not None:
        found.append(f"at {_in_utc(schedule.time)}")
    return found


def task_id(key: str, at: datetime) -> str:
    """The id of the task that an occurrence sends: the same from whichever scheduler, in the form that taskiq uses."""
    return uuid5(_TASKS, f"{key}@{at.astimezone(UTC).isoformat()}").hex


def occurrence_label(key: str, at: datetime) -> str:
    """The value of the label OCCURRENCE."""
    return f"{at.astimezone(UTC).isoformat()} {key}"


def occurrence_of(labels: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key and `at` that the label OCCURRENCE names; None if there is none."""
    at, _, key = str(labels.get(OCCURRENCE, "")).partition(" ")
    return (key, at) if key else None


def fingerprint(schedule: Schedule) -> str:
    """16 hexadecimal digits of what the schedule is: task, time, arguments and labels."""
    walk = _Walk(VALUES_MAX, [])
    what = {
        "task": schedule.task_name,
        "cron": schedule.cron,
        "offset": walk.plain(schedule.cron_offset),
        "interval": None if schedule.interval is None else seconds(schedule.interval),
        "time": _in_utc(schedule.time),
        "args": walk.plain(schedule.args),
        "kwargs": walk.plain(schedule.kwargs),
        "labels": walk.plain({k: v for k, v in schedule.labels.items() if k not in NOT_IDENTITY}),
    }
    return hashlib.sha256(_dump(what).encode()).hexdigest()[:16]


def seconds(interval: float | timedelta) -> float:
    """An interval as seconds."""
    return interval.total_seconds() if isinstance(interval, timedelta) else float(interval)


def _in_utc(time: datetime | None) -> str | None:
    """taskiq reads a naive time as UTC."""
    if time is None:
        return None
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)).isoformat()


def _limited(text: str, suffix: str) -> str:
    """`text` and `suffix`, with room for an ordinal in 512 bytes; what is too long ends with its own hash."""
    room = KEY_BYTES - 16 - len(suffix)
    whole = text.encode(errors="backslashreplace")
    if len(whole) > room:
        return f"{_utf8(text, room - 17)}.{hashlib.sha256(whole).hexdigest()[:16]}{suffix}"
    return whole.decode() + suffix


def _utf8(text: str, limit: int) -> str:
    return text.encode(errors="backslashreplace")[:limit].decode(errors="ignore")


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


class _Walk:
    """Turns a value into plain data that is the same in every process: nothing of addresses, hashes or orders of sets.

    What lies too deep, or beyond VALUES_MAX values, counts by its type alone.
    """

    def __init__(self, values: int, above: list[int]) -> None:
        self._left = values
        self._above = above

    def plain(self, value: Any) -> Any:
        self._left -= 1
        if value is None or type(value) in (bool, float, str):
            return value
        if type(value) is int:
            return value if value.bit_length() < 8192 else ["int", hex(value)]
        if self._left < 0 or len(self._above) > DEPTH_MAX or id(value) in self._above:
            return ["...", _name(type(value))]
        self._above.append(id(value))
        try:
            return self._inside(value)
        except Exception:  # noqa: BLE001 - whatever an object of the user's raises, its type still says something
            return ["...", _name(type(value))]
        finally:
            self._above.pop()

    def _inside(self, value: Any) -> Any:
        kind = _name(type(value))
        simple = _simple(value)
        if simple is not None:
            return simple
        form = _form(value)
        if form == "map":
            return [form, *sorted(self._pairs(value.items()), key=lambda pair: _dump(pair[0]))]
        if form == "set":
            return [form, *sorted(self._apart(value), key=_dump)]
        if form == "list":
            return [form, *self._all(value)]
        if (state := _state(value)) is not None:
            return [kind, *sorted(self._pairs(state.items()), key=lambda pair: _dump(pair[0]))]
        return [kind, _ADDRESS.sub("", repr(value))]

    def _pairs(self, items: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
        return [[self.plain(key), self.plain(item)] for key, item in items]

    def _all(self, items: Iterable[Any]) -> list[Any]:
        return [self.plain(item) for item in items]

    def _apart(self, items: Collection[Any]) -> list[Any]:
        """Items whose order means nothing: each has a share of what is left, so that none hangs on the others."""
        share = self._left // max(len(items), 1)
        self._left -= share * len(items)
        return [_Walk(share, self._above).plain(item) for item in items]


def _form(value: Any) -> str | None:
    """In which way a value has parts; a tuple counts as a list, as it does after its way through a broker."""
    for form, kind in (("map", Mapping), ("set", AbstractSet), ("list", Sequence)):
        if isinstance(value, kind):
            return form
    return None


def _simple(value: Any) -> list[Any] | None:
    """Values that are one thing; None for those that have parts."""
    kind = _name(type(value))
    match value:
        case Enum():
            return ["enum", kind, value.name]
        case str() | int() | float() | UUID():
            return [kind, str(value)]
        case bytes() | bytearray():
            return ["bytes", value.hex()]
        case datetime() if value.tzinfo is not None:
            return ["datetime", value.astimezone(UTC).isoformat()]
        case date() | time():
            return [kind, value.isoformat()]
        case timedelta():
            return ["timedelta", value.days, value.seconds, value.microseconds]
        case _ if callable(value) and hasattr(value, "__qualname__"):
            return ["name", _name(value)]
        case _:
            return None


def _state(value: Any) -> dict[str, Any] | None:
    """The fields of an object: those that its class declares, else what it holds; None if it holds nothing."""
    kind = cast("type[object]", type(value))
    for declares in ("__dataclass_fields__", "__struct_fields__", "model_fields"):
        if fields := getattr(kind, declares, None):
            return {name: getattr(value, name, None) for name in fields}
    slots = [name for base in kind.__mro__ for name in _slots(base) if not name.startswith("__")]
    state = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    state.update(getattr(value, "__dict__", {}))
    return state or None


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _name(named: Any) -> str:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
