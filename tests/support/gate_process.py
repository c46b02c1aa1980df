"""A real gate in a process of its own, and a plain client: a socket, JSON and NUL."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PATIENCE = 10.0
START_PATIENCE = 60.0
"""A gate starts in half a second; on a machine that is busy with ten other things, in five."""
ROOT = Path(__file__).resolve().parent.parent.parent
_OURS = ("GATE_SOCKET", "GATE_CONFIG", "STATE_DIRECTORY", "NOTIFY_SOCKET")


class ErrorReply(Exception):
    """An error that the gate answered: `name` as on the wire, and its `parameters`."""

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        super().__init__(name, parameters)
        self.name = name
        self.parameters = parameters


class RawClient:
    """Speaks Varlink by hand. Every wait ends after `timeout` seconds with TimeoutError."""

    def __init__(self, path: Path | str, timeout: float = PATIENCE) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self._buffer = bytearray()
        try:
            self.sock.connect(str(path))
        except OSError:
            self.sock.close()
            raise

    def call(self, method: str, *, timeout: float | None = None, **parameters: Any) -> dict[str, Any]:
        """One call and its answer's parameters; raises ErrorReply. "Send.Claim" is short for the whole name."""
        self.post(method, **parameters)
        return self.reply(timeout)

    def post(self, method: str, *, more: bool = False, oneway: bool = False, **parameters: Any) -> None:
        """Write one call and read nothing."""
        self.send_raw(frame(method, more=more, oneway=oneway, **parameters))

    def reply(self, timeout: float | None = None) -> dict[str, Any]:
        """The parameters of the next message; raises ErrorReply when it is an error."""
        message = self.recv(timeout)
        parameters: dict[str, Any] = message.get("parameters", {})
        if "error" in message:
            raise ErrorReply(message["error"], parameters)
        return parameters

    def send_raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.sock.sendall(data)

    def recv(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message whole (`parameters`, `error`, `continues`); raises EOFError when the gate hung up."""
        before = self.sock.gettimeout()
        if timeout is not None:
            self.sock.settimeout(timeout)
        try:
            while b"\0" not in self._buffer:
                data = self.sock.recv(256 * 1024)
                if not data:
                    raise EOFError("the gate hung up")
                self._buffer += data
        finally:
            self.sock.settimeout(before)
        message, _, rest = bytes(self._buffer).partition(b"\0")
        self._buffer = bytearray(rest)
        decoded: dict[str, Any] = json.loads(message)
        return decoded

    def claim(self, schedule: str, at: str | None, *, holder: str = "test", **parameters: Any) -> dict[str, Any]:
        """`io.schedulegate.Send.Claim`; `at` and whatever else is None is left out."""
        given = {"schedule": schedule, "at": at, "holder": holder, **parameters}
        return self.call("Send.Claim", **{name: value for name, value in given.items() if value is not None})

    def at_end(self, timeout: float | None = None) -> bool:
        """Wait for the gate to hang up: True when it does, with nothing unread before that."""
        try:
            self.recv(timeout)
        except (EOFError, ConnectionResetError):
            return True
        return False

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def frame(method: str, *, more: bool = False, oneway: bool = False, **parameters: Any) -> bytes:
    """One call as it stands on the wire."""
    if method.startswith(("Send.", "Fetch.", "Control.")):
        method = "io.schedulegate." + method
    call: dict[str, Any] = {"method": method, "parameters": parameters}
    if more:
        call["more"] = True
    if oneway:
        call["oneway"] = True
    return json.dumps(call).encode() + b"\0"


class GateProcess:
    """`python -m gate` with a socket and a state directory of its own below `folder`.

    `config`: the text of its gate.toml, if any. `env`: the whole environment (such as that of a FakeTime), else ours
    without what names a gate. `log` is its stderr, one JSON object per line. `popen`: further arguments of Popen, such
    as another user. `program`: Python code that runs instead of `-m gate`, for faults at an exact place.
    """

    def __init__(
        self,
        folder: Path,
        *,
        config: str | None = None,
        env: Mapping[str, str] | None = None,
        log_level: str = "debug",
        options: Sequence[str] = (),
        python: str = sys.executable,
        program: str | None = None,
        popen: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "gate.sock"
        self.state = folder / "state"
        self.log = folder / "gate.log"
        self.config = folder / "gate.toml"
        self.env = {k: v for k, v in (os.environ if env is None else env).items() if k not in _OURS}
        self.process: subprocess.Popen[bytes] | None = None
        self._python = [python, "-m", "gate"] if program is None else [python, "-c", program]
        self._popen = dict(popen or {})
        self._options = ["--log", "json", "--log-level", log_level, *options]
        if config is not None:
            self.config.write_text(config)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start it without waiting: for tests of a start that fails or is slow."""
        command = [*self._python, "--socket", str(self.socket), "--state", str(self.state)]
        if self.config.exists():
            command += ["--config", str(self.config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self._options],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._popen,
            )
        return self.process

    def start(self) -> Self:
        """Start it, and wait until it answers GetInfo."""
        self.spawn()
        end = time.monotonic() + START_PATIENCE
        while not self._answers():
            if not self.running or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"the gate did not start: {self.log.read_text()}")
            time.sleep(0.005)
        return self

    def _answers(self) -> bool:
        try:
            with RawClient(self.socket) as client:
                client.call("org.varlink.service.GetInfo")
        except (OSError, EOFError):
            return False
        return True

    def rss_kib(self) -> int:
        """Its resident memory."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))

    def client(self, timeout: float = PATIENCE) -> RawClient:
        """A new connection; close it, or use it in a `with`."""
        return RawClient(self.socket, timeout)

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone; harmless when it is gone already."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and give its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def restart(self) -> Self:
        """SIGKILL, then start again on the same state and socket."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """End it gently if it runs; every fixture and test that starts one ends with this."""
        if self.running:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def log_lines(self) -> list[dict[str, Any]]:
        """What it logged so far; a line that is not JSON (a traceback of the interpreter) is under "text"."""
        lines: list[dict[str, Any]] = []
        for line in self.log.read_text().splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                lines.append({"text": line})
        return lines

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
