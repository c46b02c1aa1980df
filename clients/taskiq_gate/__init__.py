"""The gate in front of a taskiq scheduler: restarts and second schedulers send each occurrence once.

    from taskiq_gate import GatedScheduleSource

    scheduler = TaskiqScheduler(broker, sources=[GatedScheduleSource(LabelScheduleSource(broker))])

What was missed is sent later, as far as the gate's configuration says so (`catch_up`), or listed by `gatectl status`.
GatedScheduler in place of TaskiqScheduler repeats at once what a broker refuses.

OnceMiddleware on the workers' broker starts each occurrence once, though it was sent twice:

    broker = ListQueueBroker(url).with_middlewares(OnceMiddleware())

Importing this package imports neither taskiq nor asyncio; the first use of its classes does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskiq_gate.once import OnceMiddleware
    from taskiq_gate.scheduler import GatedScheduler
    from taskiq_gate.source import GatedScheduleSource

__all__ = ["GatedScheduleSource", "GatedScheduler", "OnceMiddleware"]

_HOMES = {
    "GatedScheduleSource": "taskiq_gate.source",
    "GatedScheduler": "taskiq_gate.scheduler",
    "OnceMiddleware": "taskiq_gate.once",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in ("taskiq", "pycron"):
            raise
        raise ImportError("taskiq_gate needs taskiq: pip install 'schedule-gate[taskiq]'") from error
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
