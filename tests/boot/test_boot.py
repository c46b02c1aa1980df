"""The units in a booted systemd: 252 (Debian 12) and 257 (Debian 13), each booted once, with all checks inside."""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.boot import inside
from tests.support import tell

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests" / "boot"
TREES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "schedule-gate" / "trees"
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian's releases, and the Python of each."""
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
SECONDS = 300


def why_not() -> str | None:
    """What keeps this machine from booting a systemd."""
    if os.geteuid() != 0:
        return "booting a systemd needs root"
    missing = [tool for tool in ("systemd-nspawn", "mmdebstrap", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} missing: apt install systemd-container mmdebstrap"
    if not any(Path(path).is_dir() for path in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup/system.slice")) and not (
        Path("/sys/fs/cgroup/cgroup.controllers").exists()
    ):
        return "there is no cgroup v2"
    if platform.machine() != "x86_64":
        return "wheels are taken for x86_64"
    return None


def kept(place: Path, command: Callable[[Path], list[str | Path]]) -> Path:
    """A folder that a command makes, made once and kept; another run may be faster."""
    if place.exists():
        return place
    making = place.with_name(f"{place.name}.{os.getpid()}")
    making.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command(making), capture_output=True, check=False)
    if done.returncode:
        shutil.rmtree(making, ignore_errors=True)
        pytest.skip(f"{place.name} cannot be made: {done.stderr.decode()[-300:]}")
    try:
        making.rename(place)
    except OSError:
        shutil.rmtree(making)
    return place


def tree(suite: str) -> Path:
    """A small Debian with systemd and Python."""
    if not SOURCES.exists():
        pytest.skip(f"{SOURCES} does not say where Debian's packages are")
    mirror = next(line.split()[1] for line in SOURCES.read_text().splitlines() if line.startswith("URIs:"))
    include = "--include=systemd,systemd-sysv,python3,procps,tzdata"
    options = ["--quiet", "--variant=apt", "--dpkgopt=force-unsafe-io", '--aptopt=APT::Install-Recommends "false"']
    return kept(TREES / suite, lambda making: ["mmdebstrap", *options, include, suite, making, mirror])


def site(python: str) -> Path:
    """All that our wheel needs, for a Python of that version; made anew when the lock file changes."""
    lock = ROOT / "requirements.lock"
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28)]
    wanted = ["trio", "redis", "croniter", "tzdata", "click", "rich", "prometheus-client", "msgspec", "taskiq", "pip"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    pip += [f"--python-version={python}", "--only-binary=:all:", "--implementation=cp", f"--constraint={lock}"]
    pip += [*platforms, "--platform=manylinux2014_x86_64", *wanted]
    digest = hashlib.sha256(b"\0".join([lock.read_bytes(), *map(str.encode, wanted)])).hexdigest()[:12]
    return kept(TREES.parent / f"site-{python}-{digest}", lambda making: [*pip, f"--target={making}"])


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Ours, and one of the same with a later version."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    later = tmp_path_factory.mktemp("later") / "source"
    shutil.copytree(ROOT, later, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests"))
    project = later / "pyproject.toml"
    now_and_then = re.subn(r'(?m)^version = ".*"$', f'version = "{inside.LATER}"', project.read_text())
    assert now_and_then[1] == 1
    project.write_text(now_and_then[0])
    return [built(source, tmp_path_factory.mktemp("wheel")) for source in (ROOT, later)]


def built(source: Path, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, f"--wheel-dir={folder}", source], check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module", params=SUITES)
def results(
    request: pytest.FixtureRequest, wheels: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What each check inside has seen."""
    suite = request.param
    booted = tree(suite)
    app = tmp_path_factory.mktemp("app")
    app.chmod(0o755)  # users inside read it too
    shutil.copytree(site(SUITES[suite]), app / "site")
    for wheel in wheels:
        shutil.copy(wheel, app)
    shutil.copy(HERE / "inside.py", app)
    command: list[str | Path] = ["bash", HERE / "boot.sh", booted, app, "/usr/bin/python3", "/opt/app/inside.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stdout + done.stderr
    tell(f"{suite}: {len(lines)} checks in {sum(line['took'] for line in lines):.0f} s")
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", [check.__name__ for check in inside.CHECKS])
def test_in_a_booted_systemd(results: dict[str, Any], name: str) -> None:
    result = results[name]
    if result["saw"] != "None":
        tell(f"{name}: {result['saw']}, {result['took']} s")
    assert result["held"], result["saw"]
