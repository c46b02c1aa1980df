"""`gatectl status`: the gate, its schedules, what is in doubt, and who is connected."""

import pwd
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from gate import durations
from gate.ctl import output
from gate.ctl.asking import ask, socket_given, socket_option
from gate.interface import OccurrenceInfo, ScheduleInfo, StatusIn, StatusOut, StoreInfo

METHOD = "io.schedulegate.Control.Status"


@click.command(short_help="Show the gate, its schedules and what is in doubt.")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def status(as_json: bool) -> None:
    """Show the gate, its schedules, what is in doubt, and who is connected.

    Times are local; the zone is named.
    """
    reply = ask(METHOD, StatusIn(), StatusOut)
    if as_json:
        output.show_json(reply)
    else:
        output.show(*parts(reply, socket_given()))


def parts(reply: StatusOut, socket: str | None) -> Iterator[RenderableType]:
    """A status for people. `socket`: what the commands that are shown must name, if anything."""
    yield _gate(reply)
    if reply.store.healthy or reply.schedules_total:
        yield from _schedules(reply)
        yield from _doubts(reply, socket)
    else:
        yield output.heading("schedules and doubts: unknown while the store fails")
    yield from _holders(reply)


def _gate(reply: StatusOut) -> RenderableType:
    uptime = durations.text(max((reply.now - reply.started).total_seconds(), 0.0))
    rows: list[tuple[str, str | Text]] = [
        ("gate", f"{reply.version}, pid {reply.pid}, up {uptime}, connections {reply.connections}"),
        ("socket", output.safe(reply.socket)),
        ("config", output.safe(reply.config or "built-in defaults")),
        ("store", _store(reply.store)),
        ("tzdata", f"{reply.tzdata.version}, {reply.tzdata.source}"),
        ("answers", _counts(reply)),
        ("times in", output.zone(reply.now)),
    ]
    return output.table([Column(style="bold", no_wrap=True), Column(overflow="fold")], rows)


def _store(store: StoreInfo) -> Text:
    text = Text(f"{output.safe(store.url)}, {_size(store.bytes)}, ")
    if store.healthy:
        return text.append("healthy", style="green")
    return text.append(f"nothing is granted: {output.safe(store.problem or 'unknown problem')}", style="bold red")


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count = round(count / 1024)
    return f"{count} GiB"


def _counts(reply: StatusOut) -> str:
    counts = reply.counts
    counted = ((name, getattr(counts, name)) for name in counts.__struct_fields__)
    text = ", ".join(f"{name} {count}" for name, count in counted if count)
    return f"{text or 'none'} (since it started)"


def _schedules(reply: StatusOut) -> Iterator[RenderableType]:
    shown = len(reply.schedules)
    cut = f", the {shown} used last" if shown < reply.schedules_total else ""
    yield output.heading(f"schedules: {reply.schedules_total}{cut}")
    columns = [output.folding("schedule"), output.whole("last"), output.whole("state"), output.folding("by")]
    if output.piped():
        columns.append(output.folding("id"))
    if shown:
        yield output.table(columns, (_schedule(info, reply.now) for info in reply.schedules))


def _schedule(info: ScheduleInfo, now: datetime) -> Sequence[output.Cell]:
    """The id has a column of its own in a pipe, where each schedule is one line."""
    last = (_when(info.at, now), output.state(info.state), output.safe(info.by))
    if output.piped():
        return (output.safe(info.title or info.schedule), *last, output.safe(info.schedule))
    return (output.named(info.title, info.schedule), *last)


def _doubts(reply: StatusOut, socket: str | None) -> Iterator[RenderableType]:
    shown = len(reply.doubts)
    cut = f", the newest {shown}" if shown < reply.doubts_total else ""
    yield output.heading(f"in doubt: {reply.doubts_total}{cut}")
    if not shown:
        return
    columns = [output.folding("schedule"), output.whole("occurrence"), output.folding("by"), output.words("why")]
    yield output.table(columns, (_doubt(info, reply.now) for info in reply.doubts))
    yield Text("\nNobody knows whether these were sent. Each of these commands allows a new send of one:")
    for info in reply.doubts:
        command = output.resend_command(info.schedule, info.at, socket)
        yield Text(command, no_wrap=True, overflow="ignore")  # in one line, to be copied


def _doubt(info: OccurrenceInfo, now: datetime) -> tuple[str, str, str, str]:
    return output.safe(info.title or info.schedule), _when(info.at, now), output.safe(info.by), info.reason


def _holders(reply: StatusOut) -> Iterator[RenderableType]:
    yield output.heading(f"connected holders: {len(reply.holders)}")
    columns = [
        output.folding("holder"),
        output.whole("user"),
        Column("pid", no_wrap=True, justify="right"),
        output.whole("since"),
        Column("claims", no_wrap=True, justify="right"),
    ]
    if reply.holders:
        yield output.table(
            columns,
            (
                (output.safe(h.holder), _user(h.uid), str(h.pid), _when(h.since, reply.now), str(h.claims))
                for h in reply.holders
            ),
        )


def _when(at: datetime, now: datetime) -> str:
    return f"{output.clock(at, now)} ({output.ago(at, now)})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
