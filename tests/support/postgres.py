"""A PostgreSQL server of the tests' own: private folder, Unix socket only, stopped by its pid."""

import functools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

PATIENCE = 60.0
USER = "gate"
UNSYNCED = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
SERVER_FOLDERS = ("/usr/lib/postgresql", f"{sys.prefix}/debian/usr/lib/postgresql")
"""Where Debian keeps servers by their version: the system's, or what tests/run.py unpacked into the venv."""


@functools.cache
def find_server() -> Path | None:
    """Give the folder of a server's binaries, the newest first; None where there is none that starts."""
    folders = sorted(
        (folder for root in SERVER_FOLDERS for folder in Path(root).glob("*/bin")),
        key=lambda folder: float(folder.parent.name),
        reverse=True,
    )
    named = shutil.which("initdb")
    for folder in [*folders, *([Path(named).resolve().parent] if named else [])]:
        command: list[str | Path] = [folder / "postgres", "--version"]
        if all((folder / name).exists() for name in ("initdb", "postgres")) and _starts(command, environment(folder)):
            return folder
    return None


def environment(folder: Path) -> dict[str, str]:
    """For a server that was unpacked and not installed, with its libraries beside it."""
    env = os.environ | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
    root = folder.parents[4]
    if root != Path("/"):
        env["LD_LIBRARY_PATH"] = os.pathsep.join(map(str, sorted((root / "usr" / "lib").glob("*-linux-*"))))
    return env


def _starts(command: list[str | Path], env: dict[str, str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True, env=env, **_not_root()).returncode == 0


@functools.cache
def _not_root() -> dict[str, Any]:
    """Popen arguments: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}
    return {}


class PostgresServer:
    """A server that can be stopped and started again, on the same data. `log` is what it wrote."""

    def __init__(self, binaries: Path, *, synced: bool = False) -> None:
        self._binaries = binaries
        self._synced = synced
        self.folder = Path(tempfile.mkdtemp(prefix="gate-pg-"))  # short: the path of a Unix socket has 107 bytes
        self.log = self.folder / "postgres.log"
        self._data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if user := _not_root():
            os.chown(self.folder, user["user"], user["group"])
        self.folder.chmod(0o755)
        initdb: list[str | Path] = [binaries / "initdb", "-D", self._data, "-U", USER, "--auth=trust", "--no-sync"]
        done = subprocess.run(
            initdb, check=False, capture_output=True, text=True, env=environment(binaries), **_not_root()
        )
        if done.returncode:
            shutil.rmtree(self.folder)
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            **({} if self._synced else UNSYNCED),
            "max_connections": "200",
            "shared_buffers": "32MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(self._binaries),
                **_not_root(),
            )
        end = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()}")
            time.sleep(0.02)

    def dsn(self, database: str = "postgres") -> str:
        return f"host={self.folder} user={USER} dbname={database}"

    def new_database(self, template: str | None = None) -> str:
        """Make a database, empty or as its template, and give its name."""
        self._databases += 1
        name = f"test{self._databases}"
        command = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template or "template1")
        )
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(command)
        return name

    def stop(self) -> None:
        """End it at once; its clients lose their connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn()).close()
        except psycopg.OperationalError:
            return False
        return True
