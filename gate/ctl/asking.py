"""One call to the gate, and the exit code for each way it can end."""

import errno
import socket
from collections.abc import Iterable
from typing import Any, TypeVar

import click

from gate import errors
from gate.interface import Reply, Wire
from gate_client.core import GateUnreachable, socket_path
from gate_client.sync import Gate

R = TypeVar("R", bound=Reply)

PATIENCE_SECONDS = 5.0
SOCKET = "gate.ctl.socket"
START_IT = "start it with `gate`, or name its socket with --socket or $GATE_SOCKET"
HINTS = {
    errno.EACCES: "ask for membership in its group (gate-clients), or use the gate's own user",
    errno.ENOENT: START_IT,
    errno.ECONNREFUSED: START_IT,
}
WRONG_USAGE = (
    errors.InvalidParameter,
    errors.InvalidWorker,
    errors.InvalidOverride,
    errors.NoSuchRule,
    errors.InvalidPause,
    errors.NoSuchPause,
)
BUSY = "it may hang or be busy: look at its log"


class Failed(click.ClickException):
    """Ends gatectl: one line on stderr and an exit code."""

    def show(self, file: Any = None) -> None:
        click.echo(f"gatectl: {self.message}", file=file, err=True)


class AnswerIsNo(Failed):
    exit_code = 1


class WrongUsage(Failed):
    exit_code = 2


class Unreachable(Failed):
    exit_code = 3


def _remember(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[SOCKET] = value


socket_option = click.option(
    "--socket",
    metavar="PATH",
    expose_value=False,
    callback=_remember,
    help="Where the gate listens; else $GATE_SOCKET, /run/gate/gate.sock, $XDG_RUNTIME_DIR/gate/gate.sock.",
)
"""Before or after the subcommand; what comes later wins."""


def socket_given() -> str | None:
    """What --socket said."""
    given: str | None = click.get_current_context().meta.get(SOCKET)
    return given


def ask(method: str, parameters: Wire, answers: type[R], patience: float | None = None) -> R:
    """Ask the gate that --socket, the environment or the usual places name; raises Failed. `patience`: seconds."""
    path = _listening()
    try:
        with Gate(path, timeout=PATIENCE_SECONDS if patience is None else patience) as gate:
            return gate.call(method, parameters, answers)
    except GateUnreachable as error:
        raise _unreachable(path, error.problem, BUSY) from error
    except (errors.TooManyConnections, errors.MessageTimeout) as error:
        raise _unreachable(path, str(error), BUSY) from error
    except errors.BadMessage as error:
        raise Unreachable(f"what answers at {path} is no gate of this version: {error.reason}") from error
    except WRONG_USAGE as error:
        raise WrongUsage(str(error)) from error
    except errors.InvalidConfig as error:
        raise WrongUsage(
            findings(f"{error.source} is not taken over, and what ran before goes on", error.findings)
        ) from error
    except errors.CallError as error:
        raise AnswerIsNo(str(error)) from error


def findings(about: str, lines: Iterable[str]) -> str:
    """What is wrong with a configuration, one finding per line."""
    return "\n".join([f"{about}:", *(f"  {line}" for line in lines)])


def _listening() -> str:
    """Where somebody listens. That nobody does is said at once: people do not want to wait for a gate to come back."""
    try:
        path = socket_path(socket_given())
    except GateUnreachable as error:
        raise _unreachable(error.socket, error.problem, START_IT) from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError as error:
            hint = HINTS.get(error.errno or 0, START_IT)
            raise _unreachable(path, (error.strerror or str(error)).lower(), hint) from error
    return path


def _unreachable(path: str, problem: str, hint: str) -> Unreachable:
    return Unreachable(f"the gate at {path} cannot be reached: {problem}: {hint}")
