"""Reading a configuration with what it names: calendars beside it, users and groups, time zone data."""

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from gate import tzdata
from gate.errors import ConfigError
from gate.overrides import NO_OVERRIDES
from gate.reload import BUILT_IN, MOST_BYTES, Calendars, Loaded, load, read_bytes
from tests.support.book import NOON

pytest.importorskip("icalendar")

DAY = timedelta(days=1)
CONFIG = """
timezone = "UTC"
[days]
holidays = ["ics:days.ics"]
[[fetch]]
name = "dicom"
closed = ["holiday 00:00-24:00"]
"""


@pytest.fixture(autouse=True)
def _zone_data() -> None:
    """Loading makes ZoneInfo read the newest data: so it was before, for whatever test comes next."""
    tzdata.use_newest()


@pytest.fixture
def calendars() -> Calendars:
    return Calendars()


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """The calendar that CONFIG names."""
    return tmp_path / "days.ics"


def write(path: Path, *dates: date, rule: str = "") -> None:
    events = "".join(
        f"BEGIN:VEVENT\r\nUID:{day}\r\nDTSTART;VALUE=DATE:{day:%Y%m%d}\r\n{rule}END:VEVENT\r\n" for day in dates
    )
    path.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//\r\n{events}END:VCALENDAR\r\n")
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + path.stat().st_size))


def read(folder: Path, calendars: Calendars, text: str = CONFIG, now: datetime = NOON) -> Loaded:
    return load(folder / "gate.toml", text.encode(), calendars, now)


def closed(loaded: Loaded, at: datetime = NOON) -> bool:
    return not loaded.rules.answer("w", ["q"], at, NO_OVERRIDES).open


def test_the_built_in_defaults_close_nothing(calendars: Calendars) -> None:
    loaded = load(None, read_bytes(None), calendars, NOON)
    assert (loaded.source, loaded.file, loaded.warnings, loaded.at) == (BUILT_IN, None, [], NOON)
    assert not closed(loaded)
    assert loaded.tzdata == tzdata.use_newest()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_bytes(tmp_path / "none.toml")
    assert str(caught.value) == f"{tmp_path}/none.toml: cannot be read: No such file or directory"


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    file.write_bytes(b"#" * MOST_BYTES)
    assert len(read_bytes(file)) == MOST_BYTES
    file.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        read_bytes(file)
    assert caught.value.findings == ["too large: a configuration has at most 8388608 bytes"]


def test_a_calendar_that_is_a_fifo_is_refused_and_not_waited_for(
    tmp_path: Path, days: Path, calendars: Calendars
) -> None:
    os.mkfifo(days)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, calendars)
    assert "not a regular file" in caught.value.findings[0]


def test_a_calendar_is_found_beside_the_file(tmp_path: Path, days: Path, calendars: Calendars) -> None:
    write(days, NOON.date())
    loaded = read(tmp_path, calendars)
    assert closed(loaded)
    assert not closed(loaded, NOON + DAY)
    assert list(loaded.calendars) == [days]


@pytest.mark.parametrize(
    "content", [None, b"", b"nonsense", b"\0" * 100, b"\xff\xfe"], ids=["missing", "empty", "text", "zeros", "no UTF-8"]
)
def test_a_calendar_that_never_loaded_is_an_error(
    tmp_path: Path, days: Path, calendars: Calendars, content: bytes | None
) -> None:
    if content is not None:
        days.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, calendars)
    (finding,) = caught.value.findings
    assert finding.startswith("days.holidays[0]: 'ics:days.ics': ")
    assert str(days) in finding


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_one_that_breaks_later_keeps_its_list_and_says_so(
    tmp_path: Path, days: Path, calendars: Calendars, content: bytes | None
) -> None:
    write(days, NOON.date())
    read(tmp_path, calendars)
    if content is None:
        days.unlink()
    else:
        days.write_bytes(content)
    for _ in range(2):
        loaded = read(tmp_path, calendars)
        assert closed(loaded)
        (warning,) = [w for w in loaded.warnings if "broken" in w]
        assert warning.startswith("a calendar is broken, and what it said before holds: ")
        assert str(days) in warning
    write(days, date(2020, 1, 1))
    mended = read(tmp_path, calendars)
    assert not closed(mended)
    assert not [w for w in mended.warnings if "broken" in w]


def test_a_warning_of_a_calendar_that_is_not_named_any_more_goes(
    tmp_path: Path, days: Path, calendars: Calendars
) -> None:
    write(days, NOON.date())
    read(tmp_path, calendars)
    days.unlink()
    assert read(tmp_path, calendars).warnings
    assert read(tmp_path, calendars, "").warnings == []


def test_a_calendar_that_did_not_change_is_not_read_again(
    tmp_path: Path, days: Path, calendars: Calendars, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(days, NOON.date())
    before = read(tmp_path, calendars)

    def fail(*_: object) -> None:
        pytest.fail("it was read again")

    monkeypatch.setattr("gate.ical.read", fail)
    assert read(tmp_path, calendars, now=NOON + timedelta(hours=11)).calendars == before.calendars


def test_a_repeated_day_goes_on_for_ever_though_few_years_are_read_at_a_time(
    tmp_path: Path, days: Path, calendars: Calendars
) -> None:
    write(days, NOON.date(), rule="RRULE:FREQ=YEARLY\r\n")
    later = NOON.replace(year=NOON.year + 20)
    assert closed(read(tmp_path, calendars), NOON.replace(year=NOON.year + 8))
    assert closed(read(tmp_path, calendars, now=later), later)


def test_another_day_and_other_data_change_the_stamp(
    tmp_path: Path, calendars: Calendars, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(tmp_path, calendars, "")
    assert read(tmp_path, calendars, "", NOON + timedelta(hours=11)).stamp == first.stamp
    assert read(tmp_path, calendars, "", NOON + DAY).stamp != first.stamp
    monkeypatch.setattr("gate.tzdata.stamp", lambda keys: ("other data", *keys))
    assert read(tmp_path, calendars, "").stamp != first.stamp


def test_users_and_groups_become_numbers(tmp_path: Path, calendars: Calendars) -> None:
    loaded = read(tmp_path, calendars, '[control]\nusers = ["root", 4711]\ngroups = ["root", 4712]\n')
    assert loaded.steering == (frozenset({0, 4711}), frozenset({0, 4712}))


def test_every_unknown_user_and_group_is_named(tmp_path: Path, calendars: Calendars) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, calendars, '[control]\nusers = ["no-such-user"]\ngroups = ["no-such-group", 0]\n')
    assert caught.value.findings == [
        "control.users: 'no-such-user' is not known on this machine",
        "control.groups: 'no-such-group' is not known on this machine",
    ]


def test_hints_are_among_the_warnings(tmp_path: Path, calendars: Calendars) -> None:
    text = 'timezone = "UTC"\n[[fetch]]\nname = "a"\nopen = ["daily 08:00-23:59"]\n'
    assert any("23:59" in warning for warning in read(tmp_path, calendars, text, datetime.now(UTC)).warnings)
