"""What an answer of the gate is worth now. Pure: the clocks come in as readings.

An answer is trusted for 60 s of boot time, never past its `until`, and not after the wall clock went backwards.
"""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from gate.interface import CheckOut

TRUST_SECONDS = 60.0
STEP_SECONDS = 0.5
"""A wall clock that loses more than this against the boot clock was set back; less is what NTP does."""
COMMIT_SECONDS = 0.05
"""A job starts when its fetch is committed, and a commit takes a moment: an open answer ends this much earlier."""


class Reading(NamedTuple):
    """Two clocks at one moment, in seconds: CLOCK_REALTIME, and CLOCK_BOOTTIME, which runs on in a suspend."""

    wall: float
    boot: float


class Verdict(Struct, frozen=True, kw_only=True):
    """Which queues may be fetched from: None is all, [] is none.

    `settled` is False while there is nothing to go by, which may change at any moment. `limited`: each fetch needs a
    permit. `by_name`: not all of all queues may be fetched from at any time, and only an answer about them by name says
    which.
    """

    queues: list[str] | None
    reason: str
    until: datetime | None = None
    settled: bool = True
    limited: bool = False
    by_name: bool = False

    @property
    def open(self) -> bool:
        return self.queues is None or bool(self.queues)

    def allows(self, queue: str) -> bool:
        """Whether a job of this queue may start."""
        return self.queues is None or queue in self.queues

    def covers(self, other: "Verdict") -> bool:
        """Whether this allows all that the other does."""
        return self.queues is None or (other.queues is not None and set(other.queues) <= set(self.queues))


class Answer(Struct, frozen=True, kw_only=True):
    """What the gate said, a moment than which it is not older, and what follows from it while it holds."""

    reply: CheckOut
    since: Reading
    verdict: Verdict


def answered(reply: CheckOut, since: Reading, asked: list[str] | None) -> Answer:
    """What the gate said of the queues that were asked for."""
    by_name = reply.open and asked is None and reply.queues is None and (bool(reply.excluded) or reply.limited)
    queues = narrowed(asked, reply.queues) if reply.open else []
    verdict = Verdict(queues=queues, reason=reply.reason, until=reply.until, limited=reply.limited, by_name=by_name)
    return Answer(reply=reply, since=since, verdict=verdict)


def stepped_back(before: Reading, now: Reading) -> bool:
    """Whether the wall clock was set back between two moments."""
    return (now.wall - before.wall) - (now.boot - before.boot) < -STEP_SECONDS


def judge(answer: Answer | None, now: Reading) -> Verdict:
    """What may be fetched of the queues that were asked for, going by this answer."""
    if answer is None:
        return closed_for_now("the gate has not answered yet")
    if (flaw := _flaw(answer, now)) is not None:
        return closed_for_now(flaw)
    return answer.verdict


def closed_for_now(reason: str) -> Verdict:
    """Nothing may be fetched until more is known."""
    return Verdict(queues=[], reason=reason, settled=False)


def narrowed(asked: list[str] | None, allowed: list[str] | None) -> list[str] | None:
    """What was asked for and is allowed; to a fetch, None is all queues, also those that the worker does not serve."""
    if asked is None or allowed is None:
        return asked if allowed is None else allowed
    return [queue for queue in asked if queue in allowed]


def _flaw(answer: Answer, now: Reading) -> str | None:
    """Why an answer is not trusted any more."""
    if stepped_back(answer.since, now):
        return "the wall clock went backwards since the gate answered"
    if now.boot - answer.since.boot >= TRUST_SECONDS:
        return f"the gate's last answer is older than {TRUST_SECONDS:.0f} s"
    end = answer.reply.until
    if end is not None and now.wall >= end.timestamp() - (COMMIT_SECONDS if answer.reply.open else 0.0):
        return "the gate's last answer is over, and the next one has not come yet"
    return None
