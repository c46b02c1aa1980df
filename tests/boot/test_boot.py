"""The units in a booted systemd: 252 (Debian 12) and 257 (Debian 13), each booted once, with all checks inside."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
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


def tree(suite: str) -> Path:
    """A small Debian with systemd and Python, made once and kept."""
    made = TREES / suite
    if (made / "usr/bin/python3").exists():
        return made
    if not SOURCES.exists():
        pytest.skip(f"{SOURCES} does not say where Debian's packages are")
    mirror = next(line.split()[1] for line in SOURCES.read_text().splitlines() if line.startswith("URIs:"))
    making = TREES / f"{suite}.{os.getpid()}"
    making.parent.mkdir(parents=True, exist_ok=True)
    include = "--include=systemd,systemd-sysv,python3,procps,tzdata"
    options = ["--quiet", "--variant=apt", "--dpkgopt=force-unsafe-io", '--aptopt=APT::Install-Recommends "false"']
    command: list[str | Path] = ["mmdebstrap", *options, include, suite, making, mirror]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        shutil.rmtree(making, ignore_errors=True)
        pytest.skip(f"no tree of {suite} can be made: {done.stderr.decode()[-300:]}")
    keep(making, made)
    return made


def keep(making: Path, kept: Path) -> None:
    """Give it its name; another run may have been faster."""
    try:
        making.rename(kept)
    except OSError:
        shutil.rmtree(making)


def site(python: str) -> Path:
    """Our wheel and all that it needs, for a Python of that version; made anew when something of ours changed."""
    lock = (ROOT / "requirements.lock").read_bytes()
    kept = TREES.parent / f"site-{python}-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not kept.exists():
        making = kept.with_name(f"{kept.name}.{os.getpid()}")
        platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28)]
        wanted = ["trio", "redis", "croniter", "tzdata", "click", "rich", "prometheus-client", "msgspec", "taskiq"]
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
        target = [f"--target={making}", f"--python-version={python}", "--only-binary=:all:", "--implementation=cp"]
        command = [
            *pip,
            *target,
            *platforms,
            "--platform=manylinux2014_x86_64",
            f"--constraint={ROOT / 'requirements.lock'}",
            *wanted,
        ]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            shutil.rmtree(making, ignore_errors=True)
            pytest.skip(f"no packages for Python {python}: {done.stderr.decode()[-300:]}")
        keep(making, kept)
    return kept


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, f"--wheel-dir={folder}", ROOT], check=True, capture_output=True)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module", params=SUITES)
def results(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each check inside has seen."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    suite = request.param
    booted = tree(suite)
    app = tmp_path_factory.mktemp("app")
    app.chmod(0o755)  # users inside read it too
    shutil.copytree(site(SUITES[suite]), app / "site")
    shutil.unpack_archive(wheel, app / "site", "zip")
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
