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

METHOD = "io.schedulegate.Control.History"
LIMIT = 100


@click.command(short_help="Show what became of occurrences.")
@socket_option
@click.argument("schedule", required=False)
@click.option("--since", metavar="WHEN", help="1h, 2026-11-30T12:00:00Z, or a local time: 12:00, '2026-11-30 12:00'.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=LIMIT, show_default=True, help="At most so many occurrences."
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
    columns += [output.folding(heading) for heading in ("schedule", "by", "what happened")]
    yield output.table(columns, (_row(info, now) for info in found))
    if len(found) == asked.limit:
        yield Text(f"\nThese are the newest {asked.limit}; --limit shows more.")


def _nothing(asked: HistoryIn) -> Text:
    of = "any schedule" if asked.schedule is None else output.quoted(asked.schedule)
    after = "" if asked.since is None else f" since {asked.since}"
    return Text(f"the gate remembers no occurrence of {of}{after}")


def _row(info: OccurrenceInfo, now: datetime) -> tuple[str, Text, str, str, str]:
    name = output.safe(info.title or info.schedule)
    return output.clock(info.at, now), output.state(info.state), name, output.safe(info.by), _what(info)


def _what(info: OccurrenceInfo) -> str:
    again = f", granted {info.grants} times" if info.grants > 1 else ""
    if info.state is not State.SENT or info.settled is None:
        return info.reason + again
    return f"{info.reason} after {durations.text(max((info.settled - info.claimed).total_seconds(), 0.0))}{again}"
