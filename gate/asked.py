"""Which workers and queues may be asked for, and which were: a rule that nobody asks for may be misspelt."""

from collections.abc import Iterable, Iterator, Sequence

from gate.errors import InvalidWorker
from gate.globs import GlobIndex
from gate.hours import FetchRule

WORKER_BYTES = 256
QUEUES = 1000
QUEUE_BYTES = 512
JOB_BYTES = 512
SESSION_CHARACTERS = 128
PERMIT_CHARACTERS = 128
MOST_NAMES = 2_000
"""With more names than that of a kind, nothing is said of it: it would be too much to remember and to compare."""


class Names:
    """Names that were asked for, up to a number."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.all = False
        """Whether every name counts as asked for."""

    def add(self, names: Iterable[str]) -> bool:
        """Take names in; whether that changed anything."""
        if self.all:
            return False
        before = len(self.seen)
        self.seen.update(names)
        if len(self.seen) > MOST_NAMES:
            return self.add_all()
        return len(self.seen) != before

    def add_all(self) -> bool:
        """Every name was asked for; whether that changed anything."""
        before, self.all = self.all, True
        self.seen.clear()
        return not before

    def matching(self, lists: Sequence[tuple[str, ...]]) -> int:
        """The lists of globs of which one matches a name, as a set of GlobIndex."""
        if self.all:
            return (1 << len(lists)) - 1
        index, found = GlobIndex(lists), 0
        for name in self.seen:
            found |= index.matching(name)
        return found


class Asked:
    """Workers and queues that were asked for."""

    def __init__(self) -> None:
        self._workers = Names()
        self._queues = Names()
        self._changed = True
        self._told: tuple[tuple[FetchRule, ...], list[str]] = ((), [])

    def note(self, worker: str, queues: Sequence[str] | None) -> None:
        """Somebody asked. Whoever asks for all queues asks for each."""
        changed = self._workers.add((worker,))
        changed |= self._queues.add_all() if queues is None else self._queues.add(queues)
        self._changed |= changed

    def warnings(self, rules: tuple[FetchRule, ...]) -> list[str]:
        """One for each rule whose workers or whose queues nobody has asked for; one for all if nobody has asked."""
        if self._changed or self._told[0] is not rules:
            self._changed = False
            self._told = (rules, list(self._find(rules)))
        return self._told[1]

    def _find(self, rules: tuple[FetchRule, ...]) -> Iterator[str]:
        if rules and not self._workers.seen and not self._workers.all:
            yield "no worker has asked since the gate started"
            return
        workers = self._workers.matching([rule.workers for rule in rules])
        queues = self._queues.matching([rule.queues for rule in rules])
        for index, rule in enumerate(rules):
            for kind, found, globs in (("worker", workers, rule.workers), ("queue", queues, rule.queues)):
                if not found >> index & 1:
                    shown = " or ".join(globs)
                    yield f"rule {rule.name}: no {kind} {shown} was asked for since the gate started: is it misspelt?"


def check_session(session: str) -> None:
    """Whether a session may be named so; raises InvalidWorker."""
    _check_characters("session", session, SESSION_CHARACTERS)


def check_permit(field: str, permit: str) -> None:
    """Whether a permit may be named so; raises InvalidWorker."""
    _check_characters(field, permit, PERMIT_CHARACTERS)


def check_bound(place: str, queue: str, job: str | None) -> None:
    """Whether a permit may be bound to a job of a queue; raises InvalidWorker. `place`: what its fields stand in."""
    _check_bytes(f"{place}queue", queue, QUEUE_BYTES)
    if job is not None:
        _check_bytes(f"{place}job", job, JOB_BYTES)


def check_names(worker: str, queues: Sequence[str] | None) -> None:
    """Whether this may be asked at all; raises InvalidWorker. None: all queues."""
    _check_bytes("worker", worker, WORKER_BYTES)
    if queues is None:
        return
    if len(queues) > QUEUES:
        reason = f"{len(queues)} names are given, at most {QUEUES} are allowed"
        raise InvalidWorker(field="queues", reason=reason)
    for index, queue in enumerate(queues):
        _check_bytes(f"queues[{index}]", queue, QUEUE_BYTES)


def _check_bytes(field: str, text: str, most: int) -> None:
    if not 1 <= (size := len(text.encode())) <= most:
        raise InvalidWorker(field=field, reason=f"{size} bytes are given, 1 to {most} are allowed")


def _check_characters(field: str, text: str, most: int) -> None:
    if not 1 <= len(text) <= most:
        raise InvalidWorker(field=field, reason=f"{len(text)} characters are given, 1 to {most} are allowed")
