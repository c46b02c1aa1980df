"""`gatectl run`: any program under the same ledger, hours and limits."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Protocol

import click
from msgspec import Struct

from gate import durations, errors
from gate.ctl import times
from gate.ctl.asking import Failed, WrongUsage, socket_given, socket_option
from gate.ctl.claimed import Claimed, Confirm
from gate.ctl.command import KILLED, Command
from gate.ctl.placed import Placed, ends_soon
from gate.ctl.signals import Signals
from gate.interface import CheckIn, CheckOut, rfc3339
from gate_client.aio import AsyncGate
from gate_client.core import TRANSIENT, GateUnreachable
from gate_client.line import Deadline

CHECK = "io.schedulegate.Fetch.Check"
QUEUE = "run"
WRONG = (errors.InvalidClaim, errors.InvalidWorker, errors.InvalidParameter)
AWAY = (GateUnreachable, *TRANSIENT, errors.BadMessage, errors.MethodNotFound)


class NotNow(Failed):
    """EX_TEMPFAIL of sysexits.h."""

    exit_code = 75


class NoGate(Failed):
    """EX_UNAVAILABLE of sysexits.h."""

    exit_code = 69


class Order(Struct, frozen=True, kw_only=True):
    """What shall run, and what it needs: a claim of `schedule`, a place of `worker`, or both. `wait`: seconds."""

    command: tuple[str, ...]
    schedule: str | None
    minute: datetime
    confirm: Confirm
    holder: str | None
    worker: str | None
    queue: str
    wait: float
    socket: str | os.PathLike[str] | None


class Permission(Protocol):
    """Something without which the command may not start, and what becomes of it."""

    async def not_started(self) -> None: ...
    def started(self, job: str, /) -> None: ...
    async def ended(self, exit_code: int, /) -> None: ...


@click.command(
    short_help="Run a command, if its schedule, hours and limits allow it.",
    context_settings={"allow_interspersed_args": False},
)
@socket_option
@click.option("--schedule", metavar="NAME", help="Claim this schedule, so that it runs once for each minute.")
@click.option(
    "--minute",
    metavar="WHEN",
    help="The minute to claim: 2026-11-30T12:00Z, or in local time 12:00 or '2026-11-30 12:00'; else the present one.",
)
@click.option(
    "--confirm",
    type=click.Choice([choice.value for choice in Confirm]),
    help="When the schedule counts as sent: when the command has started (default), or when it ends with 0.",
)
@click.option("--holder", metavar="TEXT", help="Who claims, for readers of `gatectl status`; else host:pid:gatectl.")
@click.option("--worker", metavar="NAME", help="Take a place of this worker, under the hours and limits of [[fetch]].")
@click.option("--queue", metavar="QUEUE", help=f"The queue whose rule decides about the place; else {QUEUE!r}.")
@click.option("--wait", metavar="DURATION", help="Wait so long for what is not allowed yet: 90s, 2h; else not at all.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    schedule: str | None,
    minute: str | None,
    confirm: str | None,
    holder: str | None,
    worker: str | None,
    queue: str | None,
    wait: str | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as the send of a schedule, as a job of a worker, or as both; then the place is taken first.

    With --schedule, whoever asks first for a minute runs; it is confirmed when the command has started, since a run
    that was begun is not begun again elsewhere. With --confirm success, a command that fails is released, and may run
    again. With --worker, the command starts only inside the hours, and never more of them than the limit allows; its
    place is free again however it ends. What --wait waits for is pushed by the gate: the hours, a place, and (without
    --worker) what becomes of a minute that another is running.

    Signals are passed on, and the command has stdin, stdout, stderr and the terminal. It does not outlive gatectl: when
    that is killed, the command gets SIGTERM.

    \b
    The exit code is that of the command, or 128 and the number of the signal that ended it, or:
       2  wrong usage
      69  the gate cannot be reached
      75  not allowed now, which includes: sent already
     126  the command cannot be executed
     127  the command is not found
    """
    _check_usage(
        {"--schedule": schedule, "--minute": minute, "--confirm": confirm, "--holder": holder, "--worker": worker},
        queue,
    )
    order = Order(
        command=command,
        schedule=schedule,
        minute=_minute(minute, datetime.now(UTC)),
        confirm=Confirm(confirm or Confirm.START),
        holder=holder,
        worker=worker,
        queue=queue or QUEUE,
        wait=_seconds(wait),
        socket=socket_given(),
    )
    click.get_current_context().exit(asyncio.run(_interruptible(order)))


def _check_usage(given: dict[str, str | None], queue: str | None) -> None:
    if given["--schedule"] is None and given["--worker"] is None:
        raise click.UsageError("give --schedule NAME, --worker NAME, or both")
    if queue is not None and given["--worker"] is None:
        raise click.UsageError("--queue goes with --worker")
    for name in ("--minute", "--confirm", "--holder"):
        if given[name] is not None and given["--schedule"] is None:
            raise click.UsageError(f"{name} goes with --schedule")


def _minute(text: str | None, now: datetime) -> datetime:
    if text is None:
        return now.replace(second=0, microsecond=0)
    try:
        at = times.moment(text, now)
        if at.second or at.microsecond:
            raise ValueError(f"{text!r} is within a minute: name the whole minute")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--minute'") from error
    return at


def _seconds(text: str | None) -> float:
    try:
        return 0.0 if text is None else durations.seconds(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--wait'") from error


async def _interruptible(order: Order) -> int:
    """The exit code. Until the command has started, a signal ends the waiting and gives back what was granted."""
    with Signals() as signals:
        running = asyncio.create_task(_supervised(order, signals))
        stopped_by: list[int] = []

        def stop(number: int) -> None:
            stopped_by.append(number)
            running.cancel()

        signals.passed_on = stop
        try:
            return await running
        except asyncio.CancelledError:
            if not stopped_by:
                raise
            return KILLED + stopped_by[0]


async def _supervised(order: Order, signals: Signals) -> int:
    try:
        async with AsyncGate(order.socket, holder=order.holder) as gate:
            return await _run(order, gate, signals)
    except WRONG as error:
        raise WrongUsage(str(error)) from error
    except AWAY as error:
        raise NoGate(f"not started: {error}") from error
    except errors.CallError as error:
        raise NotNow(f"not started: {error}") from error


async def _run(order: Order, gate: AsyncGate, signals: Signals) -> int:
    """Collect what the command needs, run it, and settle everything."""
    permissions: list[Permission] = []
    try:
        await _collect(order, gate, permissions)
        command = Command(order.command, signals)
    except BaseException:
        for permission in permissions:
            await permission.not_started()
        raise
    for permission in permissions:
        permission.started(command.job)
    code = await command.wait()
    for permission in permissions:
        await permission.ended(code)
    return code


async def _collect(order: Order, gate: AsyncGate, permissions: list[Permission]) -> None:
    """Add all that the command needs, as it is granted; raises NotNow for a refusal."""
    if order.worker is not None:
        placed = Placed(order.worker, order.queue, order.socket)
        permissions.append(placed)
        answer = await placed.take(Deadline(order.wait))
        if answer.permit is None:
            raise _not_now(f"worker {order.worker}, queue {order.queue}", answer.reason, answer.until)
    if order.schedule is not None:
        # Nobody waits for the outcome of another's run while he holds a place.
        claim = await gate.claim(order.schedule, order.minute, wait=order.wait if order.worker is None else None)
        if not claim.granted:
            by = "" if claim.by is None else f", by {claim.by}"
            what = f"{claim.schedule} at {rfc3339(claim.at)} is {claim.decision}{by}"
            raise _not_now(what, claim.reason, claim.until)
        permissions.append(Claimed(gate, claim, order.confirm, _warn))
    if order.worker is not None and order.schedule is not None:
        await _still_open(order.worker, order.queue, gate)


async def _still_open(worker: str, queue: str, gate: AsyncGate) -> None:
    """A claim takes a moment, in which the hours may end, or an operator close them."""
    answer = await gate.call(CHECK, CheckIn(worker=worker, queues=[queue]), CheckOut)
    if not answer.open or ends_soon(answer.until, datetime.now(UTC)):
        raise _not_now(f"worker {worker}, queue {queue}", answer.reason, answer.until)


def _not_now(what: str, reason: str, until: datetime | None) -> NotNow:
    end = "" if until is None else f" (until {rfc3339(until.replace(microsecond=0))})"
    return NotNow(f"not started: {what}: {reason}{end}")


def _warn(text: str) -> None:
    click.echo(f"gatectl: {text}", err=True)
