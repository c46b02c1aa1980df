"""Instants in words, as the wall clock of a zone reads them."""

from datetime import datetime, timedelta, tzinfo

from gate.calendars import WEEKDAYS

DAY = timedelta(days=1)
SOON_DAYS = 6
"""So many days ahead, the name of a weekday can mean one day only."""


def soon(at: datetime, now: datetime, zone: tzinfo) -> str:
    """As short as it is clear, and clear at any time from `now` to `at`: 06:00, fri 20:00 or 2026-12-24 12:00."""
    local = at.astimezone(zone)
    if timedelta() <= at - now < DAY:
        return time(local)
    ahead = (local.date() - now.astimezone(zone).date()).days
    return f"{_day(local, ahead)} {time(local)}"


def spoken(at: datetime, now: datetime, zone: tzinfo) -> str:
    """With its day, seen from that of `now`: today 20:00, tomorrow 06:00, fri 20:00 or 2026-12-24 12:00."""
    local = at.astimezone(zone)
    ahead = (local.date() - now.astimezone(zone).date()).days
    day = {0: "today", 1: "tomorrow"}.get(ahead) or _day(local, ahead)
    return f"{day} {time(local)}"


def dated(at: datetime, zone: tzinfo) -> str:
    """With weekday and date: fri 2026-12-04 20:00."""
    local = at.astimezone(zone)
    return f"{WEEKDAYS[local.weekday()]} {local.date()} {time(local)}"


def time(local: datetime) -> str:
    """HH:MM, with seconds if there are any. A time that is read twice has the name of its offset: 02:30 CET."""
    seconds = f":{local:%S}" if local.second else ""
    twice = local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()
    return f"{local:%H:%M}{seconds}{f' {local:%Z}' if twice else ''}"


def _day(local: datetime, ahead: int) -> str:
    return WEEKDAYS[local.weekday()] if 0 <= ahead <= SOON_DAYS else str(local.date())
