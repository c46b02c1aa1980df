"""gatectl pause and resume, pauses by hours, Review and Missed: against a real gate."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gate.interface import instant, rfc3339
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl

pytestmark = pytest.mark.process

CONFIG = """
timezone = "UTC"
[[send]]
schedules = ["always-paused"]
pause = ["daily 00:00-24:00"]
[[send]]
schedules = ["watched"]
mode = "observe"
[[send]]
schedules = ["*"]
catch_up = "latest"
"""
MINUTE = rfc3339(datetime.now(UTC).replace(second=0, microsecond=0))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=CONFIG) as gate:
        yield gate


@pytest.fixture(autouse=True)
def fresh(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))
    with gate.client() as client:
        if client.call("Control.Status")["pauses"]:
            client.call("Control.Pause", schedule="*", action="resume")


def ok(*arguments: str) -> str:
    result = gatectl(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def minute(ago: int = 0) -> str:
    return rfc3339(datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=ago))


def test_pausing_for_a_while_and_resuming(gate: GateProcess) -> None:
    text = ok("pause", "reports:*", "--for", "2h", "--note", "database moves")
    assert text.startswith("in force now:\nschedules ")
    assert re.search(r"^reports:\* .* database moves$", text, re.MULTILINE)
    with gate.client() as client:
        answer = client.claim("reports:daily", minute())
        assert answer["decision"] == "paused"
        assert answer["reason"].endswith(": database moves")
        assert timedelta(minutes=119) < instant(answer["until"]) - datetime.now(UTC) <= timedelta(hours=2)
        assert client.claim("mail", minute())["decision"] == "send"
    status = ok("status")
    assert "pauses: 1\n" in status
    assert "missed: 1\n" in status
    told = r"paused by \w+: database moves; refused 1, missed 1"
    assert re.search(rf"^reports:daily .* missed .* {told}", status, re.MULTILINE)
    assert "missed" in ok("history", "reports:daily")
    assert ok("resume", "reports:*") == "no pause is in force now\n"
    with gate.client() as client:
        assert client.claim("reports:other", minute())["decision"] == "send"


def test_json_is_the_reply_on_the_wire(gate: GateProcess) -> None:
    reply = json.loads(ok("pause", "mail", "--for", "1h", "--note", "n", "--json"))
    with gate.client() as client:
        assert reply == {"pauses": client.call("Control.Status")["pauses"]}
    assert json.loads(ok("resume", "mail", "--json")) == {"pauses": []}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pause", "mail", "--note", "n"], "give an end: --for 2h or --until 18:00"),
        (["pause", "mail", "--for", "1h"], "Missing option '--note'"),
        (["pause", "mail", "--for", "400d", "--note", "n"], "invalid pause: until: "),
        (["pause", "mail", "--for", "1h", "--note", " "], "invalid pause: note: missing: say why"),
        (["resume", "mail"], "no pause in force is of 'mail'"),
    ],
)
def test_wrong_usage(gate: GateProcess, arguments: list[str], says: str) -> None:
    result = gatectl(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_pause_outlives_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GateProcess(tmp_path, config='[store]\nurl = "sqlite:"\n') as gate:
        monkeypatch.setenv("GATE_SOCKET", str(gate.socket))
        ok("pause", "mail", "--for", "1h", "--note", "n")
        gate.kill()
        gate.start()
        with gate.client() as client:
            assert client.claim("mail", minute())["decision"] == "paused"


def test_hours_that_pause_cannot_be_resumed(gate: GateProcess) -> None:
    with gate.client() as client:
        answer = client.claim("always-paused", minute())
    assert (answer["decision"], answer["reason"], answer["until"]) == ("paused", "paused by daily 00:00-24:00", None)
    assert gatectl("resume", "always-paused").exit_code == 2


def test_a_schedule_that_is_only_observed_is_granted_and_counted(gate: GateProcess) -> None:
    with gate.client() as client:
        for token in ("a", "b"):
            assert client.claim("watched", MINUTE, token=token)["decision"] == "send"
            client.call("Send.Confirm", token=token)
        answer = client.claim("watched", MINUTE, token="b")
    assert answer["reason"] == "observed: enforce would answer sent: already sent"
    assert re.search(r"^watched .* sent 1, only observed 2", ok("status"), re.MULTILINE)


def test_a_scheduler_lists_and_learns_what_it_missed(gate: GateProcess) -> None:
    with gate.client() as client:
        listed = [{"schedule": name, "trigger": "* * * * *"} for name in ("hourly", "always-paused")]
        call: dict[str, Any] = {"source": "shop", "round": "1", "last": True, "schedules": listed}
        answer = client.call("Send.Review", **call)
        hourly, paused = answer["reviews"]
        assert hourly == {
            "schedule": "hourly", "catch_up": "latest", "since": answer["now"], "known": [], "again": [],
            "paused": None, "back": None,
        }  # fmt: skip
        assert instant(paused["paused"]) > datetime.now(UTC) + timedelta(days=365)
        client.claim("hourly", minute(), token="t")
        client.call("Send.Release", token="t")
        missed: dict[str, Any] = {"schedule": "hourly", "holder": "me", "reason": "the scheduler was away"}
        client.call("Send.Missed", at=minute(3), first=minute(5), count=3, **missed)
        (again,) = client.call("Send.Review", **call)["reviews"][0]["again"]
        assert again["reason"] == "released by its holder: not sent"
    assert re.search(r"^hourly .* me +the scheduler was away; stands for 3 since \S+Z$", ok("status"), re.MULTILINE)
