"""The command and what holds for all of its subcommands."""

import sys

import click

from gate.ctl.asking import socket_option
from gate.ctl.check import check
from gate.ctl.demo import demo
from gate.ctl.history import history
from gate.ctl.install import install_units
from gate.ctl.lint import lint
from gate.ctl.metrics import metrics
from gate.ctl.pause import pause, resume
from gate.ctl.reload import reload
from gate.ctl.resend import resend
from gate.ctl.run import run as run_command
from gate.ctl.status import status
from gate.ctl.steer import auto, close_rules, open_rules
from gate.ctl.week import week
from gate.ctl.why import why


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 yes or done, 1 the answer is no, 2 wrong usage or config, 3 the gate cannot be reached.",
)
@socket_option
@click.version_option(package_name="schedule-gate", prog_name="gatectl")
def cli() -> None:
    """Inspect and steer the schedule gate."""


for command in (
    status,
    why,
    week,
    check,
    open_rules,
    close_rules,
    auto,
    pause,
    resume,
    reload,
    history,
    resend,
    lint,
    metrics,
    run_command,
    demo,
    install_units,
):
    cli.add_command(command)


def run(arguments: list[str]) -> int:
    """Run gatectl; ends the process with its exit code."""
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")  # a title that the terminal cannot show is still a title
    cli.main(arguments, prog_name="gatectl")
