"""The gate in front of a taskiq scheduler: restarts and second schedulers send each occurrence once.

    from taskiq_gate import GatedScheduleSource

    scheduler = TaskiqScheduler(broker, sources=[GatedScheduleSource(LabelScheduleSource(broker))])

Importing this package imports neither taskiq nor asyncio; the first use of GatedScheduleSource does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskiq_gate.source import GatedScheduleSource

__all__ = ["GatedScheduleSource"]


def __getattr__(name: str) -> Any:
    if name != "GatedScheduleSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from taskiq_gate.source import GatedScheduleSource
    except ModuleNotFoundError as error:
        if error.name not in ("taskiq", "pycron"):
            raise
        raise ImportError("taskiq_gate needs taskiq: pip install 'schedule-gate[taskiq]'") from error
    globals()[name] = GatedScheduleSource
    return GatedScheduleSource


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
