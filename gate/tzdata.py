"""Which time zone data is in use: the newer of the system's and that of the PyPI package tzdata (the wheel).

zoneinfo alone takes the system's whenever there is one, though it may be years older.
"""

import importlib.metadata
import re
import zoneinfo
from collections.abc import Iterable
from pathlib import Path

from gate.interface import Tzdata

SYSTEM_FOLDERS = zoneinfo.TZPATH
"""Where the system's data may be: read before anybody changes it; $PYTHONTZPATH counts."""
UNKNOWN = "unknown"
_RELEASE = re.compile(r"\d{4}[a-z]+")
_VERSION_FILES = ("tzdata.zi", "+VERSION")


def use_newest() -> Tzdata:
    """Make ZoneInfo read the newer data, and forget what it has read; returns source and version of it.

    Data that does not tell its version counts as older than any other.
    """
    folder, wheel = _system_folder(), _wheel_release()
    system = None if folder is None else _system_release(folder)
    wheel_wins = wheel is not None and (system is None or system == UNKNOWN or wheel > system)
    zoneinfo.reset_tzpath(to=[] if wheel_wins else SYSTEM_FOLDERS)
    zoneinfo.ZoneInfo.clear_cache()
    if wheel is not None and wheel_wins:
        return Tzdata(source="wheel", version=wheel)
    if system is not None:
        return Tzdata(source=f"system {folder}", version=system)
    return Tzdata(source="none", version="")


def stamp(keys: Iterable[str]) -> tuple[object, ...]:
    """Something that differs once the data of these zones may have changed, as after an upgrade of its package."""
    folder = _system_folder()
    files = () if folder is None else tuple(_stat(folder / name) for name in (*_VERSION_FILES, *sorted(keys)))
    return folder, files, _wheel_release()


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _system_folder() -> Path | None:
    return next((Path(folder) for folder in SYSTEM_FOLDERS if (Path(folder) / "UTC").exists()), None)


def _system_release(folder: Path) -> str:
    """Debian's tzdata.zi begins with "# version 2026a"; other systems write a file +VERSION."""
    for name in _VERSION_FILES:
        try:
            with (folder / name).open(encoding="utf-8") as file:
                first = file.readline()
        except (OSError, UnicodeDecodeError):
            continue
        if found := _RELEASE.search(first):
            return found[0]
    return UNKNOWN


def _wheel_release() -> str | None:
    """The package counts releases: its version 2026.6 is IANA's 2026f."""
    try:
        year, _, number = importlib.metadata.version("tzdata").partition(".")
    except importlib.metadata.PackageNotFoundError:
        return None
    return year + chr(ord("a") - 1 + int(number.partition(".")[0]))
