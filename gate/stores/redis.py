"""The store for several hosts: Redis or Valkey, shared by the gates of all of them.

A batch is one script: it compares what the decisions have read with what the server holds, and writes all, or nothing
and says what is there; then the batch is decided again. So the common grant takes one round trip, which reads nothing:
what this gate wrote last is remembered, and a new token is taken to be new. The server's clock is the clock.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from socket import gethostname

import msgspec

from gate.errors import StoreError
from gate.interface import State
from gate.ledger import EPOCH, Occurrence, Schedule, Token
from gate.stores.base import (
    AFTER_TOUCH,
    ONCE_DAYS,
    TOKEN_DAYS,
    Batch,
    Listed,
    Outcome,
    Sign,
    Step,
    Titled,
    kept_for,
)
from gate.stores.journal import Journal
from gate.stores.redislink import Link
from gate.stores.redisplan import Keys, Plan, Record, instant, micros, parted, unpack

log = logging.getLogger("gate.store")

ATTEMPTS = 60
"""How often a batch is decided, while other gates change what it has read: one of three that want the same schedule
loses twelve times in a row once in a hundred batches, and sixty times never.
"""
TOGETHER = 250
"""Steps in one script: a script runs alone in the server."""
REMEMBERED = 100_000
"""Records that are remembered as they were read or written last."""
PAGE = 500
PAGES = 40
OVERDUE = timedelta(seconds=5)
"""Another gate ends the claims that it granted. One that is so long past its lease belongs to a gate that is gone."""
GONE = timedelta(minutes=5)
"""A gate that gave no sign of life for so long is gone, and so are the tasks of its workers: they may start anew."""
LOCAL = frozenset({"place", "round"})
"""Notes that concern one host: its processes, and what its schedulers are in the midst of."""
TABLE_END_MS = 86_400_000
"""A table that nobody has changed for a day says nothing any more."""
NOTHING = b""
SKEW_SECONDS = 1.0
"""How much a host's clock may differ from the server's before it is worth a warning."""


class RedisStore:
    """Records in a shared Redis. `journal`: what this host wrote, and its own notes."""

    kind = "redis"
    shared = True

    def __init__(
        self,
        link: Link,
        journal: Journal,
        keep: float,
        prefix: str,
        *,
        clock: Callable[[], datetime] | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        self.url = link.where
        self._warnings = [*warnings]
        self._amnesia: list[str] = []
        self.gate = journal.gate
        self._link = link
        self._journal = journal
        self._clock = clock or link.now
        self._keep = timedelta(seconds=keep)
        self._keys = Keys(prefix)
        self._watched = (self._keys.epoch, self._keys.forgotten, self._keys.lost)
        """What every decision rests on."""
        self._values: dict[str, bytes] = {}
        """What each key held when it was seen last."""
        self._records: dict[str, Schedule | Occurrence | Token] = {}
        self._skipped = Counter[str]()
        """How many of the oldest occurrences were found to stay, by list."""
        self._begin()

    @property
    def round_trip(self) -> float:
        return self._link.round_trip

    @property
    def skew(self) -> float:
        return self._link.skew

    def now(self) -> datetime:
        return self._clock()

    def warnings(self) -> list[str]:
        skew = self._link.skew
        if abs(skew) > SKEW_SECONDS:
            way = "ahead of" if skew > 0 else "behind"
            return [*self._warnings, *self._amnesia, f"this host's clock is {abs(skew):.1f} s {way} that of {self.url}"]
        return [*self._warnings, *self._amnesia]

    # -- reading one record

    def seen(self, key: str) -> bytes:
        """What a key held when it was seen last; nothing if it never was."""
        return self._values.get(key, NOTHING)

    def read(self, key: str, kind: type[Record]) -> tuple[Record | None, Record | None]:
        """The record of a key, and the one that the server holds: what this host wrote counts where that was lost."""
        before = self._records.get(key)
        if isinstance(before, kind):
            return before, before
        value, own = self.seen(key), self._journal.get(key)
        found = self._decoded(key, value, kind) if value else None
        mine = None if own is None or own == value else unpack(own, kind)
        if mine is not None and (found is None or _newer(mine, found)):
            return mine, found
        if found is not None:
            self._records[key] = found
        return found, found

    def _decoded(self, key: str, value: bytes, kind: type[Record]) -> Record:
        try:
            return unpack(value, kind)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self.url}: what {key!r} holds is no {kind.__name__}: {error}") from error

    def _remember(self, key: str, value: bytes | None) -> None:
        self._records.pop(key, None)
        if len(self._values) >= REMEMBERED:
            self._forget_seen()
        if value:
            self._values[key] = value
        else:
            self._values.pop(key, None)

    def _forget_seen(self) -> None:
        kept = {key: self.seen(key) for key in self._watched}
        self._values.clear()
        self._records.clear()
        self._values.update({key: value for key, value in kept.items() if value})

    # -- deciding

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(steps), TOGETHER):
            outcomes += self._apply(steps[start : start + TOGETHER])
        return outcomes

    def _apply(self, steps: Sequence[Step]) -> list[Outcome]:
        for _ in range(ATTEMPTS):
            now = self.now()
            attempt = Attempt(self, self._keys)
            batch = Batch(attempt, now, self.horizon(now), self._lost_until())
            outcomes = [batch.decide(step) for step in steps]
            if self._write(attempt, batch, steps):
                return outcomes
        raise StoreError(f"{self.url}: other gates keep changing what is to be decided on")

    def _write(self, attempt: "Attempt", batch: Batch, steps: Sequence[Step]) -> bool:
        plan = Plan(self._keys, self.gate)
        schedules, occurrences = attempt.schedules | batch.schedules, attempt.occurrences | batch.occurrences
        for key, one in occurrences.items():
            before = attempt.stored.get(key)
            if before is not None:
                plan.leave(before, one)
        plan.write(schedules.values(), occurrences.values(), (attempt.tokens | batch.tokens).values())
        peeks = [self._keys.occurrence(s.schedule, s.at) for s in steps if s.schedule is not None and s.at is not None]
        if not self._compare(attempt.looked, plan, [key for key in dict.fromkeys(peeks) if key not in attempt.looked]):
            return False
        self._wrote(plan)
        return True

    def _compare(self, looked: Iterable[str], plan: Plan, peeks: Sequence[str] = ()) -> bool:
        """Write a plan if the keys that were looked at still hold what they did; else learn what they hold."""
        checks = [(key, self.seen(key)) for key in dict.fromkeys([*self._watched, *looked])]
        held = self._link.compare(checks, peeks, plan.commands + plan.ends())
        if held is None:
            return True
        epoch = held[0] or NOTHING
        for key, value in zip([key for key, _ in checks] + list(peeks), held, strict=True):
            self._remember(key, value)
        if epoch != self._epoch:
            self._begin()
        return False

    def _wrote(self, plan: Plan) -> None:
        """Remember it, here and on disk, before anything is answered."""
        values = [(key, rest[0]) for name, key, rest in plan.commands if name == "SET" and isinstance(rest[0], bytes)]
        touched = micros(self.now())
        if values:
            self._journal.put((key, value, touched) for key, value in values)
        for key, value in values:
            self._remember(key, value)
        gone = [key for name, key, _ in plan.commands if name == "DEL"]
        self._journal.forget(gone)
        for key in gone:
            self._remember(key, None)

    # -- which ledger it is

    def _begin(self) -> None:
        """Find the ledger, or begin one. One that is not the one that was here before was emptied or replaced: what it
        knew is lost, and nothing from before is granted any more.
        """
        name = f"epoch {self.url} {self._keys.root}"
        before = self._journal.meta(name)
        for _ in range(ATTEMPTS):
            held = self._link.compare([(key, b"?") for key in self._watched], [], [])
            assert held is not None  # no value is "?"
            self._forget_seen()
            for key, value in zip(self._watched, held, strict=True):
                self._remember(key, value)
            self._epoch = self.seen(self._keys.epoch)
            lost = before is not None and before.encode() != self._epoch
            if self._epoch and not (lost and not self.seen(self._keys.lost)):
                break
            plan = Plan(self._keys, self.gate)
            if not self._epoch:
                plan.set(self._keys.epoch, secrets.token_hex(8).encode())
            if lost:
                plan.set(self._keys.lost, str(micros(self.now())).encode())
            self._link.compare([(key, self.seen(key)) for key in self._watched], [], plan.commands)
        self._journal.set_meta(name, self._epoch.decode())
        self._say_lost()

    def _lost_until(self) -> datetime | None:
        value = self.seen(self._keys.lost)
        return instant(int(value)) if value else None

    def _say_lost(self) -> None:
        lost = self._lost_until()
        self._amnesia = []
        if lost is not None and self.now() - lost < self._keep:
            text = (
                f"amnesia: at {lost:%Y-%m-%d %H:%M:%S} UTC {self.url} was found emptied or replaced; what is older is"
                " answered late and not sent, unless this host remembers it"
            )
            self._amnesia = [text]
            log.error("%s", text)

    # -- lists

    def open_claims(self) -> list[Occurrence]:
        """The claims that this gate granted, and those of gates that are gone."""
        claimed = self._zrange(self._keys.state(State.CLAIMED), PAGE * PAGES)
        if not claimed:
            return []
        owners = self._link.call(lambda client: client.hmget(self._keys.owners, claimed))
        now, found = self.now(), self._occurrences(claimed)
        others = {gate for gate, seen in self.gates().items() if gate != self.gate and now - seen.at < GONE}
        return [
            one
            for one, owner in zip(found, owners, strict=True)
            if one is not None
            and one.state is State.CLAIMED
            and (one.until < now - OVERDUE or (owner or b"").decode() not in others)
        ]

    def schedules(self, limit: int) -> tuple[int, list[Listed]]:
        total = self._count(self._keys.schedules)
        names = [name.decode() for name in self._zrange(self._keys.schedules, limit)]
        found = [schedule for schedule in self._get([self._keys.schedule(n) for n in names], Schedule) if schedule]
        newest = self._get([self._keys.occurrence(one.name, one.newest) for one in found], Occurrence)
        return total, [Listed(one, last) for one, last in zip(found, newest, strict=True) if last is not None]

    def doubts(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.DOUBT, limit)

    def missed(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.MISSED, limit)

    def _of_state(self, state: State, limit: int) -> tuple[int, list[Titled]]:
        key = self._keys.state(state)
        return self._count(key), self._titled(self._occurrences(self._zrange(key, limit)))

    def known(self, schedule: str, since: datetime, limit: int) -> list[datetime]:
        return self._since(self._keys.of(schedule), since, limit)

    def unsent(self, schedule: str, since: datetime, limit: int) -> list[Occurrence]:
        return self._of(schedule, self._since(self._keys.unsent(schedule), since, limit))

    def horizon(self, now: datetime) -> datetime:
        forgotten = self.seen(self._keys.forgotten)
        told = instant(int(forgotten)) if forgotten else EPOCH
        return max(now - self._keep, told, self._lost_until() or EPOCH)

    def history(self, schedule: str | None, since: datetime | None, limit: int) -> list[Titled]:
        if schedule is not None:
            return self._titled(self._of(schedule, self.known(schedule, since or EPOCH, limit)))
        found: list[Occurrence] = []
        for page in range(PAGES):
            places = self._zrange(self._keys.touched, PAGE, page * PAGE)
            found += [one for one in self._occurrences(places) if one is not None and (not since or one.at >= since)]
            if len(places) < PAGE or len(found) >= limit:
                break
        return self._titled(found[:limit])

    def size(self) -> int:
        return self._link.bytes_used()

    def _titled(self, found: Sequence[Occurrence | None]) -> list[Titled]:
        known = sorted((o for o in found if o is not None), key=lambda o: (o.at, o.schedule), reverse=True)
        schedules = self._get([self._keys.schedule(one.schedule) for one in known], Schedule)
        return [Titled(s.title if s else None, one) for s, one in zip(schedules, known, strict=True)]

    def _of(self, schedule: str, ats: Iterable[datetime]) -> list[Occurrence]:
        """Those of these occurrences of a schedule that are known."""
        found = self._get([self._keys.occurrence(schedule, at) for at in ats], Occurrence)
        return [one for one in found if one is not None]

    def _occurrences(self, places: Sequence[bytes]) -> list[Occurrence | None]:
        return self._get([self._keys.occurrence(*parted(place)) for place in places], Occurrence)

    def _get(self, keys: list[str], kind: type[Record]) -> list[Record | None]:
        if not keys:
            return []
        values = self._link.call(lambda client: client.mget(keys))
        return [None if v is None else self._decoded(key, v, kind) for key, v in zip(keys, values, strict=True)]

    def _zrange(self, key: str, limit: int, start: int = 0) -> list[bytes]:
        """The members of a sorted set, the highest first."""
        if limit <= 0:
            return []
        return list(self._link.call(lambda client: client.zrevrange(key, start, start + limit - 1)))

    def _since(self, key: str, since: datetime, limit: int) -> list[datetime]:
        """The `at` of the newest occurrences in a list of one schedule, none before `since`; the newest first."""
        if limit <= 0:
            return []
        score = micros(since)
        found = self._link.call(lambda client: client.zrevrangebyscore(key, "+inf", score, start=0, num=limit))
        return [instant(int(at)) for at in found]

    def _count(self, key: str) -> int:
        return int(self._link.call(lambda client: client.zcard(key)))

    # -- notes

    def notes(self, kind: str) -> dict[str, bytes]:
        if kind in LOCAL:
            return self._journal.notes(kind)
        found = self._link.call(lambda client: client.hgetall(self._keys.notes(kind)))
        return {key.decode(): value for key, value in found.items()}

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        if kind in LOCAL:
            self._journal.put_notes(kind, changes)
            return
        plan = Plan(self._keys, self.gate)
        plan.note(self._keys.notes(kind), changes)
        plan.count(self._keys.version)
        for _ in range(ATTEMPTS):
            if self._compare([], plan):
                return
        raise StoreError(f"{self.url}: the ledger keeps changing")

    def changes(self) -> int:
        """A number that changes whenever a gate writes a note that all share."""
        return int(self._link.call(lambda client: client.get(self._keys.version)) or 0)

    def agree(self, name: str, decide: Callable[[bytes | None, datetime], bytes | None]) -> None:
        key, end = f"{self._keys.root}a:{name}", TABLE_END_MS
        held = self._link.call(lambda client: client.get(key))
        for _ in range(ATTEMPTS):
            after = decide(held, self.now())
            if after is None:
                return
            written, held = self._link.swap(key, held, after, end)
            if written:
                return
        raise StoreError(f"{self.url}: other gates keep changing {name!r}")

    # -- forgetting

    def prune(self, limit: int) -> int:
        now = self.now()
        forgotten = self._prune_tokens(now, limit)
        for key in (self._keys.touched, self._keys.start_touched):
            forgotten += self._prune_occurrences(key, now - self._keep, limit - forgotten)
        for key in (self._keys.schedules, self._keys.start_schedules):
            forgotten += self._prune_schedules(key, now, limit - forgotten)
        self._journal.prune(micros(now - self._keep - timedelta(days=ONCE_DAYS)), PAGE)
        return forgotten

    def _oldest(self, key: str, before: datetime, limit: int, start: int = 0) -> list[bytes]:
        if limit <= 0:
            return []
        end = f"({micros(before)}"
        return list(self._link.call(lambda client: client.zrangebyscore(key, "-inf", end, start=start, num=limit)))

    def _prune_tokens(self, now: datetime, limit: int) -> int:
        """A claim that lives ends by its token, which stays as long."""
        names = [name.decode() for name in self._oldest(self._keys.tokens, now - timedelta(days=TOKEN_DAYS), limit)]
        found = self._get([self._keys.token(name) for name in names], Token)
        of = self._get([self._keys.occurrence(t.schedule, t.at) for t in found if t is not None], Occurrence)
        known = [one for one in found if one is not None]
        busy = {t.token for t, one in zip(known, of, strict=True) if one is not None and one.state is State.CLAIMED}
        return self._forget([], [], [name for name in names if name not in busy])

    def _prune_occurrences(self, key: str, before: datetime, limit: int) -> int:
        """The newest occurrence of a schedule stays: an interval counts from it, and people look for it."""
        places = self._oldest(key, before, limit, self._skipped[key])
        found = [one for one in self._occurrences(places) if one is not None]
        of = self._get([self._keys.schedule(one.schedule) for one in found], Schedule)
        old = [
            one
            for one, schedule in zip(found, of, strict=True)
            if one.state is not State.CLAIMED and (schedule is None or one.at < schedule.newest)
        ]
        self._skipped[key] = self._skipped[key] + len(places) - len(old) if places else 0
        return self._forget([], old, [])

    def _prune_schedules(self, key: str, now: datetime, limit: int) -> int:
        """One-offs go when they have not been asked for as long as is kept, recurring schedules much later."""
        kept = kept_for(self._keep)
        names = self._oldest(key, now - min(kept.values()), max(limit, 0))
        forgotten = 0
        for one in self._get([self._keys.schedule(name.decode()) for name in names], Schedule):
            if one is not None and one.touched < now - kept[one.once]:
                of = self._of(one.name, self.known(one.name, EPOCH, PAGE))
                if not any(o.state is State.CLAIMED for o in of):
                    self._forget([one.name], of, [o.token for o in of if o.token])
                    forgotten += 1
        return forgotten

    def _forget(self, schedules: list[str], occurrences: list[Occurrence], tokens: list[str]) -> int:
        """Forget records, if they are still as they were read."""
        if not (schedules or occurrences or tokens):
            return 0
        plan = Plan(self._keys, self.gate)
        plan.forget(schedules, occurrences, tokens)
        keys = [self._keys.schedule(name) for name in schedules] + [self._keys.token(token) for token in tokens]
        keys += [self._keys.occurrence(one.schedule, one.at) for one in occurrences]
        for key, value in zip(keys, self._link.call(lambda client: client.mget(keys)), strict=True):
            self._remember(key, value)
        if occurrences and not schedules:
            latest = max(one.touched for one in occurrences) + AFTER_TOUCH
            told = self.seen(self._keys.forgotten)
            if not told or int(told) < micros(latest):
                plan.set(self._keys.forgotten, str(micros(latest)).encode())
        if not self._compare(keys, plan):
            return 0
        self._wrote(plan)
        return len(schedules) + len(occurrences) + len(tokens)

    def probe(self) -> None:
        """Give a sign of life, which shows whether the server can be written."""
        sign = msgspec.json.encode(Sign(at=self.now(), host=gethostname()))
        plan = Plan(self._keys, self.gate)
        plan.note(self._keys.gates, {self.gate: sign})
        self._compare([], plan)

    def gates(self) -> dict[str, Sign]:
        """The last sign of life of each gate, by its id."""
        found = self._link.call(lambda client: client.hgetall(self._keys.gates))
        return {gate.decode(): msgspec.json.decode(sign, type=Sign) for gate, sign in found.items()}

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def close(self) -> None:
        """Hang up."""
        self._link.close()
        self._journal.close()


class Attempt:
    """What the decisions of a batch have looked at, so that it can be compared when it is written."""

    def __init__(self, store: RedisStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self.looked: dict[str, None] = {}
        self.stored: dict[tuple[str, datetime], Occurrence] = {}
        """Occurrences as the server holds them."""
        self.schedules: dict[str, Schedule] = {}
        self.occurrences: dict[tuple[str, datetime], Occurrence] = {}
        self.tokens: dict[str, Token] = {}
        """What the server has lost, and is told again."""

    def get_schedule(self, name: str) -> Schedule | None:
        found, stored = self._read(self._keys.schedule(name), Schedule)
        if found is not None and found is not stored:
            self.schedules[name] = found
        return found

    def get_occurrence(self, schedule: Schedule, at: datetime) -> Occurrence | None:
        found, stored = self._read(self._keys.occurrence(schedule.name, at), Occurrence)
        if stored is not None:
            self.stored[schedule.name, at] = stored
        if found is not None and found is not stored:
            self.occurrences[schedule.name, at] = found
        return found

    def get_token(self, token: str) -> Token | None:
        found, stored = self._read(self._keys.token(token), Token)
        if found is not None and found is not stored:
            self.tokens[token] = found
        return found

    def _read(self, key: str, kind: type[Record]) -> tuple[Record | None, Record | None]:
        self.looked[key] = None
        return self._store.read(key, kind)


def _newer(mine: Schedule | Occurrence | Token, found: Schedule | Occurrence | Token) -> bool:
    return not isinstance(mine, Token) and not isinstance(found, Token) and mine.touched > found.touched
