"""`gatectl resend`: settle a doubt by allowing a new send."""

from datetime import UTC, datetime

import click

from gate.ctl import output
from gate.ctl.asking import ask, socket_option
from gate.ctl.times import moment
from gate.interface import Done, ResendIn, rfc3339

METHOD = "io.schedulegate.Control.Resend"


@click.command(short_help="Settle a doubt by allowing a new send.")
@socket_option
@click.argument("schedule")
@click.argument("at", nargs=-1, required=True)
def resend(schedule: str, at: tuple[str, ...]) -> None:
    """Allow a new send of the occurrence AT of SCHEDULE, which is in doubt.

    AT is 2026-11-30T12:00:00Z, or in local time "2026-11-30 12:00" or 12:00 (today). A local time that exists
    twice, because clocks go back, is refused: give it with its zone. `gatectl status` lists what is in doubt.
    """
    now = datetime.now(UTC)
    try:
        when = moment(" ".join(at), now)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'AT'") from error
    ask(METHOD, ResendIn(schedule=schedule, at=rfc3339(when)), Done)
    where = f"{rfc3339(when)} ({output.clock(when, now)} local time)"
    click.echo(f"{output.safe(schedule)} at {where} may be sent again, by whoever asks next")
