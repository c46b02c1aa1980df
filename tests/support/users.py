"""Another user than root, to run things as."""

import functools
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.gate_process import ROOT


class Runner(NamedTuple):
    """A Python that has the project, and the Popen arguments that start it as a normal user."""

    python: str
    env: dict[str, str]
    popen: dict[str, Any]


@functools.cache
def normal_user() -> Runner | None:
    """Us, if we are no root; else nobody; None where nobody can run no Python that imports the project."""
    env = {"PATH": os.defpath, "PYTHONPATH": os.pathsep.join((str(ROOT), sysconfig.get_paths()["purelib"]))}
    if os.geteuid() != 0:
        return Runner(sys.executable, env, {})
    nobody = pwd.getpwnam("nobody")
    popen: dict[str, Any] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        try:
            command = [python, "-c", "import gate.daemon, gate.stores.sqlite"]
            done = subprocess.run(command, check=False, capture_output=True, env=env, cwd="/", **popen)
        except OSError:
            continue
        if done.returncode == 0:
            return Runner(python, env, popen)
    return None


@contextmanager
def folder_of_theirs() -> Iterator[Path]:
    """An empty folder that the normal user may write; pytest's own is closed to all but its user."""
    folder = Path(tempfile.mkdtemp(prefix="gate-user-"))
    runner = normal_user()
    try:
        if runner is not None and runner.popen:
            os.chown(folder, runner.popen["user"], runner.popen["group"])
        yield folder
    finally:
        shutil.rmtree(folder)
