"""gate.toml: bytes in, a Config out; every error of the file at once, with table, key and value."""

import tomllib
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from gate import durations
from gate.errors import ConfigError
from gate.rules import GRACE_SECONDS, SendPolicy, SendRule

KEEP_DEFAULT = "14d"
KEEP_LEAST_SECONDS = 3600.0
STORES = ("sqlite:", "memory:")

T = TypeVar("T")


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
    schedules: Annotated[tuple[str, ...], Meta(min_length=1)]
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

    def table(self, place: str, value: Any, kind: type[T]) -> T | None:
        """Convert one table; msgspec's path starts at `$`, which is this table."""
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at `$")
            key = path.rstrip("`")
            found = _look_up(value, key)
            self.lines.append(
                f"{place}{key}: {text[:1].lower()}{text[1:]}{'' if found is None else f', got {found!r}'}"
            )
            return None

    def value(self, place: str, read: Callable[[], T]) -> T | None:
        """Read one value; a ValueError says what is allowed."""
        try:
            return read()
        except ValueError as error:
            self.lines.append(f"{place}: {error}")
            return None


def _look_up(table: Any, path: str) -> Any:
    value: Any = table
    for key in path.strip(".").replace("[", ".").replace("]", "").split("."):
        try:
            value = value[int(key) if isinstance(value, list) else key]
        except (KeyError, TypeError, ValueError):
            return None
    return None if value is table else value


def parse(data: bytes, source: str) -> Config:
    """Read a configuration; raises ConfigError with every finding. `source` names the file in them."""
    try:
        tables = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"not UTF-8 at byte {error.start}"]) from error
    except tomllib.TOMLDecodeError as error:
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
    keep = findings.value("store.keep", lambda: durations.seconds(store.keep))
    if keep is not None and keep < KEEP_LEAST_SECONDS:
        least = durations.text(KEEP_LEAST_SECONDS)
        findings.lines.append(f"store.keep: {store.keep!r} is too short, at least {least}: what is forgotten is late")
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
            rules.append(_send_rule(place, rule, findings))
    return tuple(rules)


def _send_rule(place: str, rule: _Send, findings: _Findings) -> SendRule:
    def duration(key: str, text: str | None) -> float | None:
        return None if text is None else findings.value(f"{place}.{key}", lambda: durations.seconds(text))

    deadline, grace = duration("deadline", rule.deadline), duration("grace", rule.grace)
    policy = SendPolicy(on_doubt=rule.on_doubt, deadline=deadline, grace=GRACE_SECONDS if grace is None else grace)
    return SendRule(schedules=rule.schedules, policy=policy)
