"""Where things are when nobody says so: arguments first, then the environment, then the usual places.

Pure: the environment and the user are handed in; whether a path exists is asked by `exists`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from gate.errors import StartError

SYSTEM_SOCKET = Path("/run/gate/gate.sock")
SYSTEM_STATE = Path("/var/lib/gate")
SYSTEM_CONFIG = Path("/etc/gate/gate.toml")

Environment = Mapping[str, str]


def socket_path(given: str | None, env: Environment, uid: int, exists: Callable[[Path], bool]) -> Path:
    """`--socket`, else $GATE_SOCKET, else /run/gate/gate.sock for root or where it exists, else in the run-time folder

    Raises StartError when there is none of these.
    """
    if named := given or env.get("GATE_SOCKET"):
        return Path(named)
    if uid == 0 or exists(SYSTEM_SOCKET):
        return SYSTEM_SOCKET
    if runtime := env.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "gate" / "gate.sock"
    raise StartError("no place for the socket: give --socket, or set GATE_SOCKET or XDG_RUNTIME_DIR")


def state_path(given: str | None, env: Environment, uid: int) -> Path:
    """`--state`, else $STATE_DIRECTORY, else /var/lib/gate for root, else $XDG_STATE_HOME/gate."""
    if named := given or env.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(named)
    if uid == 0:
        return SYSTEM_STATE
    home = env.get("XDG_STATE_HOME") or (env.get("HOME", "") and f"{env['HOME']}/.local/state")
    if not home:
        raise StartError("no place for the state: give --state, or set STATE_DIRECTORY, XDG_STATE_HOME or HOME")
    return Path(home) / "gate"


def config_path(given: str | None, env: Environment, exists: Callable[[Path], bool]) -> Path | None:
    """`--config`, else $GATE_CONFIG, else /etc/gate/gate.toml where it exists, else None: the built-in defaults."""
    if named := given or env.get("GATE_CONFIG"):
        return Path(named)
    return SYSTEM_CONFIG if exists(SYSTEM_CONFIG) else None
