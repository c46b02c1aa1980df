"""One start for each occurrence: a worker asks the gate before it runs what a gated scheduler has sent."""

import asyncio
import logging
import os
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Literal

from taskiq import AsyncTaskiqDecoratedTask, TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import NoResultError

from gate.errors import GateError, InvalidClaim, UnknownToken
from gate.interface import Decision, Reply
from gate_client import AsyncClaim, AsyncGate
from taskiq_gate import identity

log = logging.getLogger("taskiq_gate")

PAUSE_SECONDS = 0.5
"""Between two questions: while the gate is away, and while it cannot tell whether a worker lives."""
END_SECONDS = 60.0
"""How long the gate is tried to be told that a task has ended."""

_skipped: ContextVar[bool] = ContextVar("gate_skipped", default=False)
"""Whether the task that this asyncio task handles is not to be run."""
_start: ContextVar[AsyncClaim | None] = ContextVar("gate_start", default=None)


class OnceMiddleware(TaskiqMiddleware):
    """For the broker of workers: one copy of an occurrence is started, others are acknowledged and skipped.

    A retry is a start of its own. What was started on a worker that died may be started again. A message that no
    GatedScheduleSource sent runs untouched. Give it first to `with_middlewares`, so that what the others do before
    a task is done only for one that runs.

    `socket`: the gate's, as for GatedScheduleSource. `on_gate_down`: when it has not answered within `timeout`
    seconds, "run" the task (perhaps twice), "skip" it (perhaps never run), or "wait" until the gate is back.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        on_gate_down: Literal["run", "skip", "wait"] = "run",
        timeout: float = 5.0,
        holder: str | None = None,
    ) -> None:
        super().__init__()
        if on_gate_down not in ("run", "skip", "wait"):
            raise ValueError(f"on_gate_down is {on_gate_down!r}: 'run', 'skip' or 'wait' is allowed")
        self._on_gate_down = on_gate_down
        self._gate = AsyncGate(socket, holder=holder, timeout=timeout)

    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        """Ask the gate; it never raises, since taskiq would leave the message unacknowledged."""
        _skipped.set(False)
        _start.set(None)
        occurrence = identity.occurrence_of(message.labels)
        if occurrence is not None and not await self._may_start(message, *occurrence):
            _skipped.set(True)
            _make_skippable(self.broker.find_task(message.task_name))
        return message

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        """The task has ended, however it did: retries are on their way already."""
        start = _start.get()
        if start is None:
            return
        _start.set(None)
        try:
            await start.confirm()
        except UnknownToken as error:
            log.error("%s has ended, but the gate does not know its start: %s", message.task_id, error)  # noqa: TRY400
        except GateError as error:
            log.warning("%s has ended; the gate is told later: %s", message.task_id, error)
            self._gate.confirm_soon(start.token or "", timeout=END_SECONDS, then=_told)

    async def shutdown(self) -> None:
        """Tell the gate what it has not been told yet, and hang up."""
        await self._gate.close()

    async def _may_start(self, message: TaskiqMessage, key: str, at: str) -> bool:
        attempt = _attempt(message)
        what = f"{key} at {at}" + (f", retry {attempt}" if attempt else "")
        while True:
            try:
                start = await self._gate.start(key, at, attempt=attempt)
            except InvalidClaim as error:
                log.error("%s is run though the gate cannot tell: %s", what, error)  # noqa: TRY400
                return True
            except GateError as error:
                if self._on_gate_down != "wait":
                    log.warning("%s: on_gate_down is %s: %s", what, self._on_gate_down, error)
                    return self._on_gate_down == "run"
                log.warning("%s waits for the gate: %s", what, error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if start.granted:
                _start.set(start)
                return True
            if start.decision is Decision.HELD and start.until is not None:
                left = (start.until - datetime.now(UTC)).total_seconds()
                await asyncio.sleep(min(max(left, 0.05), PAUSE_SECONDS))
                continue
            log.warning("%s is skipped: %s %s by %s", what, start.decision, start.reason, start.by)
            return False


def _attempt(message: TaskiqMessage) -> int:
    """Which retry this is, as taskiq's own middlewares count them."""
    try:
        return max(int(message.labels.get("_retries", 0)), 0)
    except (TypeError, ValueError):
        return 0


def _told(result: Reply | GateError) -> None:
    if isinstance(result, GateError):
        log.error("the gate could not be told that a task has ended: %s", result)


def _make_skippable(task: AsyncTaskiqDecoratedTask[Any, Any] | None) -> None:
    """Let a task run nothing where `_skipped` is set.

    taskiq looks up a task's function after `pre_execute`, and what that function raises decides what becomes of the
    message: NoResultError is acknowledged, and no result is stored. The function itself stays as it is, since
    process pools find it by its name.
    """
    if task is None or isinstance(type(task).__dict__.get("original_func"), property):
        return
    run = task.original_func

    @wraps(run)
    async def skip(*_: Any, **__: Any) -> Any:
        raise NoResultError

    def original_func(_: Any) -> Any:
        return skip if _skipped.get() else run

    kind: type[Any] = type(task)
    functions = {"original_func": property(original_func, lambda _, __: None), "__module__": kind.__module__}
    skippable: Any = type(kind.__name__, (kind,), functions)
    task.__class__ = skippable
