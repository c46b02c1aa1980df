"""gate.toml: bytes in, a Config out; every error of the file at once, with table, key and value."""

import tomllib
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from gate import durations
from gate.errors import ConfigError
from gate.rules import GRACE_SECONDS, SendPolicy, SendRule

KEEP_DEFAULT = "14d"
KEEP_SECONDS = (3600.0, 3660 * 86_400.0)
"""Least and most that the ledger may remember: what is forgotten is late."""
DEADLINE_SECONDS = (0.0, 3660 * 86_400.0)
GRACE_LIMITS_SECONDS = (0.0, 86_400.0)
STORES = ("sqlite:", "memory:")

T = TypeVar("T")
Table = TypeVar("Table", bound=Struct)


class Control(Struct, frozen=True, kw_only=True):
    """Who may steer besides root and the gate's own user: names or numbers of users and groups."""

    users: tuple[str | int, ...] = ()
    groups: tuple[str | int, ...] = ()


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration. `keep`: how many seconds the ledger remembers."""

    store_url: str = "sqlite:"
    keep: float = durations.seconds(KEEP_DEFAULT)
    send: tuple[SendRule, ...] = ()
    control: Control = Control()


class _Store(Struct, frozen=True, forbid_unknown_fields=True):
    url: str = "sqlite:"
    keep: str = KEEP_DEFAULT


class _Send(Struct, frozen=True, forbid_unknown_fields=True):
    schedules: Annotated[tuple[str, ...], Meta(min_length=1)] = ()
    on_doubt: Literal["skip", "resend"] = "skip"
    deadline: str | None = None
    grace: str | None = None


class _Control(Struct, frozen=True, forbid_unknown_fields=True):
    users: tuple[str | int, ...] = ()
    groups: tuple[str | int, ...] = ()


_TABLES = ("store", "send", "control")


class _Findings:
    """Collects errors, so that a reader of the file sees all of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def table(self, place: str, value: Any, kind: type[Table]) -> Table | None:
        """Convert one table, key by key; None if it is none. What is wrong in it is left at its default."""
        table = self._convert(place, value, dict[str, Any])
        if table is None:
            return None
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        read: dict[str, Any] = {}
        for key, value in table.items():
            if key not in fields:
                self.lines.append(f"{place}.{key}: unknown key (this version knows {', '.join(fields)})")
            elif (found := self._convert(f"{place}.{key}", value, fields[key].type)) is not None:
                read[key] = found
        return kind(**read)

    def _convert(self, place: str, value: Any, kind: type[T]) -> T | None:
        """Convert one value; msgspec's path starts at `$`, which is that value."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if get_origin(kind) is Literal:
                self.lines.append(f"{place}: {value!r} is not one of {', '.join(get_args(kind))}")
                return None
            text, _, path = str(error).partition(" - at `$")
            key = path.rstrip("`")
            found = _look_up(value, key)
            self.lines.append(f"{place}{key}: {text[:1].lower()}{text[1:]}, got {found!r}")
            return None

    def duration(self, place: str, text: str | None, limits: tuple[float, float]) -> float | None:
        """Read a duration within limits (in seconds); None if there is none, or none that may be."""
        if text is None:
            return None
        try:
            seconds = durations.seconds(text)
        except ValueError as error:
            self.lines.append(f"{place}: {error}")
            return None
        least, most = limits
        if not least <= seconds <= most:
            allowed = f"{durations.text(least)} to {durations.text(most)} are allowed"
            self.lines.append(f"{place}: {text!r} is too {'short' if seconds < least else 'long'}: {allowed}")
            return None
        return seconds


def _look_up(value: Any, path: str) -> Any:
    """The value inside a list that msgspec's path, such as `[0]`, leads to."""
    for index in path.strip("[]").split("][") if path else ():
        value = value[int(index)]
    return value


def parse(data: bytes, source: str) -> Config:
    """Read a configuration; raises ConfigError with every finding. `source` names the file in them."""
    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"not UTF-8 at byte {error.start}"]) from error
    except (ValueError, RecursionError) as error:  # tomllib.TOMLDecodeError, a number or a nesting beyond all bounds
        text = str(error)
        raise ConfigError(source, [text[:1].lower() + text[1:]]) from error
    findings = _Findings()
    for name in tables:
        if name not in _TABLES:
            findings.lines.append(f"{name}: unknown table or key (this version knows {', '.join(_TABLES)})")
    store = _parse_store(tables.get("store", {}), findings)
    send = _parse_send(tables.get("send", []), findings)
    control = findings.table("control", tables.get("control", {}), _Control)
    if findings.lines or store is None or control is None:
        raise ConfigError(source, findings.lines)
    url, keep = store
    return Config(store_url=url, keep=keep, send=send, control=Control(users=control.users, groups=control.groups))


def _parse_store(value: Any, findings: _Findings) -> tuple[str, float] | None:
    store = findings.table("store", value, _Store)
    if store is None:
        return None
    if not store.url.startswith(STORES) or (store.url.startswith("memory:") and store.url != "memory:"):
        findings.lines.append(f"store.url: {store.url!r} is not one of sqlite:, sqlite:PATH and memory:")
    keep = findings.duration("store.keep", store.keep, KEEP_SECONDS)
    return store.url, keep or 0.0


def _parse_send(value: Any, findings: _Findings) -> tuple[SendRule, ...]:
    try:
        tables = msgspec.convert(value, list[Any])
    except msgspec.ValidationError:
        findings.lines.append("send: write [[send]], with two brackets: there may be several")
        return ()
    rules: list[SendRule] = []
    for index, table in enumerate(tables):
        place = f"send[{index}]"
        rule = findings.table(place, table, _Send)
        if rule is not None:
            if "schedules" not in table:
                findings.lines.append(f"{place}.schedules: missing")
            rules.append(_send_rule(place, rule, findings))
    return tuple(rules)


def _send_rule(place: str, rule: _Send, findings: _Findings) -> SendRule:
    deadline = findings.duration(f"{place}.deadline", rule.deadline, DEADLINE_SECONDS)
    grace = findings.duration(f"{place}.grace", rule.grace, GRACE_LIMITS_SECONDS)
    policy = SendPolicy(on_doubt=rule.on_doubt, deadline=deadline, grace=GRACE_SECONDS if grace is None else grace)
    return SendRule(schedules=rule.schedules, policy=policy)
