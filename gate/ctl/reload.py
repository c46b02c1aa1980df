"""`gatectl reload`: have the gate read its configuration file again."""

import click

from gate.ctl import output
from gate.ctl.asking import ask, socket_option
from gate.interface import Empty, ReloadOut

METHOD = "io.schedulegate.Control.Reload"
PATIENCE_SECONDS = 35.0
"""Thousands of rules take a while; the gate answers within 40 s."""


@click.command(short_help="Have the gate read its configuration file again.")
@socket_option
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def reload(as_json: bool) -> None:
    """Have the gate read its configuration file again.

    All of it is taken over, or nothing: when something in it is wrong, every finding is printed, what ran before goes
    on, and the exit code is 2.
    """
    reply = ask(METHOD, Empty(), ReloadOut, PATIENCE_SECONDS)
    if as_json:
        output.show_json(reply)
        return
    click.echo("the configuration was read again and is in force")
    for warning in reply.warnings:
        click.echo(f"warning: {output.safe(warning)}")
