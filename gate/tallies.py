"""What became of schedules since the gate started: how often each was sent and refused, and the last refusals."""

from collections import deque
from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from gate.claims import Ask
from gate.interface import ClaimOut, Decision, State
from gate.ledger import Change, Occurrence

SCHEDULES = 10_000
"""How many schedules are counted, those that were heard of last."""
REFUSALS = 2_000
"""How many refusals are remembered, the last ones."""


class Tally(Struct):
    """Counts of one schedule. `observed`: of what was granted, what enforce would have refused."""

    sent: int = 0
    refused: int = 0
    doubt: int = 0
    missed: int = 0
    observed: int = 0


class Refusal(Struct, frozen=True, kw_only=True):
    """A claim that was not granted, or (`observed`) only because of mode = "observe"."""

    when: datetime
    schedule: str
    at: datetime
    holder: str
    decision: Decision
    reason: str
    observed: bool


NOTHING = Tally()


class Tallies:
    """Counts by schedule, and refusals in the order of time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._counted: dict[str, Tally] = {}
        self._refusals: deque[Refusal] = deque(maxlen=REFUSALS)

    def of(self, schedule: str) -> Tally:
        """The counts of a schedule, not to be changed."""
        return self._counted.get(schedule, NOTHING)

    def refusals(self, schedule: str, at: datetime | None) -> list[Refusal]:
        """The refusals of an occurrence (None: of all of a schedule) that are remembered, the oldest first."""
        return [refusal for refusal in self._refusals if refusal.schedule == schedule and at in (None, refusal.at)]

    def answered(self, ask: Ask, answer: ClaimOut, change: Change) -> None:
        """A claim was answered."""
        if change.occurrence is not None and change.occurrence.state is State.MISSED:
            self._of(ask.schedule).missed += 1
        if answer.decision is Decision.SEND and change.observed is None:
            return
        tally = self._of(ask.schedule)
        if change.observed is None:
            tally.refused += 1
        else:
            tally.observed += 1
        self._refusals.append(
            Refusal(
                when=self._now(),
                schedule=ask.schedule,
                at=answer.at,
                holder=ask.holder,
                decision=change.observed or answer.decision,
                reason=answer.reason,
                observed=change.observed is not None,
            )
        )

    def settled(self, record: Occurrence) -> None:
        """An occurrence was sent, or fell in doubt."""
        if record.state is State.SENT:
            self._of(record.schedule).sent += 1
        elif record.state is State.DOUBT:
            self._of(record.schedule).doubt += 1

    def missed(self, schedule: str, count: int) -> None:
        """So many occurrences of a schedule were reported as missed."""
        self._of(schedule).missed += count

    def _of(self, schedule: str) -> Tally:
        """The counts of a schedule, which is now the last that was heard of."""
        tally = self._counted.pop(schedule, None) or Tally()
        self._counted[schedule] = tally
        if len(self._counted) > SCHEDULES:
            del self._counted[next(iter(self._counted))]
        return tally
