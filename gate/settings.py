"""The shapes of gate.toml, and how a value becomes one: every error is kept, with table, key and value."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from gate import durations

KEEP_DEFAULT = "14d"

T = TypeVar("T")
Table = TypeVar("Table", bound=Struct)
Texts = Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]
AtOnce = Annotated[int, Meta(ge=0)] | Texts


LEASE_DEFAULT = "15s"


class TopTable(Struct, frozen=True, kw_only=True):
    """The keys above all tables."""

    timezone: str | None = None
    uncovered: Literal["open", "closed"] = "open"


class StoreTable(Struct, frozen=True, kw_only=True):
    url: str = "sqlite:"
    keep: str = KEEP_DEFAULT
    prefix: Annotated[str, Meta(pattern=r"^[^{}\s]{1,64}$")] = "gate"
    password_file: Annotated[str, Meta(min_length=1)] | None = None
    wait_replicas: Annotated[int, Meta(ge=0, le=100)] = 0
    allow_eviction: bool = False
    lease: str = LEASE_DEFAULT
    on_store_down: Literal["open", "closed"] = "open"


class Shared(Struct, frozen=True, kw_only=True):
    """What a store that several hosts share is told besides its URL."""

    prefix: str = "gate"
    password_file: str | None = None
    wait_replicas: int = 0
    allow_eviction: bool = False
    lease: float = 15.0
    """Seconds for which the limited places of a gate stay taken that is not heard of."""
    on_store_down: Literal["open", "closed"] = "open"
    """Whether workers that no limit applies to may start jobs after that."""


class DaysTable(Struct, frozen=True, kw_only=True):
    holidays: tuple[str, ...] = ()


class FetchTable(Struct, frozen=True, kw_only=True):
    name: str | None = None
    workers: Texts | None = None
    queues: Texts | None = None
    needs: Texts | None = None
    open: Texts | None = None
    closed: Texts | None = None
    at_once: AtOnce | None = None
    last_start: str | None = None
    ramp: str | None = None
    timezone: str | None = None


class ResourceTable(Struct, frozen=True, kw_only=True):
    name: str | None = None
    at_once: AtOnce | None = None
    timezone: str | None = None


class SendTable(Struct, frozen=True, kw_only=True):
    schedules: Texts = ()
    on_doubt: Literal["skip", "resend"] = "skip"
    deadline: str | None = None
    grace: str | None = None
    catch_up: Literal["none", "latest", "all"] = "none"
    catch_up_within: str | None = None
    pause: Texts | None = None
    mode: Literal["enforce", "observe"] = "enforce"


class ControlTable(Struct, frozen=True, kw_only=True):
    users: tuple[str | int, ...] = ()
    groups: tuple[str | int, ...] = ()


class Findings:
    """Collects errors, so that a reader of the file sees all of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, place: str, text: object) -> None:
        """Note what is wrong at a place such as `fetch[0].open[1]`."""
        self.lines.append(f"{place}: {text}")

    def table(self, place: str, value: Any, kind: type[Table]) -> Table | None:
        """Convert one table, key by key; None if it is none. What is wrong in it is left at its default."""
        table = self.convert(place, value, dict[str, Any])
        if table is None:
            return None
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        read: dict[str, Any] = {}
        for key, value in table.items():
            inside = f"{place}.{key}" if place else key
            if key not in fields:
                self.add(inside, f"unknown key (this version knows {', '.join(fields)})")
            elif (found := self.convert(inside, value, fields[key].type)) is not None:
                read[key] = found
        return kind(**read)

    def tables(self, name: str, value: Any, kind: type[Table], needs: str | None = None) -> Iterator[tuple[str, Table]]:
        """Convert every `[[name]]`, one by one; each with its place, such as `fetch[0]`. What is no table is left out.

        `needs`: a key that each must have.
        """
        try:
            tables = msgspec.convert(value, list[Any])
        except msgspec.ValidationError:
            self.add(name, f"write [[{name}]], with two brackets: there may be several")
            return
        for index, value in enumerate(tables):
            place = f"{name}[{index}]"
            table = self.table(place, value, kind)
            if table is not None:
                if needs and needs not in value:
                    self.add(f"{place}.{needs}", "missing")
                yield place, table

    def convert(self, place: str, value: Any, kind: type[T]) -> T | None:
        """Convert one value; msgspec's path starts at `$`, which is that value."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if get_origin(kind) is Literal:
                self.add(place, f"{value!r} is not one of {', '.join(get_args(kind))}")
                return None
            text, _, path = str(error).partition(" - at `$")
            key = path.rstrip("`")
            self.add(place + key, f"{text[:1].lower()}{text[1:]}, got {_look_up(value, key)!r}")
            return None

    def texts(self, place: str, value: Any) -> tuple[str, ...]:
        """Convert a list of texts; none if it is none, which an error says."""
        kind: Any = Texts
        found: tuple[str, ...] | None = self.convert(place, value, kind)
        return found or ()

    def duration(self, place: str, text: str | None, limits: tuple[float, float]) -> float | None:
        """Read a duration within limits (in seconds); None if there is none, or none that may be."""
        if text is None:
            return None
        try:
            seconds = durations.seconds(text)
        except ValueError as error:
            self.add(place, error)
            return None
        least, most = limits
        if not least <= seconds <= most:
            allowed = f"{durations.text(least)} to {durations.text(most)} are allowed"
            self.add(place, f"{text!r} is too {'short' if seconds < least else 'long'}: {allowed}")
            return None
        return seconds


def _look_up(value: Any, path: str) -> Any:
    """The value inside a list that msgspec's path, such as `[0]`, leads to."""
    for index in path.strip("[]").split("][") if path else ():
        value = value[int(index)]
    return value
