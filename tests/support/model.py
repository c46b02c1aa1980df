"""The ledger told again, as plainly as possible: what a claim must be answered, and the laws that no answer may break.

`Model` keeps what the ledger should know, in words of its own. `Laws` know nothing of how it works: they only look at
who was told to send what, and at what happened in between.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

Key = tuple[str, datetime]
DAY = timedelta(days=1)
EARLY = timedelta(seconds=5)
TINY = timedelta(microseconds=1)


class Asked(NamedTuple):
    """A claim. `every` in seconds or None; `resend`: the policy for doubts."""

    schedule: str
    at: datetime | None
    token: str
    every: float | None
    once: bool
    deadline: float | None
    lease: float
    resend: bool
    paused: datetime | None = None
    """Until when nothing is sent."""

    @property
    def holder(self) -> str:
        return f"holder of {self.token}"


class Expected(NamedTuple):
    """What a claim must be answered; a decision of "invalid" stands for InvalidClaim."""

    decision: str
    at: datetime | None = None
    by: str | None = None
    until: datetime | None = None


@dataclass
class Known:
    """What is known of one occurrence. `state`: claimed, sent, doubt, released or missed."""

    state: str
    token: str
    holder: str
    until: datetime
    touched: datetime


@dataclass
class Seen:
    """What is known of a schedule."""

    since: datetime
    newest: datetime
    once: bool
    touched: datetime


@dataclass
class Granted:
    """What is known of a token."""

    key: Key
    holder: str
    born: datetime


@dataclass
class Model:
    """The whole ledger. `keep`: how long it remembers."""

    keep: timedelta
    occurrences: dict[Key, Known] = field(default_factory=dict)
    schedules: dict[str, Seen] = field(default_factory=dict)
    tokens: dict[str, Granted] = field(default_factory=dict)
    forgotten: datetime | None = None

    # -- claims

    def claim(self, asked: Asked, now: datetime) -> Expected:
        mine = self.tokens.get(asked.token)
        if mine is not None:
            if asked.schedule != mine.key[0] or asked.at not in (None, mine.key[1]):
                return Expected("invalid")
            return self._claim_at(asked, mine.key, self.occurrences.get(mine.key), now)
        if asked.every is not None:
            return self._claim_interval(asked, asked.every, now)
        assert asked.at is not None
        key = (asked.schedule, asked.at)
        return self._claim_at(asked, key, self.occurrences.get(key), now)

    def _claim_interval(self, asked: Asked, every: float, now: datetime) -> Expected:
        seen, step = self.schedules.get(asked.schedule), timedelta(seconds=every)
        newest = None if seen is None else self.occurrences[asked.schedule, seen.newest]
        if seen is not None and newest is not None and newest.token == asked.token:  # known by its record alone
            return self._claim_at(asked, (asked.schedule, seen.newest), newest, now)
        if seen is None or seen.newest > now + step:
            return self._begin(asked, now, now)
        steps = (now + min(timedelta(seconds=1), step / 10) - seen.newest) // step
        if steps >= 1:
            return self._begin(asked, seen.newest + steps * step, now)
        assert newest is not None
        if newest.state == "sent":
            return Expected("wait", seen.newest + step, newest.holder, seen.newest + step)
        return self._claim_at(asked, (asked.schedule, seen.newest), newest, now)

    def _begin(self, asked: Asked, at: datetime, now: datetime) -> Expected:
        """An interval that is due."""
        if asked.paused is not None:
            return Expected("paused", at, None, asked.paused)
        return self._grant(asked, (asked.schedule, at), now)

    def _claim_at(self, asked: Asked, key: Key, known: Known | None, now: datetime) -> Expected:
        at = key[1]
        if known is not None and known.token == asked.token and known.state != "sent":
            return self._grant(asked, key, now)
        if known is not None and known.state == "sent":
            self._listed(asked.schedule, now, own=known.token == asked.token)
            return Expected("sent", at, known.holder)
        if known is not None and known.state == "claimed":
            return Expected("held", at, known.holder, known.until)
        if known is not None and known.state == "doubt" and not asked.resend:
            self._listed(asked.schedule, now, own=False)
            return Expected("doubt", at, known.holder)
        if at > now + EARLY and not (known is not None and (known.state == "doubt" or asked.every is not None)):
            return Expected("wait", at, None, at)
        if asked.deadline is not None and now > at + timedelta(seconds=asked.deadline):
            self._refused(asked, key, now)
            return Expected("late", at)
        if known is None and self._forgotten(key, now):
            return Expected("late", at)
        if asked.paused is not None:
            self._refused(asked, key, now)
            return Expected("paused", at, None, asked.paused)
        return self._grant(asked, key, now)

    def _forgotten(self, key: Key, now: datetime) -> bool:
        """Whether an occurrence without a record may have had one."""
        seen = self.schedules.get(key[0])
        horizon = max(now - self.keep, self.forgotten or now - self.keep)
        return seen is not None and seen.since <= key[1] < horizon

    def _refused(self, asked: Asked, key: Key, now: datetime) -> None:
        """Nobody sends it now, and it is not looked for again: it is listed as missed."""
        if asked.every is None:
            self._miss(key, asked.holder, now, once=asked.once)

    def missed(self, key: Key, holder: str, now: datetime) -> None:
        """A scheduler reports that it missed an occurrence."""
        seen = self.schedules.get(key[0])
        self._miss(key, holder, now, once=seen is not None and seen.once)

    def _miss(self, key: Key, holder: str, now: datetime, *, once: bool) -> None:
        if key not in self.occurrences and not self._forgotten(key, now):
            self.occurrences[key] = Known("missed", "", holder, now, now)
            self._see(key, now, once=once, set_back=False)

    def _listed(self, schedule: str, now: datetime, *, own: bool) -> None:
        """A source that lists a one-off keeps it in memory."""
        seen = self.schedules[schedule]
        if seen.once and not own and now - seen.touched > DAY:
            seen.touched = now

    def _grant(self, asked: Asked, key: Key, now: datetime) -> Expected:
        at = key[1]
        until = now + timedelta(seconds=asked.lease)
        self.occurrences[key] = Known("claimed", asked.token, asked.holder, until, now)
        self.tokens.setdefault(asked.token, Granted(key, asked.holder, now))
        seen = self.schedules.get(asked.schedule)
        set_back = asked.every is not None and seen is not None and seen.newest > now + timedelta(seconds=asked.every)
        self._see(key, now, once=asked.once, set_back=set_back)
        return Expected("send", at, asked.holder, until)

    def _see(self, key: Key, now: datetime, *, once: bool, set_back: bool) -> None:
        name, at = key
        seen = self.schedules.get(name)
        if seen is None:
            self.schedules[name] = Seen(at, at, once, now)
        else:
            seen.newest = at if set_back else max(at, seen.newest)
            seen.since = min(at, seen.since)
            seen.once, seen.touched = once, now

    # -- what becomes of them

    def settle(self, what: str, token: str, now: datetime) -> str:
        """`what`: confirm, release, lost, expired or unread. Gives "done" or "unknown"."""
        mine = self.tokens.get(token)
        known = None if mine is None else self.occurrences.get(mine.key)
        if mine is None or known is None:
            return "unknown"
        if known.state == "missed":
            return "done"
        ends = {"confirm": "sent", "release": "released", "unread": "released", "lost": "doubt", "expired": "doubt"}
        if what == "confirm":
            possible = known.state != "sent"
        elif what == "release":
            possible = known.token == token and known.state in {"claimed", "doubt"}
        else:
            possible = known.token == token and known.state == "claimed"
        if possible:
            known.state, known.holder, known.touched = ends[what], mine.holder, now
        return "done"

    def resend(self, key: Key, now: datetime) -> str:
        """An operator's; gives "done" or "not in doubt"."""
        known = self.occurrences.get(key)
        if known is None or known.state not in {"doubt", "missed"}:
            return "not in doubt"
        known.state, known.touched = "released", now
        return "done"

    # -- forgetting

    def claimed(self) -> set[Key]:
        return {key for key, known in self.occurrences.items() if known.state == "claimed"}

    def prune(self, now: datetime) -> int:
        """Everything that is old enough; gives how many records that were."""
        claimed = self.claimed()
        tokens = [t for t, granted in self.tokens.items() if granted.born < now - DAY and granted.key not in claimed]
        old = [
            key
            for key, known in self.occurrences.items()
            if known.touched < now - self.keep and key not in claimed and key[1] < self.schedules[key[0]].newest
        ]
        for key in old:
            reach = self.occurrences.pop(key).touched + EARLY + TINY
            self.forgotten = max(reach, self.forgotten or reach)
        for token in tokens:
            del self.tokens[token]
        kept = {True: max(self.keep, 2 * DAY), False: max(self.keep, 400 * DAY)}
        busy = {key[0] for key in claimed}
        gone = [n for n, s in self.schedules.items() if s.touched < now - kept[s.once] and n not in busy]
        for name in gone:
            del self.schedules[name]
            self.occurrences = {key: known for key, known in self.occurrences.items() if key[0] != name}
            self.tokens = {t: granted for t, granted in self.tokens.items() if granted.key[0] != name}
        return len(tokens) + len(old) + len(gone)


@dataclass
class Laws:
    """What must hold whatever the ledger is like inside; a method that raises names the law."""

    last: dict[Key, str] = field(default_factory=dict)
    """Whom a `send` was said to last."""
    open: dict[Key, str] = field(default_factory=dict)
    """Why another one may be told to send: "" for no reason, "doubt", or "free"."""
    sent: set[Key] = field(default_factory=set)
    granted: dict[str, Key] = field(default_factory=dict)
    pruned: set[Key] = field(default_factory=set)
    """Occurrences whose record is gone, of schedules that are known."""

    def answered(self, asked: Asked, decision: str, at: datetime, *, fresh: bool = False) -> None:
        """A claim was answered. `fresh`: an interval whose clock was set back lives its time a second time."""
        key = (asked.schedule, at)
        if fresh:
            self.forget(key)
        if decision != "send":
            same = self.last.get(key) == asked.token and key not in self.sent
            assert not same or key in self.pruned, (
                "the same token gets the same decision while nothing happened to its occurrence"
            )
            return
        assert key not in self.sent, "sent stays sent"
        assert key not in self.pruned, "what was forgotten is never sent"
        last, why = self.last.get(key), self.open.get(key, "free")
        allowed = last in (None, asked.token) or why == "free" or (why == "doubt" and asked.resend)
        assert allowed, "never two sends of one occurrence without a doubt and resend, a release or an operator between"
        self.last[key], self.open[key] = asked.token, ""
        self.granted[asked.token] = key

    def settled(self, what: str, token: str) -> None:
        """A settling was answered with "done"."""
        key = self.granted[token]
        if what == "confirm":
            self.sent.add(key)
        elif self.last.get(key) == token and key not in self.sent:
            if what == "release":
                self.open[key] = "free"
            elif self.open[key] == "":
                self.open[key] = "free" if what == "unread" else "doubt"

    def resent(self, key: Key) -> None:
        """An operator's resend was answered with "done"."""
        assert key not in self.sent, "sent stays sent"
        self.open[key] = "free"

    def forget(self, key: Key) -> None:
        """The ledger may have forgotten this, or its time comes again."""
        self.last.pop(key, None)
        self.open.pop(key, None)
        self.sent.discard(key)
        self.pruned.discard(key)
