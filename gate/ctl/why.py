"""`gatectl why`: which line of the configuration decides."""

from datetime import UTC, datetime

import click

from gate.ctl import output, times
from gate.ctl.asking import ask, socket_option
from gate.ctl.files import load, why_of
from gate.interface import WhyIn, WhyOut, rfc3339

METHOD = "io.schedulegate.Control.Why"


@click.group(short_help="Show which line of the configuration decides.")
def why() -> None:
    """Show which line of the configuration decides."""


@why.command(short_help="May this worker start a job?")
@socket_option
@click.argument("name")
@click.option("--queue", metavar="QUEUE", help="Of this queue; else of any.")
@click.option(
    "--at", metavar="WHEN", help="2026-11-30T12:00:00Z, or in local time 12:00 (today) or '2026-11-30 12:00'."
)
@click.option(
    "--config", "file", metavar="FILE", help="Read this file instead of asking the gate; overrides are unknown."
)
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def worker(name: str, queue: str | None, at: str | None, file: str | None, as_json: bool) -> None:
    """Show whether the worker NAME may start a job, until when, and which line of the configuration says so.

    The exit code is 0 if it may and 1 if it may not.
    """
    now = datetime.now(UTC)
    asked = WhyIn(worker=name, queue=queue, at=None if at is None else _at(at, now))
    reply = ask(METHOD, asked, WhyOut) if file is None else why_of(load(file, now), asked, now)
    if as_json:
        output.show_json(reply)
    else:
        for line in reply.words:
            click.echo(output.safe(line))
    click.get_current_context().exit(0 if reply.open else 1)


def _at(text: str, now: datetime) -> str:
    try:
        return rfc3339(times.moment(text, now))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--at'") from error
