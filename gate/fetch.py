"""May this worker start a job now: answers, those who watch them, and what operators ordered over the hours.

Every answer comes from memory. Watchers are grouped by what they ask; a group has one answer, and is told when it
changes: at the edge of a window, by an override, by another configuration, after a step of the clock.
"""

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from msgspec.structs import replace

from gate import errors, overrides
from gate.asked import Asked, check_names, check_session
from gate.engine import Request, Timer
from gate.fetchrules import FetchRules, Verdict
from gate.interface import CheckIn, CheckOut, OverrideIn, OverrideOut, Reply, Steer, WatchIn
from gate.moments import earliest
from gate.overrides import Overrides
from gate.permit import Choice
from gate.placing import Placing
from gate.processes import pid_of
from gate.stores.base import Store
from gate.waking import WakeUp
from gate.wire import Slot

log = logging.getLogger("gate.fetch")

NOTES = "override"
"""The kind of the store's notes that hold overrides."""
KEPT = timedelta(days=7)
"""How long an override that has ended stays: a clock that was set forward by mistake is set back again."""
Key = tuple[str, tuple[str, ...] | None]


class Watcher(Protocol):
    """A connection, as this engine sees it."""

    closed: bool
    watching: bool
    session: str
    uid: int
    gid: int
    pid: int
    since: datetime

    @property
    def backlog(self) -> int: ...
    def __hash__(self) -> int: ...
    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None: ...
    def fail(self, slot: Slot, error: errors.CallError) -> None: ...
    def never_read(self, slot: Slot) -> bool: ...


class Who(NamedTuple):
    """Whoever steers: the name of the user, and what the kernel says of the process."""

    name: str
    uid: int
    pid: int


class Group:
    """All who watch the same question, and the answer that they have."""

    __slots__ = ("answer", "queues", "watchers", "worker")

    def __init__(self, worker: str, queues: tuple[str, ...] | None, answer: CheckOut) -> None:
        self.worker = worker
        self.queues = queues
        self.answer = answer
        self.watchers: dict[Watcher, Slot] = {}


class FetchEngine:
    """Answers Check and Watch, and takes overrides.

    `query`: asks the store in its thread; what is given as its second argument gets the outcome, or the exception.
    `noted`: what the store's notes say that processes held. `flush`: writes all answers that were made.
    `failed`: answers a request after the store failed. `unread_bytes`: a watcher that leaves more unread is not told
    any more. `lease`: where the store is that of other gates too, for how many seconds places count without a word.
    """

    def __init__(
        self,
        rules: FetchRules,
        ordered: Overrides,
        noted: dict[str, bytes],
        now: Callable[[], datetime],
        after: Callable[[float, Callable[[], None]], Timer],
        query: Callable[[Callable[[Store], Any], Callable[[Any], None]], None],
        flush: Callable[[], None],
        failed: Callable[[Request | None, Exception], None],
        unread_bytes: int,
        *,
        lease: float | None = None,
        on_store_down: Literal["open", "closed"] = "open",
    ) -> None:
        self.rules = rules
        self.shut = ""
        """Why nothing may be fetched at all, whatever the hours say."""
        self._on_store_down = on_store_down
        self.overrides = ordered
        self.asked = Asked()
        self._now = now
        self._query = query
        self._flush = flush
        self._unread_bytes = unread_bytes
        self._groups: dict[Key, Group] = {}
        self._watching: dict[Watcher, Group] = {}
        self._sessions: dict[tuple[str, str], Watcher] = {}
        """Watchers by process ("" for those that cannot be told) and session."""
        self._edge = WakeUp(now, after, self._at_edge)
        self._orders: deque[Callable[[], bool]] = deque()
        """Overrides that wait for their turn; the first is being written down."""
        self.placing = Placing(self, noted, now, after, query, flush, failed, lease=lease)

    # -- what workers ask

    def check(self, asked: CheckIn) -> CheckOut:
        """Answer `io.schedulegate.Fetch.Check`; raises InvalidWorker."""
        check_names(asked.worker, asked.queues)
        self.asked.note(asked.worker, asked.queues)
        now = self._now()
        answer = self._answer(asked.worker, asked.queues, now)
        return self._placed(answer, self._choices(answer, asked.worker, asked.queues, now), "", "", now)

    def watch(self, watcher: Watcher, slot: Slot, asked: WatchIn) -> None:
        """Answer `io.schedulegate.Fetch.Watch`: with `more`, now and at every change; raises InvalidWorker."""
        check_names(asked.worker, asked.queues)
        check_session(asked.session)
        if watcher.watching:
            reason = "this connection watches already, and answers come in order: watch on a connection of its own"
            raise errors.InvalidWorker(field="session", reason=reason)
        self.asked.note(asked.worker, asked.queues)
        now = self._now()
        answer = self._answer(asked.worker, asked.queues, now)
        streams = slot.call is not None and slot.call.streams
        if streams:
            self._join(watcher, slot, asked, answer)
        choices = self._choices(answer, asked.worker, asked.queues, now)
        placed = self._placed(answer, choices, self.placing.process_of(watcher), asked.session, now)
        watcher.reply(slot, placed, continues=streams)

    def _join(self, watcher: Watcher, slot: Slot, asked: WatchIn, answer: CheckOut) -> None:
        queues = None if asked.queues is None else tuple(asked.queues)
        group = self._groups.get((asked.worker, queues))
        if group is None:
            group = self._groups[asked.worker, queues] = Group(asked.worker, queues, answer)
        elif group.answer != answer:  # an edge is here, and its timer will go off at any moment
            self._tell(group, answer)
        group.watchers[watcher] = slot
        self._watching[watcher] = group
        watcher.watching = True
        watcher.session = asked.session
        self._sessions[self._session(self.placing.process_of(watcher), asked.session)] = watcher
        if answer.until is not None and (self._edge.instant is None or answer.until < self._edge.instant):
            self._arm()

    def hung_up(self, watcher: Watcher) -> None:
        """A connection closed."""
        if watcher.watching:
            self.placing.permits.leave(self.placing.process_of(watcher), watcher.session)
        self._leave(watcher)
        self.placing.hung_up(watcher)

    def _leave(self, watcher: Watcher) -> None:
        """It watches no more."""
        group = self._watching.pop(watcher, None)
        if group is None:
            return
        watcher.watching = False
        session = self._session(self.placing.process_of(watcher), watcher.session)
        if self._sessions.get(session) is watcher:
            del self._sessions[session]
        del group.watchers[watcher]
        if not group.watchers:
            del self._groups[group.worker, group.queues]

    def offered(self, sessions: list[tuple[str, str]]) -> None:
        """Places are kept for workers that were refused, by process and session: they are told, and nobody else."""
        found = [self._sessions.get(self._session(*session)) for session in sessions]
        groups: dict[Group, set[Watcher]] = {}
        for watcher in found:
            if watcher is not None:
                groups.setdefault(self._watching[watcher], set()).add(watcher)
        for group, offered in groups.items():
            answer = self._answer(group.worker, group.queues, self._now())
            if answer != group.answer:  # an edge is here, and its timer will go off at any moment
                self._tell(group, answer, offered)
            else:
                for watcher in offered:
                    self._say(watcher, group.watchers[watcher], replace(answer, place=True))

    def watches(self, process: str, session: str) -> bool:
        """Whether somebody is told when a place is kept for this session."""
        return self._session(process, session) in self._sessions

    def _session(self, process: str, session: str) -> tuple[str, str]:
        return (process if pid_of(process) else "", session)

    def watchers(self) -> Iterator[tuple[Watcher, Group]]:
        """Who watches, and what."""
        yield from self._watching.items()

    def _answer(self, worker: str, queues: Iterable[str] | None, now: datetime) -> CheckOut:
        """What all who ask this are answered; where a limit applies, `place` is for each of them."""
        return _reply(self.verdict(worker, queues, now))

    def verdict(self, worker: str, queues: Iterable[str] | None, now: datetime) -> Verdict:
        """What may be fetched, and why."""
        if self.shut:
            return Verdict(open=False, queues=(), excluded=None, until=None, limited=False, reason=self.shut)
        return self.rules.answer(worker, None if queues is None else tuple(queues), now, self.overrides)

    def _choices(
        self, answer: CheckOut, worker: str, queues: Sequence[str] | None, now: datetime
    ) -> tuple[Choice, ...]:
        """What could be granted; nothing where no limit applies, and nobody needs to be granted anything."""
        return self.placing.choices(worker, queues, now) if answer.limited else ()

    def _placed(
        self, answer: CheckOut, choices: tuple[Choice, ...], process: str, session: str, now: datetime
    ) -> CheckOut:
        """The answer for one who asks."""
        if not answer.limited or not self.placing.place(choices, process, session, now):
            return answer
        return replace(answer, place=True)

    # -- what changes answers

    def take(self, rules: FetchRules) -> None:
        """Answer by these rules from now on, and tell all whose answer that changes."""
        self.rules = rules
        self.placing.take(rules)
        self._tell_all(self._now())

    def cut_off(self, away: bool) -> None:
        """The store of several gates is away for longer than a lease, or is back."""
        if self._on_store_down == "closed":
            self.shut = "the store is away, and on_store_down is 'closed'" if away else ""
            self._tell_all(self._now())

    def jumped(self) -> None:
        """The clock was set, or the machine slept: everybody is told anew, whether anything changed or not."""
        now = self._now()
        self.placing.changed()
        for group in list(self._groups.values()):
            self._tell(group, self._answer(group.worker, group.queues, now))
        self._flush()
        self._arm()

    def _tell_all(self, now: datetime) -> None:
        self.placing.changed()  # those who wait for a place come before those who do not yet
        for group in list(self._groups.values()):
            answer = self._answer(group.worker, group.queues, now)
            if answer != group.answer:
                self._tell(group, answer)
        self._flush()
        self._arm()

    def _tell(self, group: Group, answer: CheckOut, offered: Container[Watcher] = ()) -> None:
        """Tell all of a group. `offered`: those for whom a place is kept."""
        group.answer, now = answer, self._now()
        choices = self._choices(answer, group.worker, group.queues, now)
        for watcher, slot in list(group.watchers.items()):
            if watcher in offered:
                placed = replace(answer, place=True)
            else:
                placed = self._placed(answer, choices, self.placing.process_of(watcher), watcher.session, now)
            self._say(watcher, slot, placed)

    def _say(self, watcher: Watcher, slot: Slot, answer: CheckOut) -> None:
        if watcher.backlog > self._unread_bytes:
            self._leave(watcher)
            watcher.fail(slot, errors.AnswersUnread(limit=self._unread_bytes))
        else:
            watcher.reply(slot, answer, continues=True)

    def _arm(self) -> None:
        self._edge.at(earliest(group.answer.until for group in self._groups.values()))

    def _at_edge(self) -> None:
        now = self._now()
        self.placing.changed()
        for group in list(self._groups.values()):
            if group.answer.until is not None and group.answer.until <= now:
                self._tell(group, self._answer(group.worker, group.queues, now))
        self._flush()
        self._arm()

    # -- overrides

    def take_orders(self, orders: Overrides) -> None:
        """Other gates have ordered something too: this is what is in force now."""
        if orders != self.overrides:
            self.overrides = orders
            self._tell_all(self._now())

    def order(self, asked: OverrideIn, who: Who, then: Callable[[OverrideOut | Exception], None]) -> None:
        """Take an override: it is on disk, and on the wire to every watcher, before `then` gets the answer.

        `then` gets NoSuchRule or InvalidOverride for one that may not be, and StoreError when it cannot be kept.
        """
        self._orders.append(partial(self._order, asked, who, then))
        if len(self._orders) == 1:
            self._go_on()

    def _go_on(self) -> None:
        """One at a time: each is made from the table that the one before it left."""
        while self._orders and not self._orders[0]():
            self._orders.popleft()

    def _order(self, asked: OverrideIn, who: Who, then: Callable[[OverrideOut | Exception], None]) -> bool:
        """Whether it is on its way to the store, or answered already."""
        now = self._now()
        names = [rule.name for rule in self.rules.rules]
        try:
            after = self.overrides.expire(now - KEPT).order(asked, names, who.name, who.uid, now)
        except errors.CallError as error:
            then(error)
            return False
        changes = overrides.changes(self.overrides, after)
        ordered = partial(self._ordered, asked, who, after, then)
        self._query(lambda store: store.put_notes(NOTES, changes), ordered)
        return True

    def _ordered(
        self,
        asked: OverrideIn,
        who: Who,
        after: Overrides,
        then: Callable[[OverrideOut | Exception], None],
        outcome: Exception | None,
    ) -> None:
        if isinstance(outcome, Exception):
            then(outcome)
        else:
            self.overrides, now = after, self._now()
            log.warning("%s", _in_words(asked, who), extra={"rule": asked.rule, "uid": who.uid, "pid": who.pid})
            self._tell_all(now)
            then(OverrideOut(overrides=[order.info() for order in after.in_force(now)]))
        self._orders.popleft()
        self._go_on()


def _reply(verdict: Verdict) -> CheckOut:
    return CheckOut(
        open=verdict.open,
        queues=None if verdict.queues is None else list(verdict.queues),
        excluded=None if verdict.excluded is None else list(verdict.excluded),
        until=verdict.until,
        limited=verdict.limited,
        place=not verdict.limited,
        reason=verdict.reason,
    )


def _in_words(asked: OverrideIn, who: Who) -> str:
    if asked.action is Steer.AUTO:
        return f"{who.name} took back the override of rule {asked.rule}"
    return f"{who.name} ordered {asked.action.value} for rule {asked.rule} until {asked.until}: {asked.note}"
