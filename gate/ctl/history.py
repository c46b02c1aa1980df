"""`gatectl history`: what became of occurrences."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click
from rich.console import RenderableType
from rich.text import Text

from gate import durations
from gate.ctl import output
from gate.ctl.asking import ask, socket_option
from gate.ctl.times import since as parse_since
from gate.interface import HistoryIn, HistoryOut, OccurrenceInfo, State, rfc3339
from gate.ledger import REASONS, Event

METHOD = "io.schedulegate.Control.History"
LIMIT, LIMIT_MOST = 100, 1000
CONFIRMED = REASONS[Event.CONFIRM]
"""What goes without saying of an occurrence that was sent."""


@click.command(short_help="Show what became of occurrences.")
@socket_option
@click.argument("schedule", required=False)
@click.option("--since", metavar="WHEN", help="1h, 2026-11-30T12:00:00Z, or a local time: 12:00, '2026-11-30 12:00'.")
@click.option(
    "--limit", type=click.IntRange(1, LIMIT_MOST), default=LIMIT, show_default=True, help="At most so many occurrences."
)
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def history(schedule: str | None, since: str | None, limit: int, as_json: bool) -> None:
    """Show occurrences, of SCHEDULE or of all, the newest first.

    Times are local; the zone is named.
    """
    now = datetime.now(UTC)
    asked = HistoryIn(schedule=schedule, since=None if since is None else _since(since, now), limit=limit)
    reply = ask(METHOD, asked, HistoryOut)
    if as_json:
        output.show_json(reply)
    else:
        output.show(*parts(reply, asked, now))


def _since(text: str, now: datetime) -> str:
    try:
        return rfc3339(parse_since(text, now))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--since'") from error


def parts(reply: HistoryOut, asked: HistoryIn, now: datetime) -> Iterator[RenderableType]:
    """A history for people."""
    found = reply.occurrences
    if not found:
        yield _nothing(asked)
        return
    columns = [output.whole(f"at ({now.astimezone():%Z})"), output.whole("state")]
    columns += [output.folding("schedule"), output.folding("by"), output.words("what happened")]
    yield output.table(columns, (_row(info, now) for info in found))
    if len(found) == asked.limit:
        more = "; --limit shows more" if len(found) < LIMIT_MOST else ""
        yield Text(f"\nThese are the newest {len(found)}{more}.")


def _nothing(asked: HistoryIn) -> Text:
    of = "any schedule" if asked.schedule is None else output.quoted(asked.schedule)
    after = "" if asked.since is None else f" since {asked.since}"
    return Text(f"the gate remembers no occurrence of {of}{after}")


def _row(info: OccurrenceInfo, now: datetime) -> tuple[str, Text, str, str, str]:
    name = output.safe(info.title or info.schedule)
    return output.clock(info.at, now), output.state(info.state), name, output.safe(info.by), _what(info)


def _what(info: OccurrenceInfo) -> str:
    what = [] if info.reason == CONFIRMED else [info.reason]
    if info.state is State.SENT and info.settled is not None:
        what.append(f"after {durations.text(max((info.settled - info.claimed).total_seconds(), 0.0))}")
    if info.grants > 1:
        what.append(f"granted {info.grants} times")
    return ", ".join(what)
