"""The gate in front of procrastinate workers: they live on, and start jobs only inside their hours.

    import procrastinate_gate

    procrastinate_gate.install(app)

In Django: `PROCRASTINATE_ON_APP_READY = "procrastinate_gate.install"`. Importing this package imports neither
procrastinate nor asyncio; the first use of `install` does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from procrastinate_gate.installing import install

__all__ = ["install"]


def __getattr__(name: str) -> Any:
    if name != "install":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from procrastinate_gate.installing import install
    except ModuleNotFoundError as error:
        if error.name != "procrastinate":
            raise
        raise ImportError(
            "procrastinate_gate needs procrastinate: pip install 'schedule-gate[procrastinate]'"
        ) from error
    globals()[name] = install
    return install


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
