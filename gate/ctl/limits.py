"""Limits for people: what each allows now and why, who holds its places, and who waits for one."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Column
from rich.text import Text

from gate.ctl import output
from gate.interface import PlaceInfo, PoolInfo, WaitingInfo


def parts(pools: Sequence[PoolInfo], now: datetime) -> Iterator[RenderableType]:
    """The part of a status that is about limits; nothing where there is none."""
    if not pools:
        return
    yield output.heading(f"limits: {len(pools)}")
    columns = [
        output.folding("limit of"),
        output.number("taken"),
        output.number("limit"),
        output.until_column(now),
        Column("why"),
    ]
    yield output.table(columns, (_limit(pool, now) for pool in pools))
    yield from _places(pools, now)
    yield from _waiting(pools, now)


def _limit(pool: PoolInfo, now: datetime) -> Sequence[output.Cell]:
    limit = "none" if pool.limit is None else str(pool.limit)
    elsewhere = pool.elsewhere or 0
    full = pool.limit is not None and pool.taken + elsewhere >= pool.limit
    taken = Text(
        f"{pool.taken} + {elsewhere} elsewhere" if elsewhere else str(pool.taken), style="yellow" if full else ""
    )
    return output.safe(pool.pool), taken, limit, output.until(pool.until, now), output.safe(pool.reason)


def _places(pools: Sequence[PoolInfo], now: datetime) -> Iterator[RenderableType]:
    """One line for each permit, though it may hold places of several limits."""
    held: dict[str, tuple[PlaceInfo, list[str]]] = {}
    for pool in pools:
        for place in pool.places:
            held.setdefault(place.permit, (place, []))[1].append(pool.pool)
    yield output.heading(f"places taken: {len(held)}")
    columns = [output.folding("worker"), output.folding("queue"), output.folding("job"), output.folding("limit of")]
    columns += [output.whole("since"), output.number("pid")]
    if held:
        yield output.table(columns, (_place(place, names, now) for place, names in held.values()))


def _place(place: PlaceInfo, names: Sequence[str], now: datetime) -> Sequence[output.Cell]:
    queue = Text("reserved", style="cyan") if place.queue is None else output.safe(place.queue)
    since = output.when(place.since, now)
    return output.safe(place.worker), queue, output.safe(place.job or ""), _joined(names), since, str(place.pid)


def _waiting(pools: Sequence[PoolInfo], now: datetime) -> Iterator[RenderableType]:
    """Who was refused a place, in the order of their turns at each limit."""
    waiting: dict[WaitingInfo, list[str]] = {}
    for pool in pools:
        for waiter in pool.waiting:
            waiting.setdefault(waiter, []).append(pool.pool)
    yield output.heading(f"waiting for a place: {len(waiting)}")
    columns = [output.folding("worker"), output.folding("limit of"), output.whole("since"), output.number("pid")]
    if waiting:
        yield output.table(
            columns,
            (
                (output.safe(w.worker), _joined(names), output.when(w.since, now), str(w.pid))
                for w, names in waiting.items()
            ),
        )


def _joined(names: Sequence[str]) -> str:
    return ", ".join(output.safe(name) for name in names)
