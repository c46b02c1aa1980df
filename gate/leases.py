"""The shares of places that this gate holds, where several share one store: asked for, renewed, and given up in time.

What is agreed is in gate/shares.py. A gate that is cut off from the store gives no more limited places, once the others
may count with those that it held; that instant is taken from before it asked, on a clock that no step changes.
"""

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from gate import shares
from gate.errors import StoreError
from gate.permits import Permits
from gate.placemarks import Query
from gate.pools import NO_SHARE, Limit, Share
from gate.stores.base import SharedStore, Store

log = logging.getLogger("gate.fetch")

TABLE = "places"
PATIENCE_SECONDS = 1.0
"""How long a question for a place waits for other gates to give up what they do not use."""


class Parked(NamedTuple):
    """A question that waits for a share. `end`: until when at most, by the boot clock; None: for one answer."""

    pools: frozenset[str]
    again: Callable[[], None]
    end: float | None


class Leases:
    """The shares of all pools of `permits`. `lease`: for how long they count, in seconds. `limit`: that of each pool,
    now. `changed`: shares are other ones. `cut_off`: the lease is over and the store away, or that is over.
    """

    def __init__(
        self,
        permits: Permits,
        lease: float,
        pools: Callable[[], Iterable[str]],
        limit: Callable[[str], Limit],
        now: Callable[[], datetime],
        query: Query,
        changed: Callable[[], None],
        cut_off: Callable[[bool], None],
        boot: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._permits = permits
        self._lease = lease
        self._pools = pools
        self._limit = limit
        self._now = now
        self._query = query
        self._changed = changed
        self._cut_off = cut_off
        self._boot = boot
        self._end = boot() + (1 - shares.MARGIN) * lease
        """Until when what was agreed holds, by the boot clock; nothing yet, but the store was there when this began."""
        self._parked: list[Parked] = []
        self._asking = False
        self._again = False
        self._away = False

    @property
    def away(self) -> bool:
        """Whether the lease is over and the store was not heard of since."""
        return self._boot() >= self._end

    # -- asking for more

    def wait(self, pools: Iterable[str], again: Callable[[], None], *, told: bool) -> bool:
        """Whether a question that was refused for the lack of a share is to wait for one; then `again` asks it anew.

        `told`: whoever asks is told when there is a place later on. Others get what the other gates hold and do not
        use, which they give up as soon as they hear of it.
        """
        short = frozenset(name for name in pools if self._may_grow(name))
        if not short or self._away:
            return False
        self._parked.append(Parked(short, again, None if told else self._boot() + PATIENCE_SECONDS))
        self.beat()
        return True

    def _may_grow(self, pool: str) -> bool:
        """Whether the limit leaves room here, and the share does not."""
        limit, share = self._limit(pool), self._permits.share(pool)
        if limit.number is None or share is None or self._permits.taken(pool) >= limit.number:
            return False
        return not self._gives(pool)

    def _gives(self, pool: str) -> bool:
        return self._permits.gives(pool, self._limit, self._now())

    def noticed(self) -> None:
        """Something changed in the pools: ask at once where others wait for what is free here, or more is wanted."""
        self.expire()
        for name in self._permits.shared():
            share = self._permits.share(name)
            if share is None:
                continue
            taken, waiting = self._permits.taken(name), self._permits.waiting(name)
            if (share.counted > max(taken, share.places)) or taken + waiting > share.told:
                self.beat()
                return

    def expire(self) -> None:
        """Give nothing any more once the lease is over."""
        if self._away or not self.away:
            return
        self._away = True
        log.warning("the store is away for longer than the lease of limited places: none is given until it is back")
        for name in self._permits.shared():
            share = self._permits.share(name) or NO_SHARE
            self._permits.set_share(name, replace(share, places=0, given=None, away=True))
        self._cut_off(True)

    # -- agreeing

    def beat(self) -> None:
        """Agree with the others, unless that is under way; then once more after it."""
        if self._asking:
            self._again = True
            return
        self._asking = True
        asked = self._boot()
        self._query(partial(_agree, self._mine(), timedelta(seconds=self._lease)), partial(self._agreed, asked))

    def _mine(self) -> dict[str, shares.Mine]:
        found: dict[str, shares.Mine] = {}
        for name in dict.fromkeys([*self._pools(), *self._permits.shared()]):
            limit, taken, wanted = self._limit(name), self._permits.taken(name), self._permits.waiting(name)
            if limit.number is not None:
                share = self._permits.share(name)
                found[name] = shares.Mine(
                    limit=limit,
                    taken=taken,
                    wanted=wanted,
                    keep=0 if share is None else share.places,
                    since=self._permits.waiting_since(name),
                    given=self._permits.given(name),
                )
        return found

    def _agreed(self, asked: float, outcome: Any) -> None:
        self._asking = False
        if isinstance(outcome, Exception):
            if not isinstance(outcome, StoreError):
                log.error("places cannot be agreed on with other gates: %r", outcome)
            self.expire()
            self._ask_parked(all_of_them=True)
            self._changed()
            return
        agreed = cast("Agreed", outcome)
        self._end = max(self._end, asked + agreed.seconds - shares.MARGIN * self._lease)
        back, self._away = self._away, False
        for name in self._permits.shared():
            self._permits.set_share(name, agreed.shares.get(name, NO_SHARE))
        for name, share in agreed.shares.items():
            self._permits.set_share(name, share)
        if back:
            log.warning("the store is back: limited places are given again")
            self._cut_off(False)
        self._ask_parked(all_of_them=False)
        if self._again:
            self._again = False
            self.beat()
        self._changed()

    def _ask_parked(self, *, all_of_them: bool) -> None:
        """Those that may be granted now, and those whose time is over or who wait for nothing."""
        parked, self._parked = self._parked, []
        for one in parked:
            waits = any(not self._gives(name) and self._may_come(name) for name in one.pools)
            if not all_of_them and waits and one.end is not None and self._boot() < one.end:
                self._parked.append(one)
            else:
                one.again()

    def _may_come(self, pool: str) -> bool:
        """Whether others hold places that they may give up, or are still to say so."""
        share = self._permits.share(pool)
        return share is not None and (share.elsewhere > 0 or share.settling)


class Agreed(NamedTuple):
    """The shares, and for how many seconds from the question on they hold."""

    shares: dict[str, Share]
    seconds: float


def _agree(mine: dict[str, shares.Mine], lease: timedelta, store: Store) -> Agreed:
    """In the store's thread."""
    shared = cast("SharedStore", store)
    found: dict[str, Share] = {}
    left = lease

    def decide(held: bytes | None, now: datetime) -> bytes | None:
        nonlocal found, left
        try:
            table = None if held is None else msgspec.json.decode(held, type=shares.Table)
        except msgspec.MsgspecError:
            table = None
        after, found = shares.settle(table, shared.gate, mine, lease, now)
        if after is None:
            assert table is not None
            left = table.gates[shared.gate] - now
            return None
        left = lease
        return msgspec.json.encode(after)

    shared.agree(TABLE, decide)
    return Agreed(found, left.total_seconds())
