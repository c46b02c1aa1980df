"""gate.toml: bytes in, a Config out; every error of the file at once, with table, key and value."""

import tomllib
from typing import Any, Literal

from msgspec import Struct

from gate import durations, settings
from gate.calendars import Days
from gate.errors import ConfigError
from gate.hours import FetchRule, HolidayEntry, HoursReader, ReadCalendar, Resource, no_calendar
from gate.interface import CatchUp
from gate.rules import CATCH_UP_SECONDS, GRACE_SECONDS, SendPolicy, SendRule
from gate.settings import Findings

KEEP_SECONDS = (3600.0, 3660 * 86_400.0)
LEASE_SECONDS = (3.0, 3600.0)
"""Least and most that the ledger may remember: what is forgotten is late."""
DEADLINE_SECONDS = (0.0, 3660 * 86_400.0)
GRACE_LIMITS_SECONDS = (0.0, 86_400.0)
CATCH_UP_LIMITS_SECONDS = (60.0, 366 * 86_400.0)
SHARED = ("redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://")
STORES = ("sqlite:", "memory:", *SHARED)

_KNOWN = ("timezone", "uncovered", "store", "days", "hours", "fetch", "resource", "send", "control")


class Control(Struct, frozen=True, kw_only=True):
    """Who may steer besides root and the gate's own user: names or numbers of users and groups."""

    users: tuple[str | int, ...] = ()
    groups: tuple[str | int, ...] = ()


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration.

    `keep`: how many seconds the ledger remembers. `timezone`: an IANA name, UTC if the file has none. `uncovered`: what
    holds for a worker and queue that no rule of `fetch` covers. `days`: the holidays, those of calendars included;
    `holidays`: the texts that they came from.
    """

    store_url: str = "sqlite:"
    shared: settings.Shared = settings.Shared()
    keep: float = durations.seconds(settings.KEEP_DEFAULT)
    timezone: str = "UTC"
    uncovered: Literal["open", "closed"] = "open"
    days: Days = Days()
    holidays: tuple[HolidayEntry, ...] = ()
    fetch: tuple[FetchRule, ...] = ()
    resources: tuple[Resource, ...] = ()
    send: tuple[SendRule, ...] = ()
    control: Control = Control()


def parse(data: bytes, source: str, read_calendar: ReadCalendar = no_calendar) -> Config:
    """Read a configuration; raises ConfigError with every finding. `source` names the file in them."""
    tables = _toml(data, source)
    findings = Findings()
    for name in tables:
        if name not in _KNOWN:
            findings.add(name, f"unknown table or key (this version knows {', '.join(_KNOWN)})")
    top = findings.table(
        "", {key: tables[key] for key in ("timezone", "uncovered") if key in tables}, settings.TopTable
    )
    store = _parse_store(tables.get("store", {}), findings)
    assert top is not None  # a table was given
    reader = HoursReader(top.timezone, read_calendar, findings)
    days = reader.days(tables.get("days", {}))
    reader.hours(tables.get("hours", {}))
    resources = reader.resources(tables.get("resource", []))
    fetch = reader.fetch(tables.get("fetch", []))
    send = _parse_send(tables.get("send", []), reader, findings)
    reader.finish(fetch)
    control = findings.table("control", tables.get("control", {}), settings.ControlTable)
    if findings.lines or store is None or control is None:
        raise ConfigError(source, findings.lines)
    url, shared, keep = store
    return Config(
        store_url=url,
        shared=shared,
        keep=keep,
        timezone=top.timezone or "UTC",
        uncovered=top.uncovered,
        days=days,
        holidays=tuple(reader.holidays),
        fetch=fetch,
        resources=resources,
        send=send,
        control=Control(users=control.users, groups=control.groups),
    )


def _toml(data: bytes, source: str) -> dict[str, Any]:
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(source, ["begins with a byte order mark: save it as UTF-8 without one"])
    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"not UTF-8 at byte {error.start}"]) from error
    except (ValueError, RecursionError) as error:  # tomllib.TOMLDecodeError, a number or a nesting beyond all bounds
        text = str(error)
        raise ConfigError(source, [text[:1].lower() + text[1:]]) from error


def _parse_store(value: Any, findings: Findings) -> tuple[str, settings.Shared, float] | None:
    store = findings.table("store", value, settings.StoreTable)
    if store is None:
        return None
    if not store.url.startswith(STORES) or (store.url.startswith("memory:") and store.url != "memory:"):
        findings.add("store.url", f"{store.url!r} is not one of sqlite:, sqlite:PATH, memory:, {', '.join(SHARED)}")
    keep = findings.duration("store.keep", store.keep, KEEP_SECONDS)
    shared = settings.Shared(
        prefix=store.prefix,
        password_file=store.password_file,
        wait_replicas=store.wait_replicas,
        allow_eviction=store.allow_eviction,
        lease=findings.duration("store.lease", store.lease, LEASE_SECONDS) or 0.0,
        on_store_down=store.on_store_down,
    )
    if not store.url.startswith(SHARED) and shared != settings.Shared():
        keys = "prefix, password_file, wait_replicas, allow_eviction, lease and on_store_down"
        findings.add("store", f"{keys} are for {', '.join(SHARED)}")
    return store.url, shared, keep or 0.0


def _parse_send(value: Any, reader: HoursReader, findings: Findings) -> tuple[SendRule, ...]:
    rules: list[SendRule] = []
    for place, rule in findings.tables("send", value, settings.SendTable, needs="schedules"):
        deadline = findings.duration(f"{place}.deadline", rule.deadline, DEADLINE_SECONDS)
        grace = findings.duration(f"{place}.grace", rule.grace, GRACE_LIMITS_SECONDS)
        within = findings.duration(f"{place}.catch_up_within", rule.catch_up_within, CATCH_UP_LIMITS_SECONDS)
        policy = SendPolicy(
            on_doubt=rule.on_doubt,
            deadline=deadline,
            grace=GRACE_SECONDS if grace is None else grace,
            catch_up=CatchUp(rule.catch_up),
            catch_up_within=CATCH_UP_SECONDS if within is None else within,
            mode=rule.mode,
        )
        pause = reader.pause(f"{place}.pause", rule.pause or ())
        rules.append(SendRule(schedules=rule.schedules, policy=policy, pause=pause))
    return tuple(rules)
