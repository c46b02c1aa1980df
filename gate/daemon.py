"""The service as a process: arguments, environment, signals, start and stop."""

import argparse
import importlib.metadata
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import trio

from gate import errors, log, paths, sockets, systemd
from gate.clock import Jump, SystemClock, watch_clocks
from gate.config import Config
from gate.control import About
from gate.engine import Engine
from gate.errors import GateError, StartError
from gate.mailbox import Mailbox
from gate.reactor import Limits, Reactor
from gate.reloader import Reloader
from gate.service import Service
from gate.stores import ledger_file, open_store
from gate.stores.base import Store
from gate.systemd import Notifier
from gate.writer import Work, Writer, answer

logger = logging.getLogger("gate.daemon")

USAGE_EXIT = 2
DRAIN_SECONDS = 0.5
WRITER_SECONDS = 0.2
PRUNE_EVERY_SECONDS = 60.0
PRUNE_AGAIN_SECONDS = 0.05
PRUNE_RECORDS = 500
_ASIDE = trio.CapacityLimiter(1)
"""How many answers are made beside the event loop at a time."""
SWITCH_SECONDS = 0.00003
"""How long a thread may keep the interpreter while the other wants it: short, since event loop and store wait for each
other. A claim changes hands some twenty times, so beside a flood that keeps the loop busy, 0.3 ms each made it slow.
"""


Listener = socket.socket
"""By another name, since `Settings` has a field of that one."""


class Settings(NamedTuple):
    """Where everything is, by arguments and environment. `handed`: the socket that systemd listens on for us."""

    socket: Path
    state: Path
    handed: Listener | None


def main(arguments: list[str]) -> int:
    """Run the gate until SIGTERM or SIGINT; returns the exit code."""
    options = _arguments().parse_args(arguments)
    log.set_up(options.log, options.log_level)
    try:
        settings = _settings(options)
        reloader = Reloader(partial(_config_file, options), SystemClock().now)
        notifier = Notifier(os.environ, os.getpid())
        with ExitStack() as held:
            with notifier.starting():
                store, listener = _take(settings, reloader.current.config, held)
            if not trio.run(_serve, settings, reloader, store, listener, notifier):
                _leave(settings)
    except GateError as error:
        for line in str(error).splitlines():
            logger.error("%s", line)  # noqa: TRY400 - the text says what stands in the way, a traceback adds nothing
        return USAGE_EXIT
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gate", description="Run the schedule gate in the foreground.")
    parser.add_argument("--socket", help="where to listen (else $GATE_SOCKET, /run/gate/gate.sock, $XDG_RUNTIME_DIR)")
    parser.add_argument("--state", help="where the ledger is (else $STATE_DIRECTORY, /var/lib/gate, $XDG_STATE_HOME)")
    parser.add_argument(
        "--config", help="the configuration (else $GATE_CONFIG, /etc/gate/gate.toml, built-in defaults)"
    )
    parser.add_argument("--log", choices=("human", "json"), default="human", help="the form of log lines (human)")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--version", action="version", version=f"gate {_version()}")
    return parser


def _version() -> str:
    return importlib.metadata.version("schedule-gate")


def _settings(options: argparse.Namespace) -> Settings:
    env, uid = os.environ, os.geteuid()
    handed = systemd.listener(env, os.getpid())
    given = options.socket if handed is None else handed.getsockname()
    return Settings(
        socket=paths.socket_path(given, env, uid, os.path.exists),  # Path.exists raises where it may not look
        state=paths.state_path(options.state, env, uid),
        handed=handed,
    )


def _config_file(options: argparse.Namespace) -> Path | None:
    return paths.config_path(options.config, os.environ, os.path.exists)


def _take(settings: Settings, config: Config, held: ExitStack) -> tuple[Store, socket.socket]:
    """Take the state directory, the store and the socket, each for this process alone."""
    me = f"gate with pid {os.getpid()}, socket {settings.socket}, state {settings.state}"
    _make_folder(settings.state, 0o700)
    held.enter_context(sockets.lock(settings.state / "gate.lock", me))
    if (ledger := ledger_file(config.store_url, settings.state)) is not None:
        held.enter_context(sockets.lock(_lock_of(ledger.resolve()), me))
    if settings.handed is None:
        _make_folder(settings.socket.parent, 0o755)
        held.enter_context(sockets.lock(_lock_of(settings.socket), me))
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    store = open_store(config.store_url, settings.state, config.keep, SystemClock(), config.shared, credentials)
    held.callback(store.close)
    if (mode := stat.S_IMODE(settings.state.stat().st_mode)) & 0o077:
        logger.warning("%s has mode %o, so others may look into the ledger: make it 700", settings.state, mode)
    if settings.handed is not None:  # systemd made it, and keeps it while we are away
        return store, held.enter_context(settings.handed)
    listener = held.enter_context(sockets.listen(settings.socket))
    held.callback(settings.socket.unlink, missing_ok=True)
    return store, listener


def _lock_of(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _make_folder(path: Path, mode: int) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise StartError(f"{path} cannot be made: {error.strerror}") from error


async def _serve(
    settings: Settings, reloader: Reloader, store: Store, listener: socket.socket, notifier: Notifier
) -> bool:
    """Serve until a signal comes; returns whether the store's thread has ended."""
    sys.setswitchinterval(SWITCH_SECONDS)
    limits, clock = Limits(), SystemClock()
    _raise_descriptor_limit(limits.connections)
    mailbox: Mailbox[list[Work]] = Mailbox()
    jumps: Mailbox[Jump] = Mailbox()

    def arrived() -> None:
        for works in mailbox.take():
            service.engine.delivered(works)

    def jumped() -> None:
        for jump in jumps.take():
            _log_jump(jump)
        service.fetch.jumped()

    def aside(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        nursery.start_soon(_aside, work, then, service.flush)

    writer = Writer(store, mailbox.put)
    about = About(_version(), os.getpid(), clock.now(), settings.socket, settings.state, [])
    service = Service(about, store, reloader, limits, clock.now, writer.submit, aside)
    reactor = service.reactor

    async with trio.open_nursery() as nursery:
        for task in (service.timers.run, reactor.run, reloader.run):
            nursery.start_soon(task)
        if service.sharing is not None:
            nursery.start_soon(service.sharing.run)
        nursery.start_soon(_prune, service.engine)
        threading.Thread(target=watch_clocks, args=(jumps.put,), name="gate-clock", daemon=True).start()
        reactor.watch(mailbox.fileno(), arrived)
        reactor.watch(jumps.fileno(), jumped)
        reactor.listen(listener)
        logger.info("listening at %s", settings.socket, extra={"store": store.url, "pid": about.pid})
        service.engine.background(Work(_ignore, query=lambda store: store.warm_up()))
        reloader.began, reloader.ended = notifier.reloading, partial(_tell_ready, notifier, reloader)
        _tell_ready(notifier, reloader)
        if notifier.watchdog is not None:
            nursery.start_soon(_watchdog, notifier, notifier.watchdog / 3, service.engine)
        await _wait_for_the_end(reloader)
        notifier.stopping("answering what was read")
        await _drain(reactor)
        nursery.cancel_scope.cancel()
    reactor.close()
    return writer.stop(WRITER_SECONDS)


def _tell_ready(notifier: Notifier, reloader: Reloader) -> None:
    problem = reloader.problem
    notifier.ready("serving" if problem is None else f"serving; not taken over: {problem.splitlines()[0]}")


async def _watchdog(notifier: Notifier, every: float, engine: Engine) -> None:
    """Give signs of life as long as the event loop and the store's thread go round."""
    while True:
        await answer(engine.background, lambda store: store.url)
        notifier.alive()
        await trio.sleep(every)


def _leave(settings: Settings) -> NoReturn:
    """The store's thread is deep inside SQLite, which must not be closed under it: end as a kill would."""
    logger.warning("the store did not finish in time; what it had not answered was not granted")
    if settings.handed is None:
        settings.socket.unlink(missing_ok=True)
    logging.shutdown()
    os._exit(0)


def _raise_descriptor_limit(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


async def _wait_for_the_end(reloader: Reloader) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number != signal.SIGHUP:
                logger.info("stopping on %s", signal.Signals(number).name)
                return
            logger.info("reading the configuration again on SIGHUP")
            reloader.ask(_ignore)


def _log_jump(jump: Jump) -> None:
    if jump.step:
        logger.warning("the clock was set %s by %.3f s", "forward" if jump.step > 0 else "back", abs(jump.step))
    if jump.suspended:
        logger.warning("the machine slept for %.1f s", jump.suspended)


async def _aside(work: Callable[[], Any], then: Callable[[Any], None], flush: Callable[[], None]) -> None:
    """Do work beside the event loop, and hand over what came of it."""
    try:
        outcome = await trio.to_thread.run_sync(work, limiter=_ASIDE)
    except errors.CallError as error:
        outcome = error
    except Exception as error:
        logger.exception("an answer failed in a way that it should not")
        outcome = error
    then(outcome)
    flush()


async def _drain(reactor: Reactor) -> None:
    """Answer what was read, for as long as a stop may take."""
    emptied = reactor.stop_listening()
    with trio.move_on_after(DRAIN_SECONDS):
        await emptied.wait()


async def _prune(engine: Engine) -> None:
    """Forget in small steps, and only while nobody waits."""
    forgotten = 0
    while True:
        await trio.sleep(PRUNE_AGAIN_SECONDS if forgotten else PRUNE_EVERY_SECONDS)
        if engine.pending:
            continue
        outcome = await answer(engine.background, lambda store: store.prune(PRUNE_RECORDS))
        forgotten = outcome if isinstance(outcome, int) else 0


def _ignore(_: Any) -> None:
    """A query whose outcome nobody needs."""
