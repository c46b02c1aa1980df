"""Which occurrence is meant when taskiq's scheduler has decided to send.

Pure: `now` is given. taskiq tells its sources neither what it decided on nor when, so the answer is worked out from
its own cron code: the minute that matches at or just before the time of asking, never the minute of asking itself.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

LOOK_BACK_MINUTES = 10
"""How late a send may be asked for."""
EARLY = timedelta(seconds=5)
"""How early a timer may fire: what the gate allows."""
MINUTE = timedelta(minutes=1)

Matches = Callable[[datetime], bool]


class Trigger(Struct, frozen=True, kw_only=True):
    """Why a schedule is due: by its cron `at` a minute, as a one-off (`once`) `at` its instant, `every` N seconds."""

    at: datetime | None = None
    once: bool = False
    every: float | None = None


class NoOccurrence(Exception):
    """The scheduler sends what is not due; the text says what was looked for."""


class Asked(Struct):
    """What this process has asked for of one schedule."""

    minute: datetime | None = None
    one_off: bool = False

    def note(self, trigger: Trigger) -> None:
        """Remember what is being asked for."""
        if trigger.once:
            self.one_off = True
        elif trigger.at is not None:
            self.minute = trigger.at


def trigger(
    now: datetime,
    asked: Asked,
    *,
    cron: Matches | None = None,
    shift: timedelta = timedelta(0),
    every: float | None = None,
    time: datetime | None = None,
) -> Trigger:
    """Which of its triggers a schedule is due by; raises NoOccurrence if none is.

    `cron` says whether an instant matches; `shift` is what it adds to the instant first. A schedule with several
    triggers is due by its cron if a minute matches now that was not asked for, else by its one-off if that was not
    asked for, else by its interval.
    """
    minute = None if cron is None else cron_minute(cron, shift, now, asked.minute)
    if minute is not None and minute != asked.minute and now - minute < 2 * MINUTE:
        return Trigger(at=minute)
    if time is not None and time <= now + EARLY and not asked.one_off:
        return Trigger(at=time, once=True)
    if every is not None:
        return Trigger(every=every)
    if minute is not None:
        return Trigger(at=minute)
    if time is not None:
        return Trigger(at=time, once=True)
    raise NoOccurrence(f"no minute of the {LOOK_BACK_MINUTES} before {now:%Y-%m-%dT%H:%M:%SZ} matches")


def cron_minute(matches: Matches, shift: timedelta, now: datetime, asked: datetime | None) -> datetime | None:
    """The latest minute at or just before `now` that matches, in UTC; None if none of the last ten does.

    The minute after it, where this one was asked for already and the next is about to begin: taskiq never sends one
    minute twice, so its timer was early.
    """
    begun = _floor(now + shift) - shift
    found = next((m for back in range(LOOK_BACK_MINUTES + 1) if matches(m := begun - back * MINUTE)), None)
    latest = None if found is None else _floor(found)
    coming = begun + MINUTE
    if latest in (None, asked) and coming - now <= EARLY and matches(coming):
        return _floor(coming)
    return latest


def _floor(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(second=0, microsecond=0)
