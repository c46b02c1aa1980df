"""Times as people write them: RFC 3339, or local ones, which are accepted here and nowhere else.

Everything that leaves this module has a zone. A local time that does not exist, or exists twice, is refused.
"""

import re
from datetime import UTC, datetime, timedelta

from gate import durations
from gate.interface import NotAnInstant, instant

ALLOWED = 'write 2026-11-30T12:00:00Z, or in local time "2026-11-30 12:00" or 12:00 (today)'
ALLOWED_END = 'write 18:00 (the next), or in local time "2026-11-30 18:00", or 2026-11-30T18:00:00Z'
ALLOWED_SINCE = f"{ALLOWED}, or how long ago: 90s, 1h30m, 7d"

_DATE, _TIME, _ZONE = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?", r"Z|[+-]\d\d:\d\d"
_ZONED = re.compile(rf"({_DATE})[ T]({_TIME}) ?({_ZONE})", re.ASCII | re.IGNORECASE)
_LOCAL = re.compile(rf"(?:({_DATE})[ T])?({_TIME})", re.ASCII | re.IGNORECASE)


def moment(text: str, now: datetime, allowed: str = ALLOWED) -> datetime:
    """Read a time as an aware UTC datetime; raises ValueError, whose text says what is `allowed`.

    A time without a zone is local time, a time without a date is today's. `now` is aware.
    """
    if zoned := _ZONED.fullmatch(text):
        date, time, zone = zoned.groups()
        return instant(f"{date}T{_with_seconds(time)}{zone}".upper())
    if not (local := _LOCAL.fullmatch(text)):
        raise ValueError(f"{text!r} is not a time: {allowed}")
    date, time = local[1] or str(now.astimezone().date()), local[2]
    try:
        return _utc(datetime.fromisoformat(f"{date} {_with_seconds(time)}"))
    except NotAnInstant:
        raise
    except (ValueError, OverflowError, OSError) as error:
        raise ValueError(f"{text!r} is not a time: {error}: {allowed}") from None


def end(text: str, now: datetime) -> datetime:
    """Read when something shall end, as `moment` does, but a time without a date is the next one after `now`."""
    at = moment(text, now, ALLOWED_END)
    if at > now or not ((local := _LOCAL.fullmatch(text)) and local[1] is None):
        return at
    return moment(f"{now.astimezone().date() + timedelta(days=1)} {text}", now, ALLOWED_END)


def since(text: str, now: datetime) -> datetime:
    """Read a time, or a duration as that long before `now`; raises ValueError."""
    if ":" in text or not text[:1].isdigit():
        return moment(text, now)
    try:
        return now - timedelta(seconds=durations.seconds(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is neither a time nor a duration: {ALLOWED_SINCE}") from None


def candidates(naive: datetime) -> list[datetime]:
    """The instants, in UTC, at which the wall clock reads `naive` here: none in a gap, two where clocks went back."""
    both = {naive.replace(fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(at for at in both if at.astimezone().replace(tzinfo=None, fold=0) == naive)


def _utc(naive: datetime) -> datetime:
    found = candidates(naive)
    if not found:
        raise NotAnInstant(f"{naive} does not exist in local time, clocks jump over it: give it with a zone")
    if len(found) > 1:
        choice = " or ".join(at.astimezone().isoformat() for at in found)
        raise NotAnInstant(f"{naive} exists twice in local time, clocks go back: write {choice}")
    return found[0]


def _with_seconds(time: str) -> str:
    return time if time.count(":") == 2 else f"{time}:00"
