"""Asks the gate what a source's schedules have missed, and tells it what was missed and will not be sent."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from gate.errors import CallError, GateError, StoreUnavailable
from gate.interface import MissedIn, Reply, Reviewed, ReviewIn, ReviewOut, SourceIn, rfc3339
from gate.wire import MESSAGE_BYTES
from gate_client import AsyncGate
from gate_client.core import cut, new_token
from taskiq_gate import identity
from taskiq_gate.missing import Span

REVIEW = "io.schedulegate.Send.Review"
MISSED = "io.schedulegate.Send.Missed"
PORTION = 100
"""Schedules in one call."""
PORTION_BYTES = MESSAGE_BYTES // 2
"""Of their text: what is around it must fit as well."""
REASON_BYTES = 300


class Loss(Struct, frozen=True, kw_only=True):
    """Minutes of a schedule that were missed and will not be sent, and why."""

    key: str
    title: str
    span: Span
    reason: str

    def __str__(self) -> str:
        if self.span.count == 1:
            return f"{self.key} at {rfc3339(self.span.last)}"
        return f"{self.key}, {self.span.count} times from {rfc3339(self.span.first)} to {rfc3339(self.span.last)},"


async def review(
    gate: AsyncGate,
    name: str,
    schedules: Mapping[str, identity.Schedule],
    looked: Callable[[str], datetime],
    timeout: float,
) -> tuple[datetime, dict[str, Reviewed]]:
    """The gate's clock, and what it says of each schedule, by key. Raises GateUnreachable and other GateErrors.

    `looked`: before which minute all that a cron missed is dealt with, by key. `timeout`: seconds for each call.
    """
    listing = [
        SourceIn(
            schedule=key,
            trigger=identity.trigger_text(schedule),
            title=identity.title(schedule),
            looked=None if schedule.cron is None else rfc3339(looked(key)),
        )
        for key, schedule in schedules.items()
    ]
    portions = list(_portions(listing))
    found: dict[str, Reviewed] = {}
    now: datetime | None = None
    token = new_token()
    for number, portion in enumerate(portions, 1):
        asked = ReviewIn(source=name, round=token, last=number == len(portions), schedules=portion)
        reply = await gate.call(REVIEW, asked, ReviewOut, timeout=timeout)
        now = reply.now
        found.update((each.schedule, each) for each in reply.reviews)
    assert now is not None
    return now, found


async def tell_missed(gate: AsyncGate, losses: Iterable[Loss], timeout: float) -> list[tuple[Loss, GateError | None]]:
    """Record them; gives those that the gate took, and those that it refuses with the reason. Others may be told again.

    `timeout`: seconds for each call.
    """
    losses = list(losses)
    replies = await gate.pipeline([(MISSED, _missed(gate.holder, loss)) for loss in losses], timeout=timeout)
    return [(loss, _error(reply)) for loss, reply in zip(losses, replies, strict=True) if not _away(reply)]


def _portions(listing: list[SourceIn]) -> Iterator[list[SourceIn]]:
    """At least one, so that the gate knows of a source that has no schedule any more."""
    portion: list[SourceIn] = []
    size = 0
    for schedule in listing:
        length = len(msgspec.json.encode(schedule))
        if len(portion) == PORTION or (portion and size + length > PORTION_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(schedule)
        size += length
    yield portion


def _missed(holder: str, loss: Loss) -> MissedIn:
    span, several = loss.span, loss.span.count > 1
    return MissedIn(
        schedule=loss.key,
        holder=holder,
        at=rfc3339(span.last),
        first=rfc3339(span.first) if several else None,
        count=span.count if several else None,
        reason=cut(loss.reason, REASON_BYTES),
        title=loss.title,
    )


def _away(reply: Reply | GateError) -> bool:
    return isinstance(reply, GateError) and (isinstance(reply, StoreUnavailable) or not isinstance(reply, CallError))


def _error(reply: Reply | GateError) -> GateError | None:
    return reply if isinstance(reply, GateError) else None
