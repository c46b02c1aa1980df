"""What a status says of the send side: pauses, schedules, what is in doubt and what was missed."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from gate.ctl import output
from gate.interface import OccurrenceInfo, PauseInfo, ScheduleInfo, StatusOut

MISSED_SHOWN = 20
"""How many of the newest missed ones are shown: there is no more to do about them than to know."""


def parts(reply: StatusOut, socket: str | None) -> Iterator[RenderableType]:
    """The send side, for people. `socket`: what the commands that are shown must name, if anything."""
    yield from _pauses(reply)
    yield from _schedules(reply)
    yield from _doubts(reply, socket)
    yield from _missed(reply)


def _pauses(reply: StatusOut) -> Iterator[RenderableType]:
    if reply.pauses:
        yield output.heading(f"pauses: {len(reply.pauses)}")
        yield pauses_table(reply.pauses, reply.now)


def pauses_table(pauses: Sequence[PauseInfo], now: datetime) -> RenderableType:
    """What operators have paused, until when and why."""
    columns = [output.folding("schedules"), output.until_column(now), output.folding("by"), output.whole("since")]
    return output.table([*columns, Column("note")], (_pause(pause, now) for pause in pauses))


def _pause(pause: PauseInfo, now: datetime) -> Sequence[output.Cell]:
    until, since = output.until(pause.until, now), output.clock(pause.since, now)
    return output.safe(pause.schedule), until, output.safe(pause.by), since, output.safe(pause.note)


def _schedules(reply: StatusOut) -> Iterator[RenderableType]:
    shown = len(reply.schedules)
    cut = f", the {shown} used last" if shown < reply.schedules_total else ""
    yield output.heading(f"schedules: {reply.schedules_total}{cut}")
    columns = [output.folding("schedule"), output.whole("last"), output.whole("state"), output.folding("by")]
    columns.append(output.words("since the start"))
    if output.piped():
        columns.append(output.folding("id"))
    if shown:
        yield output.table(columns, (_schedule(info, reply.now) for info in reply.schedules))


def _schedule(info: ScheduleInfo, now: datetime) -> Sequence[output.Cell]:
    """The id has a column of its own in a pipe, where each schedule is one line."""
    last = (output.when(info.at, now), output.state(info.state), output.safe(info.by), _counts(info))
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
    yield output.table(columns, (_unsent(info, reply.now) for info in reply.doubts))
    yield Text("\nNobody knows whether these were sent. Each of these commands allows a new send of one:")
    for info in reply.doubts:
        command = output.resend_command(info.schedule, info.at, socket)
        yield Text(command, no_wrap=True, overflow="ignore")  # in one line, to be copied


def _unsent(info: OccurrenceInfo, now: datetime) -> tuple[str, str, str, str]:
    return output.safe(info.title or info.schedule), output.when(info.at, now), output.safe(info.by), info.reason


def _counts(info: ScheduleInfo) -> str:
    """Whether it is paused, and what became of it since the gate started."""
    counted = (
        ("sent", info.sent),
        ("refused", info.refused),
        ("in doubt", info.doubt),
        ("missed", info.missed),
        ("only observed", info.observed),
    )
    told = ["" if info.paused is None else output.safe(info.paused), ", ".join(f"{w} {n}" for w, n in counted if n)]
    return "; ".join(filter(None, told))


def _missed(reply: StatusOut) -> Iterator[RenderableType]:
    shown = reply.missed[:MISSED_SHOWN]
    cut = f", the newest {len(shown)}" if len(shown) < reply.missed_total else ""
    yield output.heading(f"missed: {reply.missed_total}{cut}")
    columns = [output.folding("schedule"), output.whole("occurrence"), output.folding("by"), output.words("why")]
    if shown:
        yield output.table(columns, (_unsent(info, reply.now) for info in shown))
