"""`gatectl week`: the hours of rules as a picture."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.text import Text

from gate.ctl import output
from gate.ctl.asking import WrongUsage, ask, socket_option
from gate.ctl.files import load, week_of
from gate.ctl.picture import SIGNS, Drawing
from gate.ctl.svg import svg
from gate.interface import WeekIn, WeekOut

METHOD = "io.schedulegate.Control.Week"
PATIENCE_SECONDS = 35.0
"""A hundred rules of many minutes each take a while; the gate answers within 40 s."""
DAYS, DAYS_MOST = 7, 31
PIPE_COLUMNS = 80


@click.command(short_help="Draw the hours of rules.")
@socket_option
@click.argument("rule", required=False)
@click.option("--start", metavar="DATE", type=click.DateTime(["%Y-%m-%d"]), help="The first day; else today.")
@click.option("--days", type=click.IntRange(1, DAYS_MOST), default=DAYS, show_default=True, help="How many days.")
@click.option("--svg", "picture", metavar="FILE", type=click.Path(dir_okay=False), help="Write an SVG file instead.")
@click.option("--config", "file", metavar="FILE", help="Read this file instead of asking the gate; knows no overrides.")
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def week(
    rule: str | None, start: datetime | None, days: int, picture: str | None, file: str | None, as_json: bool
) -> None:
    """Draw when RULE, or all rules that match that glob, or all rules, let workers start jobs.

    A row is a day, by the wall clock of the rule's time zone. Overrides are shown, and below each week the odd ones
    of the next 400 days: holidays, clock changes, whatever is unlike the weeks around.
    """
    asked = WeekIn(rule=rule, start=None if start is None else f"{start:%Y-%m-%d}", days=days)
    if file is None:
        reply = ask(METHOD, asked, WeekOut, PATIENCE_SECONDS)
    else:
        now = datetime.now(UTC)
        reply = week_of(load(file, now), asked, now)
    if picture is not None:
        _write(Path(picture), svg(reply))
    if as_json:
        output.show_json(reply)
    elif picture is None:
        output.show(*parts(reply))


def parts(reply: WeekOut) -> Iterator[RenderableType]:
    """A week for people."""
    if not reply.rules:
        yield Text("no [[fetch]] rule: no hours to draw")
        return
    columns = PIPE_COLUMNS if output.piped() else Console().width
    yield from Drawing(columns, ascii_only=not _can_show("".join(sign for sign, _, _ in SIGNS.values()))).week(reply)
    if len(reply.rules) < reply.rules_total:
        yield Text(f"\nThese are the first {len(reply.rules)} of {reply.rules_total} rules: name one, or a glob.")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from error
    click.echo(f"drawn into {path}", err=True)
