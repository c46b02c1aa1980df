"""Puts the gate in front of an app's workers."""

import os
import sys
from typing import Any, get_args

from procrastinate import App

from procrastinate_gate.hooks import Hooks
from procrastinate_gate.settings import OnGateDown, Periodic, Settings

DJANGO = "procrastinate.contrib.django.procrastinate_app"


def install(
    app: App,
    *,
    socket: str | os.PathLike[str] | None = None,
    worker: str | None = None,
    on_gate_down: OnGateDown = "closed",
    periodic: Periodic = "keep",
    timeout: float = 0.25,
) -> None:
    """From now on, the workers of `app` fetch only when the gate says so; all else that they do goes on.

    `socket`: the gate's; without one $GATE_SOCKET, /run/gate/gate.sock or $XDG_RUNTIME_DIR/gate/gate.sock.
    `worker`: the name that the gate's rules know the workers by; without one $GATE_WORKER, else each worker's own
        (`--name`), else the host's.
    `on_gate_down`: what holds when the gate is away for 5 s and its last answer does not hold any more, which is after
        its `until` and after 60 s at most: "closed" fetches nothing, "open" everything. A worker to which a limit
        (`at_once`, `needs`) applied when the gate last spoke fetches nothing without it, whatever this says.
    `periodic`: jobs of periodic tasks whose queue is closed. "keep" defers them as ever, "collapse" lets only the
        newest of each wait, "skip" defers none.
    `timeout`: seconds that a fetch waits for the gate at most: for its first answer, and for a place where a limit
        applies.

    Opens nothing: the first fetch connects, so web processes and forks may have it installed too. Installed again, it
    takes the new settings for workers that start from then on. `app.with_connector` (deprecated) makes another app,
    which is not gated. Without `listen_notify` a worker finds out when it polls that its hours have begun, and one
    with `wait=False` ends at once when it is closed.

    In Django give it the app that PROCRASTINATE_ON_APP_READY gives: "procrastinate_gate.install" itself, or a function
    of yours that calls it. Raises TypeError for what is no App, and ValueError for a setting that is not allowed.
    """
    for name, value, allowed in (
        ("on_gate_down", on_gate_down, get_args(OnGateDown)),
        ("periodic", periodic, get_args(Periodic)),
    ):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}: {' and '.join(map(repr, allowed))} are allowed")
    if timeout <= 0:
        raise ValueError(f"timeout is {timeout!r}: it must be above 0 s")
    settings = Settings(socket=socket, worker=worker, on_gate_down=on_gate_down, periodic=periodic, timeout=timeout)
    real = _real(app)
    if (installed := Hooks.of(real)) is not None:
        installed.settings = settings
    else:
        Hooks(real, settings).put()


def _real(app: Any) -> App:
    """The app itself: Django's stand-in passes reads on, but keeps what is set on it for itself."""
    django = sys.modules.get(DJANGO)
    if django is not None and app is django.app:
        app = django.current_app
    if not isinstance(app, App):
        raise TypeError(
            f"{app!r} is no procrastinate App: install on the App itself; in Django, where it is made late, set"
            ' PROCRASTINATE_ON_APP_READY = "procrastinate_gate.install"'
        )
    return app
