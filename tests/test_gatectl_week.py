"""gatectl week: the picture on fixed instants, and the command with a file and with a gate."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from gate.ctl.picture import Drawing
from gate.ctl.week import parts
from gate.interface import Steer, WeekOut
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl, on_terminal, process
from tests.support.weeks import QUIET, ordered, rule, shown, week_of

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def drawn(week: WeekOut, columns: int, *, ascii_only: bool = False) -> list[str]:
    return shown(Drawing(columns, ascii_only=ascii_only).week(week), columns).splitlines()


def closed_before_christmas() -> WeekOut:
    """Ordered in the morning of 23 December, looked at in the afternoon."""
    order = ordered(Steer.CLOSE, "2026-12-23T17:00:00Z")
    return week_of(QUIET, "2026-12-23T12:34:00Z", order=order, since="2026-12-23T11:02:11Z")


# -- the picture


def test_a_week_in_80_columns() -> None:
    assert (
        "\n".join(drawn(closed_before_christmas(), 80))
        == """\
dicom, times in Europe/Berlin (CET, UTC+01:00)
override: closed by root since wed 12:02:11 until 18:00: clinic called
                 00    03    06    09    12    15    18    21    24
> wed 2026-12-23 ██▄xxx▄███▄x············------------····████████ 7h15m
                                            ^ now 13:34: closed until 20:00
 *thu 2026-12-24 ██▄xxx▄█████████████████████████████████████████ 22h
 *fri 2026-12-25 ██▄xxx▄█████████████████████████████████████████ 22h
  sat 2026-12-26 ██▄xxx▄█████████████████████████████████████████ 22h
  sun 2026-12-27 ██▄xxx▄█████████████████████████████████████████ 22h
  mon 2026-12-28 ██▄xxx▄███▄x····························████████ 7h15m
  tue 2026-12-29 ██▄xxx▄███▄x····························████████ 7h15m
odd days of the next 400:
  thu 2026-12-24 to fri 2026-12-25  holiday: open 00:00-01:15, 03:15-24:00;
                                    usually 00:00-01:15, 03:15-05:15,
                                    20:00-24:00
  fri 2027-01-01                    holiday: open 00:00-01:15, 03:15-24:00;
                                    usually 00:00-01:15, 03:15-05:15,
                                    20:00-24:00
  fri 2027-12-24                    holiday: open 00:00-01:15, 03:15-24:00;
                                    usually 00:00-01:15, 03:15-05:15,
                                    20:00-24:00

█ open
▄ open for a part of it
· closed
x taken away by `closed` or last_start
- closed by an override
> today
* odd day, explained below its week"""
    )


def test_a_week_in_120_columns_has_quarters_of_an_hour() -> None:
    lines = drawn(closed_before_christmas(), 120)
    assert lines[2:7] == [
        " " * 17 + "".join(f"{hour:02}      " for hour in range(0, 24, 2)) + "24",
        "> wed 2026-12-23 █████xxxxxxxx████████xxx························------------------------········"
        "████████████████ 7h15m",
        "                                                                       ^ now 13:34: closed until 20:00",
        f" *thu 2026-12-24 █████xxxxxxxx{'█' * 83} 22h",
        f" *fri 2026-12-25 █████xxxxxxxx{'█' * 83} 22h",
    ]
    assert not [line for line in lines if line.startswith("▄")], "every edge is at a quarter"


def test_a_narrow_terminal_has_whole_hours() -> None:
    lines = drawn(closed_before_christmas(), 50, ascii_only=True)
    assert "> wed 2026-12-23 #~x~#~......------..#### 7h15m" in lines
    assert "                 00    06    12    18    24" in lines
    assert "now 13:34: closed until 20:00 ^" in lines
    assert lines[-7:-4] == ["# open", "~ open for a part of it", ". closed"]


@pytest.mark.parametrize("columns", [48, 72, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert max(cell_len(line) for line in drawn(closed_before_christmas(), columns)) <= columns


def test_an_open_override_has_a_sign_of_its_own() -> None:
    order = ordered(Steer.OPEN, "2026-11-30T16:00:00Z", note="backlog")
    lines = drawn(week_of(rule("daily 20:00-06:00"), "2026-11-30T13:00:00Z", order=order, days=1), 80)
    assert lines[1] == "override: opened by root since 14:00 until 17:00: backlog"
    assert lines[3] == f"> mon 2026-11-30 {'█' * 12}{'·' * 16}++++++{'·' * 6}{'█' * 8} 13h"
    assert lines[4].endswith("^ now 14:00: open until 17:00")
    assert "+ opened by an override" in lines


def test_the_limits_are_named_and_a_limit_of_0_is_drawn_closed_in_an_open_override() -> None:
    order = ordered(Steer.OPEN, "2026-11-30T16:00:00Z", note="backlog")
    more = """needs = ["pacs"]
at_once = ["daily 15:00-16:00: 0", "else: 8"]
[[resource]]
name = "pacs"
at_once = 5
"""
    lines = drawn(week_of(rule("daily 20:00-06:00", more=more), "2026-11-30T13:00:00Z", order=order, days=1), 80)
    assert lines[2:4] == ["at once: 0 by daily 15:00-16:00, else 8", "at once (resource pacs): 5"]
    assert lines[5] == f"> mon 2026-11-30 {'█' * 12}{'·' * 16}++··++{'·' * 6}{'█' * 8} 12h"


def test_the_clock_that_goes_back() -> None:
    lines = drawn(week_of(rule("daily 01:30-02:30"), "2026-10-25T00:40:00Z", days=1), 80)
    assert lines[2] == f">*sun 2026-10-25 ···██{'·' * 43} 1h30m"
    assert lines[3] == "                      ^ now 02:40 CEST: closed until 02:00 CET"
    assert lines[5:7] == [
        "  sun 2026-10-25  clocks go back 1h at 03:00: open 01:30-02:30 CEST, 02:00",
        "                  CET-02:30 CET; usually 01:30-02:30 (1h30m instead of 1h)",
    ]


def test_the_clock_that_goes_forward_leaves_a_gap() -> None:
    lines = drawn(week_of(rule("daily 01:30-02:30"), "2026-03-29T20:40:00Z", days=1), 80)
    assert lines[2] == f">*sun 2026-03-29 ···█  {'·' * 42} 30m"
    assert lines[3] == "                     now 22:40: closed until after these days ^"


def test_rules_of_another_zone_are_drawn_for_the_same_time() -> None:
    text = rule("daily 20:00-06:00") + (
        "[[fetch]]\nname = 'reports'\ntimezone = 'America/New_York'\nopen = ['mon-fri 08:00-18:00']\n"
    )
    lines = drawn(week_of(text, "2026-11-30T12:00:00Z", days=1), 80)
    start = lines.index("reports, times in America/New_York (EST, UTC-05:00)")
    assert lines[start + 2 : start + 5] == [
        f"  sun 2026-11-29 {' ' * 36}{'·' * 12} closed",
        f"> mon 2026-11-30 {'·' * 16}{'█' * 20}{' ' * 12} 10h",
        "                               ^ now 07:00: closed until 08:00",
    ]


def test_weeks_that_are_cut_say_so_and_none_says_that() -> None:
    week = week_of(rule("daily 20:00-06:00") + "[[fetch]]\nname = 'b'\n", "2026-11-30T12:00:00Z")
    cut = WeekOut(now=week.now, start=week.start, end=week.end, rules=week.rules[:1], rules_total=2)
    assert shown(parts(cut), 80).endswith("\nThese are the first 1 of 2 rules: name one, or a glob.")
    assert shown(parts(week_of("", "2026-11-30T12:00:00Z")), 80) == "no [[fetch]] rule: no hours to draw"


def test_names_and_notes_steer_no_terminal() -> None:
    order = ordered(Steer.CLOSE, "2026-11-30T16:00:00Z")
    week = week_of(rule("daily 20:00-06:00"), "2026-11-30T13:00:00Z", order=order)
    [found] = week.rules
    assert found.override is not None
    evil = replace(found, rule="\x1b[2J", override=replace(found.override, note="a\nb", by="\u202eme"))
    lines = drawn(replace(week, rules=[evil]), 80)
    assert lines[0].startswith(r"\x1b[2J, times in")
    assert lines[1] == r"override: closed by \u202eme since 14:00 until 17:00: a\nb"


# -- with a file


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "gate.toml"
    path.write_text(QUIET)
    return str(path)


def test_a_file_is_drawn_without_a_gate(file: str) -> None:
    result = gatectl("week", "--config", file, "--start", "2026-12-24", "--days", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"thu 2026-12-24 ██▄xxx▄{'█' * 41} 22h\n" in result.stdout


def test_json_of_a_file_is_shaped_as_the_reply(file: str) -> None:
    result = gatectl("week", "dicom", "--config", file, "--start", "2026-12-24", "--days", "1", "--json")
    reply = json.loads(result.stdout)
    assert (reply["start"], reply["end"]) == ("2026-12-23T23:00:00Z", "2026-12-24T23:00:00Z")
    assert [span["start"] for span in reply["rules"][0]["open"]] == ["2026-12-23T23:00:00Z", "2026-12-24T02:15:00Z"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch"], "no [[fetch]] rule is named 'nosuch'"),
        (["--start", "monday"], "does not match the format '%Y-%m-%d'"),
        (["--days", "0"], "0 is not in the range"),
        (["--days", "32"], "32 is not in the range"),
        (["--svg", "/nowhere/week.svg"], "/nowhere/week.svg cannot be written: no such file or directory"),
        (["--svg", "/tmp"], "is a directory"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str, file: str) -> None:
    result = gatectl("week", "--config", file, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_a_file_that_cannot_be_used_is_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text("[[fetch]]\nopen = ['daly 20:00-06:00']\nnonsense = 1\n")
    result = gatectl("week", "--config", str(path))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0] == f"gatectl: {path} cannot be used:"
    assert len(lines) >= 3


def test_a_picture_goes_into_a_file_and_what_is_printed_says_so(file: str, tmp_path: Path) -> None:
    picture = tmp_path / "week.svg"
    result = gatectl("week", "--config", file, "--svg", str(picture))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"drawn into {picture}\n"
    assert picture.read_text().startswith("<svg ")


@pytest.mark.process
def test_a_terminal_that_shows_only_ascii_gets_ascii(file: str) -> None:
    done = process("week", "--config", file, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert "##~xxx~" in done.stdout
    assert "\\u" not in done.stdout


@pytest.mark.process
@pytest.mark.parametrize(("columns", "cells"), [(80, 48), (120, 96)])
def test_a_terminal_is_filled_and_colours_are_for_those_that_want_them(file: str, columns: int, cells: int) -> None:
    text = on_terminal("week", "--config", file, columns=columns)
    assert "\x1b[32m" in text
    rows = re.findall(r"^[ >][ *]\w{3} \d{4}-\d\d-\d\d ([█▄x·]+) ", STYLE.sub("", text), re.MULTILINE)
    assert [len(row) for row in rows] == [cells] * 7
    plain = on_terminal("week", "--config", file, columns=columns, env={"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain)


# -- with a gate


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=QUIET) as gate:
        yield gate


@pytest.mark.process
def test_json_is_the_reply_on_the_wire(gate: GateProcess) -> None:
    printed = gatectl("week", "d*", "--start", "2026-12-24", "--days", "2", "--json", "--socket", str(gate.socket))
    assert (printed.exit_code, printed.stderr) == (0, "")
    with gate.client() as client:
        wire = client.call("Control.Week", rule="d*", start="2026-12-24", days=2)
    shown = json.loads(printed.stdout)
    assert list(shown) == list(wire)
    assert {**shown, "now": ""} == {**wire, "now": ""}


@pytest.mark.process
def test_a_gate_and_its_file_say_the_same(gate: GateProcess) -> None:
    asked = ["week", "--start", "2026-12-24", "--days", "3", "--json"]
    by_gate = json.loads(gatectl(*asked, "--socket", str(gate.socket)).stdout)
    by_file = json.loads(gatectl(*asked, "--config", str(gate.config)).stdout)
    assert {**by_gate, "now": ""} == {**by_file, "now": ""}


@pytest.mark.process
def test_a_rule_that_is_not_there_is_wrong_usage_also_for_a_gate(gate: GateProcess) -> None:
    result = gatectl("week", "nosuch", "--socket", str(gate.socket))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "gatectl: no [[fetch]] rule is named 'nosuch': the configuration has dicom\n"


def test_without_a_gate_the_exit_code_is_3(tmp_path: Path) -> None:
    assert gatectl("week", "--socket", str(tmp_path / "nowhere")).exit_code == 3
