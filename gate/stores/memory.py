"""The reference store: dictionaries. For tests and dry runs; nothing survives the process."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gate.clock import Clock
from gate.interface import State
from gate.ledger import EPOCH, Occurrence, Schedule, Token
from gate.starts import is_start
from gate.stores.base import (
    AFTER_TOUCH,
    TOKEN_DAYS,
    Batch,
    Listed,
    Outcome,
    Step,
    Titled,
    kept_for,
)


class MemoryStore:
    """Records in dictionaries, written one batch at a time."""

    kind = "memory"
    shared = False
    url = "memory:"

    def __init__(self, clock: Clock, keep: float) -> None:
        self._clock = clock
        self._keep = timedelta(seconds=keep)
        self._forgotten = EPOCH
        self._schedules: dict[str, Schedule] = {}
        self._occurrences: dict[tuple[str, datetime], Occurrence] = {}
        self._tokens: dict[str, Token] = {}
        self._notes: dict[str, dict[str, bytes]] = {}

    def warnings(self) -> list[str]:
        return []

    def now(self) -> datetime:
        return self._clock.now()

    def get_schedule(self, name: str) -> Schedule | None:
        return self._schedules.get(name)

    def get_occurrence(self, schedule: Schedule, at: datetime) -> Occurrence | None:
        return self._occurrences.get((schedule.name, at))

    def get_token(self, token: str) -> Token | None:
        return self._tokens.get(token)

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        now = self.now()
        batch = Batch(self, now, self.horizon(now))
        outcomes = [batch.decide(step) for step in steps]
        self._schedules |= batch.schedules
        self._occurrences |= batch.occurrences
        self._tokens |= batch.tokens
        return outcomes

    def open_claims(self) -> list[Occurrence]:
        return [o for o in self._occurrences.values() if o.state is State.CLAIMED]

    def schedules(self, limit: int) -> tuple[int, list[Listed]]:
        shown = [s for s in self._schedules.values() if not is_start(s.name)]
        used = sorted(shown, key=lambda s: (s.touched, s.name), reverse=True)
        return len(used), [Listed(s, self._occurrences[s.name, s.newest]) for s in used[:limit]]

    def doubts(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.DOUBT, limit)

    def missed(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.MISSED, limit)

    def _of_state(self, state: State, limit: int) -> tuple[int, list[Titled]]:
        found = self._titled(o for o in self._occurrences.values() if o.state is state and not is_start(o.schedule))
        return len(found), found[:limit]

    def known(self, schedule: str, since: datetime, limit: int) -> list[datetime]:
        found = [at for name, at in self._occurrences if name == schedule and at >= since]
        return sorted(found, reverse=True)[:limit]

    def unsent(self, schedule: str, since: datetime, limit: int) -> list[Occurrence]:
        found = [
            o
            for o in self._occurrences.values()
            if o.schedule == schedule and o.at >= since and o.state in (State.RELEASED, State.DOUBT)
        ]
        return sorted(found, key=lambda o: o.at, reverse=True)[:limit]

    def horizon(self, now: datetime) -> datetime:
        return max(now - self._keep, self._forgotten)

    def history(self, schedule: str | None, since: datetime | None, limit: int) -> list[Titled]:
        wanted = [
            o
            for o in self._occurrences.values()
            if (not is_start(o.schedule) if schedule is None else o.schedule == schedule)
            and (since is None or o.at >= since)
        ]
        if schedule is None:
            wanted.sort(key=lambda o: o.touched, reverse=True)
            del wanted[limit:]
        return self._titled(wanted)[:limit]

    def size(self) -> int:
        return 0

    def _titled(self, occurrences: Iterable[Occurrence]) -> list[Titled]:
        newest_first = sorted(occurrences, key=lambda o: (o.at, o.schedule), reverse=True)
        return [Titled(self._schedules[o.schedule].title, o) for o in newest_first]

    def notes(self, kind: str) -> dict[str, bytes]:
        return dict(self._notes.get(kind, {}))

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        notes = {**self._notes.get(kind, {}), **changes}
        self._notes[kind] = {key: value for key, value in notes.items() if value is not None}

    def prune(self, limit: int) -> int:
        now = self.now()
        forgotten = self._prune_tokens(now, limit)
        forgotten += self._prune_occurrences(now - self._keep, limit - forgotten)
        return forgotten + self._prune_schedules(now, limit - forgotten)

    def _prune_tokens(self, now: datetime, limit: int) -> int:
        """A claim that lives ends by its token, which stays as long."""
        open_now = {(o.schedule, o.at) for o in self.open_claims()}
        before = now - timedelta(days=TOKEN_DAYS)
        old = [t.token for t in self._tokens.values() if t.born < before and (t.schedule, t.at) not in open_now][:limit]
        for token in old:
            del self._tokens[token]
        return len(old)

    def _prune_occurrences(self, before: datetime, limit: int) -> int:
        """The newest occurrence of a schedule stays: an interval counts from it, and people look for it."""
        old = [
            o
            for o in self._occurrences.values()
            if o.touched < before and o.state is not State.CLAIMED and o.at < self._schedules[o.schedule].newest
        ][:limit]
        for o in old:
            del self._occurrences[o.schedule, o.at]
            self._forgotten = max(self._forgotten, o.touched + AFTER_TOUCH)
        return len(old)

    def _prune_schedules(self, now: datetime, limit: int) -> int:
        """One-offs go when they have not been asked for as long as is kept, recurring schedules much later."""
        kept = kept_for(self._keep)
        busy = {o.schedule for o in self.open_claims()}
        old = [s for s in self._schedules.values() if s.touched < now - kept[s.once] and s.name not in busy][
            : max(limit, 0)
        ]
        for s in old:
            del self._schedules[s.name]
            for key in [key for key in self._occurrences if key[0] == s.name]:
                del self._occurrences[key]
            for token in [t.token for t in self._tokens.values() if t.schedule == s.name]:
                del self._tokens[token]
        return len(old)

    def probe(self) -> None:
        """Memory can always be written."""

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def close(self) -> None:
        """Nothing to give up."""
