"""The one place where decisions meet the store.

The server hands in requests; at the end of a round `flush` gives everything that came together to the writer, and
`delivered` takes the outcomes, answers, and remembers which connection holds which claim. Leases and grace end here,
by timers on the monotonic clock; the ledger only learns that they did.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from gate import claims, errors, ledger, processes, starts
from gate.claims import Ask
from gate.interface import ClaimIn, ClaimOut, Decision, Reply, StartIn, State
from gate.ledger import Change, Event, Occurrence
from gate.rules import DEFAULT_POLICY, Paused, SendPolicy
from gate.stores.base import Step, Store
from gate.tallies import Tallies
from gate.wire import Slot
from gate.writer import Work

log = logging.getLogger("gate.send")

RETRY_SECONDS = 1.0
"""When a caller may ask again after the store failed; a lost claim is written down again as late as that."""

EARLY = timedelta(seconds=ledger.EARLY_SECONDS)
TAKEN = frozenset({Decision.SEND, Decision.HELD})
"""Answers after which somebody has the claim."""

Key = tuple[str, datetime]


class Timer(Protocol):
    """What can be cancelled."""

    def cancel(self) -> None: ...


class Caller(Protocol):
    """A connection, as the engine sees it."""

    closed: bool
    uid: int
    pid: int
    claims: "set[str]"
    waits: "Counter[Key]"
    holder: str | None

    def reply(self, slot: Slot, reply: Reply, *, continues: bool = False) -> None: ...
    def fail(self, slot: Slot, error: errors.CallError) -> None: ...
    def never_read(self, slot: Slot) -> bool: ...
    def __hash__(self) -> int: ...


class Request(NamedTuple):
    """A call that waits for its answer."""

    caller: Caller
    slot: Slot

    def reply(self, reply: Reply, *, continues: bool = False) -> None:
        """Answer it."""
        self.caller.reply(self.slot, reply, continues=continues)

    def fail(self, error: errors.CallError) -> None:
        """Answer it with an error."""
        self.caller.fail(self.slot, error)

    def answer(self, answer: Reply | errors.CallError) -> None:
        """Answer it with either."""
        if isinstance(answer, errors.CallError):
            self.fail(answer)
        else:
            self.reply(answer)


class Live:
    """A claim in flight: the connections of its holder, the only answer that granted it, and the timer that ends it."""

    __slots__ = ("callers", "grace", "key", "process", "slot", "timer", "token")

    def __init__(self, token: str, key: Key, grace: float, process: str | None = None) -> None:
        self.token = token
        self.key = key
        self.grace = grace
        self.process = process
        """Of a start: the worker's, while which lives nothing is lost."""
        self.callers: set[Caller] = set()
        self.slot: Slot | None = None
        self.timer: Timer | None = None


class Engine:
    """Claims, confirms and releases; leases and grace; those who wait for an outcome."""

    def __init__(
        self,
        policy: Callable[[str], SendPolicy],
        submit: Callable[[list[Work]], None],
        after: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], datetime],
    ) -> None:
        self.policy = policy
        self.paused: Callable[[str, datetime], Paused | None] = lambda _schedule, _at: None
        """Whether a schedule is paused at an instant."""
        self.tallies = Tallies(now)
        self._now = now
        self._submit = submit
        self._after = after
        self._inbox: list[Work] = []
        self._asking: Counter[str] = Counter()
        """Tokens whose holder has a question on its way: it lives, so its claim does not end meanwhile."""
        self._live: dict[str, Live] = {}
        self._holding: dict[Key, str] = {}
        self._waiters: dict[Key, deque[tuple[Request, Ask]]] = {}
        self.counts: Counter[Decision] = Counter()
        self.alone = True
        """Whether no other gate uses the store."""
        self.observed = 0
        """How many claims were granted only because of mode = "observe"."""
        self.pending = 0
        """How many works are with the writer."""
        self.problem: str | None = None
        """Why the store cannot be written, while it cannot."""
        self._probing: Timer | None = None

    # -- what callers ask

    def claim(self, request: Request, claim: ClaimIn) -> None:
        """Answer `io.schedulegate.Send.Claim`; with `more`, a `held` is followed by the outcome."""
        try:
            known = len(claim.schedule) <= claims.SCHEDULE_BYTES  # a longer name is refused, and not remembered
            policy = self.policy(claim.schedule) if known else DEFAULT_POLICY
            ask = claims.ask(claim, claim.token or token_hex(16), policy)
        except errors.InvalidClaim as error:
            request.fail(error)
            return
        request.caller.holder = ask.holder
        self._ask(request, ask)

    def start(self, request: Request, start: StartIn) -> None:
        """Answer `io.schedulegate.Send.Start`."""
        try:
            ask = starts.ask(start, start.token or token_hex(16), processes.key_of(request.caller.pid))
        except errors.InvalidClaim as error:
            request.fail(error)
            return
        assert ask.at is not None
        live = self._live.get(self._holding.get((ask.schedule, ask.at), ""))
        if live is not None and live.process is not None and not processes.lives(live.process):
            self._lose(live, Event.LOST)  # a copy that came sooner than the grace is over shall not be skipped
        self._ask(request, ask)

    def _ask(self, request: Request, ask: Ask, woken: Key | None = None) -> None:
        """`woken`: the occurrence that the request has waited for."""
        if not ask.start:
            ask = replace(ask, paused=self._paused(ask))
        step = Step(ask.token, ask.schedule, ask.at, partial(ledger.claim, ask))
        self._put_for(ask.token, step, partial(self._claimed, request, ask, woken))

    def _paused(self, ask: Ask) -> Paused | None:
        """What is claimed a little early counts by its own time, what is claimed later by the clock."""
        now = self._now()
        at = now if ask.at is None else min(max(ask.at, now), now + EARLY)
        return self.paused(ask.schedule, at)

    def settle(self, request: Request, event: Event, token: str) -> None:
        """Answer Confirm or Release."""
        self._put_for(token, _settling(event, token), partial(self._settled, request, token))

    def resend(self, request: Request, schedule: str, at: datetime) -> None:
        """Answer `io.schedulegate.Control.Resend`."""
        step = Step(None, schedule, at, partial(ledger.resend, schedule, at))
        self._put(Work(partial(self._settled, request, None), step=step))

    def query(self, query: Callable[[Store], Any], then: Callable[[Any], None]) -> None:
        """Ask the store; `then` gets what `query` returned, or the exception."""
        self._put(Work(then, query=query))

    def background(self, work: Work) -> None:
        """Work that no caller waits for."""
        self._put(work)
        self.flush()

    def _put_for(self, token: str, step: Step, then: Callable[[Any], None]) -> None:
        self._asking[token] += 1
        self._put(Work(partial(self._answered, token, then), step=step))

    def _answered(self, token: str, then: Callable[[Any], None], outcome: Any) -> None:
        self._asking[token] -= 1
        if not self._asking[token]:
            del self._asking[token]
        then(outcome)

    def _put(self, work: Work) -> None:
        self._inbox.append(work)

    @property
    def coming(self) -> int:
        """How many works are with the writer, or will be after this round."""
        return self.pending + len(self._inbox)

    def flush(self) -> None:
        """Give the writer everything that came since the last flush."""
        if self._inbox:
            works, self._inbox = self._inbox, []
            self.pending += len(works)
            self._submit(works)

    # -- what the store answered

    def delivered(self, works: list[Work]) -> None:
        """Take outcomes from the writer."""
        self.pending -= len(works)
        for work in works:
            work.then(work.outcome)
        self.flush()

    def _claimed(self, request: Request, ask: Ask, woken: Key | None, outcome: Any) -> None:
        answer = self._answer_claim(request, ask, woken, outcome)
        if woken is None:
            return
        if answer is None or (ask.schedule, answer.at) != woken or answer.decision not in TAKEN:
            self._wake(woken)

    def _answer_claim(self, request: Request, ask: Ask, woken: Key | None, outcome: Any) -> ClaimOut | None:
        change = self._checked(request, outcome)
        if change is None:
            return None
        answer = change.answer
        if isinstance(answer, errors.CallError):
            request.fail(answer)
            return None
        assert isinstance(answer, ClaimOut)
        if ask.start:
            answer = self._start_told(ask, answer)
        else:
            self.counts[answer.decision] += 1
            self.tallies.answered(ask, answer, change)
        if change.observed is not None:
            self.observed += 1
            log.info("%s", answer.reason, extra={"schedule": ask.schedule, "at": answer.at, "by": ask.holder})
        if log.isEnabledFor(logging.DEBUG):
            _log_answer(request.caller, ask, answer)
        if answer.decision is Decision.SEND and change.occurrence is not None:
            self._granted(request, ask, change.occurrence, first=change.token is not None)
        else:
            self._over_already(ask.token)
        if answer.decision is Decision.HELD:
            self._held(request, ask, woken, answer)
        else:
            request.reply(answer)
        return answer

    def _start_told(self, ask: Ask, answer: ClaimOut) -> ClaimOut:
        """An answer about a start. Where nobody can tell whether the worker lives, ask again after the grace."""
        by = None if answer.by is None else starts.who(answer.by)
        if answer.decision is not Decision.HELD:
            return replace(answer, by=by)
        live = self._live.get(self._holding.get((ask.schedule, answer.at), ""))
        if live is not None and (live.callers or live.process is not None):
            return replace(answer, by=by, reason="it runs", until=None)
        reason = "nobody can tell yet whether its worker lives"
        return replace(answer, by=by, reason=reason, until=self._now() + timedelta(seconds=ask.policy.grace))

    def _held(self, request: Request, ask: Ask, woken: Key | None, answer: ClaimOut) -> None:
        """Another sends it. Who waits hears of that once, and keeps its turn."""
        key = (ask.schedule, answer.at)
        if self.alone and key not in self._holding:  # granted, but the store said that it failed
            self.look_for_claims()
        waits = request.slot.call is not None and request.slot.call.streams
        if woken is None:
            request.reply(answer, continues=waits)
        if waits and not request.caller.closed:
            waiting = self._waiters.setdefault(key, deque())
            (waiting.append if woken is None else waiting.appendleft)((request, ask))
            request.caller.waits[key] += 1

    def _granted(self, request: Request, ask: Ask, record: Occurrence, *, first: bool) -> None:
        """Remember who holds the claim. Only a token's `first` grant can be unread: later ones repeat it."""
        live, caller = self._live.get(ask.token), request.caller
        if live is None:
            live = self._hold(record, ask.policy.grace)
        live.slot = request.slot if first else None
        live.callers.add(caller)
        caller.claims.add(ask.token)
        self._arm(live, ask.lease, Event.EXPIRED)
        if caller.closed:
            self._gone(live, caller)

    def _settled(self, request: Request | None, token: str | None, outcome: Any) -> None:
        change = self._checked(request, outcome)
        if change is None:
            return
        if change.occurrence is not None:
            self._changed(change.occurrence)
        elif token is not None:
            self._over_already(token)
        if request is not None:
            request.answer(change.answer)

    def _checked(self, request: Request | None, outcome: Change | Exception) -> Change | None:
        if isinstance(outcome, Exception):
            self.failed(request, outcome)
            return None
        if outcome.written:
            self._recovered()
        return outcome

    def failed(self, request: Request | None, error: Exception) -> None:
        """The store, or the gate itself, could not do what was asked: say so, and find out when the store can again."""
        if isinstance(error, errors.StoreError):
            if self._probing is None:
                self._probing = self._after(RETRY_SECONDS, self._probe)
            if self.problem != str(error):
                self.problem = str(error)
                log.error("the store failed; nothing is granted until it is back: %s", error)
        else:
            log.error("a call failed in a way that it should not", exc_info=error)
        if request is not None:
            request.fail(errors.StoreUnavailable(retry_after=RETRY_SECONDS))

    def _probe(self) -> None:
        """Find out whether the store is back, though nobody asks."""
        self._probing = None
        self.background(Work(self._probed, query=lambda store: store.probe()))

    def _probed(self, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self.failed(None, outcome)
        else:
            self._recovered()

    def _recovered(self) -> None:
        if self.problem is not None:
            log.warning("the store can be written again", extra={"before": self.problem})
            self.problem = None
            if self._probing is not None:
                self._probing.cancel()
                self._probing = None
            self.look_for_claims()

    # -- claims in flight

    def _hold(self, record: Occurrence, grace: float) -> Live:
        process = starts.process_of(record.holder) if starts.is_start(record.schedule) else None
        live = Live(record.token, (record.schedule, record.at), grace, process)
        self._forget(live.key)
        self._live[live.token] = live
        self._holding[live.key] = live.token
        return live

    def adopt(self, claims: list[Occurrence]) -> None:
        """Take over claims that the store knows and no connection holds: after a start, or when a store is back."""
        for record in claims:
            if record.token not in self._live:
                policy = starts.POLICY if starts.is_start(record.schedule) else self.policy(record.schedule)
                live = self._hold(record, policy.grace)
                self._arm(live, live.grace, Event.LOST)

    def look_for_claims(self) -> None:
        """Take over what nobody holds."""
        self._put(Work(self._adopt, query=lambda store: store.open_claims()))

    def _adopt(self, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self.failed(None, outcome)
        else:
            self.adopt(outcome)

    def hung_up(self, caller: Caller) -> None:
        """A connection closed: its claims stay held for a grace, but for those whose grant was never read."""
        for key in caller.waits:  # first, so that nothing that ends below is offered to it
            others = deque(waiter for waiter in self._waiters.pop(key) if waiter[0].caller is not caller)
            if others:
                self._waiters[key] = others
        caller.waits.clear()
        for live in [self._live[token] for token in caller.claims]:
            self._gone(live, caller)

    def _gone(self, live: Live, caller: Caller) -> None:
        live.callers.discard(caller)
        caller.claims.discard(live.token)
        if live.callers:  # its holder has asked from another connection too, and that one lives
            return
        unread = live.slot is not None and caller.never_read(live.slot)
        if unread and live.token not in self._asking:
            self._lose(live, Event.UNREAD)
        else:
            self._arm(live, live.grace, Event.LOST)
        live.slot = None

    def _arm(self, live: Live, seconds: float, event: Event) -> None:
        """A claim has one timer: its lease while it is held, its grace when its connection is gone."""
        if live.timer is not None:
            live.timer.cancel()
        live.timer = self._after(seconds, partial(self._over, live, event))

    def _over(self, live: Live, event: Event) -> None:
        if live.token in self._asking:
            self._arm(live, RETRY_SECONDS, event)
        elif live.process is not None and processes.lives(live.process):
            self._arm(live, live.grace, event)
        else:
            self._lose(live, event)

    def _lose(self, live: Live, event: Event) -> None:
        self.background(Work(partial(self._lost, live, event), step=_settling(event, live.token)))

    def _lost(self, live: Live, event: Event, outcome: Any) -> None:
        if isinstance(outcome, Exception) and self._live.get(live.token) is live:
            self._arm(live, RETRY_SECONDS, event)
        self._settled(None, live.token, outcome)

    def _changed(self, record: Occurrence) -> None:
        """An occurrence was settled or fell in doubt: nobody holds it any more."""
        started = starts.is_start(record.schedule)
        if not started:
            self.tallies.settled(record)
        if record.state is State.DOUBT and not started:
            log.warning(
                "in doubt: %s", record.reason, extra={"schedule": record.schedule, "at": record.at, "by": record.holder}
            )
        self._ended((record.schedule, record.at), sent=record.state is State.SENT)

    def _over_already(self, token: str) -> None:
        """A claim is none to the store: it was settled, but the store had said that it failed."""
        live = self._live.get(token)
        if live is not None:
            self._ended(live.key, sent=False)

    def _ended(self, key: Key, *, sent: bool) -> None:
        """What was sent is told to all who wait; else the first of them asks again, and the next if it may not send."""
        self._forget(key)
        self._wake(key)
        while sent and key in self._waiters:
            self._wake(key)

    def _wake(self, key: Key) -> None:
        waiting = self._waiters.get(key)
        if waiting is None:
            return
        request, ask = waiting.popleft()
        if not waiting:
            del self._waiters[key]
        request.caller.waits[key] -= 1
        if not request.caller.waits[key]:
            del request.caller.waits[key]
        self._ask(request, ask, woken=key)

    def ask_again(self) -> None:
        """For those who wait for what another gate holds: nobody here hears of its end."""
        for key in [key for key in self._waiters if key not in self._holding]:
            self._wake(key)

    def _forget(self, key: Key) -> None:
        live = self._live.pop(self._holding.pop(key, ""), None)
        if live is None:
            return
        if live.timer is not None:
            live.timer.cancel()
        for caller in live.callers:
            caller.claims.discard(live.token)


def _settling(event: Event, token: str) -> Step:
    return Step(token, None, None, partial(ledger.settle, event, token))


def _log_answer(caller: Caller, ask: Ask, answer: ClaimOut) -> None:
    log.debug(
        "%s",
        "granted" if answer.decision is Decision.SEND else "refused",
        extra={
            "schedule": ask.schedule,
            "at": answer.at,
            "decision": answer.decision.value,
            "reason": answer.reason,
            "holder": ask.holder,
            "uid": caller.uid,
            "pid": caller.pid,
        },
    )
