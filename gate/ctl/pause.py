"""`gatectl pause` and `resume`: let nothing of some schedules be sent, until an end, or take that back."""

from datetime import UTC, datetime

import click

from gate.ctl import output
from gate.ctl.asking import ask, socket_option
from gate.ctl.sends import pauses_table
from gate.ctl.steer import end_of, for_option, json_option, note_option, until_option
from gate.interface import Halt, PauseIn, PauseOut, rfc3339

METHOD = "io.schedulegate.Control.Pause"


@click.command(short_help="Send nothing of some schedules until an end.")
@socket_option
@click.argument("schedule")
@for_option
@until_option
@note_option
@json_option
def pause(schedule: str, duration: str | None, until: str | None, note: str, as_json: bool) -> None:
    """Pause SCHEDULE, or all schedules that match that glob, until an end.

    What falls into the pause is listed as missed, and not sent later. It ends by itself; `gatectl resume` ends it at
    once. Local times are those of this terminal; the answer names the zone.
    """
    end = rfc3339(end_of(duration, until, datetime.now(UTC)))
    _send(PauseIn(schedule=schedule, action=Halt.PAUSE, until=end, note=note), as_json)


@click.command(short_help="Take pauses back.")
@socket_option
@click.argument("schedule")
@json_option
def resume(schedule: str, as_json: bool) -> None:
    """Take back the pause of SCHEDULE, or all pauses of names or globs that match that glob.

    Hours that pause a schedule (`pause` in its [[send]]) stay as they are.
    """
    _send(PauseIn(schedule=schedule, action=Halt.RESUME), as_json)


def _send(request: PauseIn, as_json: bool) -> None:
    reply = ask(METHOD, request, PauseOut)
    if as_json:
        output.show_json(reply)
        return
    if not reply.pauses:
        click.echo("no pause is in force now")
        return
    click.echo("in force now:")
    output.show(pauses_table(reply.pauses, datetime.now(UTC)))
