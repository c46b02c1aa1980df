"""The service as a process: arguments, environment, signals, start and stop."""

import argparse
import grp
import importlib.metadata
import logging
import os
import pwd
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import trio

from gate import config, log, paths, sockets
from gate.clock import SystemClock
from gate.engine import Engine
from gate.errors import ConfigError, GateError, StartError
from gate.reactor import Limits, Reactor
from gate.rules import policies
from gate.server import About, Server, Steering
from gate.stores import ledger_file, open_store
from gate.stores.base import Store
from gate.timers import Timers
from gate.tzdata import tzdata_in_use
from gate.writer import Work, Writer

logger = logging.getLogger("gate.daemon")

USAGE_EXIT = 2
DRAIN_SECONDS = 0.5
WRITER_SECONDS = 0.2
PRUNE_EVERY_SECONDS = 60.0
PRUNE_AGAIN_SECONDS = 0.05
PRUNE_RECORDS = 500
SWITCH_SECONDS = 0.0003
"""How long the store's thread may keep the interpreter: short, since the event loop waits for it."""


class Settings(NamedTuple):
    """What the arguments, the environment and the configuration come to."""

    socket: Path
    state: Path
    config_file: Path | None
    config: config.Config
    steering: Steering


def main(arguments: list[str]) -> int:
    """Run the gate until SIGTERM or SIGINT; returns the exit code."""
    options = _arguments().parse_args(arguments)
    log.set_up(options.log, options.log_level)
    try:
        settings = _settings(options)
        with ExitStack() as held:
            store, listener = _take(settings, held)
            if not trio.run(_serve, settings, store, listener):
                _leave(settings.socket)
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
    env, uid, exists = os.environ, os.geteuid(), os.path.exists  # Path.exists raises where it may not look
    file = paths.config_path(options.config, env, exists)
    read = config.Config() if file is None else config.parse(_read(file), str(file))
    return Settings(
        socket=paths.socket_path(options.socket, env, uid, exists),
        state=paths.state_path(options.state, env, uid),
        config_file=file,
        config=read,
        steering=_steering(read.control, str(file)),
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(str(file), [f"cannot be read: {error.strerror}"]) from error


def _steering(control: config.Control, source: str) -> Steering:
    findings: list[str] = []

    def numbers(key: str, names: Iterable[str | int], look_up: Callable[[str], int]) -> frozenset[int]:
        found: set[int] = set()
        for name in names:
            try:
                found.add(name if isinstance(name, int) else look_up(name))
            except KeyError:
                findings.append(f"control.{key}: {name!r} is not known on this machine")
        return frozenset(found)

    steering = Steering(
        users=numbers("users", control.users, lambda name: pwd.getpwnam(name).pw_uid),
        groups=numbers("groups", control.groups, lambda name: grp.getgrnam(name).gr_gid),
    )
    if findings:
        raise ConfigError(source, findings)
    return steering


def _take(settings: Settings, held: ExitStack) -> tuple[Store, socket.socket]:
    """Take the state directory, the store and the socket, each for this process alone."""
    me = f"gate with pid {os.getpid()}, socket {settings.socket}, state {settings.state}"
    _make_folder(settings.state, 0o700)
    _make_folder(settings.socket.parent, 0o755)
    held.enter_context(sockets.lock(settings.state / "gate.lock", me))
    ledger = ledger_file(settings.config.store_url, settings.state)
    for path in (settings.socket, *([] if ledger is None else [ledger.resolve()])):
        held.enter_context(sockets.lock(path.with_name(path.name + ".lock"), me))
    store = open_store(settings.config.store_url, settings.state, settings.config.keep, SystemClock())
    held.callback(store.close)
    listener = held.enter_context(sockets.listen(settings.socket))
    held.callback(settings.socket.unlink, missing_ok=True)
    return store, listener


def _make_folder(path: Path, mode: int) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise StartError(f"{path} cannot be made: {error.strerror}") from error


async def _serve(settings: Settings, store: Store, listener: socket.socket) -> bool:
    """Serve until a signal comes; returns whether the store's thread has ended."""
    sys.setswitchinterval(SWITCH_SECONDS)
    limits = Limits()
    _raise_descriptor_limit(limits.connections)
    timers, clock = Timers(), SystemClock()
    trio_token = trio.lowlevel.current_trio_token()

    def arrived(works: list[Work]) -> None:
        engine.delivered(works)
        reactor.flush()

    def deliver(works: list[Work]) -> None:
        with suppress(trio.RunFinishedError):  # the stop did not wait for it, and nobody is left to be answered
            trio_token.run_sync_soon(arrived, works)

    claims = store.open_claims()
    writer = Writer(store, deliver)
    engine = Engine(policies(settings.config.send), writer.submit, timers.after)
    engine.adopt(claims)
    about = _about(settings, clock.now())
    server = Server(about, engine, store, settings.steering, lambda: list(reactor.connections.values()), limits)
    reactor = Reactor(limits, timers, clock.now, server.serve, engine.flush, engine.hung_up)

    async with trio.open_nursery() as nursery:
        for task in (timers.run, reactor.run):
            nursery.start_soon(task)
        nursery.start_soon(_prune, engine)
        reactor.listen(listener)
        logger.info("listening at %s", settings.socket, extra={"store": store.url, "pid": about.pid})
        engine.background(Work(_ignore, query=lambda store: store.warm_up()))
        await _wait_for_the_end()
        await _drain(reactor)
        nursery.cancel_scope.cancel()
    reactor.close()
    return writer.stop(WRITER_SECONDS)


def _leave(path: Path) -> NoReturn:
    """The store's thread is deep inside SQLite, which must not be closed under it: end as a kill would."""
    logger.warning("the store did not finish in time; what it had not answered was not granted")
    path.unlink(missing_ok=True)
    logging.shutdown()
    os._exit(0)


def _about(settings: Settings, started: datetime) -> About:
    return About(
        version=_version(),
        pid=os.getpid(),
        started=started,
        socket=settings.socket,
        state=settings.state,
        config=settings.config_file,
        tzdata=tzdata_in_use(),
    )


def _raise_descriptor_limit(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


async def _wait_for_the_end() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            if number != signal.SIGHUP:
                logger.info("stopping on %s", signal.Signals(number).name)
                return
            logger.warning("this version does not reload: restart the gate, claims survive that")


async def _drain(reactor: Reactor) -> None:
    """Answer what was read, for as long as a stop may take."""
    emptied = reactor.stop_listening()
    with trio.move_on_after(DRAIN_SECONDS):
        await emptied.wait()


async def _prune(engine: Engine) -> None:
    """Forget in small steps, and only while nobody waits."""
    done = trio.Event()
    forgotten = 0

    def pruned(outcome: Any) -> None:
        nonlocal forgotten
        forgotten = outcome if isinstance(outcome, int) else 0
        done.set()

    while True:
        await trio.sleep(PRUNE_AGAIN_SECONDS if forgotten else PRUNE_EVERY_SECONDS)
        if engine.pending:
            continue
        done = trio.Event()
        engine.background(Work(pruned, query=lambda store: store.prune(PRUNE_RECORDS)))
        await done.wait()


def _ignore(_: Any) -> None:
    """A query whose outcome nobody needs."""
