"""Which time zone data is used: the newer of the system's and the wheel's."""

import importlib
import importlib.metadata
import os
import zoneinfo
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gate import tzdata
from gate.interface import Tzdata

Make = Callable[..., Path]
WHEEL = importlib.import_module("tzdata")  # it ships no types
SUMMER = datetime(2026, 7, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """zoneinfo's path is the process's: other tests find it as it was."""
    before = zoneinfo.TZPATH
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A function that makes the system's data: `first` is the first line of its version file `name`."""

    def make(first: str, name: str = "tzdata.zi") -> Path:
        zones = Path(WHEEL.__file__ or "").parent / "zoneinfo"
        (tmp_path / "Europe").mkdir(exist_ok=True)
        (tmp_path / "UTC").write_bytes((zones / "UTC").read_bytes())
        (tmp_path / "Europe/Berlin").write_bytes((zones / "Asia/Kathmandu").read_bytes())
        (tmp_path / name).write_text(f"{first}\nmore\n")
        monkeypatch.setattr("gate.tzdata.SYSTEM_FOLDERS", ("/nowhere", str(tmp_path)))
        return tmp_path

    return make


@pytest.fixture
def wheel_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    def install(version: str | None) -> None:
        def found(name: str) -> str:
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr("importlib.metadata.version", found)

    return install


def minutes_in_berlin() -> float:
    """What Berlin is ahead of UTC: 120 by the wheel, 345 by the system's data of these tests."""
    offset = SUMMER.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset()
    assert offset is not None
    return offset.total_seconds() / 60


@pytest.mark.parametrize(
    ("first", "installed", "wins", "version"),
    [
        ("# version 2025b", "2026.6", "wheel", "2026f"),
        ("# version 2026g", "2026.6", "system", "2026g"),
        ("# version 2026f", "2026.6", "system", "2026f"),
        ("# version 2024z", "2025.1", "wheel", "2025a"),
        ("# version 2026g-dirty", "2026.6.post1", "system", "2026g"),
        ("nothing of use", "2020.1", "wheel", "2020a"),
        ("# version 2025b", None, "system", "2025b"),
        ("nothing of use", None, "system", "unknown"),
    ],
)
def test_the_newer_data_wins_and_zones_are_read_from_it(
    system: Make, wheel_is: Callable[[str | None], None], first: str, installed: str | None, wins: str, version: str
) -> None:
    folder = system(first)
    wheel_is(installed)
    zoneinfo.ZoneInfo("Europe/Berlin")  # read once before
    source = "wheel" if wins == "wheel" else f"system {folder}"
    assert tzdata.use_newest() == Tzdata(source=source, version=version)
    assert minutes_in_berlin() == (120 if wins == "wheel" else 345)


def test_a_version_file_of_other_systems_is_known(system: Make) -> None:
    folder = system("2999a", name="+VERSION")
    assert tzdata.use_newest() == Tzdata(source=f"system {folder}", version="2999a")


def test_without_any_data_there_is_none(
    monkeypatch: pytest.MonkeyPatch, wheel_is: Callable[[str | None], None]
) -> None:
    monkeypatch.setattr("gate.tzdata.SYSTEM_FOLDERS", ("/nowhere",))
    wheel_is(None)
    assert tzdata.use_newest() == Tzdata(source="none", version="")


def test_what_is_used_here_is_the_newer_one() -> None:
    used = tzdata.use_newest()
    assert used.version >= WHEEL.IANA_VERSION


def test_the_stamp_changes_with_the_data_and_with_nothing_else(
    system: Make, wheel_is: Callable[[str | None], None]
) -> None:
    folder = system("# version 2025b")
    wheel_is("2026.6")
    keys = ["Europe/Berlin"]
    stamps = [tzdata.stamp(keys)]
    assert tzdata.stamp(keys) == stamps[0]
    (folder / "Europe/Paris").write_bytes(b"not asked for")
    assert tzdata.stamp(keys) == stamps[0]
    wheel_is("2026.7")
    stamps.append(tzdata.stamp(keys))
    os.utime(folder / "Europe/Berlin", (1, 1))
    stamps.append(tzdata.stamp(keys))
    system("# version 2026zz")
    stamps.append(tzdata.stamp(keys))
    (folder / "Europe/Berlin").unlink()
    stamps.append(tzdata.stamp(keys))
    assert len(set(stamps)) == len(stamps)


def test_a_newer_system_is_taken_at_the_next_look(system: Make, wheel_is: Callable[[str | None], None]) -> None:
    system("# version 2025b")
    wheel_is("2026.6")
    tzdata.use_newest()
    assert minutes_in_berlin() == 120
    system("# version 2027a")
    assert tzdata.use_newest().version == "2027a"
    assert minutes_in_berlin() == 345
