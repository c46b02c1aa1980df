"""The contract of a store, and the part that all stores share: reading what a step names, and deciding.

`apply(steps)` is the only way to write. For each step in turn the store reads the records that the step names (and
sees what earlier steps of the batch wrote), calls `decide(view, now)` and keeps the change; then it writes all
changes, all or nothing. It raises StoreError when nothing was written.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from msgspec import Struct

from gate.ledger import EARLY_SECONDS, Change, Occurrence, Schedule, Token, View

log = logging.getLogger("gate.store")

HORIZON_DEFAULT_DAYS = 14
TOKEN_DAYS = 1
"""How long a token is known: as long as a retry of Confirm or Release may come."""
SCHEDULE_DAYS = 400
"""How long a recurring schedule is known that nobody asks for any more: a yearly one must survive."""
ONCE_DAYS = 2
"""How long a one-off is known at least: that somebody asks for it is written down once a day."""

AFTER_TOUCH = timedelta(seconds=EARLY_SECONDS, microseconds=1)
"""What is forgotten reaches this far beyond the last touch: an occurrence may be settled before its time."""


def kept_for(keep: timedelta) -> dict[bool, timedelta]:
    """How long a schedule is known that nobody asks for any more, by whether it is a one-off."""
    return {once: max(keep, timedelta(days=ONCE_DAYS if once else SCHEDULE_DAYS)) for once in (True, False)}


class Step(NamedTuple):
    """One decision: what it needs to see, and the function that decides.

    `token` names an occurrence by the claim that it was granted to; where that token is unknown (or None),
    `schedule` and `at` name it; without `at` it is the schedule's newest.
    """

    token: str | None
    schedule: str | None
    at: datetime | None
    decide: Callable[[View, datetime], Change]


Outcome = Change | Exception
"""What became of a step; an exception is a fault of ours, never of the store."""


class Listed(NamedTuple):
    """A schedule and its newest occurrence."""

    schedule: Schedule
    occurrence: Occurrence


class Titled(NamedTuple):
    """An occurrence and what people call its schedule."""

    title: str | None
    occurrence: Occurrence


class Sign(Struct, frozen=True, kw_only=True):
    """A gate's sign of life: when it gave it, by the store's clock, and on which host."""

    at: datetime
    host: str


class Store(Protocol):
    """What the engine needs of a store. All methods block, and are called from one thread.

    `shared`: whether other gates use it too; then it is a SharedStore.
    """

    kind: str
    url: str
    shared: bool

    def warnings(self) -> list[str]:
        """What is wrong with it, though it works. Called from the event loop."""
        ...

    def now(self) -> datetime:
        """The store's own clock: the one that judges what is due and what is late."""
        ...

    def apply(self, steps: Sequence[Step]) -> list[Outcome]:
        """Decide all steps and write their changes in one transaction; raises StoreError when nothing was written."""
        ...

    def open_claims(self) -> list[Occurrence]:
        """Every occurrence that is claimed."""
        ...

    def schedules(self, limit: int) -> tuple[int, list[Listed]]:
        """How many schedules are known, and those used last."""
        ...

    def doubts(self, limit: int) -> tuple[int, list[Titled]]:
        """How many occurrences are in doubt, and the newest of them."""
        ...

    def missed(self, limit: int) -> tuple[int, list[Titled]]:
        """How many occurrences were missed, and the newest of them."""
        ...

    def known(self, schedule: str, since: datetime, limit: int) -> list[datetime]:
        """The newest `at` of a schedule, none before `since`, that have a record; the newest first."""
        ...

    def unsent(self, schedule: str, since: datetime, limit: int) -> list[Occurrence]:
        """The newest occurrences of a schedule, none before `since`, that are released or in doubt; newest first."""
        ...

    def horizon(self, now: datetime) -> datetime:
        """What is older may have been forgotten."""
        ...

    def history(self, schedule: str | None, since: datetime | None, limit: int) -> list[Titled]:
        """The newest occurrences of one schedule, or those of all that changed last; by `at`, the newest first."""
        ...

    def size(self) -> int:
        """How many bytes the store takes on disk."""
        ...

    def notes(self, kind: str) -> dict[str, bytes]:
        """All notes of a kind, such as "override": small things that are no occurrences, and survive a restart."""
        ...

    def put_notes(self, kind: str, changes: Mapping[str, bytes | None]) -> None:
        """Write notes of a kind, and forget those whose value is None: all or nothing, on disk when this returns."""
        ...

    def prune(self, limit: int) -> int:
        """Forget at most `limit` records that are older than is kept; returns how many it forgot."""
        ...

    def probe(self) -> None:
        """Write something that changes nothing; raises StoreError while the store cannot be written."""
        ...

    def warm_up(self) -> None:
        """Whatever makes later writes faster; called once, when the gate already listens."""
        ...

    def close(self) -> None:
        """Give up the store's resources."""
        ...


class SharedStore(Store, Protocol):
    """A store of several gates. `gate`: the id of this one. `round_trip` and `skew` (by how much this host's clock is
    ahead of the store's) in seconds, as of the last call.
    """

    gate: str

    @property
    def round_trip(self) -> float: ...
    @property
    def skew(self) -> float: ...

    def changes(self) -> int:
        """A number that changes whenever any gate writes a note that all share."""
        ...

    def agree(self, name: str, decide: Callable[[bytes | None, datetime], bytes | None]) -> None:
        """Change a table that all gates read and write: `decide` is given what it is (None if there is none) and the
        store's clock, and gives what it is to be, None to leave it. It may be called again where another gate was
        quicker. Raises StoreError, and then it may have been changed.
        """
        ...

    def gates(self) -> dict[str, Sign]:
        """The last sign of life of each gate, by its id; `probe` gives one."""
        ...


class Tables(Protocol):
    """Reading one record of each kind."""

    def get_schedule(self, name: str) -> Schedule | None: ...
    def get_occurrence(self, schedule: Schedule, at: datetime) -> Occurrence | None: ...
    def get_token(self, token: str) -> Token | None: ...


class Batch:
    """The changes of a batch on top of a store's tables, so that each step sees those before it."""

    __slots__ = ("_lost", "_tables", "horizon", "now", "occurrences", "schedules", "tokens")

    def __init__(self, tables: Tables, now: datetime, horizon: datetime, lost: datetime | None = None) -> None:
        self._tables = tables
        self._lost = lost
        self.now = now
        self.horizon = horizon
        self.schedules: dict[str, Schedule] = {}
        self.occurrences: dict[tuple[str, datetime], Occurrence] = {}
        self.tokens: dict[str, Token] = {}

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.schedules or self.occurrences or self.tokens)

    def decide(self, step: Step) -> Outcome:
        """Run one step; a fault in it is its own, and leaves the others alone."""
        try:
            change = step.decide(self.view(step), self.now)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            log.exception("a decision failed", extra={"schedule": step.schedule, "at": step.at})
            return error
        if change.schedule is not None:
            self.schedules[change.schedule.name] = change.schedule
        if change.occurrence is not None:
            self.occurrences[change.occurrence.schedule, change.occurrence.at] = change.occurrence
        if change.token is not None:
            self.tokens[change.token.token] = change.token
        return change

    def view(self, step: Step) -> View:
        """What the store knows of what a step names."""
        token = None if step.token is None else self.tokens.get(step.token) or self._tables.get_token(step.token)
        name, at = (step.schedule, step.at) if token is None else (token.schedule, token.at)
        schedule = None if name is None else self.schedules.get(name) or self._tables.get_schedule(name)
        occurrence = None
        if schedule is not None:
            at = at or schedule.newest
            occurrence = self.occurrences.get((schedule.name, at))
            # Nothing newer than the newest was ever granted (but for an interval whose clock was set back, which does
            # not claim it again): a new claim of what is newer, the common case, reads no record at all.
            new_claim = token is None and step.token is not None
            if occurrence is None and not (new_claim and at > schedule.newest):
                occurrence = self._tables.get_occurrence(schedule, at)
        return View(schedule=schedule, occurrence=occurrence, token=token, horizon=self.horizon, lost=self._lost)
