"""How many places of a limit each gate may give, where several share one store: one table that all agree on.

A gate gives places within its share, without asking anybody, and takes a larger one where those of the others leave
room. It holds what it counts with for a lease that it renews: what a gate that is gone held is free when its lease is
over. Pure: the table comes from the store, and `now` is the store's clock. Source: design 5.3 and 6.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from gate.moments import FOREVER
from gate.pools import Given, Limit, Share, slot

RENEW, MARGIN, SETTLE = 1 / 6, 1 / 6, 1 / 5
"""Parts of a lease. A gate is heard of at least once in RENEW. It takes its own lease for over MARGIN before the others
do. Once nobody was heard of for a lease, no share grows for SETTLE: first everybody says what he holds.
"""


class Entry(Struct, frozen=True, kw_only=True):
    """What one gate counts with. `demand`: the places that it could use. `tokens`: what it may give in a slot of the
    ramp. `hungry`: since when somebody waits there, where it could use more than it has.
    """

    places: int
    demand: int
    tokens: Given | None = None
    hungry: datetime | None = None


class PoolTable(Struct, kw_only=True):
    """One pool. `given`: how many places its ramp has given in a slot, over all gates."""

    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    given: Given | None = None


class Table(Struct, kw_only=True):
    """What all gates agree on. `gates`: until when each of them counts. `settled`: when shares may grow again."""

    gates: dict[str, datetime]
    touched: datetime
    settled: datetime
    pools: dict[str, PoolTable] = field(default_factory=dict[str, PoolTable])


class Mine(Struct, frozen=True, kw_only=True):
    """What this gate knows of a pool: its limit here, the places that are taken, and how many more could be used.
    `keep`: so many may be taken before the answer is here. `since`: when somebody began to wait for one. `given`: what
    its ramp has given here.
    """

    limit: Limit
    taken: int
    wanted: int
    keep: int = 0
    since: datetime | None = None
    given: Given | None = None

    @property
    def demand(self) -> int:
        return self.taken + self.wanted


def fair(number: int, demands: Mapping[str, int], hungry: Mapping[str, datetime | None]) -> dict[str, int]:
    """Who may have how many of so many places: nobody gets more than he could use while another has fewer; what is left
    over goes to those who wait longest.
    """
    shares, left = dict[str, int](), number
    rest = sorted(demands, key=lambda gate: (demands[gate], gate))
    while rest and demands[rest[0]] <= left // len(rest):
        gate = rest.pop(0)
        shares[gate] = demands[gate]
        left -= shares[gate]
    each = left // len(rest) if rest else 0
    shares |= dict.fromkeys(rest, each)
    rest.sort(key=lambda gate: (hungry.get(gate) or FOREVER, gate))
    for gate in rest[: left - each * len(rest)]:
        shares[gate] += 1
    return shares


def settle(
    table: Table | None, gate: str, mine: Mapping[str, Mine], lease: timedelta, now: datetime
) -> tuple[Table | None, dict[str, Share]]:
    """What this gate's shares are now, and the table to be written for that to be so; None: it is so already.

    Never takes a place away that is taken: after a loss of the table, or where limits differ, more may be held than the
    limit allows, and then nobody's share grows.
    """
    if table is None or not table.touched - lease <= now <= table.touched + lease:
        table = Table(gates={}, touched=now, settled=now + SETTLE * lease)
    gates = {name: until for name, until in table.gates.items() if until > now}
    due = gates.get(gate, now) - lease + RENEW * lease <= now
    after = Table(gates={**gates, gate: now + lease}, touched=now, settled=table.settled)
    shares = dict[str, Share]()
    for name in dict.fromkeys([*table.pools, *mine]):
        before = table.pools.get(name) or PoolTable()
        others = {who: entry for who, entry in before.entries.items() if who != gate and who in gates}
        own = before.entries.get(gate) if gate in gates else None
        pool = PoolTable(entries=dict(others), given=before.given)
        if name in mine:
            may_grow = now >= table.settled
            entry, shares[name] = _settled(others, own, mine[name], may_grow=may_grow)
            entry = _with_tokens(pool, entry, mine[name], now)
            shares[name] = replace(shares[name], given=entry.tokens)
            if entry.places or entry.demand or entry.tokens:
                pool.entries[gate] = entry
        if pool.entries or pool.given is not None:
            after.pools[name] = pool
    same = not due and after.pools == table.pools and gates == table.gates
    return (None if same else after), shares


def _settled(others: Mapping[str, Entry], own: Entry | None, mine: Mine, *, may_grow: bool) -> tuple[Entry, Share]:
    number = mine.limit.number or 0
    elsewhere = sum(entry.places for entry in others.values())
    room, had = max(0, number - elsewhere), 0 if own is None else own.places
    contended = any(entry.demand > entry.places for entry in others.values())
    target = number
    if contended:
        demands = {who: entry.demand for who, entry in others.items()} | {"": mine.demand}
        since = {who: entry.hungry for who, entry in others.items()} | {"": mine.since}
        target = fair(number, demands, since)[""]
    wish = target if contended else max(had, mine.demand, 2 * mine.demand if mine.demand > had else 0)
    allowed = min(wish if may_grow else min(wish, had), room)
    places = max(mine.taken, mine.keep, allowed)  # a job that runs is counted, also above the limit
    share = Share(places=allowed, counted=places, elsewhere=elsewhere, told=mine.demand, settling=not may_grow)
    entry = Entry(
        places=places,
        demand=mine.demand,
        hungry=mine.since if mine.demand > places else None,
        tokens=None if own is None else own.tokens,
    )
    return entry, share


def _with_tokens(pool: PoolTable, entry: Entry, mine: Mine, now: datetime) -> Entry:
    """One more place in this slot of the ramp, where this gate could use it and the others have left it."""
    part = slot(mine.limit, now)
    if part is None:
        return replace(entry, tokens=None)
    given = pool.given.places if pool.given is not None and pool.given.start == part.start else 0
    tokens = entry.tokens.places if entry.tokens is not None and entry.tokens.start == part.start else 0
    used = mine.given.places if mine.given is not None and mine.given.start == part.start else 0
    if mine.wanted > tokens - used and given < part.count:
        more = min(mine.wanted - (tokens - used), part.count - given)
        given, tokens = given + more, tokens + more
    pool.given = Given(part.start, given) if given else None
    return replace(entry, tokens=Given(part.start, tokens) if tokens else None)
