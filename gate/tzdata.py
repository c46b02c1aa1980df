"""Which time zone data is in use: zoneinfo takes the system's before the wheel's."""

import importlib.metadata
import zoneinfo
from pathlib import Path

from gate.interface import Tzdata


def tzdata_in_use() -> Tzdata:
    """Source and version of the data that ZoneInfo reads, such as ("system", "2026a")."""
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / "UTC").exists():
            return Tzdata(source=f"system {folder}", version=_system_version(Path(folder)))
    try:
        return Tzdata(source="wheel", version=importlib.metadata.version("tzdata"))
    except importlib.metadata.PackageNotFoundError:
        return Tzdata(source="none", version="")


def _system_version(folder: Path) -> str:
    """Debian's tzdata.zi begins with "# version 2026a"; other systems write a file +VERSION."""
    for name in ("tzdata.zi", "+VERSION"):
        try:
            first = (folder / name).open(encoding="utf-8").readline()
        except OSError:
            continue
        return first.removeprefix("# version").strip()
    return "unknown"
