"""Permits with a clock that a test moves, limits that it sets, and workers that it plays."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from gate.permit import Answer, Ask, Bound, Choice, Held, Restored, Restorer, Tick
from gate.permits import Permits
from gate.pools import Given, Limit, Ramp
from gate.waitlist import Key

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
DICOM, PACS, MAIL = "rule dicom", "resource pacs-1", "rule mail"
A_DICOM = Choice(rule="dicom", queues=("dicom", "dicom-*"), pools=(DICOM, PACS))
A_MAIL = Choice(rule="mail", queues=("mail",), pools=(MAIL, PACS))
ANY = Choice(rule="rest", queues=("*",))
"""What no limit applies to."""


class World:
    """A gate's permits at noon. `numbers`: the limit of each pool; each is 1 if a test does not say so."""

    def __init__(self, **numbers: int) -> None:
        self.now = NOON
        self.numbers = {DICOM: numbers.get("dicom", 1), PACS: numbers.get("pacs", 100), MAIL: numbers.get("mail", 1)}
        self.ramps: dict[str, Ramp] = {}
        self.opening: datetime | None = None
        self.until: datetime | None = None
        self.ids = 0
        self.disk: dict[Key, dict[str, int]] = {}
        """What a gate that was killed now would find."""
        self.disk_of_ramps: dict[str, Given] = {}
        self.written = 0
        self.start()

    def start(self) -> None:
        """Start a gate on the disk."""
        self.permits = Permits(self.now)
        for (process, session), marks in self.disk.items():
            self.permits.known(process, session, marks)
        for pool, given in self.disk_of_ramps.items():
            self.permits.ramped(pool, given)

    def limit(self, pool: str) -> Limit:
        number = self.numbers[pool]
        return Limit(
            number=number,
            reason=f"limit {number}",
            until=self.until,
            ramp=self.ramps.get(pool),
            opening=self.opening,
        )

    def move(self, seconds: float) -> Tick:
        self.now += timedelta(seconds=seconds)
        return self.tick()

    def tick(self) -> Tick:
        return self.permits.tick(self.limit, self.now)

    def ask(
        self,
        worker: str,
        *choices: Choice,
        permit: str | None = None,
        connection: str | None = None,
        process: str | None = None,
    ) -> Answer:
        """A worker with a process, a session and a connection of its own asks; no tick follows."""
        self.ids += 1
        asked = Ask(
            permit=permit or f"permit {self.ids}",
            worker=worker,
            session=f"session of {worker}",
            process=process or f"process of {worker}",
            connection=connection or f"connection of {worker}",
            choices=choices or (A_DICOM,),
        )
        answer = self.permits.acquire(asked, self.limit, self.now)
        if answer.record is not None:
            self.disk[answer.record.process, answer.record.session] = dict(answer.record.marks)
            self.disk_of_ramps |= answer.record.given
            self.written += 1
            self.permits.recorded(answer.record)
        return answer

    def take(self, worker: str, *choices: Choice) -> str:
        """The same, of one who is granted something: the permit."""
        answer = self.ask(worker, *choices)
        assert answer.permit is not None, answer.reason
        return answer.permit

    def run(self, worker: str, queue: str = "dicom", *choices: Choice) -> str:
        """A worker that fetches a job: its permit, bound."""
        permit = self.take(worker, *choices)
        self.bind(permit, queue)
        return permit

    def bind(self, permit: str, queue: str, job: str | None = "job") -> Bound:
        bound = self.permits.bind(permit, queue, job)
        assert bound is not None
        return bound

    def release(self, permit: str) -> list[str]:
        """Give back; who is woken by it."""
        self.permits.release(permit)
        return self.woken()

    def woken(self) -> list[str]:
        """The workers that have been offered a place since the last tick."""
        return [waiter.worker for waiter in self.tick().woken]

    def restore(
        self,
        worker: str,
        *held: Held,
        process: str | None = None,
        choices: Iterable[Choice] = (A_DICOM, A_MAIL),
        names_session: bool = True,
    ) -> Restored:
        """A worker says what it holds, over a new connection."""
        return self.permits.restore(
            Restorer(
                worker=worker,
                session=f"session of {worker}" if names_session else None,
                process=process or f"process of {worker}",
                connection=f"new connection of {worker}",
            ),
            held,
            lambda queue: next((choice for choice in choices if choice.decides(queue)), ANY),
            self.now,
        )

    def taken(self, pool: str = DICOM) -> int:
        return self.permits.status(pool).taken

    def waiting(self, pool: str = DICOM) -> list[str]:
        return [waiter.worker for waiter in self.permits.status(pool).waiters]
