"""`gatectl open`, `close` and `auto`: order something over the hours of rules, until an end, or take that back."""

from datetime import UTC, datetime, timedelta

import click

from gate import durations
from gate.ctl import output, times
from gate.ctl.asking import ask, socket_option
from gate.ctl.status import METHOD as STATUS
from gate.ctl.status import rules_table
from gate.errors import NoSuchRule
from gate.interface import OverrideIn, OverrideOut, StatusIn, StatusOut, Steer, rfc3339
from gate.overrides import matching

METHOD = "io.schedulegate.Control.Override"

for_option = click.option("--for", "duration", metavar="DURATION", help="For how long: 90m, 2h, 1d.")
until_option = click.option(
    "--until",
    metavar="WHEN",
    help="In local time 18:00 (the next) or '2026-11-30 18:00', or 2026-11-30T18:00:00Z.",
)
note_option = click.option("--note", metavar="TEXT", required=True, help="Why, for those who read `gatectl status`.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the gate's reply as it stands on the wire.")


@click.command("open", short_help="Open rules until an end, whatever their hours say.")
@socket_option
@click.argument("rule")
@for_option
@until_option
@note_option
@json_option
def open_rules(rule: str, duration: str | None, until: str | None, note: str, as_json: bool) -> None:
    """Open RULE, or all rules that match that glob, until an end, whatever their hours say.

    This beats `open`, `closed` and `last_start`, but no limit. It ends by itself; `gatectl auto` ends it at once.
    Local times are those of this terminal; the answer names the zone.
    """
    _order(Steer.OPEN, rule, duration, until, note, as_json)


@click.command("close", short_help="Close rules until an end, whatever their hours say.")
@socket_option
@click.argument("rule")
@for_option
@until_option
@note_option
@json_option
def close_rules(rule: str, duration: str | None, until: str | None, note: str, as_json: bool) -> None:
    """Close RULE, or all rules that match that glob, until an end, whatever their hours say.

    Jobs that run are not touched. It ends by itself; `gatectl auto` ends it at once.
    Local times are those of this terminal; the answer names the zone.
    """
    _order(Steer.CLOSE, rule, duration, until, note, as_json)


@click.command(short_help="Let the hours of rules decide again.")
@socket_option
@click.argument("rule")
@json_option
def auto(rule: str, as_json: bool) -> None:
    """Take back what was ordered over RULE, or over all rules that match that glob: their hours decide again."""
    _send(OverrideIn(rule=rule, action=Steer.AUTO), as_json)


def _order(action: Steer, rule: str, duration: str | None, until: str | None, note: str, as_json: bool) -> None:
    now = datetime.now(UTC)
    _send(OverrideIn(rule=rule, action=action, until=rfc3339(end_of(duration, until, now)), note=note), as_json)


def end_of(duration: str | None, until: str | None, now: datetime) -> datetime:
    """The end that --for or --until names; raises click's errors."""
    if duration is not None and until is not None:
        raise click.UsageError("give either --for or --until")
    try:
        if until is not None:
            return times.end(until, now)
        if duration is not None:
            return now + timedelta(seconds=durations.seconds(duration))
    except (ValueError, OverflowError) as error:
        raise click.BadParameter(str(error), param_hint=f"'{'--for' if until is None else '--until'}'") from error
    raise click.UsageError("give an end: --for 2h or --until 18:00")


def _send(request: OverrideIn, as_json: bool) -> None:
    reply = ask(METHOD, request, OverrideOut)
    if as_json:
        output.show_json(reply)
        return
    state = ask(STATUS, StatusIn(limit=0), StatusOut)
    try:
        names = set(matching(request.rule, [info.rule for info in state.rules]))
    except NoSuchRule:  # of so many rules, a status shows only the first
        names = set[str]()
    click.echo("in force now:")
    output.show(rules_table([info for info in state.rules if info.rule in names], state.now))
