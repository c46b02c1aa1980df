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
from itertools import groupby
from operator import itemgetter
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
from gate.stores.redisplan import FORMAT, Keys, Plan, Ref
from gate.stores.redisrecord import (
    AnyRecord,
    Record,
    instant,
    member,
    micros,
    parted,
    span,
    token_of,
    unpack,
)

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
        self._watched = (self._keys.epoch, self._keys.format, self._keys.forgotten, self._keys.lost)
        """What every decision rests on."""
        self._values: dict[Ref, bytes] = {}
        """What each field held when it was seen last."""
        self._own: dict[Ref, bytes | None] = {}
        """What the journal holds of the tokens of a batch: to ask for each of them costs more than for all at once."""
        self._records: dict[Ref, AnyRecord] = {}
        self._skipped = Counter[bytes]()
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

    def seen(self, ref: Ref) -> bytes:
        """What a field held when it was seen last; nothing if it never was."""
        return self._values.get(ref, NOTHING)

    def read(self, ref: Ref, kind: type[Record]) -> tuple[Record | None, Record | None]:
        """The record of a field, and the one that the server holds: what this host wrote counts where that was lost."""
        before = self._records.get(ref)
        if isinstance(before, kind):
            return before, before
        value = self.seen(ref)
        own = self._own[ref] if ref in self._own else self._journal.get(ref)
        found = self._decoded(ref, value, kind) if value else None
        mine = None if own is None or own == value else unpack(ref[1], own, kind)
        if mine is not None and (found is None or _newer(mine, found)):
            return mine, found
        if found is not None:
            self._records[ref] = found
        return found, found

    def _decoded(self, ref: Ref, value: bytes, kind: type[Record]) -> Record:
        try:
            return unpack(ref[1], value, kind)
        except (ValueError, LookupError) as error:
            key, field = ref
            where = f"{field!r} in {key.decode()}"
            raise StoreError(f"{self.url}: what {where} holds is no {kind.__name__}: {error}") from error

    def _remember(self, ref: Ref, value: bytes | None, record: AnyRecord | None = None) -> None:
        if len(self._values) >= REMEMBERED:
            self._forget_seen()
        if value:
            self._values[ref] = value
        else:
            self._values.pop(ref, None)
        if record is None:
            self._records.pop(ref, None)
        else:
            self._records[ref] = record

    def _forget_seen(self) -> None:
        kept = {ref: self.seen(ref) for ref in self._watched}
        self._values.clear()
        self._records.clear()
        self._values.update({ref: value for ref, value in kept.items() if value})

    # -- deciding

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for start in range(0, len(steps), TOGETHER):
            outcomes += self._apply(steps[start : start + TOGETHER])
        return outcomes

    def _apply(self, steps: Sequence[Step]) -> list[Outcome]:
        tokens = [self._keys.token(step.token) for step in steps if step.token is not None]
        self._own = self._journal.get_all([ref for ref in tokens if ref not in self._records])
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
        plan.write(
            schedules.values(),
            [(one, attempt.stored.get(key)) for key, one in occurrences.items()],
            (attempt.tokens | batch.tokens).values(),
        )
        peeks = [self._keys.occurrence(s.schedule, s.at) for s in steps if s.schedule is not None and s.at is not None]
        return self._compare(attempt.looked, plan, [ref for ref in dict.fromkeys(peeks) if ref not in attempt.looked])

    def _compare(self, looked: Iterable[Ref], plan: Plan, peeks: Sequence[Ref] = ()) -> bool:
        """Write a plan if the fields that were looked at still hold what they did; else learn what they hold."""
        checks = [(ref, self.seen(ref)) for ref in dict.fromkeys([*self._watched, *looked])]
        held = self._link.compare(checks, peeks, plan.commands())
        if held is None:
            self._wrote(plan)
            return True
        for ref, value in zip([ref for ref, _ in checks] + list(peeks), held, strict=True):
            self._remember(ref, value)
        if (self.seen(self._keys.epoch), self.seen(self._keys.format)) != (self._epoch, FORMAT):
            self._begin()
        return False

    def _wrote(self, plan: Plan) -> None:
        """Remember it, here and on disk, before anything is answered."""
        touched = micros(self.now())
        self._journal.put((ref, value, touched) for ref, (value, record) in plan.written.items() if record is not None)
        self._journal.forget(plan.gone)
        for ref, (value, record) in plan.written.items():
            self._remember(ref, value, record)
        for ref in plan.gone:
            self._remember(ref, None)

    # -- which ledger it is

    def _begin(self) -> None:
        """Find the ledger, or begin one. One that is not the one that was here before was emptied or replaced: what it
        knew is lost, and nothing from before is granted any more.
        """
        name = f"epoch {self.url} {self._keys.root}"
        before = self._journal.meta(name)
        for _ in range(ATTEMPTS):
            self._look_at_ledger()
            self._epoch = self.seen(self._keys.epoch)
            lost = before is not None and before.encode() != self._epoch
            if self._epoch and not (lost and not self.seen(self._keys.lost)):
                break
            plan = Plan(self._keys, self.gate)
            if not self._epoch:
                plan.set(self._keys.epoch, secrets.token_hex(8).encode())
                plan.set(self._keys.format, FORMAT)
            if lost:
                plan.set(self._keys.lost, b"%d" % micros(self.now()))
            self._link.compare([(ref, self.seen(ref)) for ref in self._watched], [], plan.commands())
        self._journal.set_meta(name, self._epoch.decode())
        self._say_lost()

    def _look_at_ledger(self) -> None:
        """Raises StoreError for a ledger that another version of the gate has written."""
        try:
            held = self._link.compare([(ref, b"?") for ref in self._watched], [], [])
        except StoreError as error:
            if "WRONGTYPE" in str(error).upper():
                raise StoreError(self._of_format("1")) from error
            raise
        assert held is not None  # no value is "?"
        self._forget_seen()
        for ref, value in zip(self._watched, held, strict=True):
            self._remember(ref, value)
        if self.seen(self._keys.epoch) and (found := self.seen(self._keys.format)) != FORMAT:
            raise StoreError(self._of_format(found.decode(errors="replace")))

    def _of_format(self, found: str) -> str:
        return (
            f"{self.url}: the ledger under {self._keys.root} has format {found}, this gate knows {FORMAT.decode()}: use"
            " the gate that made it, or another prefix"
        )

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
        names = self._zrange(self._keys.schedules, limit)
        found = [schedule for schedule in self._get(self._keys.schedule_records, names, Schedule) if schedule]
        newest = self._occurrences([member(one.name, one.newest) for one in found])
        return total, [Listed(one, last) for one, last in zip(found, newest, strict=True) if last is not None]

    def doubts(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.DOUBT, limit)

    def missed(self, limit: int) -> tuple[int, list[Titled]]:
        return self._of_state(State.MISSED, limit)

    def _of_state(self, state: State, limit: int) -> tuple[int, list[Titled]]:
        key = self._keys.state(state)
        return self._count(key), self._titled(self._occurrences(self._zrange(key, limit)))

    def known(self, schedule: str, since: datetime, limit: int) -> list[datetime]:
        return [at for _, at in map(parted, self._since(self._keys.of, schedule, since, limit))]

    def unsent(self, schedule: str, since: datetime, limit: int) -> list[Occurrence]:
        return self._known(self._since(self._keys.unsent, schedule, since, limit))

    def horizon(self, now: datetime) -> datetime:
        forgotten = self.seen(self._keys.forgotten)
        told = instant(int(forgotten)) if forgotten else EPOCH
        return max(now - self._keep, told, self._lost_until() or EPOCH)

    def history(self, schedule: str | None, since: datetime | None, limit: int) -> list[Titled]:
        if schedule is not None:
            return self._titled(self._occurrences(self._since(self._keys.of, schedule, since or EPOCH, limit)))
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
        schedules = self._schedules_of(known)
        return [Titled(s.title if s else None, one) for s, one in zip(schedules, known, strict=True)]

    def _schedules_of(self, occurrences: Sequence[Occurrence]) -> list[Schedule | None]:
        names = [one.schedule.encode() for one in occurrences]
        return self._get(self._keys.schedule_records, names, Schedule)

    def _occurrences(self, places: Sequence[bytes]) -> list[Occurrence | None]:
        return self._get(self._keys.occurrence_records, places, Occurrence)

    def _known(self, places: Sequence[bytes]) -> list[Occurrence]:
        return [one for one in self._occurrences(places) if one is not None]

    def _get(self, key: bytes, fields: Sequence[bytes], kind: type[Record]) -> list[Record | None]:
        values = self._values_of(key, fields)
        return [
            None if value is None else self._decoded((key, field), value, kind)
            for field, value in zip(fields, values, strict=True)
        ]

    def _values_of(self, key: bytes, fields: Sequence[bytes]) -> list[bytes | None]:
        return list(self._link.call(lambda client: client.hmget(key, fields))) if fields else []

    def _zrange(self, key: bytes, limit: int, start: int = 0) -> list[bytes]:
        """The members of a sorted set, the highest first."""
        if limit <= 0:
            return []
        return list(self._link.call(lambda client: client.zrevrange(key, start, start + limit - 1)))

    def _since(self, key: bytes, schedule: str, since: datetime, limit: int) -> list[bytes]:
        """The newest occurrences of a schedule in a list, none before `since`; the newest first."""
        if limit <= 0:
            return []
        low, high = span(schedule, since)
        return list(self._link.call(lambda client: client.zrevrangebylex(key, high, low, start=0, num=limit)))

    def _count(self, key: bytes) -> int:
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
        key, end = f"{self._keys.root}a:{name}".encode(), TABLE_END_MS
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

    def _oldest(self, key: bytes, before: datetime, limit: int, start: int = 0) -> list[bytes]:
        if limit <= 0:
            return []
        end = f"({micros(before)}"
        return list(self._link.call(lambda client: client.zrangebyscore(key, "-inf", end, start=start, num=limit)))

    def _prune_tokens(self, now: datetime, limit: int) -> int:
        """A claim that lives ends by its token, which stays as long."""
        fields = self._oldest(self._keys.tokens, now - timedelta(days=TOKEN_DAYS), limit)
        known = [one for one in self._get(self._keys.token_records, fields, Token) if one is not None]
        of = self._occurrences([member(one.schedule, one.at) for one in known])
        busy = {t.token for t, one in zip(known, of, strict=True) if one is not None and one.state is State.CLAIMED}
        return self._forget([], [], [token for token in map(token_of, fields) if token not in busy])

    def _prune_occurrences(self, key: bytes, before: datetime, limit: int) -> int:
        """The newest occurrence of a schedule stays: an interval counts from it, and people look for it."""
        places = self._oldest(key, before, limit, self._skipped[key])
        found = self._known(places)
        old = [
            one
            for one, schedule in zip(found, self._schedules_of(found), strict=True)
            if one.state is not State.CLAIMED and (schedule is None or one.at < schedule.newest)
        ]
        self._skipped[key] = self._skipped[key] + len(places) - len(old) if places else 0
        return self._forget([], old, [])

    def _prune_schedules(self, key: bytes, now: datetime, limit: int) -> int:
        """One-offs go when they have not been asked for as long as is kept, recurring schedules much later."""
        kept = kept_for(self._keep)
        names = self._oldest(key, now - min(kept.values()), max(limit, 0))
        forgotten = 0
        for one in self._get(self._keys.schedule_records, names, Schedule):
            if one is not None and one.touched < now - kept[one.once]:
                of = self._known(self._since(self._keys.of, one.name, EPOCH, PAGE))
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
        for key, refs in groupby(plan.gone, key=itemgetter(0)):
            fields = [field for _, field in refs]
            for field, value in zip(fields, self._values_of(key, fields), strict=True):
                self._remember((key, field), value)
        if occurrences and not schedules:
            latest = max(one.touched for one in occurrences) + AFTER_TOUCH
            told = self.seen(self._keys.forgotten)
            if not told or int(told) < micros(latest):
                plan.set(self._keys.forgotten, b"%d" % micros(latest))
        if not self._compare(plan.gone, plan):
            return 0
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
        self.looked: dict[Ref, None] = {}
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

    def _read(self, ref: Ref, kind: type[Record]) -> tuple[Record | None, Record | None]:
        self.looked[ref] = None
        return self._store.read(ref, kind)


def _newer(mine: AnyRecord, found: AnyRecord) -> bool:
    return not isinstance(mine, Token) and not isinstance(found, Token) and mine.touched > found.touched
