"""What `io.schedulegate.Control` answers: the state of everything, and what operators order."""

import logging
import os
import pwd
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from gate import errors, explain, interface, peer, status, story
from gate.engine import Engine, Request
from gate.fetch import FetchEngine, Who
from gate.interface import NotAnInstant, instant
from gate.pausing import Pausing
from gate.reactor import Connection, Limits
from gate.refusals import Refusals
from gate.reload import Loaded
from gate.reloader import Reloader
from gate.stores.base import Sign, Store, Titled
from gate.week import week

log = logging.getLogger("gate.server")

NOBODY = 65534
"""What every user and group of another user namespace looks like from here: it may be anybody, so it steers nothing."""

SCHEDULES_SHOWN = 1000
HISTORY_SHOWN = 100
RULES_SHOWN = 1000
WATCHERS_SHOWN = 1000
WARNINGS_SHOWN = 100
UNASKED_AFTER = timedelta(minutes=10)
"""How long after its start the gate says which rules nobody has asked for."""


class About(NamedTuple):
    """What the gate says of itself."""

    version: str
    pid: int
    started: datetime
    socket: Path
    state: Path | None
    warnings: list[str]
    """What was wrong at the start and is not of the configuration."""


class Control:
    """Serves `io.schedulegate.Control`.

    `aside` runs a function beside the event loop and hands over what it returned, or the exception. `flush` writes the
    answers that were made.
    """

    def __init__(
        self,
        about: About,
        engine: Engine,
        fetch: FetchEngine,
        pausing: Pausing,
        store: Store,
        gates: Callable[[], Mapping[str, Sign]],
        reloader: Reloader,
        connections: Callable[[], list[Connection]],
        limits: Limits,
        now: Callable[[], datetime],
        aside: Callable[[Callable[[], Any], Callable[[Any], None]], None],
        flush: Callable[[], None],
    ) -> None:
        self._about = about
        self._engine = engine
        self._fetch = fetch
        self._pausing = pausing
        self._store = store
        self._gates = gates
        self._reloader = reloader
        self._connections = connections
        self._limits = limits
        self._now = now
        self._aside = aside
        self._flush = flush
        self._refusals = Refusals()
        self.methods: dict[str, Callable[[Request, Any], None]] = {
            "io.schedulegate.Control.Status": self._status,
            "io.schedulegate.Control.History": self._history,
            "io.schedulegate.Control.Resend": self._resend,
            "io.schedulegate.Control.Why": self._why,
            "io.schedulegate.Control.Story": self._story,
            "io.schedulegate.Control.Week": self._week,
            "io.schedulegate.Control.Override": self._override,
            "io.schedulegate.Control.Pause": self._pause,
            "io.schedulegate.Control.Reload": self._reload,
        }

    # -- inspecting

    def _status(self, request: Request, asked: interface.StatusIn) -> None:
        limit = SCHEDULES_SHOWN if asked.limit is None else asked.limit

        query = partial(status.lists, limit)
        self.large(request, partial(self._engine.query, query), self._status_reply)

    def _status_reply(self, lists: status.Lists) -> interface.StatusOut:
        connections = self._connections()
        engine, fetch, about, loaded = self._engine, self._fetch, self._about, self._reloader.current
        problem = lists.problem or engine.problem
        watchers = list(fetch.watchers())
        return interface.StatusOut(
            version=about.version,
            pid=about.pid,
            started=about.started,
            now=lists.now,
            socket=str(about.socket),
            state=None if about.state is None else str(about.state),
            config=None if loaded.file is None else str(loaded.file),
            store=status.store_info(self._store, self._gates(), lists.size, problem),
            tzdata=loaded.tzdata,
            connections=len(connections),
            counts=status.counts(engine),
            schedules=[
                status.schedule_info(
                    listed,
                    engine.tallies.of(listed.schedule.name),
                    self._pausing.paused(listed.schedule.name, lists.now),
                )
                for listed in lists.schedules
            ],
            schedules_total=lists.schedules_total,
            doubts=[status.occurrence_info(titled) for titled in lists.doubts],
            doubts_total=lists.doubts_total,
            missed=[status.occurrence_info(titled) for titled in lists.missed],
            missed_total=lists.missed_total,
            holders=[status.holder_info(connection) for connection in connections if connection.holder is not None],
            rules=[status.rule_info(state) for state in fetch.rules.states(lists.now, fetch.overrides)[:RULES_SHOWN]],
            rules_total=len(fetch.rules.rules),
            watchers=[status.watcher_info(watcher, group) for watcher, group in watchers[:WATCHERS_SHOWN]],
            watchers_total=len(watchers),
            overrides=[order.info() for order in fetch.overrides.in_force(lists.now)],
            pauses=[pause.info() for pause in self._pausing.orders.in_force(lists.now)],
            pools=fetch.placing.pools(),
            config_loaded=loaded.at,
            config_problem=self._reloader.problem,
            warnings=self._warnings(loaded, lists.now),
        )

    def _warnings(self, loaded: Loaded, now: datetime) -> list[str]:
        rules = self._fetch.rules.rules
        known = {rule.name for rule in rules}
        found = [*self._about.warnings, *self._store.warnings(), *loaded.warnings]
        found += [
            f"the override of rule {order.rule} has no effect: the configuration has no such rule any more"
            for order in self._fetch.overrides.in_force(now)
            if order.rule not in known
        ]
        if now - self._about.started >= UNASKED_AFTER:
            found += self._fetch.asked.warnings(rules)
        more = len(found) - WARNINGS_SHOWN
        return found if more <= 0 else [*found[:WARNINGS_SHOWN], f"and {more} more warnings"]

    def _history(self, request: Request, asked: interface.HistoryIn) -> None:
        try:
            since = None if asked.since is None else instant(asked.since)
        except NotAnInstant:
            request.fail(errors.InvalidParameter(parameter="since"))
            return
        limit = HISTORY_SHOWN if asked.limit is None else asked.limit

        def answer(found: list[Titled]) -> interface.HistoryOut:
            return interface.HistoryOut(occurrences=[status.occurrence_info(titled) for titled in found])

        query = partial(self._engine.query, lambda store: store.history(asked.schedule, since, limit))
        self.large(request, query, answer)

    def _why(self, request: Request, asked: interface.WhyIn) -> None:
        try:
            answer = explain.why(self._fetch.rules, self._fetch.overrides, asked, self._now())
        except (errors.InvalidWorker, errors.InvalidParameter) as error:
            request.fail(error)
        else:
            places = (
                []
                if answer.rule is None
                else self._fetch.placing.words(answer.rule, None if asked.at is None else answer.at)
            )
            answer = replace(answer, words=[*answer.words, *places])
            if (shut := self._fetch.shut) and asked.at is None:
                answer = replace(answer, open=False, until=None, reason=shut, words=[shut, *answer.words])
            request.reply(answer)

    def _story(self, request: Request, asked: interface.StoryIn) -> None:
        try:
            at = None if asked.at is None else instant(asked.at)
        except NotAnInstant:
            request.fail(errors.InvalidParameter(parameter="at"))
            return

        def answer(found: story.Found) -> interface.StoryOut:
            now, engine = self._now(), self._engine
            paused = self._pausing.paused(asked.schedule, now)
            return interface.StoryOut(
                now=now,
                at=found.at,
                occurrence=None if found.known is None else status.occurrence_info(found.known),
                refusals=story.told(engine.tallies.refusals(asked.schedule, found.at)),
                starts=[story.start_info(attempt, one) for attempt, one in found.starts.items()],
                policy=story.policy_words(engine.policy(asked.schedule)),
                paused=None if paused is None else paused.reason,
            )

        look_up = partial(story.look_up, asked.schedule, at)
        self.large(request, partial(self._engine.query, look_up), answer)

    def _week(self, request: Request, asked: interface.WeekIn) -> None:
        config, rules, ordered = self._reloader.current.config, self._fetch.rules, self._fetch.overrides
        work = partial(week, config, rules, ordered, asked, self._now())
        self.large(request, partial(self._aside, work), lambda answer: answer)

    def large(
        self,
        request: Request,
        start: Callable[[Callable[[Any], None]], None],
        reply: Callable[[Any], interface.Reply],
    ) -> None:
        """Answers of this kind are large: a peer gets one at a time, and none while it leaves others unread.

        `start` begins to make one; what it is given takes the outcome.
        """
        connection, limits = connection_of(request), self._limits

        def then(outcome: Any) -> None:
            connection.queries.popleft()
            if connection.queries:
                connection.queries[0]()
            if isinstance(outcome, errors.CallError):
                request.fail(outcome)
            elif isinstance(outcome, Exception):
                self._engine.failed(request, outcome)
            elif connection.backlog > limits.unread_bytes:
                request.fail(errors.AnswersUnread(limit=limits.unread_bytes))
            elif sum(other.backlog for other in self._connections()) > limits.unread_bytes_of_all:
                request.fail(errors.AnswersUnread(limit=limits.unread_bytes_of_all))
            else:
                request.reply(reply(outcome))

        connection.queries.append(partial(start, then))
        if len(connection.queries) == 1:
            connection.queries[0]()

    # -- steering

    def _resend(self, request: Request, asked: interface.ResendIn) -> None:
        who = self._steers(request, "Resend")
        if who is None:
            return
        try:
            at = instant(asked.at)
        except NotAnInstant:
            request.fail(errors.InvalidParameter(parameter="at"))
            return
        extra = {"schedule": asked.schedule, "at": at, "uid": who.uid, "pid": who.pid}
        log.info("a resend was asked for", extra=extra)
        self._engine.resend(request, asked.schedule, at)

    def _override(self, request: Request, asked: interface.OverrideIn) -> None:
        who = self._steers(request, "Override")
        if who is not None:
            self._fetch.order(asked, who, partial(self._ordered, request))

    def _pause(self, request: Request, asked: interface.PauseIn) -> None:
        who = self._steers(request, "Pause")
        if who is not None:
            self._pausing.order(asked, who, partial(self._ordered, request))

    def _ordered(self, request: Request, outcome: interface.OverrideOut | interface.PauseOut | Exception) -> None:
        if isinstance(outcome, interface.OverrideOut | interface.PauseOut | errors.CallError):
            request.answer(outcome)
        else:
            self._engine.failed(request, outcome)

    def _reload(self, request: Request, _: interface.Empty) -> None:
        who = self._steers(request, "Reload")
        if who is not None:
            log.info("a reload was asked for", extra={"uid": who.uid, "pid": who.pid})
            self._reloader.ask(partial(self._reloaded, request))

    def _reloaded(self, request: Request, outcome: Loaded | errors.ConfigError) -> None:
        if isinstance(outcome, errors.ConfigError):
            request.fail(errors.InvalidConfig(source=outcome.source, findings=outcome.findings))
        else:
            request.reply(interface.ReloadOut(warnings=outcome.warnings))
        self._flush()

    def _steers(self, request: Request, what: str) -> Who | None:
        """Who asks, if they may steer; else the request is refused here."""
        connection = connection_of(request)
        if self._may_steer(connection):
            return Who(_user(connection.uid), connection.uid, connection.pid)
        unsaid = self._refusals.count(connection.uid, self._now())
        if unsaid is not None:
            extra = {"uid": connection.uid, "pid": connection.pid, "not_logged": unsaid}
            log.warning("refused to steer: %s", what, extra=extra)
        request.fail(errors.PermissionDenied())
        return None

    def _may_steer(self, connection: Connection) -> bool:
        steering = self._reloader.current.steering
        if connection.uid == NOBODY:
            return False
        if connection.uid in (0, os.geteuid()) or connection.uid in steering.users:
            return True
        try:
            belongs = peer.groups(connection.sock) | {connection.gid}
        except OSError:
            belongs = frozenset({connection.gid})
        belongs -= {NOBODY}
        return not belongs.isdisjoint(steering.groups)


def connection_of(request: Request) -> Connection:
    """Requests of the server come from its connections."""
    assert isinstance(request.caller, Connection)
    return request.caller


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
