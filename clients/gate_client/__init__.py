"""Client of the gate: may I send schedule X for minute M?

    from gate_client import Gate

    gate = Gate()
    with gate.sending("nightly", minute) as claim:
        if claim.granted:
            send()

`Gate` blocks, `AsyncGate` is for asyncio; both have the same methods. `Places`, for asyncio, holds places under limits
while jobs run. Importing this package imports none of them: each comes with its first use, and with it what it needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gate.errors import CallError, GateError
    from gate.interface import Decision
    from gate_client.aio import AsyncClaim, AsyncGate
    from gate_client.core import GateUnreachable
    from gate_client.places import Place, Places
    from gate_client.sync import Claim, Gate

__all__ = [
    "AsyncClaim",
    "AsyncGate",
    "CallError",
    "Claim",
    "Decision",
    "Gate",
    "GateError",
    "GateUnreachable",
    "Place",
    "Places",
]

_HOMES = {
    "AsyncClaim": "gate_client.aio",
    "AsyncGate": "gate_client.aio",
    "CallError": "gate.errors",
    "Claim": "gate_client.sync",
    "Decision": "gate.interface",
    "Gate": "gate_client.sync",
    "GateError": "gate.errors",
    "GateUnreachable": "gate_client.core",
    "Place": "gate_client.places",
    "Places": "gate_client.places",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
