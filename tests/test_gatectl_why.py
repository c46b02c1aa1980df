"""gatectl why worker: the deciding line in words, and the answer as the exit code."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl
from tests.support.weeks import QUIET

NIGHT, DAY = "2026-12-01T22:00:00Z", "2026-12-01T12:00:00Z"
ASKED = ["why", "worker", "transfer-1", "--queue", "dicom"]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=QUIET) as gate:
        yield gate


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "gate.toml"
    path.write_text(QUIET)
    return str(path)


@pytest.mark.parametrize(("at", "code", "says"), [
    (NIGHT, 0, "open by quiet (daily 20:00-06:00)"),
    (DAY, 1, "outside its hours, opens"),
    ("2026-12-02T01:30:00Z", 1, "closed by backup (daily 02:00-03:15)"),
    ("2026-12-02T04:30:00Z", 1, "within 45m of closing at 06:00 (last_start)"),
    ("2026-12-25T12:00:00Z", 0, "open by quiet (freeday 00:00-24:00)"),
])  # fmt: skip
def test_the_deciding_line_and_the_exit_code(at: str, code: int, says: str, file: str) -> None:
    result = gatectl(*ASKED, "--config", file, "--at", at)
    assert (result.exit_code, result.stderr) == (code, "")
    first, second, *_ = result.stdout.splitlines()
    assert first.startswith("open at" if code == 0 else "closed at")
    assert "Europe/Berlin for worker transfer-1, queue dicom" in first
    assert says in second
    assert second.startswith("rule dicom: ")


def test_json_of_a_file(file: str) -> None:
    result = gatectl(*ASKED, "--config", file, "--at", NIGHT, "--json")
    reply = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (reply["open"], reply["until"], reply["at"]) == (True, "2026-12-02T00:15:00Z", NIGHT)
    assert (reply["rule"], reply["line"]) == ("dicom", "daily 20:00-06:00")
    assert reply["reason"].startswith("rule dicom: open by quiet (daily 20:00-06:00)")


def test_what_no_rule_covers_is_open(file: str) -> None:
    result = gatectl("why", "worker", "w", "--queue", "other", "--config", file, "--json")
    reply = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (reply["open"], reply["until"], reply["rule"], reply["line"]) == (True, None, None, None)


@pytest.mark.process
@pytest.mark.parametrize("at", [NIGHT, DAY])
def test_a_gate_and_its_file_say_the_same(at: str, gate: GateProcess) -> None:
    by_gate = gatectl(*ASKED, "--at", at, "--json", "--socket", str(gate.socket))
    by_file = gatectl(*ASKED, "--at", at, "--json", "--config", str(gate.config))
    assert (by_gate.exit_code, by_gate.stdout) == (by_file.exit_code, by_file.stdout)
    with gate.client() as client:
        assert json.loads(by_gate.stdout) == client.call("Control.Why", worker="transfer-1", queue="dicom", at=at)


@pytest.mark.process
def test_now_is_asked_for_if_no_time_is_named(gate: GateProcess) -> None:
    result = gatectl("why", "worker", "transfer-1", "--socket", str(gate.socket))
    assert result.exit_code in (0, 1)
    assert "for worker transfer-1, all queues" in result.stdout.splitlines()[0]


@pytest.mark.process
def test_what_the_gate_does_not_take_as_a_worker_is_wrong_usage(gate: GateProcess) -> None:
    result = gatectl("why", "worker", "", "--socket", str(gate.socket))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("gatectl: invalid question: worker: ")


@pytest.mark.process
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "1972-12-31T23:59:59Z", "9999-12-31T23:59:59Z"])
def test_an_instant_of_which_no_hours_are_known_is_refused_and_the_gate_goes_on(at: str, gate: GateProcess) -> None:
    result = gatectl(*ASKED, "--at", at, "--socket", str(gate.socket))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"gatectl: invalid question: at: {at!r} is not within 1973 to 2199\n"
    assert gatectl(*ASKED, "--at", NIGHT, "--socket", str(gate.socket)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["why"], "Usage: gatectl why"),
        (["why", "worker"], "Missing argument 'NAME'"),
        (["why", "task", "a"], "No such command 'task'"),
        ([*ASKED, "--at", "noon"], "'noon' is not a time"),
        ([*ASKED, "--at", "0001-01-01T00:00:00Z", "--config", os.devnull], "is not within 1973 to 2199"),
        (["why", "worker", "w", "--queue", "", "--config", os.devnull], "invalid question: queues[0]: "),
        ([*ASKED, "--config", "/nowhere/gate.toml"], "/nowhere/gate.toml cannot be used:\n  cannot be read: "),
    ],
)
def test_wrong_usage(arguments: list[str], says: str) -> None:
    result = gatectl(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_without_a_gate_the_exit_code_is_3(tmp_path: Path) -> None:
    assert gatectl(*ASKED, "--socket", str(tmp_path / "nowhere")).exit_code == 3
