"""Weeks of configurations, as the gate answers them, and as a terminal of a given width shows them."""

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console, RenderableType

from gate.config import parse
from gate.fetchrules import FetchRules
from gate.interface import OverrideIn, Steer, WeekIn, WeekOut, instant
from gate.overrides import NO_OVERRIDES
from gate.week import week

BERLIN = 'timezone = "Europe/Berlin"\n'
QUIET = f"""{BERLIN}
[days]
holidays = ["12-24", "12-25", "01-01"]
[hours]
quiet  = ["daily 20:00-06:00", "freeday 00:00-24:00"]
backup = ["daily 02:00-03:15"]
[[fetch]]
name       = "dicom"
queues     = ["dicom"]
open       = ["quiet"]
closed     = ["backup"]
last_start = "45m"
"""
"""Nights and free days, but not while the backup runs."""


def rule(
    *lines: str, name: str = "dicom", closed: Iterable[str] = (), holidays: Iterable[str] = (), more: str = ""
) -> str:
    """A configuration of one rule in Berlin."""
    days = f"[days]\nholidays = {list(holidays)}\n" if holidays else ""
    shut = f"closed = {list(closed)}\n" if closed else ""
    return f"{BERLIN}{days}[[fetch]]\nname = '{name}'\nopen = {list(lines)}\n{shut}{more}"


def week_of(
    text: str, now: str, *, order: OverrideIn | None = None, since: str | None = None, **asked: str | int | None
) -> WeekOut:
    """The week of a configuration at an instant; `order`: an override that root gave at `since`."""
    config = parse(text.encode(), "gate.toml")
    rules = FetchRules(config)
    overrides = NO_OVERRIDES
    if order is not None:
        overrides = overrides.order(order, [rule.name for rule in config.fetch], "root", 0, instant(since or now))
    return week(config, rules, overrides, WeekIn(**asked), instant(now))  # type: ignore[arg-type] # tests know


def ordered(action: Steer, until: str, note: str = "clinic called") -> OverrideIn:
    """An order over all rules."""
    return OverrideIn(rule="*", action=action, until=until, note=note)


def shown(parts: Iterable[RenderableType], columns: int) -> str:
    """What a terminal shows, without colour."""
    console = Console(width=columns, highlight=False, markup=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=UTC)
