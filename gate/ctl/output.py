"""Tables, texts and times as people read them.

On a terminal, tables fold to its width; in a pipe every row is one line, so that no id is cut. What clients named
(schedules, titles, holders) is shown as text: whatever could steer a terminal is escaped.
"""

import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime

import click
import msgspec
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from gate import durations
from gate.ctl.times import candidates
from gate.interface import Reply, State, rfc3339

PIPE_COLUMNS = 10_000
ROOMY_COLUMNS = 110
NARROW = 15
STYLES = {
    State.CLAIMED: "yellow",
    State.SENT: "green",
    State.DOUBT: "bold red",
    State.RELEASED: "cyan",
    State.MISSED: "magenta",
}
WORDS = {State.DOUBT: "in doubt"}

Cell = str | Text


def piped() -> bool:
    """Whether a program reads what is printed, or a file keeps it."""
    return not sys.stdout.isatty()


def show(*parts: RenderableType) -> None:
    """Print; styled on a terminal that has not asked for NO_COLOR."""
    console = Console(width=PIPE_COLUMNS if piped() else None, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def show_json(reply: Reply) -> None:
    """Print the parameters of a reply as they stand on the wire."""
    click.echo(msgspec.json.encode(reply))


def table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Table:
    """A table without lines."""
    headed = any(column.header for column in columns)
    made = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=headed)
    for row in rows:
        made.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def whole(heading: str) -> Column:
    """A column that is never folded."""
    return Column(heading, no_wrap=True)


def folding(heading: str) -> Column:
    """A column that is folded when the terminal is narrow; every character stays."""
    return Column(heading, overflow="fold", min_width=8)


def words(heading: str) -> Column:
    """A column of sentences, the first to be folded: names are worse to read in pieces."""
    return Column(heading, max_width=None if roomy() else NARROW)


def number(heading: str) -> Column:
    """A column of numbers."""
    return Column(heading, no_wrap=True, justify="right")


def until_column(now: datetime) -> Column:
    """Reasons beside it have times in the zone of their rule."""
    return whole(f"until ({now.astimezone():%Z})")


def roomy() -> bool:
    """Whether there is room for a column that can be done without."""
    return piped() or Console().width >= ROOMY_COLUMNS


def heading(text: str) -> Text:
    """The line above a table."""
    return Text(f"\n{text}", style="bold")


def safe(text: str) -> str:
    """Text of a client with everything escaped that is not printable."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def named(title: str | None, schedule: str) -> Text:
    """What people call a schedule, with its id below if that is another."""
    if title is None or title == schedule:
        return Text(safe(schedule))
    return Text(safe(title)).append(f"\n{safe(schedule)}", style="dim")


def state(value: State) -> Text:
    return Text(WORDS.get(value, value.value), style=STYLES[value])


def clock(at: datetime, now: datetime) -> str:
    """`at` in local time: 12:00 today, 2026-11-30 12:00 else; with its zone where the wall clock reads that twice."""
    local = at.astimezone()
    date = "" if local.date() == now.astimezone().date() else f"{local.date()} "
    seconds = f":{local:%S}" if local.second or local.microsecond else ""
    twice = len(candidates(local.replace(tzinfo=None, fold=0))) > 1
    return f"{date}{local:%H:%M}{seconds}{f' {local:%Z}' if twice else ''}"


def when(at: datetime, now: datetime) -> str:
    """`at` as `clock` has it, and how long ago that is."""
    return f"{clock(at, now)} ({ago(at, now)})"


def until(at: datetime | None, now: datetime) -> str:
    return "no known change" if at is None else clock(at, now)


def ago(at: datetime, now: datetime) -> str:
    """How long ago: "3m12s ago", "1d7h ago", "now", or "in 2s"."""
    passed = (now - at).total_seconds()
    if abs(passed) < 1:
        return "now"
    for least, unit in ((86_400, 3600), (3600, 60)):
        if abs(passed) >= least:
            passed -= math.fmod(passed, unit)
    return f"{durations.text(passed)} ago" if passed > 0 else f"in {durations.text(-passed)}"


def zone(now: datetime) -> str:
    """The local zone, as "CET (UTC+01:00)"."""
    local = now.astimezone()
    offset = local.isoformat()[-6:]
    return f"{local:%Z} (UTC{offset})" if offset != "+00:00" else f"{local:%Z}"


def resend_command(schedule: str, at: datetime, socket: str | None) -> str:
    """The command that settles a doubt, for the shell."""
    where = "" if socket is None else f"--socket {shlex.quote(socket)} "
    end = "-- " if schedule.startswith("-") else ""
    return f"gatectl resend {where}{end}{quoted(schedule)} {rfc3339(at)}"


def quoted(text: str) -> str:
    """Text in quotes, for the shell; what is not printable needs the $'...' of bash, ksh and zsh."""
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    octets = "".join(chr(b) if 32 <= b < 127 and chr(b) not in "'\\" else f"\\x{b:02x}" for b in text.encode())
    return f"$'{octets}'"
