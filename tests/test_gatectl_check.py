"""gatectl check: every error, every warning, the week, without a gate."""

import json
from pathlib import Path

import pytest

from gate.ctl.check import check_file, parts
from gate.interface import instant
from tests.support.gatectl import gatectl
from tests.support.weeks import QUIET, shown

NOW = instant("2026-12-23T12:34:00Z")
WRONG = """
timezone = "Europe/Berlin"
uncoverd = "closed"
[hours]
night = ["daly 20:00-06:00", "daily 25:00-06:00"]
[[fetch]]
open = ["nigth"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.toml"
    path.write_text(QUIET)
    return path


def test_a_good_file_and_its_week(file: Path) -> None:
    lines = shown(parts(check_file(str(file), NOW)), 80).splitlines()
    assert "dicom, times in Europe/Berlin (CET, UTC+01:00)" in lines
    assert "> wed 2026-12-23 ██▄xxx▄███▄x····························████████ 7h15m" in lines
    assert "odd days of the next 400:" in lines
    result = gatectl("check", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{file} can be used, no warnings\n\ndicom, ")


def test_warnings_come_first_and_are_no_errors(file: Path) -> None:
    file.write_text(QUIET.replace('"daily 20:00-06:00"', '"daily 20:00-23:59"'))
    checked = check_file(str(file), NOW)
    assert any("23:59" in warning for warning in checked.warnings)
    assert checked.errors == []
    result = gatectl("check", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"{file} can be used, with warnings: {len(checked.warnings)}"
    assert lines[1 : 1 + len(checked.warnings)] == [f"  {warning}" for warning in checked.warnings]


def test_every_error_is_printed_on_stderr_and_the_exit_code_is_2(file: Path) -> None:
    file.write_text(WRONG)
    result = gatectl("check", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    first, *findings = result.stderr.splitlines()
    assert first == f"gatectl: {file} cannot be used:"
    for place in ("uncoverd", "hours.night[0]", "hours.night[1]", "fetch[0].open[0]"):
        assert any(line.startswith(f"  {place}: ") for line in findings), place


def test_json_has_errors_warnings_and_the_week(file: Path) -> None:
    good = json.loads(gatectl("check", str(file), "--json").stdout)
    assert (good["file"], good["errors"], good["warnings"]) == (str(file), [], [])
    assert good["week"]["rules"][0]["rule"] == "dicom"
    file.write_text(WRONG)
    result = gatectl("check", str(file), "--json")
    bad = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (2, "")
    assert len(bad["errors"]) >= 4
    assert (bad["warnings"], bad["week"]) == ([], None)


def test_calendars_are_read_from_the_folder_of_the_file(file: Path) -> None:
    file.write_text(QUIET.replace('"12-24", "12-25", "01-01"', '"ics:days.ics"'))
    [error] = check_file(str(file), NOW).errors
    assert error.startswith("days.holidays[0]: 'ics:days.ics': ")
    event = "BEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nDTSTART;VALUE=DATE:20270114\r\nEND:VEVENT\r\n"
    calendar = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:test\r\n{event}END:VCALENDAR\r\n"
    (file.parent / "days.ics").write_bytes(calendar.encode())
    checked = check_file(str(file), NOW)
    assert checked.errors == []
    assert checked.week is not None
    assert [(odd.day, odd.what.partition(":")[0]) for odd in checked.week.rules[0].odd] == [("2027-01-14", "holiday")]


@pytest.mark.parametrize(("path", "says"), [("nowhere.toml", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read(path: str, says: str, tmp_path: Path) -> None:
    result = gatectl("check", str(tmp_path / path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_no_file_is_wrong_usage() -> None:
    result = gatectl("check")
    assert result.exit_code == 2
    assert "Missing argument 'FILE'" in result.stderr


def test_a_file_without_rules_can_be_used(file: Path) -> None:
    file.write_text("")
    result = gatectl("check", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{file} can be used, no warnings\n\nno [[fetch]] rule: no hours to draw\n"
