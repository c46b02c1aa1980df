"""What each method does, and who may call it."""

import logging
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from gate import errors, interface, peer
from gate.engine import Engine, Request
from gate.interface import NotAnInstant, instant
from gate.ledger import Event
from gate.reactor import Connection, Limits
from gate.stores.base import Listed, Store, Titled
from gate.wire import Slot

log = logging.getLogger("gate.server")

PRODUCT = "schedule-gate"
SCHEDULES_SHOWN = 1000
DOUBTS_SHOWN = 1000
HISTORY_SHOWN = 100


class About(NamedTuple):
    """What the gate says of itself."""

    version: str
    pid: int
    started: datetime
    socket: Path
    state: Path | None
    config: Path | None
    tzdata: interface.Tzdata


class Steering(NamedTuple):
    """Who may steer besides root and the gate's own user, as numbers."""

    users: frozenset[int]
    groups: frozenset[int]


class Server:
    """Serves the methods of all interfaces."""

    def __init__(
        self,
        about: About,
        engine: Engine,
        store: Store,
        steering: Steering,
        connections: Callable[[], list[Connection]],
        limits: Limits,
    ) -> None:
        self._about = about
        self._engine = engine
        self._store = store
        self._steering = steering
        self._connections = connections
        self._limits = limits
        self._methods: dict[str, Callable[[Request, Any], None]] = {
            "org.varlink.service.GetInfo": self._get_info,
            "org.varlink.service.GetInterfaceDescription": self._get_interface_description,
            "io.schedulegate.Send.Claim": engine.claim,
            "io.schedulegate.Send.Confirm": partial(self._settle, Event.CONFIRM),
            "io.schedulegate.Send.Release": partial(self._settle, Event.RELEASE),
            "io.schedulegate.Control.Status": self._status,
            "io.schedulegate.Control.History": self._history,
            "io.schedulegate.Control.Resend": self._resend,
        }

    def serve(self, connection: Connection, slot: Slot) -> None:
        """Answer a call, now or when the store has."""
        assert slot.call is not None
        self._methods[slot.call.method](Request(connection, slot), slot.parameters)

    # -- org.varlink.service

    def _get_info(self, request: Request, _: interface.Empty) -> None:
        request.reply(
            interface.GetInfoOut(
                vendor=PRODUCT,
                product=PRODUCT,
                version=self._about.version,
                url="https://varlink.org/",
                interfaces=list(interface.INTERFACES),
            )
        )

    def _get_interface_description(self, request: Request, asked: interface.GetInterfaceDescriptionIn) -> None:
        if asked.interface not in interface.INTERFACES:
            request.fail(errors.InterfaceNotFound(interface=asked.interface))
            return
        text = files("gate").joinpath(f"{asked.interface}.varlink").read_text(encoding="utf-8")
        request.reply(interface.GetInterfaceDescriptionOut(description=text))

    # -- io.schedulegate.Send

    def _settle(self, event: Event, request: Request, asked: interface.TokenIn) -> None:
        self._engine.settle(request, event, asked.token)

    # -- io.schedulegate.Control

    def _status(self, request: Request, asked: interface.StatusIn) -> None:
        limit = SCHEDULES_SHOWN if asked.limit is None else asked.limit

        def query(store: Store) -> _Lists:
            try:
                return _Lists(store.now(), store.size(), *store.schedules(limit), *store.doubts(DOUBTS_SHOWN))
            except errors.StoreError as error:  # when the store is away, a status is what people look at
                return _Lists(store.now(), problem=str(error))

        self._query(request, query, self._status_reply)

    def _status_reply(self, lists: "_Lists") -> interface.StatusOut:
        connections = self._connections()
        engine, about = self._engine, self._about
        problem = lists.problem or engine.problem
        return interface.StatusOut(
            version=about.version,
            pid=about.pid,
            started=about.started,
            now=lists.now,
            socket=str(about.socket),
            state=None if about.state is None else str(about.state),
            config=None if about.config is None else str(about.config),
            store=interface.StoreInfo(
                kind=self._store.kind,
                url=self._store.url,
                healthy=problem is None,
                problem=problem,
                bytes=lists.size,
            ),
            tzdata=about.tzdata,
            connections=len(connections),
            counts=interface.Counts(**{decision.value: count for decision, count in engine.counts.items()}),
            schedules=[_schedule_info(listed) for listed in lists.schedules],
            schedules_total=lists.schedules_total,
            doubts=[_occurrence_info(titled) for titled in lists.doubts],
            doubts_total=lists.doubts_total,
            holders=[_holder_info(connection) for connection in connections if connection.holder is not None],
        )

    def _history(self, request: Request, asked: interface.HistoryIn) -> None:
        try:
            since = None if asked.since is None else instant(asked.since)
        except NotAnInstant:
            request.fail(errors.InvalidParameter(parameter="since"))
            return
        limit = HISTORY_SHOWN if asked.limit is None else asked.limit

        def answer(found: list[Titled]) -> interface.HistoryOut:
            return interface.HistoryOut(occurrences=[_occurrence_info(titled) for titled in found])

        self._query(request, lambda store: store.history(asked.schedule, since, limit), answer)

    def _query(self, request: Request, query: Callable[[Store], Any], reply: Callable[[Any], interface.Reply]) -> None:
        """Answers of this kind are large: a peer gets one at a time, and none while it leaves others unread."""
        connection, limits = _connection(request), self._limits

        def then(outcome: Any) -> None:
            connection.queries.popleft()
            if connection.queries:
                connection.queries[0]()
            if isinstance(outcome, Exception):
                self._engine.failed(request, outcome)
            elif connection.backlog > limits.unread_bytes:
                request.fail(errors.AnswersUnread(limit=limits.unread_bytes))
            elif sum(other.backlog for other in self._connections()) > limits.unread_bytes_of_all:
                request.fail(errors.AnswersUnread(limit=limits.unread_bytes_of_all))
            else:
                request.reply(reply(outcome))

        connection.queries.append(partial(self._engine.query, query, then))
        if len(connection.queries) == 1:
            connection.queries[0]()

    def _resend(self, request: Request, asked: interface.ResendIn) -> None:
        connection = _connection(request)
        if not self._may_steer(connection):
            if not connection.refused:
                connection.refused = True
                log.warning("refused to steer: Resend", extra={"uid": connection.uid, "pid": connection.pid})
            request.fail(errors.PermissionDenied())
            return
        try:
            at = instant(asked.at)
        except NotAnInstant:
            request.fail(errors.InvalidParameter(parameter="at"))
            return
        who = {"schedule": asked.schedule, "at": at, "uid": connection.uid, "pid": connection.pid}
        log.info("a resend was asked for", extra=who)
        self._engine.resend(request, asked.schedule, at)

    def _may_steer(self, connection: Connection) -> bool:
        if connection.uid in (0, os.geteuid()) or connection.uid in self._steering.users:
            return True
        try:
            belongs = peer.groups(connection.sock) | {connection.gid}
        except OSError:
            belongs = frozenset({connection.gid})
        return not belongs.isdisjoint(self._steering.groups)


def _connection(request: Request) -> Connection:
    """Requests of this server come from its connections."""
    assert isinstance(request.caller, Connection)
    return request.caller


class _Lists(NamedTuple):
    """What a status asks of the store, or why there is no answer."""

    now: datetime
    size: int = 0
    schedules_total: int = 0
    schedules: Sequence[Listed] = ()
    doubts_total: int = 0
    doubts: Sequence[Titled] = ()
    problem: str | None = None


def _schedule_info(listed: Listed) -> interface.ScheduleInfo:
    schedule, newest = listed
    return interface.ScheduleInfo(
        schedule=schedule.name,
        title=schedule.title,
        known_since=schedule.known_since,
        at=schedule.newest,
        state=newest.state,
        by=newest.holder,
    )


def _occurrence_info(titled: Titled) -> interface.OccurrenceInfo:
    record = titled.occurrence
    return interface.OccurrenceInfo(
        schedule=record.schedule,
        title=titled.title,
        at=record.at,
        state=record.state,
        by=record.holder,
        reason=record.reason,
        claimed=record.claimed,
        until=record.until,
        settled=record.settled,
        grants=record.grants,
    )


def _holder_info(connection: Connection) -> interface.HolderInfo:
    return interface.HolderInfo(
        holder=connection.holder or "",
        uid=connection.uid,
        gid=connection.gid,
        pid=connection.pid,
        since=connection.since,
        claims=len(connection.claims),
    )
