"""A gate with one limit that a test sets: it gives places, takes them back, and offers a free one to one who waits."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gate.interface import (
    AcquireIn,
    AcquireOut,
    BindIn,
    CheckIn,
    CheckOut,
    Done,
    PermitIn,
    RestoreIn,
    RestoreOut,
    WatchIn,
)
from gate_client.places import ACQUIRE, BIND, RELEASE, RESTORE
from tests.support.fake_gate import Answer, Keep
from tests.support.fetch_gate import FetchGate


class PlaceGate(FetchGate):
    """All queues share `limit` places, but those of `free_queues`, which need none. `held`: what each permit is bound
    to, (queue, job), or None. `most`: the most places that were taken at once, restored ones aside.
    """

    def __init__(self, path: Path, limit: int = 1) -> None:
        super().__init__(path)
        self.limit = limit
        self.free_queues: set[str] = set()
        self.held: dict[str, tuple[str, str | None] | None] = {}
        self.most = 0
        self.reuse: float | None = None
        """For how long each place may serve one job after another."""
        self.waiting: list[str] = []
        """The sessions that were refused, in order."""
        self.pushed = 0
        """How many offers were made."""
        self._kept_answers: list[AcquireOut] = []
        self.answer = self.limited
        self.answers |= {ACQUIRE: self.acquire, BIND: self._bind, RELEASE: self.release, RESTORE: self._restore}

    def limited(self, question: CheckIn | WatchIn) -> CheckOut:
        """What `only` says, with the limit."""
        return replace(self.by_queues(question), limited=True, place=self._free())

    def change(self, limit: int) -> None:
        """Set another limit; those who wait get what is free."""
        self.limit = limit
        self._run(self._offer)

    def keep_acquires(self) -> None:
        """From now on, places are given as ever, but only `finish_acquire` lets the client know."""
        self.answers[ACQUIRE] = self._keep_acquire

    def finish_acquire(self) -> None:
        """Send the answer that was kept first."""
        at = next(n for n, (_, slot) in enumerate(self.kept) if slot.call is not None and slot.call.method == ACQUIRE)
        peer, slot = self.kept.pop(at)
        self._run(lambda: peer.say(slot, self._kept_answers.pop(0)))

    def stop(self) -> None:
        """Close everything; what was held and who waits is forgotten, as after a kill."""
        super().stop()
        self.held.clear()
        self.waiting.clear()

    @property
    def jobs(self) -> list[str | None]:
        """The jobs that places are bound to."""
        return [bound[1] for bound in self.held.values() if bound is not None]

    # ---- in its thread

    def _free(self) -> bool:
        taken = sum(bound is None or bound[0] not in self.free_queues for bound in self.held.values())
        return taken < self.limit

    def _keep_acquire(self, asked: AcquireIn) -> Answer:
        self._kept_answers.append(self.acquire(asked))
        return Keep()

    def acquire(self, asked: AcquireIn) -> AcquireOut:
        fields: dict[str, Any] = {"excluded": None, "until": None}
        allowed = self.by_queues(CheckIn(worker=asked.worker, queues=asked.queues)).queues
        queues = [queue for queue in allowed or [] if self._free() or queue in self.free_queues]
        if queues != allowed and asked.session not in self.waiting:
            self.waiting.append(asked.session)
        if not queues:
            return AcquireOut(open=False, queues=[], permit=None, reason="all places are taken", **fields)
        assert asked.permit is not None
        self.held[asked.permit] = None
        self.most = max(self.most, len(self.held))
        return AcquireOut(open=True, queues=queues, permit=asked.permit, reason="a place", reuse=self.reuse, **fields)

    def _bind(self, asked: BindIn) -> Answer:
        self.held[asked.permit] = (asked.queue, asked.job)
        return Done()

    def release(self, asked: PermitIn) -> Answer:
        if self.held.pop(asked.permit, None) is not None:  # what was not used wakes nobody: nobody else was refused
            self._offer()
        return Done()

    def _restore(self, asked: RestoreIn) -> Answer:
        self.held |= {one.permit: (one.queue, one.job) for one in asked.permits}
        return RestoreOut(kept=[one.permit for one in asked.permits])

    def _offer(self) -> None:
        taken = len(self.held)
        while self.waiting and taken < self.limit:
            taken += 1
            session = self.waiting.pop(0)
            for peer, slot in self.watching():
                if isinstance(slot.parameters, WatchIn) and slot.parameters.session == session:
                    self.pushed += 1
                    peer.say(slot, replace(self.limited(slot.parameters), place=True), continues=True)
