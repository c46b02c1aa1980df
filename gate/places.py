"""Which permits are held: by id, by pool, by process and by connection. One change at a time, so that nothing leaks."""

from collections.abc import Iterable, Iterator

from gate.holders import Holders, Record, Share
from gate.permit import Permit, PoolStatus
from gate.pools import NO_SHARE, Pool
from gate.waitlist import Connection, Process, Waiter


class Places:
    """The table of permits. Whatever is held is put in by `put` and taken out by `take`, and by nothing else."""

    def __init__(self, *, shared: bool = False) -> None:
        """`shared`: other gates give places of the same pools."""
        self._share = NO_SHARE if shared else None
        self.holders = Holders()
        self._permits: dict[str, Permit] = {}
        self._pools: dict[str, Pool] = {}
        self._of_connection: dict[Connection, set[str]] = {}

    def __len__(self) -> int:
        """How many permits are held."""
        return len(self._permits)

    def held_by(self, process: Process) -> int:
        """How many of them a process holds."""
        holder = self.holders.get(process)
        return 0 if holder is None else len(holder.permits)

    def get(self, permit_id: str) -> Permit | None:
        return self._permits.get(permit_id)

    def pool(self, name: str) -> Pool:
        """The pool of this name, made when it is first asked for."""
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = Pool(name, self._share)
        return pool

    def known(self) -> list[str]:
        """The names of all pools that were ever asked for."""
        return list(self._pools)

    def of_process(self, process: Process) -> list[Permit]:
        holder = self.holders.get(process)
        return [] if holder is None else [self._permits[permit_id] for permit_id in holder.permits]

    def of_connection(self, connection: Connection) -> list[Permit]:
        return [self._permits[permit_id] for permit_id in self._of_connection.get(connection, ())]

    def put(self, permit: Permit) -> None:
        self._permits[permit.id] = permit
        self.holders.of(permit.process).permits.add(permit.id)
        self._share_of(permit).held.update(permit.pools)
        for name in permit.pools:
            self.pool(name).holders.add(permit.id)
        if permit.connection is not None:
            self._of_connection.setdefault(permit.connection, set()).add(permit.id)

    def take(self, permit: Permit) -> None:
        del self._permits[permit.id]
        self.holders.of(permit.process).permits.discard(permit.id)
        self._share_of(permit).held.subtract(permit.pools)
        for name in permit.pools:
            self._pools[name].holders.discard(permit.id)
        if permit.connection is not None:
            ids = self._of_connection[permit.connection]
            ids.discard(permit.id)
            if not ids:
                del self._of_connection[permit.connection]

    def replace(self, before: Permit, after: Permit) -> None:
        self.take(before)
        self.put(after)

    def _share_of(self, permit: Permit) -> Share:
        return self.holders.share(permit.process, permit.session or "")

    def record(self, permit: Permit) -> Record | None:
        """What has to be on disk before an answer about this permit leaves."""
        of_ramps = ((name, self.pool(name).unwritten()) for name in permit.pools)
        given = {name: given for name, given in of_ramps if given is not None}
        return self.holders.record(permit.process, permit.session or "", given)

    def recorded(self, record: Record) -> None:
        """A record is on disk."""
        self.holders.recorded(record)
        for name, given in record.given.items():
            self.pool(name).written(given)

    def assume(self, process: Process, session: str, marks: dict[str, int]) -> None:
        """Count a session with what the disk says of it, until it says what it holds."""
        share = self.holders.share(process, session)
        share.marks, share.unsaid = dict(marks), dict(marks)
        for name, count in marks.items():
            self.pool(name).unsaid += count

    def has_said(self, process: Process, session: str) -> None:
        """What a session was assumed to hold counts no longer."""
        share = self.holders.share(process, session)
        for name, count in (share.unsaid or {}).items():
            self._pools[name].unsaid -= count
        share.unsaid = None

    # -- for people

    def taken(self) -> Iterator[str]:
        """The pools of which a place is taken."""
        return (name for name, pool in self._pools.items() if pool.taken)

    def status(self, name: str, waiters: Iterable[Waiter]) -> PoolStatus:
        pool = self._pools.get(name) or Pool(name, self._share)
        held = (self._permits[permit_id] for permit_id in pool.holders)
        return PoolStatus(
            pool=name,
            taken=pool.taken,
            unsaid=pool.unsaid,
            promised=pool.promised,
            holders=tuple(sorted(held, key=lambda permit: (permit.since, permit.id))),
            waiters=tuple(waiter for waiter in waiters if name in waiter.pools),
            share=pool.share,
        )
