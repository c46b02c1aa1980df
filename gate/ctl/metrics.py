"""`gatectl metrics`: the status for Prometheus, once on stdout or at each scrape over HTTP.

The exporter is a process of its own, so that the gate needs no network and opens none.
"""

import signal
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import click

from gate.ctl.asking import Failed, Unreachable, WrongUsage, ask, socket_option
from gate.ctl.status import METHOD
from gate.interface import StatusIn, StatusOut

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

SCHEDULES = 1000
"""How many schedules have series of their own: as many as a status names."""
CONTENT = "text/plain; version=0.0.4; charset=utf-8"
SCRAPE_SECONDS = 4.0
"""Less than a scrape may take (10 s by default), also where the gate hangs."""

STOP_SECONDS = 0.1
"""How often to look whether to stop."""


@click.command(short_help="Show the status as Prometheus metrics, or serve them.")
@socket_option
@click.option(
    "--listen", metavar="ADDRESS:PORT", help="Serve them at http://ADDRESS:PORT/metrics until SIGTERM or SIGINT."
)
def metrics(listen: str | None) -> None:
    """Show the status as Prometheus metrics, once, or serve them to scrapers.

    While the gate cannot be reached, a scrape is answered with schedule_gate_up 0, and printing ends with exit code 3.
    """
    from gate.metrics import text  # Prometheus takes a moment, which no other command should

    if listen is None:
        click.echo(text(ask(METHOD, StatusIn(limit=SCHEDULES), StatusOut)), nl=False)
        return
    host, port = _address(listen)
    _serve(host, port, lambda: text(_status()))


def _status() -> StatusOut | None:
    """What the gate says, or None while it does not answer."""
    try:
        return ask(METHOD, StatusIn(limit=SCHEDULES), StatusOut, SCRAPE_SECONDS)
    except Unreachable:
        return None
    except Failed as error:  # it is there, and says that it is too busy
        click.echo(f"gatectl: {error.message}", err=True)
        return None


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise WrongUsage(f"--listen {listen}: write ADDRESS:PORT, such as 127.0.0.1:9464 or [::1]:9464")
    return host.strip("[]"), int(port)


class _Server6(WSGIServer):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    timeout = 2
    """Seconds that a scraper may take to say what it wants: scrapes are answered one after another."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """A scrape every few seconds is nothing to write home about."""


def _serve(host: str, port: int, scrape: Callable[[], str]) -> None:
    def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        if environ["PATH_INFO"] not in ("/metrics", "/"):
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"ask for /metrics\n"]
        body = scrape().encode()
        start("200 OK", [("Content-Type", CONTENT), ("Content-Length", str(len(body)))])
        return [body]

    kind = _Server6 if ":" in host else WSGIServer
    try:
        server = kind((host, port), _Quiet)
    except OSError as error:
        raise WrongUsage(f"--listen {host}:{port}: {(error.strerror or str(error)).lower()}") from error
    server.set_app(answer)

    def stop(*_: object) -> None:  # an exception would end a scrape at most, and this thread cannot wait for itself
        threading.Thread(target=server.shutdown).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    with server:
        click.echo(f"metrics at http://{host}:{server.server_port}/metrics", err=True)
        server.serve_forever(STOP_SECONDS)
