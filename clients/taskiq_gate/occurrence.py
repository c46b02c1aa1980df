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
    """Why a schedule is due: by its cron `at` a minute, as a one-off (`once`) `at` its instant, `every` N seconds.

    `overlooked`: the minute before `at`, to be asked for first, because taskiq's loop stepped over it.
    """

    at: datetime | None = None
    once: bool = False
    every: float | None = None
    overlooked: datetime | None = None


class NoOccurrence(Exception):
    """The scheduler sends what is not due; the text says what was looked for."""


class Asked(Struct):
    """What this process asked for last, of one schedule: which minute, `when`, and whether for the one-off."""

    minute: datetime | None = None
    when: datetime | None = None
    one_off: bool = False

    def note(self, trigger: Trigger, now: datetime) -> None:
        """Remember what is being asked for."""
        if trigger.once:
            self.one_off = True
        elif trigger.at is not None:
            self.minute, self.when = trigger.at, now


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
    by_cron = None if cron is None else _by_cron(cron, shift, now, asked)
    if by_cron is not None and by_cron.at is not None and by_cron.at != asked.minute and now - by_cron.at < 2 * MINUTE:
        return by_cron
    if time is not None and time <= now + EARLY and not asked.one_off:
        return Trigger(at=time, once=True)
    if every is not None:
        return Trigger(every=every)
    if by_cron is not None:
        return by_cron
    if time is not None:
        return Trigger(at=time, once=True)
    raise NoOccurrence(f"no minute of the {LOOK_BACK_MINUTES} before {now:%Y-%m-%dT%H:%M:%SZ} matches")


def whole_minutes(cron: Matches, shift: timedelta) -> Matches:
    """`cron` for minutes: whether a minute matches, where `cron` adds `shift` to the instant before it looks."""
    return lambda minute: cron(_whole(minute, shift))


def _by_cron(cron: Matches, shift: timedelta, now: datetime, asked: Asked) -> Trigger | None:
    matches = whole_minutes(cron, shift)
    latest = cron_minute(matches, floor(floor(now + shift) - shift), now, asked.minute)
    if latest is None:
        return None
    overlooked = latest - MINUTE
    if _stepped_over(now, latest, asked) and matches(overlooked):
        return Trigger(at=latest, overlooked=overlooked)
    return Trigger(at=latest)


def cron_minute(matches: Matches, begun: datetime, now: datetime, asked: datetime | None) -> datetime | None:
    """The latest minute, from `begun` back, that matches; None if none of the last ten does.

    The minute after `begun`, where what was found has been asked for already and the next is about to begin: taskiq
    never sends one minute twice, so its timer was early.
    """
    minutes = (begun - back * MINUTE for back in range(LOOK_BACK_MINUTES + 1))
    latest = next((minute for minute in minutes if matches(minute)), None)
    coming = begun + MINUTE
    if latest in (None, asked) and coming - now <= EARLY and matches(coming):
        return coming
    return latest


def _stepped_over(now: datetime, latest: datetime, asked: Asked) -> bool:
    """Whether a tick that was meant for the minute before has come a little after its end.

    taskiq lets a minute pass between two ticks. Once begun at the 59th second it always ticks there, and when it is
    late by a second, that minute has no tick at all.
    """
    if asked.when is None or asked.minute != latest - 2 * MINUTE:
        return False
    return now - latest <= EARLY and now - asked.when <= MINUTE + EARLY


def _whole(minute: datetime, shift: timedelta) -> datetime:
    """The instant of `minute` at which a shifted clock begins a minute."""
    return floor(minute + shift + MINUTE - timedelta.resolution) - shift


def floor(instant: datetime) -> datetime:
    """The whole minute that an instant lies in, in UTC."""
    return instant.astimezone(UTC).replace(second=0, microsecond=0)
