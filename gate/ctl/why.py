"""`gatectl why`: which line of the configuration decides, and what became of an occurrence."""

from collections.abc import Iterator
from datetime import UTC, datetime

import click

from gate.ctl import output, times
from gate.ctl.asking import ask, socket_given, socket_option
from gate.ctl.files import load, why_of
from gate.interface import OccurrenceInfo, StartInfo, State, StoryIn, StoryOut, WhyIn, WhyOut, rfc3339

METHOD = "io.schedulegate.Control.Why"
STORY = "io.schedulegate.Control.Story"


@click.group(short_help="Show which line of the configuration decides, or what became of an occurrence.")
def why() -> None:
    """Show which line of the configuration decides, or what became of an occurrence."""


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


@why.command(short_help="What became of an occurrence?")
@socket_option
@click.argument("name")
@click.option(
    "--at", metavar="WHEN", help="2026-11-30T12:00:00Z, or in local time 12:00 (today) or '2026-11-30 12:00'."
)
@click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")
def schedule(name: str, at: str | None, as_json: bool) -> None:
    """Tell what became of an occurrence of the schedule NAME, the newest one by default.

    The exit code is 0 if it was sent and 1 if it was not. Times are local.
    """
    asked = StoryIn(schedule=name, at=None if at is None else _at(at, datetime.now(UTC)))
    reply = ask(STORY, asked, StoryOut)
    if as_json:
        output.show_json(reply)
    else:
        for line in _story(name, reply):
            click.echo(output.safe(line))
    record = reply.occurrence
    click.get_current_context().exit(0 if record is not None and record.state is State.SENT else 1)


def _story(name: str, reply: StoryOut) -> Iterator[str]:
    """What happened, in the order of time."""
    record, now = reply.occurrence, reply.now
    if reply.at is None:
        yield f"the gate remembers no occurrence of {name}"
    else:
        state = "never granted" if record is None else output.WORDS.get(record.state, record.state.value)
        yield f"{name} at {output.when(reply.at, now)}: {state}"
        if record is not None and record.at != reply.at:
            yield f"if it was due at all: it is among those that {output.when(record.at, now)} stands for"
    for refusal in reply.refusals:
        what = "granted, though enforce would refuse" if refusal.observed else "refused"
        when = output.clock(refusal.when, now)
        yield f"{when} {what} {refusal.holder}: {refusal.decision.value}: {refusal.reason}"
    if record is not None:
        yield from _record(name, record, now)
    for start in reply.starts:
        yield from _start(start, now)
    if reply.paused is not None:
        yield f"now {reply.paused}"
    yield f"its rule: {reply.policy}"


ENDS = {State.SENT: "ended", State.DOUBT: "its worker died", State.RELEASED: "not started after all"}


def _start(start: StartInfo, now: datetime) -> Iterator[str]:
    """What a worker did with it."""
    which = "started" if not start.attempt else f"started again (retry {start.attempt})"
    yield f"{output.clock(start.began, now)} {which} by {start.by}"
    if start.ended is not None:
        yield f"{output.clock(start.ended, now)} {ENDS.get(start.state, start.state.value)}"


def _record(name: str, record: OccurrenceInfo, now: datetime) -> Iterator[str]:
    if record.grants:
        times_granted = "" if record.grants == 1 else f", the last of {record.grants} grants"
        granted, until = output.clock(record.claimed, now), output.clock(record.until, now)
        yield f"{granted} granted to {record.by}, until {until}{times_granted}"
    if record.settled is not None:
        state = output.WORDS.get(record.state, record.state.value)
        yield f"{output.clock(record.settled, now)} {state}, by {record.by}: {record.reason}"
    if record.state in (State.DOUBT, State.MISSED):
        yield f"{output.resend_command(name, record.at, socket_given())} allows a new send"


def _at(text: str, now: datetime) -> str:
    try:
        return rfc3339(times.moment(text, now))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--at'") from error
