"""Procrastinate workers as processes, started in each of the ways that users start them, and what their jobs tell."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import procrastinate
import psycopg

from tests.e2e.procrastinate_tasks import DSN, EVENTS
from tests.support.gate_process import ROOT

PATIENCE = 60.0
PROCRASTINATE = str(Path(sys.executable).with_name("procrastinate"))
MANAGE = [sys.executable, "-m", "tests.e2e.procrastinate_site.manage"]
WAYS: dict[str, Callable[[str, Sequence[str]], list[str]]] = {
    "cli": lambda name, options: [
        *(PROCRASTINATE, "-v", "--app", "tests.e2e.procrastinate_app.app", "worker"),
        *("--name", name, "--queues", "a", "--concurrency", "2", *options),
    ],
    "async": lambda name, options: [sys.executable, "-m", "tests.e2e.procrastinate_app", name],
    "django": lambda name, options: [
        *(*MANAGE, "procrastinate", "worker"),
        *("--name", name, "--queues", "a", "--concurrency", "2", *options),
    ],
}


class Rig:
    """One database, one gate's socket, and the workers of one test. `env`: the environment of these, without ours."""

    def __init__(self, folder: Path, dsn: str, socket: Path, env: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._env = dict(os.environ if env is None else env)
        self.dsn = dsn
        self.events = folder / "events"
        self.events.touch()
        self._socket = socket
        self._workers: list[Worker] = []
        self._client = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=dsn))
        self._client.open()

    def environment(self) -> dict[str, str]:
        """What a process needs to know: where the database, the gate and the file of events are."""
        env = {variable: value for variable, value in self._env.items() if variable != "PYTHONDONTWRITEBYTECODE"}
        return env | {
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients'}",
            "GATE_SOCKET": str(self._socket),
            DSN: self.dsn,
            EVENTS: str(self.events),
        }

    def worker(self, way: str = "cli", *options: str, name: str = "transfer-1") -> "Worker":
        """Start a worker; it ends with the rig."""
        worker = Worker(WAYS[way](name, options), self.environment(), self.folder / f"worker-{len(self._workers)}.log")
        self._workers.append(worker)
        return worker

    def defer(self, key: str, seconds: float = 0.0, *, task: str = "e2e:job", queue: str = "a") -> int:
        """Defer a job and give its id."""
        return self._client.configure_task(task, queue=queue).defer(key=key, seconds=seconds)

    def abort(self, job_id: int) -> None:
        assert self._client.job_manager.cancel_job_by_id(job_id, abort=True)

    def told(self, event: str) -> dict[str, float]:
        """When it was told, by the key of its job."""
        lines = [json.loads(line) for line in self.events.read_text().splitlines()]
        return {line["key"]: line["at"] for line in lines if line["event"] == event}

    def count(self, event: str, key: str) -> int:
        """How often it was told."""
        lines = [json.loads(line) for line in self.events.read_text().splitlines()]
        return sum((line["event"], line["key"]) == (event, key) for line in lines)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database says."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def statuses(self) -> list[str]:
        """Of all jobs, in their order."""
        return [status for (status,) in self.rows("SELECT status::text FROM procrastinate_jobs ORDER BY id")]

    def stalled(self, seconds: float) -> list[int | None]:
        """The jobs that procrastinate calls stalled."""

        async def ask() -> list[int | None]:
            app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.dsn))
            async with app.open_async():
                return [job.id for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=seconds)]

        return asyncio.run(ask())

    def until(self, true: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        """Ask again and again until it is so, and every worker runs."""
        end = time.monotonic() + seconds
        while not true():
            logs = "\n".join(worker.log.read_text()[-3000:] for worker in self._workers)
            assert time.monotonic() < end, f"not within {seconds:g} s: {what}\n{logs}"
            time.sleep(0.002)

    def started(self, key: str, seconds: float = PATIENCE) -> float:
        """Wait for a job to start, and give when it did."""
        self.until(lambda: key in self.told("start"), f"{key} starts", seconds)
        return self.told("start")[key]

    def close(self) -> None:
        for worker in self._workers:
            worker.end(signal.SIGKILL)
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Worker:
    """One worker's process."""

    def __init__(self, command: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send the signal; gives the exit code and the seconds that it took to end."""
        begin = time.monotonic()
        if self.running:
            self._process.send_signal(number)
        return self._process.wait(PATIENCE), time.monotonic() - begin
