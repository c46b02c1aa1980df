"""Workers, deaths, restarts, limits and ramps in any order: permits do what a simple model does, and the laws hold."""

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gate.holders import Record
from gate.permit import Ask, Choice, Held, Restorer, pools_of
from gate.permits import Permits
from gate.pools import Given, Limit, Ramp, slot
from tests.support import permits_model
from tests.support.permits import NOON
from tests.support.permits_model import Model

POOLS = {"a": ("rule a",), "b": ("rule b", "pacs"), "c": ("rule c", "pacs", "disk"), "free": ()}
"""By queue: the pools that its jobs need."""
NAMES = ["rule a", "rule b", "rule c", "pacs", "disk"]
PROCESSES = ["p0", "p1", "p2"]
RAMP = (1, 5)
SLOW = {"rule a", "pacs"}

queues = st.lists(st.sampled_from(sorted(POOLS)), min_size=1, max_size=4, unique=True)
numbers = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), min_size=1)
processes = st.sampled_from(PROCESSES)


def choice(queue: str) -> Choice:
    return Choice(rule=queue, queues=(queue,), pools=POOLS[queue])


class PermitMachine(RuleBasedStateMachine):
    """`jobs`: what really runs, or may: by permit, its process and pools. No gate that is killed changes that."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = dict.fromkeys(NAMES, 2)
        self.model = Model(0, self.numbers, SLOW, RAMP, opening=-1000)
        self.permits = Permits(NOON)
        self.jobs: dict[str, tuple[str, str, frozenset[str]]] = {}
        self.disk: dict[tuple[str, str], dict[str, int]] = {}
        self.ramps: dict[str, Given] = {}
        self.dead: set[str] = set()
        self.lives = dict.fromkeys(PROCESSES, 0)
        self.connections: set[str] = set()
        self.ids = 0

    # -- the same to both

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.model.now)

    def limit(self, pool: str) -> Limit:
        return Limit(
            number=self.numbers[pool],
            reason="a test",
            ramp=Ramp(*RAMP) if pool in SLOW else None,
            opening=NOON + timedelta(seconds=self.model.opening),
        )

    def tick(self) -> None:
        tick = self.permits.tick(self.limit, self.now)
        assert [waiter.session for waiter in tick.woken] == self.model.tick()
        assert tick.next is None or tick.next > self.now
        for permit in tick.lost:
            self.jobs.pop(permit.id, None)
        for process, session in tick.gone:
            self.disk.pop((process, session), None)
            self.jobs = {permit: job for permit, job in self.jobs.items() if job[0] != process}

    def write(self, record: Record | None) -> None:
        """It is on disk at once."""
        if record is not None:
            self.disk[record.process, record.session] = dict(record.marks)
            self.ramps |= record.given
            self.permits.recorded(record)

    def process(self, name: str) -> str:
        """The process that goes by this name now: one that died is followed by another."""
        return f"{name}.{self.lives[name]}"

    @initialize(chosen=numbers)
    def begin(self, chosen: dict[str, int]) -> None:
        self.numbers.update(chosen)

    @rule(process=processes, session=st.integers(0, 1), wanted=queues, again=st.integers(0, 9))
    def acquire(self, process: str, session: int, wanted: list[str], again: int) -> None:
        process = self.process(process)
        known = sorted(self.model.permits)
        self.ids += 1
        permit = known[again % len(known)] if known and again < 2 else f"permit {self.ids:04}"
        connection = f"{process} {session}"
        self.connections.add(connection)
        choices = [choice(queue) for queue in wanted]
        ask = Ask(
            permit=permit,
            worker=f"w{session}",
            session=connection,
            process=process,
            connection=connection,
            choices=tuple(choices),
        )
        before = {name: sum(name in pools for _, _, pools in self.jobs.values()) for name in NAMES}
        new = permit not in self.model.permits
        answer = self.permits.acquire(ask, self.limit, self.now)
        expected = self.model.acquire(
            permit,
            f"w{session}",
            connection,
            process,
            connection,
            [permits_model.Choice(queue, frozenset(POOLS[queue])) for queue in wanted],
        )
        assert ([c.rule for c in answer.granted], [c.rule for c in answer.left_out]) == expected
        assert (answer.permit is None) == (not answer.granted)
        assert answer.reason
        if answer.reuse is not None:
            kept = pools_of(answer.granted)
            assert not answer.left_out
            assert not any(self.permits.status(name).waiters for name in kept)
            assert not any(slot(self.limit(name), self.now) for name in kept)
        self.write(answer.record)
        if new and answer.permit is not None:
            pools = pools_of(answer.granted)
            assert all(before[name] < self.numbers[name] for name in pools), "more than the limit in force"
            self.jobs[permit] = (process, "", pools)
        self.tick()

    @precondition(lambda self: self.model.permits)
    @rule(which=st.integers(0, 50), queue=st.sampled_from(sorted(POOLS)))
    def bind(self, which: int, queue: str) -> None:
        permit = sorted(self.model.permits)[which % len(self.model.permits)]
        process = self.model.permits[permit].process
        if process in self.dead:
            return
        bound = self.permits.bind(permit, queue, "job")
        self.model.bind(permit, queue)
        assert bound is not None
        assert bound.pools == self.model.permits[permit].pools
        self.write(bound.record)
        self.jobs[permit] = (process, queue, bound.pools)
        self.tick()

    @precondition(lambda self: self.jobs)
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        permit = sorted(self.jobs)[which % len(self.jobs)]
        if self.jobs[permit][0] in self.dead:
            return
        held = self.permits.release(permit)
        assert (held is not None) == (permit in self.model.permits)
        self.model.release(permit)
        del self.jobs[permit]
        self.tick()

    @rule(process=processes, session=st.integers(0, 1))
    def close(self, process: str, session: int) -> None:
        connection = f"{self.process(process)} {session}"
        self.permits.connection_closed(connection)
        self.model.close(connection)
        self.tick()

    @rule(process=processes, session=st.integers(0, 1))
    def leave(self, process: str, session: int) -> None:
        process = self.process(process)
        self.permits.leave(process, f"{process} {session}")
        waiter = self.model.waiter(process, f"{process} {session}")
        if waiter is not None:
            self.model.waiters.remove(waiter)
        self.tick()

    @rule(process=processes, workers=st.sampled_from([(1,), (0, 1)]), names_session=st.booleans())
    def restore(self, process: str, workers: tuple[int, ...], names_session: bool) -> None:
        """One worker of a process reconnects, or both: worker 1 says what both run. What they had reserved is gone."""
        process = self.process(process)
        for worker in workers:
            held = {permit: queue for permit, (of, queue, _) in self.jobs.items() if of == process and queue}
            named = held if worker else {}
            connection = f"{process} {worker}"
            session = connection if names_session else None
            restored = self.permits.restore(
                Restorer(worker=f"w{worker}", session=session, process=process, connection=connection),
                [Held(permit, queue, "job") for permit, queue in named.items()],
                choice,
                self.now,
            )
            kept = self.model.restore(
                process,
                f"w{worker}",
                session,
                connection,
                {p: permits_model.Choice(queue, frozenset(POOLS[queue])) for p, queue in named.items()},
            )
            assert list(restored.kept) == kept
            self.write(restored.record)
        for permit in [p for p, (of, _, _) in self.jobs.items() if of == process and p not in self.model.permits]:
            del self.jobs[permit]
        self.tick()

    @rule(process=processes)
    def kill(self, process: str) -> None:
        """Its jobs end with it; another process follows it."""
        name, process = process, self.process(process)
        self.lives[name] += 1
        for session in range(2):
            self.permits.connection_closed(f"{process} {session}")
            self.model.close(f"{process} {session}")
        self.permits.process_dead(process, self.now)
        counted = {of for of, _ in self.model.unsaid} | {held.process for held in self.model.permits.values()}
        if process in counted:
            self.model.dying.setdefault(process, self.model.now + permits_model.GRACE)
        self.dead.add(process)
        self.tick()

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.model.now += seconds
        self.tick()

    @rule(chosen=numbers)
    def change_limits(self, chosen: dict[str, int]) -> None:
        self.numbers.update(chosen)
        self.tick()

    @rule()
    def open(self) -> None:
        """The rules with a ramp open a second later."""
        self.model.now += 1
        self.model.opening = self.model.now
        self.tick()

    @rule(process=processes)
    def forget(self, process: str) -> None:
        for key in self.permits.forget(self.process(process)):
            self.disk.pop(key, None)
            assert key not in self.model.unsaid

    @rule()
    def restart(self) -> None:
        """The gate is killed, and finds what is on disk."""
        self.permits = Permits(self.now)
        for (process, session), marks in self.disk.items():
            self.permits.known(process, session, marks)
        for pool, given in self.ramps.items():
            self.permits.ramped(pool, given)
        ramps = {pool: (int((g.start - NOON).total_seconds()), g.places) for pool, g in self.ramps.items()}
        self.model = self.model.restart(self.disk, ramps)
        for process in self.dead & {process for process, _ in self.disk}:
            self.permits.process_dead(process, self.now)
            self.model.dying[process] = self.model.now + permits_model.GRACE
        self.jobs = {permit: job for permit, job in self.jobs.items() if job[0] not in self.dead}
        self.tick()

    # -- what must hold

    @invariant()
    def both_know_the_same(self) -> None:
        order = [waiter.session for waiter in self.model.waiters]
        for name in NAMES:
            status = self.permits.status(name)
            assert status.taken == self.model.taken(name)
            assert status.promised == self.model.promised(name)
            assert {held.id for held in status.holders} == {
                permit for permit, held in self.model.permits.items() if name in held.pools
            }
            waiting = [w.session for w in self.model.waiters if any(name in need for need in w.needs)]
            assert [waiter.session for waiter in status.waiters] == waiting
        assert len(set(order)) == len(order)

    @invariant()
    def no_more_is_promised_than_is_free(self) -> None:
        for name in NAMES:
            status = self.permits.status(name)
            assert status.promised <= max(0, self.numbers[name] - status.taken)

    @invariant()
    def what_runs_is_on_disk(self) -> None:
        for process in {of for of, _, _ in self.jobs.values()} - self.dead:
            for name in NAMES:
                held = sum(of == process and name in pools for of, _, pools in self.jobs.values())
                on_disk = sum(marks.get(name, 0) for (of, _), marks in self.disk.items() if of == process)
                assert held <= on_disk

    def teardown(self) -> None:
        for permit in list(self.model.permits):
            self.permits.release(permit)
        for connection in self.connections:
            self.permits.connection_closed(connection)
        for process in {process for process, _ in self.disk}:
            self.permits.process_dead(process, self.now)
        self.permits.tick(self.limit, self.now + timedelta(seconds=permits_model.GRACE))
        assert self.permits.pools() == [], "every place is free in the end"


PermitMachine.TestCase.settings = settings(
    max_examples=settings.default.max_examples,  # type: ignore[union-attr]
    stateful_step_count=60,
    report_multiple_bugs=False,
)
TestPermits = PermitMachine.TestCase
