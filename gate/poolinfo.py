"""Limits and places for people: what a limit is now and why, who holds its places, and who waits for one."""

from collections.abc import Callable, Iterable

from gate.interface import PlaceInfo, PoolInfo, WaitingInfo
from gate.permit import Permit, PoolStatus
from gate.permits import Permits
from gate.pools import Limits, Share
from gate.waitlist import Process, Waiter

POOLS_SHOWN = 1000
"""How many pools are shown; where there are more, those in use come first."""
PLACES_SHOWN = 1000
"""How many places, and how many who wait, are shown of all pools together; `taken` counts all."""

PidOf = Callable[[Process], int]


def infos(permits: Permits, names: Iterable[str], limits: Limits, pid_of: PidOf) -> list[PoolInfo]:
    """Pools, as they go over the wire."""
    in_use = set(permits.pools())
    places = waiting = PLACES_SHOWN
    found: list[PoolInfo] = []
    for name in _shown(list(names), in_use):
        state = permits.status(name) if name in in_use else _unused(name, permits.share(name))
        limit = limits(name)
        info = PoolInfo(
            pool=name,
            limit=limit.number,
            reason=limit.reason,
            until=limit.until,
            taken=state.taken,
            places=[_place(permit, pid_of) for permit in state.holders[:places]],
            waiting=[_waiting(waiter, pid_of) for waiter in state.waiters[:waiting]],
            elsewhere=None if state.share is None else state.share.elsewhere,
        )
        places -= len(info.places)
        waiting -= len(info.waiting)
        found.append(info)
    return found


def _shown(names: list[str], in_use: set[str]) -> list[str]:
    if len(names) <= POOLS_SHOWN:
        return names
    return sorted(names, key=lambda name: name not in in_use)[:POOLS_SHOWN]


def words(state: PoolStatus, reason: str) -> str:
    """A pool in one line: rule dicom: limit 3 by else, 2 taken, 1 waiting."""
    waiting = f", {len(state.waiters)} waiting" if state.waiters else ""
    if state.share is None:
        return f"{state.pool}: {reason}, {state.taken} taken{waiting}"
    away = ", and what they hold is not known, for the store is away" if state.share.away else ""
    elsewhere = f"{state.share.elsewhere} held by other hosts"
    return f"{state.pool}: {reason}, {state.taken} taken here, {elsewhere}{waiting}{away}"


def _unused(name: str, share: Share | None) -> PoolStatus:
    return PoolStatus(pool=name, taken=0, unsaid=0, promised=0, holders=(), waiters=(), share=share)


def _place(permit: Permit, pid_of: PidOf) -> PlaceInfo:
    return PlaceInfo(
        permit=permit.id,
        worker=permit.worker,
        queue=permit.queue,
        job=permit.job,
        since=permit.since,
        pid=pid_of(permit.process),
    )


def _waiting(waiter: Waiter, pid_of: PidOf) -> WaitingInfo:
    return WaitingInfo(worker=waiter.worker, since=waiter.since, pid=pid_of(waiter.process))
