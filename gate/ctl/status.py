"""`gatectl status`: the gate, its rules and limits, its schedules, what is in doubt, and who is connected."""

import pwd
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
from rich.console import RenderableType
from rich.table import Column, Table
from rich.text import Text

from gate import durations
from gate.ctl import limits, output, sends
from gate.ctl.asking import ask, socket_given, socket_option
from gate.interface import (
    GateInfo,
    OverrideInfo,
    RuleInfo,
    StatusIn,
    StatusOut,
    Steer,
    StoreInfo,
    WatcherInfo,
)

METHOD = "io.schedulegate.Control.Status"
SILENT_SECONDS = 30.0
"""A gate gives a sign of life every few seconds."""


@click.command(short_help="Show the gate, its rules, its schedules and what is in doubt.")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def status(as_json: bool) -> None:
    """Show the gate, its rules and limits, its schedules, what is in doubt, and who is connected.

    Times are local; the zone is named.
    """
    reply = ask(METHOD, StatusIn(), StatusOut)
    if as_json:
        output.show_json(reply)
    else:
        output.show(*parts(reply, socket_given()))


def parts(reply: StatusOut, socket: str | None) -> Iterator[RenderableType]:
    """A status for people. `socket`: what the commands that are shown must name, if anything."""
    if reply.config_problem is not None:
        yield from _config_problem(reply.config_problem, reply)
    yield _gate(reply)
    yield from _gates(reply)
    yield from _warnings(reply)
    yield from _rules(reply)
    yield from _overrides(reply)
    yield from limits.parts(reply.pools, reply.now)
    yield from _watchers(reply)
    if reply.store.healthy or reply.schedules_total:
        yield from sends.parts(reply, socket)
    else:
        yield output.heading("schedules and doubts: unknown while the store fails")
    yield from _holders(reply)


def _config_problem(problem: str, reply: StatusOut) -> Iterator[RenderableType]:
    loaded = output.when(reply.config_loaded, reply.now)
    yield Text(f"CONFIGURATION NOT IN FORCE: what was loaded at {loaded} goes on, since", style="bold red")
    for line in problem.splitlines():
        yield Text(f"  {output.safe(line)}", style="red")
    yield Text()


def _gate(reply: StatusOut) -> RenderableType:
    uptime = durations.text(max((reply.now - reply.started).total_seconds(), 0.0))
    rows: list[tuple[str, str | Text]] = [
        ("gate", f"{reply.version}, pid {reply.pid}, up {uptime}, connections {reply.connections}"),
        ("socket", output.safe(reply.socket)),
        (
            "config",
            f"{output.safe(reply.config or 'built-in defaults')}, loaded {output.when(reply.config_loaded, reply.now)}",
        ),
        ("store", _store(reply.store)),
        ("tzdata", f"{reply.tzdata.version}, {reply.tzdata.source}"),
        ("answers", _counts(reply)),
        ("times in", output.zone(reply.now)),
    ]
    return output.table([Column(style="bold", no_wrap=True), Column(overflow="fold")], rows)


def _store(store: StoreInfo) -> Text:
    text = Text(f"{output.safe(store.url)}, {_size(store.bytes)}, ")
    if store.round_trip is not None and store.skew is not None:
        ahead = f"{abs(store.skew):.3f} s {'ahead of' if store.skew > 0 else 'behind'} its clock"
        text.append(f"{store.round_trip * 1000:.1f} ms away, this host {ahead}, ")
    if store.healthy:
        return text.append("healthy", style="green")
    return text.append(f"nothing is granted: {output.safe(store.problem or 'unknown problem')}", style="bold red")


def _gates(reply: StatusOut) -> Iterator[RenderableType]:
    """Those that share the store, where more than one may."""
    if not reply.store.gates:
        return
    silent = sum(_silent(info, reply.now) for info in reply.store.gates)
    yield output.heading(f"gates: {len(reply.store.gates)}" + (f", {silent} silent" if silent else ""))
    columns = [output.folding("host"), output.whole("gate"), output.whole("last sign of life")]
    yield output.table(
        columns,
        (
            (
                output.safe(info.host) + (" (this one)" if info.here else ""),
                output.safe(info.gate),
                Text(output.when(info.seen, reply.now), style="yellow" if _silent(info, reply.now) else ""),
            )
            for info in reply.store.gates
        ),
    )


def _silent(info: GateInfo, now: datetime) -> bool:
    return (now - info.seen).total_seconds() > SILENT_SECONDS


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


def _warnings(reply: StatusOut) -> Iterator[RenderableType]:
    if reply.warnings:
        yield output.heading(f"warnings: {len(reply.warnings)}")
    for line in reply.warnings:
        yield Text(output.safe(line), style="yellow")


def _rules(reply: StatusOut) -> Iterator[RenderableType]:
    yield output.heading(f"rules: {reply.rules_total}{_cut(len(reply.rules), reply.rules_total)}")
    if reply.rules:
        yield rules_table(reply.rules, reply.now)


def rules_table(rules: Sequence[RuleInfo], now: datetime) -> Table:
    """What rules say now, until when, and why."""
    columns = [output.folding("rule"), output.whole("now"), output.until_column(now), Column("why")]
    return output.table(
        columns,
        (
            (output.safe(r.rule), _open(is_open=r.open), output.until(r.until, now), output.safe(r.reason))
            for r in rules
        ),
    )


def _overrides(reply: StatusOut) -> Iterator[RenderableType]:
    yield output.heading(f"overrides: {len(reply.overrides)}")
    columns = [output.folding("rule"), output.whole("order"), output.until_column(reply.now)]
    columns += [output.folding("by"), output.whole("since"), Column("note")]
    if reply.overrides:
        yield output.table(columns, (_override(order, reply.now) for order in reply.overrides))


def _override(order: OverrideInfo, now: datetime) -> Sequence[output.Cell]:
    action = _open(is_open=order.action is Steer.OPEN)
    until, since = output.until(order.until, now), output.clock(order.since, now)
    return output.safe(order.rule), action, until, output.safe(order.by), since, output.safe(order.note)


def _watchers(reply: StatusOut) -> Iterator[RenderableType]:
    yield output.heading(f"watchers: {reply.watchers_total}{_cut(len(reply.watchers), reply.watchers_total)}")
    columns = [output.folding("worker"), output.folding("queues"), output.whole("now"), output.until_column(reply.now)]
    columns += [output.whole("user"), output.number("pid")]
    if output.roomy():
        columns.append(Column("why"))
    if reply.watchers:
        yield output.table(columns, (_watcher(info, reply.now)[: len(columns)] for info in reply.watchers))


def _watcher(info: WatcherInfo, now: datetime) -> Sequence[output.Cell]:
    """A reason is the last cell, since a narrow terminal leaves it out: `gatectl why worker` tells it."""
    queues = "all" if info.queues is None else ", ".join(output.safe(queue) for queue in info.queues)
    answer = (_open(is_open=info.open), output.until(info.until, now))
    return output.safe(info.worker), queues, *answer, _user(info.uid), str(info.pid), output.safe(info.reason)


def _cut(shown: int, total: int) -> str:
    return f", the first {shown}" if shown < total else ""


def _open(*, is_open: bool) -> Text:
    return Text("open", style="green") if is_open else Text("closed", style="yellow")


def _holders(reply: StatusOut) -> Iterator[RenderableType]:
    yield output.heading(f"connected holders: {len(reply.holders)}")
    columns = [
        output.folding("holder"),
        output.whole("user"),
        output.number("pid"),
        output.whole("since"),
        output.number("claims"),
    ]
    if reply.holders:
        yield output.table(
            columns,
            (
                (output.safe(h.holder), _user(h.uid), str(h.pid), output.when(h.since, reply.now), str(h.claims))
                for h in reply.holders
            ),
        )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
