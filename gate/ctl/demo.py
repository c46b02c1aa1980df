"""`gatectl demo`: a scheduler is killed and started again, without the gate and with it. Needs no server."""

import time
from collections import Counter
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
from rich.table import Column, Table

from gate.ctl import output, status
from gate.ctl.asking import AnswerIsNo, WrongUsage

if TYPE_CHECKING:
    from gate.ctl.stage import Stage

STARTS = 5
BUDGET_SECONDS = 25.0
"""No further start that would not end before that."""
ROOM_SECONDS = 20
"""How long the starts may take: with less than that left of the minute, two minutes may be counted."""
WAIT_SECONDS = 5
"""With less than that left of the minute, the demo begins with the next."""

INTRODUCTION = """\
A real taskiq scheduler with one task, cron "* * * * *", is started {starts} times, and
killed with SIGKILL {kills} times: once as it is, and once with its source in a
GatedScheduleSource, beside gate {version} on SQLite.
"""
PROVEN = """
Proven: without the gate, the scheduler sent at each of its {starts} starts, {ungated} times
for {touched}. With the gate it sent each minute exactly once; every other
start asked, and was told that it was sent already."""
ROW = "{:8}  {:16}  {:16}  {}"
ANSWERS = {
    "send": "sent",
    "sent": "refused, already sent",
    "held": "refused, being sent",
    "doubt": "refused, in doubt",
    "wait": "refused, too early",
    "late": "refused, too late",
    "paused": "refused, paused",
}

Minutes = Counter[datetime]


@click.command(short_help="Kill a real scheduler again and again, and see what it sends.")
def demo() -> None:
    """Kill a real taskiq scheduler again and again, and see what it sends, without the gate and with it.

    Needs no server and touches none: it starts a gate of its own, on SQLite in a temporary folder, and
    `taskiq scheduler` processes whose broker writes to a file. Takes less than 30 s and leaves nothing behind.
    """
    if missing := next((name for name in ("taskiq", "trio") if find_spec(name) is None), None):
        raise WrongUsage(f"{missing} is missing: pip install 'schedule-gate[service,taskiq]'")
    from gate.ctl.stage import StageError, staged

    try:
        with staged() as stage:
            starts = _play(stage)
            _conclude(stage, starts)
    except StageError as error:
        raise AnswerIsNo(f"the demo could not be played: {error}") from error


def _play(stage: "Stage") -> int:
    """Kill and start until enough was seen; both schedulers run at the end. Gives the number of starts."""
    begin = time.monotonic()
    version = stage.open().version
    click.echo(INTRODUCTION.format(version=version, starts=STARTS, kills=STARTS - 1))
    _mind_the_minute()
    click.echo(ROW.format("", "", "without the gate", "with the gate"))
    _start(stage, 1)
    for start in range(2, STARTS + 1):
        began = time.monotonic()
        stage.kill()
        _start(stage, start)
        now = time.monotonic()
        if start < STARTS and (now - begin) + (now - began) > BUDGET_SECONDS:
            click.echo(f"(starts are slow here: {start} must do)")
            return start
    return STARTS


def _start(stage: "Stage", number: int) -> None:
    answers = stage.play()
    with_gate = " and ".join(ANSWERS[name] for name in answers)
    started = f"start {number}" if number == 1 else f"killed, start {number}"
    click.echo(ROW.format(f"{datetime.now().astimezone():%H:%M:%S}", started, "sent", with_gate))


def _mind_the_minute() -> None:
    left = 60 - datetime.now(UTC).second
    if left <= WAIT_SECONDS:
        click.echo(f"({left} s are left of this minute: beginning with the next)")
        time.sleep(left)
    elif left <= ROOM_SECONDS:
        click.echo(f"({left} s are left of this minute: two may be touched, each is counted)")


def _conclude(stage: "Stage", starts: int) -> None:
    ungated, gated = stage.minutes_ungated(), stage.minutes_gated()
    click.echo()
    output.show(_table(ungated, gated))
    click.echo("\n$ gatectl status")
    output.show(*status.parts(stage.status(), None))
    if found := wrong(ungated, gated, len(stage.gated.sent())):
        raise AnswerIsNo(f"nothing is proven: {'; '.join(found)}")
    touched = "one minute" if len(ungated) == 1 else f"{len(ungated)} minutes"
    click.echo(PROVEN.format(starts=starts, ungated=ungated.total(), touched=touched))


def _table(ungated: Minutes, gated: Minutes) -> Table:
    now, minutes = datetime.now(UTC), sorted({*ungated, *gated})
    columns = [Column("minute"), Column("sends without the gate", justify="right")]
    columns.append(Column("sends with the gate", justify="right"))
    rows = ((output.clock(at, now), *(str(sends.get(at, "-")) for sends in (ungated, gated))) for at in minutes)
    return output.table(columns, rows)


def wrong(ungated: Minutes, gated: Minutes, sends: int) -> list[str]:
    """What speaks against the gate, or says that the demo showed nothing. `sends`: all of the gated scheduler."""
    now = datetime.now(UTC)
    found = [
        f"{output.clock(at, now)} was sent {times} times with the gate" for at, times in gated.items() if times != 1
    ]
    if sends != gated.total():
        found.append(f"with the gate {sends} tasks were sent, but it knows of {gated.total()}")
    if ungated.total() <= len(ungated):
        found.append("without the gate no minute was sent twice, so there was nothing to prevent")
    return found
