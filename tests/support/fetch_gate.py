"""A gate that a test opens and closes: it answers Check and Watch, and pushes every change to whoever watches."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gate.interface import CheckIn, CheckOut, WatchIn
from gate.wire import Slot
from tests.support.fake_gate import Answer, FakeGate, Keep, Peer

CHECK = "io.schedulegate.Fetch.Check"
WATCH = "io.schedulegate.Fetch.Watch"


def says(queues: list[str] | None = None, *, reason: str = "the test says so", **fields: Any) -> CheckOut:
    """An answer: None is all queues, [] none; `until` may be seconds from now."""
    until = fields.pop("until", None)
    if isinstance(until, int | float):
        until = datetime.now(UTC) + timedelta(seconds=until)
    given: dict[str, Any] = {"excluded": None, "limited": False, "place": True} | fields
    return CheckOut(open=queues is None or bool(queues), queues=queues, until=until, reason=reason, **given)


class FetchGate(FakeGate):
    """Everything is open, until `close`, `open` or `say` changes that for all or for some queues.

    `only`: the queues that are open, None for all. `answer`, a function of the question, overrules it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.only: list[str] | None = None
        self.end: Any = None
        self.reason = "the test says so"
        self.answer: Callable[[CheckIn | WatchIn], CheckOut] = self.by_queues
        self.answers |= {CHECK: self._check, WATCH: self._watch}

    def open(self, *queues: str, until: Any = None, reason: str = "opened by the test") -> None:
        """Open these queues and no others; without any, all."""
        self.say(list(queues) or None, until=until, reason=reason)

    def close(self, *, until: Any = None, reason: str = "closed by the test") -> None:
        """Close all queues."""
        self.say([], until=until, reason=reason)

    def say(self, only: list[str] | None, *, until: Any = None, reason: str = "the test says so") -> None:
        """Change the answer; when this returns, it is in the socket of everybody who watches."""
        self.only, self.end, self.reason = only, until, reason
        if self._running:
            self._run(self._push)

    def watchers(self) -> list[WatchIn]:
        """The questions of those who watch now."""
        return [slot.parameters for _, slot in self.watching() if isinstance(slot.parameters, WatchIn)]

    def by_queues(self, question: CheckIn | WatchIn) -> CheckOut:
        """What `only` says about the queues that are asked for."""
        asked, fields = question.queues, {"until": self.end, "reason": self.reason}
        if asked is not None:
            return says(asked if self.only is None else [name for name in asked if name in self.only], **fields)
        if self.only:
            return says(None, excluded=["*"], **fields)
        return says(self.only, **fields)

    # ---- in its thread

    def _check(self, parameters: CheckIn) -> Answer:
        return self.answer(parameters)

    def _watch(self, parameters: WatchIn) -> Answer:
        return Keep(first=self.answer(parameters))

    def watching(self) -> list[tuple[Peer, Slot]]:
        return [(peer, slot) for peer, slot in self.kept if slot.call is not None and slot.call.method == WATCH]

    def _push(self) -> None:
        for peer, slot in self.watching():
            assert isinstance(slot.parameters, WatchIn)
            peer.say(slot, self.answer(slot.parameters), continues=True)
