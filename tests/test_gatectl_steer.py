"""gatectl open, close, auto and reload, and what status shows of rules: against a real gate."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gate.interface import instant, rfc3339
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl, on_terminal
from tests.support.weeks import BERLIN

pytestmark = pytest.mark.process

CONFIG = (
    BERLIN
    + """
[[fetch]]
name = "dicom"
queues = ["dicom"]
open = ["daily 00:00-24:00"]
[[fetch]]
name = "mass-1"
queues = ["mass-1"]
closed = ["daily 00:00-24:00"]
[[fetch]]
name = "mass-2"
queues = ["mass-2"]
"""
)
LATE = "2099-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=CONFIG) as gate:
        yield gate


@pytest.fixture(autouse=True)
def fresh(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate is named by the environment, runs CONFIG and has no override."""
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))
    gate.config.write_text(CONFIG)
    with gate.client() as client:
        client.call("Control.Reload")
        client.call("Control.Override", rule="*", action="auto")


def ok(*arguments: str) -> str:
    result = gatectl(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def orders(gate: GateProcess) -> dict[str, tuple[str, str]]:
    with gate.client() as client:
        found = client.call("Control.Status")["overrides"]
    return {order["rule"]: (order["action"], order["note"]) for order in found}


def line(text: str, start: str) -> list[str]:
    return next(re.split(r" {2,}", row) for row in text.splitlines() if row.startswith(start))


# -- open, close, auto


def test_closing_for_a_while(gate: GateProcess) -> None:
    before = datetime.now(UTC)
    text = ok("close", "dicom", "--for", "2h", "--note", "clinic called")
    assert orders(gate) == {"dicom": ("close", "clinic called")}
    assert text.startswith("in force now:\nrule ")
    rule, state, until, why = line(text, "dicom ")
    assert (rule, state) == ("dicom", "closed")
    assert why.endswith(": clinic called")
    with gate.client() as client:
        [order] = client.call("Control.Status")["overrides"]
    assert timedelta(hours=2) <= instant(order["until"]) - before < timedelta(hours=2, minutes=1)
    assert instant(order["until"]).astimezone().strftime("%H:%M:%S").removesuffix(":00") in until


def test_opening_until_a_time_and_taking_that_back(gate: GateProcess) -> None:
    until = (datetime.now(UTC) + timedelta(days=2)).replace(hour=6, minute=0, second=0, microsecond=0)
    text = ok("open", "mass-*", "--until", f"{until.astimezone():%Y-%m-%d %H:%M}", "--note", "backlog")
    assert orders(gate) == {"mass-1": ("open", "backlog"), "mass-2": ("open", "backlog")}
    assert line(text, "mass-1 ")[1:3] == ["open", f"{until.astimezone():%Y-%m-%d %H:%M}"]
    assert "dicom" not in text
    text = ok("auto", "mass-1")
    assert orders(gate) == {"mass-2": ("open", "backlog")}
    assert line(text, "mass-1 ")[1] == "closed"
    assert text.count("\n") == 3, "a heading, the columns, and the rule that was named"


def test_json_is_the_reply_on_the_wire(gate: GateProcess) -> None:
    until = rfc3339(datetime.now(UTC) + timedelta(days=300))
    reply = json.loads(ok("close", "dicom", "--until", until, "--note", "n", "--json"))
    with gate.client() as client:
        assert reply == {"overrides": client.call("Control.Status")["overrides"]}
    assert json.loads(ok("auto", "dicom", "--json")) == {"overrides": []}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["close", "dicom", "--note", "n"], "give an end: --for 2h or --until 18:00"),
        (["close", "dicom", "--for", "1h", "--until", "18:00", "--note", "n"], "give either --for or --until"),
        (["close", "dicom", "--for", "1h"], "Missing option '--note'"),
        (["open", "--for", "1h", "--note", "n"], "Missing argument 'RULE'"),
        (["open", "dicom", "--for", "soon", "--note", "n"], "'soon' is not a duration"),
        (["open", "dicom", "--for", "99999999w", "--note", "n"], "--for"),
        (["open", "dicom", "--until", "tonight", "--note", "n"], "'tonight' is not a time: write 18:00 (the next)"),
        (
            ["open", "dicom", "--until", "2026-01-01 00:00", "--note", "n"],
            "until: '2026-01-01T00:00:00Z' is not in the",
        ),
        (["open", "dicom", "--until", LATE, "--note", "n"], "is more than 366 days ahead"),
        (["open", "dicom", "--for", "1h", "--note", " "], "invalid override: note: missing"),
        (["open", "nosuch", "--for", "1h", "--note", "n"], "no [[fetch]] rule is named 'nosuch'"),
        (["auto", "nosuch"], "no [[fetch]] rule is named 'nosuch'"),
        (["auto", "dicom", "--note", "n"], "No such option"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str, gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    result = gatectl(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert orders(gate) == {}


@pytest.mark.parametrize("command", [["close", "dicom", "--for", "1h", "--note", "n"], ["auto", "dicom"], ["reload"]])
def test_without_a_gate_the_exit_code_is_3(command: list[str], tmp_path: Path) -> None:
    assert gatectl(*command, "--socket", str(tmp_path / "nowhere")).exit_code == 3


# -- reload


def test_reload_takes_the_file_over_and_prints_warnings(gate: GateProcess) -> None:
    gate.config.write_text(CONFIG + '[[fetch]]\nname = "new"\nqueues = ["new"]\nopen = ["daily 20:00-23:59"]\n')
    first, *warnings = ok("reload").splitlines()
    assert first == "the configuration was read again and is in force"
    assert any("23:59" in warning for warning in warnings)
    assert all(warning.startswith("warning: ") for warning in warnings)
    assert list(json.loads(ok("reload", "--json"))) == ["warnings"]
    text = ok("status")
    assert line(text, "new ")[0] == "new"
    assert f"warnings: {len(warnings)}\n{warnings[0].removeprefix('warning: ')}\n" in text


def test_reload_of_a_bad_file_keeps_the_old_one_and_status_says_so_first(gate: GateProcess) -> None:
    gate.config.write_text(CONFIG.replace("daily 00:00-24:00", "daly 00:00-24:00") + "nonsense = 1\n")
    result = gatectl("reload")
    assert (result.exit_code, result.stdout) == (2, "")
    first, *findings = result.stderr.splitlines()
    assert first == f"gatectl: {gate.config} is not taken over, and what ran before goes on:"
    places = {finding.partition(":")[0] for finding in findings}
    assert places == {"  fetch[0].open[0]", "  fetch[1].closed[0]", "  fetch[2].nonsense"}
    lines = ok("status").splitlines()
    assert lines[0].startswith("CONFIGURATION NOT IN FORCE: what was loaded at ")
    assert "nonsense" in "".join(lines[1:5])
    assert line("\n".join(lines), "dicom ")[1] == "open"
    gate.config.write_text(CONFIG)
    ok("reload")
    assert ok("status").startswith("gate ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_steering_needs_the_right_to(gate: GateProcess) -> None:
    from tests.support.gatectl import as_nobody
    from tests.test_gatectl import reachable_by_all

    with reachable_by_all(gate):
        for command in (["close", "dicom", "--for", "1h", "--note", "n"], ["auto", "dicom"], ["reload"]):
            refused = as_nobody(*command, "--socket", str(gate.socket))
            assert refused.returncode == 1, command
            assert refused.stderr.startswith("gatectl: not allowed: steering needs root")
        assert as_nobody("week", "--socket", str(gate.socket)).returncode == 0, "reading needs no more than the socket"


# -- status


def test_status_shows_rules_overrides_and_watchers(gate: GateProcess) -> None:
    ok("close", "dicom", "--for", "90m", "--note", "clinic called")
    with gate.client() as client:
        client.post("Fetch.Watch", more=True, worker="transfer-1", queues=["dicom"], session="s")
        assert client.reply()["open"] is False
        text = ok("status")
    assert line(text, "rules: ") == ["rules: 3"]
    assert line(text, "mass-1 ")[1:3] == ["closed", "no known change"]
    assert line(text, "mass-2 ")[1] == "open"
    start = text.index("overrides: 1")
    rule, order, _until, by, _since, note = line(text[start:], "dicom ")
    assert (rule, order, note) == ("dicom", "closed", "clinic called")
    assert by == ("root" if os.getuid() == 0 else by)
    watcher = line(text[text.index("watchers: 1") :], "transfer-1 ")
    assert watcher[1:3] == ["dicom", "closed"]
    assert str(os.getpid()) in watcher
    assert watcher[-1].endswith("clinic called")


def test_a_status_of_rules_fits_80_columns(gate: GateProcess) -> None:
    ok(
        "close",
        "*",
        "--for",
        "90m",
        "--note",
        "the clinic called, and they said that they need the archive for themselves",
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("status"))
    assert max(len(row.rstrip()) for row in text.splitlines()) <= 80
    assert "overrides: 3" in text
