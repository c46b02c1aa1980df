"""Whether there is room in pools, and whom a free place is offered to."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from gate.moments import earliest
from gate.permit import Ask, Choice
from gate.places import Places
from gate.pools import Limits, slot
from gate.waitlist import Connection, Key, Needs, Offer, Process, Waiter, Waitlist

OFFER_SECONDS = 1.0
"""How long a free place is kept for the one who was woken for it."""
REASONS = 3
"""How many pools a refusal names."""
NOTHING = frozenset[str]()


class Offers:
    """Those who wait for places, and the places that are kept for some of them. `seconds`: for how long."""

    def __init__(self, places: Places, seconds: float) -> None:
        self._places = places
        self._kept = timedelta(seconds=seconds)
        self._waiting = Waitlist()
        self._woken: dict[Key, Waiter] = {}

    def __iter__(self) -> Iterator[Waiter]:
        """All who wait, in order."""
        return iter(self._waiting)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def waiting_of(self, process: Process) -> int:
        """How many of them are of a process."""
        return self._waiting.of_process(process)

    # -- room

    def has_room(self, pools: Iterable[str], mine: frozenset[str], limits: Limits, now: datetime) -> bool:
        """Whether a place is free in all pools, for one to whom those of `mine` are promised."""
        return all(self._left(name, mine, limits, now) >= 1 for name in pools)

    def shortage(
        self, left_out: Iterable[Choice], mine: frozenset[str], limits: Limits, now: datetime
    ) -> tuple[str, datetime | None]:
        """Why choices have no room, and until when that may be so for all of them; None if that is not known."""
        full = dict.fromkeys(
            name for choice in left_out for name in choice.pools if self._left(name, mine, limits, now) < 1
        )
        found = [self._places.pool(name).shortage(limits(name), now) for name in full]
        more = f"; and {len(found) - REASONS} more" if len(found) > REASONS else ""
        reason = "; ".join(text for text, _ in found[:REASONS]) + more
        return reason, earliest(until for _, until in found)

    def _left(self, name: str, mine: frozenset[str], limits: Limits, now: datetime) -> float:
        pool = self._places.pool(name)
        return pool.free(limits(name), now) - pool.promised + (name in mine)

    # -- who waits

    def wanted(self, pools: frozenset[str]) -> bool:
        """Whether somebody waits for a place in one of these pools, or has one kept for him."""
        return not pools.isdisjoint(self._waiting.needed()) or any(self._places.pool(name).promised for name in pools)

    def waiting_for(self, pool: str) -> int:
        """How many wait for a place in a pool, those included for whom one is kept."""
        return self._waiting.of_pool(pool)

    def get(self, key: Key) -> Waiter | None:
        return self._waiting.get(key)

    def promised_to(self, key: Key) -> frozenset[str]:
        """The pools of which a place is kept for somebody."""
        waiter = self._waiting.get(key)
        return NOTHING if waiter is None or waiter.offer is None else waiter.offer.pools

    def wait(self, ask: Ask, left_out: Iterable[Choice], now: datetime) -> None:
        """Wait for what was left out. What was kept for him before is kept no longer."""
        self._keep_no_longer((ask.process, ask.session))
        self._waiting.join(
            Waiter(
                process=ask.process,
                session=ask.session,
                worker=ask.worker,
                permit=ask.permit,
                connection=ask.connection,
                needs=frozenset(frozenset(choice.pools) for choice in left_out),
                number=0,
                since=now,
            )
        )

    def leave(self, key: Key) -> None:
        """Wait no more; harmless for one who does not."""
        self._keep_no_longer(key)
        self._waiting.leave(key)

    def connection_closed(self, connection: Connection) -> None:
        """Those who asked over it do not wait any more."""
        for key in self._waiting.of_connection(connection):
            self.leave(key)

    def _keep_no_longer(self, key: Key) -> None:
        for name in self.promised_to(key):
            self._places.pool(name).promised -= 1

    # -- offers

    def expire(self, now: datetime) -> None:
        """End offers that are over: who did not come in time has to ask again."""
        for waiter in self._waiting.offered:
            assert waiter.offer is not None
            # A place is not kept for longer because a clock went back.
            if not waiter.offer.until - self._kept <= now < waiter.offer.until:
                self.leave(waiter.key)

    def withdraw(self, limits: Limits, now: datetime) -> None:
        """Take back, the latest first, offers of places that are not free any more: a limit became smaller."""
        for waiter in reversed(self._waiting.offered):
            if any(self._left(name, NOTHING, limits, now) < 0 for name in self.promised_to(waiter.key)):
                self._keep_no_longer(waiter.key)
                self._waiting.withdraw(waiter.key)

    def serve(self, limits: Limits, now: datetime) -> None:
        """Offer what is free to those who wait longest and can use it."""

        def usable(needs: Needs) -> frozenset[str]:
            fitting = (pools for pools in needs if self.has_room(pools, NOTHING, limits, now))
            return frozenset(name for pools in fitting for name in pools)

        def promise(waiter: Waiter, pools: frozenset[str]) -> Offer:
            for name in pools:
                self._places.pool(name).promised += 1
            offer = Offer(pools, now + self._kept)
            self._woken[waiter.key] = replace(waiter, offer=offer)
            return offer

        self._waiting.serve(usable, promise)

    def take_woken(self) -> tuple[Waiter, ...]:
        """Those who got an offer since the last call, and still have it."""
        woken = tuple(waiter for waiter in self._waiting.offered if self._woken.get(waiter.key) == waiter)
        self._woken.clear()
        return woken

    def moments(self, limits: Limits, now: datetime) -> Iterator[datetime]:
        """When an offer ends, or a limit or a ramp may have room for those who wait."""
        for waiter in self._waiting.offered:
            if waiter.offer is not None:
                yield waiter.offer.until
        for name in self._waiting.needed():
            limit = limits(name)
            part = slot(limit, now)
            if limit.until is not None:
                yield limit.until
            if part is not None:
                yield part.end
