"""`gatectl check`: what is wrong with a configuration, and what it means. Needs no gate."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click
import msgspec
from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from gate.ctl import output
from gate.ctl.asking import WrongUsage, findings
from gate.ctl.files import read, week_of
from gate.ctl.week import parts as week_parts
from gate.errors import ConfigError
from gate.interface import WeekIn, WeekOut


class Checked(Struct, frozen=True, kw_only=True):
    """What --json prints. `week`: None if there are errors."""

    file: str
    errors: list[str]
    warnings: list[str]
    week: WeekOut | None


@click.command(short_help="Check a configuration file and draw its week.")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print errors, warnings and the week as JSON.")
def check(file: str, as_json: bool) -> None:
    """Check the configuration FILE, without a gate: every error, every warning, the week that it means, and odd days.

    The exit code is 2 if there is an error. Warnings are what can hardly be meant; they are no errors.
    """
    checked = check_file(file, datetime.now(UTC))
    if as_json:
        click.echo(msgspec.json.encode(checked))
    elif not checked.errors:
        output.show(*parts(checked))
    if checked.errors:
        if as_json:
            click.get_current_context().exit(WrongUsage.exit_code)
        raise WrongUsage(findings(f"{file} cannot be used", checked.errors))


def check_file(file: str, now: datetime) -> Checked:
    """Read a file as the gate would."""
    try:
        loaded = read(file, now)
    except ConfigError as error:
        return Checked(file=file, errors=error.findings, warnings=[], week=None)
    return Checked(file=file, errors=[], warnings=loaded.warnings, week=week_of(loaded, WeekIn(), now))


def parts(checked: Checked) -> Iterator[RenderableType]:
    """What a file without errors means, for people."""
    if checked.warnings:
        yield Text(
            f"{output.safe(checked.file)} can be used, with warnings: {len(checked.warnings)}", style="bold yellow"
        )
    else:
        yield Text(f"{output.safe(checked.file)} can be used, no warnings", style="bold")
    for line in checked.warnings:
        yield Text(f"  {output.safe(line)}", style="yellow")
    yield Text()
    if checked.week is not None:
        yield from week_parts(checked.week)
