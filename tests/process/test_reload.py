"""Reload: all of a file is taken over or nothing, by a call, by SIGHUP, and when what it names changes."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess, RawClient
from tests.support.instants import minute
from tests.support.watcher import RawWatcher, watcher

pytestmark = pytest.mark.process

OPEN = '[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\n'
CLOSED = 'timezone = "UTC"\n[[fetch]]\nname = "dicom"\nqueues = ["dicom"]\nopen = ["cron 0 0 29 2 *"]\n'
BAD = '[[fetch]]\nname = "dicom"\nqueues = "dicom"\nopens = ["x"]\n'
LOOKS_OFTEN = (
    "import sys; from gate import reloader; reloader.LOOK_SECONDS = reloader.LOOK_RARELY_SECONDS = 0.1;"
    "from gate.__main__ import main; sys.argv[0] = 'gate'; sys.exit(main())"
)
"""A gate that looks for changed files ten times a second."""

Make = Callable[..., GateProcess]


@pytest.fixture
def gate(make_gate: Make) -> GateProcess:
    return make_gate(config=OPEN).start()


@pytest.fixture
def dicom(gate: GateProcess) -> Iterator[RawWatcher]:
    with watcher(gate.socket, "w", ["dicom"]) as connection:
        yield connection


def status(client: RawClient) -> dict[str, Any]:
    return client.call("Control.Status")


def refused(client: RawClient) -> list[str]:
    """Reload a file that is not taken over; gives the findings."""
    with pytest.raises(ErrorReply) as caught:
        client.call("Control.Reload")
    assert caught.value.name == "io.schedulegate.Control.InvalidConfig"
    findings: list[str] = caught.value.parameters["findings"]
    return findings


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


# ---- by a call


def test_a_good_file_is_in_force_when_the_answer_comes(gate: GateProcess, client: RawClient, dicom: RawWatcher) -> None:
    before = status(client)["config_loaded"]
    gate.config.write_text(CLOSED)
    client.call("Control.Reload")
    assert not dicom.next_at_once()["open"], "watchers are told before whoever asked"
    assert not client.call("Fetch.Check", worker="w", queues=["dicom"])["open"]
    shown = status(client)
    assert shown["config_loaded"] > before
    assert (shown["rules"][0]["open"], shown["config_problem"]) == (False, None)


def test_a_bad_file_leaves_the_old_one_in_force_until_it_is_mended(
    gate: GateProcess, client: RawClient, dicom: RawWatcher
) -> None:
    before = status(client)["config_loaded"]
    gate.config.write_text(BAD)
    findings = refused(client)
    assert len(findings) == 2
    assert any("opens" in finding for finding in findings)
    assert dicom.is_quiet()
    assert client.call("Fetch.Check", worker="w", queues=["dicom"])["open"]
    shown = status(client)
    assert shown["config_loaded"] == before
    assert all(finding in shown["config_problem"] for finding in [str(gate.config), *findings])
    gate.config.write_text(CLOSED)
    client.call("Control.Reload")
    assert status(client)["config_problem"] is None
    assert not dicom.next()["open"]


def test_a_missing_file_leaves_the_old_one_in_force(gate: GateProcess, client: RawClient) -> None:
    gate.config.unlink()
    assert refused(client) == ["cannot be read: No such file or directory"]
    assert [rule["rule"] for rule in status(client)["rules"]] == ["dicom"]


def test_the_store_cannot_be_changed(gate: GateProcess, client: RawClient) -> None:
    for store in ('url = "memory:"', 'keep = "30d"'):
        gate.config.write_text(f"{CLOSED}[store]\n{store}\n")
        (finding,) = refused(client)
        assert finding.startswith("store: ")
        assert "restart" in finding
    gate.config.write_text(f'{CLOSED}[store]\nurl = "sqlite:"\nkeep = "14d"\n')
    client.call("Control.Reload")


def test_send_policies_are_taken_over(gate: GateProcess, client: RawClient) -> None:
    old = minute(30)
    assert client.claim("early", old, token="a")["decision"] == "send"
    gate.config.write_text('[[send]]\nschedules = ["*"]\ndeadline = "10m"\n')
    client.call("Control.Reload")
    assert client.claim("late", old, token="b")["decision"] == "late"
    client.call("Send.Confirm", token="a")


def test_reloads_that_come_together_are_all_answered(gate: GateProcess, client: RawClient) -> None:
    gate.config.write_text(CLOSED)
    for _ in range(30):
        client.post("Control.Reload")
    assert len([client.reply() for _ in range(30)]) == 30
    assert not client.call("Fetch.Check", worker="w", queues=["dicom"])["open"]


def test_an_override_of_a_rule_that_is_gone_is_shown_as_a_warning(gate: GateProcess, client: RawClient) -> None:
    client.call("Control.Override", rule="dicom", action="close", until="2026-12-31T00:00:00Z", note="x")
    gate.config.write_text(OPEN.replace('"dicom"', '"other"'))
    client.call("Control.Reload")
    assert any("override of rule dicom" in warning for warning in status(client)["warnings"])
    assert client.call("Control.Override", rule="dicom", action="auto")["overrides"] == []
    assert not any("override of rule dicom" in warning for warning in status(client)["warnings"])


def test_a_reload_of_the_built_in_defaults_changes_nothing(make_gate: Make) -> None:
    with make_gate().start().client() as client:
        if status(client)["config"] is not None:
            pytest.skip("this machine has a configuration of its own")
        assert client.call("Control.Reload") == {"warnings": []}
        assert client.call("Fetch.Check", worker="w")["open"]


# ---- by SIGHUP


def test_sighup_reads_the_file_again(gate: GateProcess, client: RawClient, dicom: RawWatcher) -> None:
    gate.config.write_text(CLOSED)
    os.kill(gate.pid, signal.SIGHUP)
    assert not dicom.next()["open"]
    gate.config.write_text(BAD)
    os.kill(gate.pid, signal.SIGHUP)
    problem = wait_for(lambda: status(client)["config_problem"])
    assert "opens" in problem
    errors = [line for line in gate.log_lines() if line.get("level") == "error"]
    assert len(errors) == 1
    assert "opens" in errors[0]["message"]
    assert gate.running


# ---- what the file names


def event(day: str) -> str:
    return f"BEGIN:VEVENT\r\nUID:{day}\r\nSUMMARY:day off\r\nDTSTART;VALUE=DATE:{day}\r\nEND:VEVENT\r\n"


def calendar(*days: str) -> str:
    events = "".join(map(event, days))
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//\r\n{events}END:VCALENDAR\r\n"


TODAY = minute()[:10].replace("-", "")
HOLIDAYS = """
timezone = "UTC"
[days]
holidays = ["ics:days.ics"]
[[fetch]]
name = "dicom"
queues = ["dicom"]
closed = ["holiday 00:00-24:00"]
"""


@pytest.fixture
def holidays(make_gate: Make) -> GateProcess:
    """A gate, not started, whose rule is closed on the days of days.ics beside its file."""
    pytest.importorskip("icalendar")
    return make_gate(config=HOLIDAYS, program=LOOKS_OFTEN)


def test_a_calendar_that_changes_is_read_again_and_one_that_breaks_keeps_its_list(holidays: GateProcess) -> None:
    days = holidays.config.with_name("days.ics")
    days.write_text(calendar("20200101"))
    holidays.start()
    with watcher(holidays.socket, "w", ["dicom"]) as dicom, holidays.client() as client:
        assert dicom.last["open"]
        days.write_text(calendar("20200101", TODAY))
        assert not dicom.next()["open"]
        days.write_text("no calendar at all")
        wait_for(lambda: [w for w in status(client)["warnings"] if "days.ics" in w and "broken" in w])
        assert not client.call("Fetch.Check", worker="w", queues=["dicom"])["open"]
        assert [line for line in holidays.log_lines() if "days.ics" in line.get("message", "")]
        assert "broken" in " ".join(client.call("Control.Reload")["warnings"]), "a reload keeps the old list too"
        days.write_text(calendar("20200101"))
        assert dicom.next()["open"]
        assert not [w for w in status(client)["warnings"] if "broken" in w]


@pytest.mark.parametrize("content", [None, "no calendar at all"])
def test_a_calendar_that_never_loaded_is_an_error(holidays: GateProcess, content: str | None) -> None:
    if content is not None:
        holidays.config.with_name("days.ics").write_text(content)
    assert holidays.spawn().wait(PATIENCE) == 2
    messages = [line.get("message", line) for line in holidays.log_lines()]
    assert len(messages) == 1
    assert "days.holidays[0]" in messages[0]


def test_other_time_zone_data_is_taken_in_without_a_restart(make_gate: Make, tmp_path: Path) -> None:
    """The system's data is upgraded to one in which Berlin has the hours of Kathmandu."""
    tzdata = pytest.importorskip("tzdata")
    zones = Path(tzdata.__file__).parent / "zoneinfo"
    system = tmp_path / "zoneinfo"
    (system / "Europe").mkdir(parents=True)
    shutil.copy(zones / "UTC", system / "UTC")
    shutil.copy(zones / "Europe/Berlin", system / "Europe/Berlin")
    (system / "tzdata.zi").write_text("# version 1999a\n")
    config = 'timezone = "Europe/Berlin"\n[[fetch]]\nname = "noon"\nopen = ["daily 12:00-13:00"]\n'
    env = {**os.environ, "PYTHONTZPATH": str(system)}
    gate = make_gate(config=config, env=env, program=LOOKS_OFTEN).start()
    with watcher(gate.socket, "w") as noon, gate.client() as client:
        assert status(client)["tzdata"]["source"] == "wheel", "it is newer"
        before = noon.last["until"]
        shutil.copy(zones / "Asia/Kathmandu", system / "Europe/Berlin")
        (system / "tzdata.zi").write_text("# version 2999a\n")
        assert noon.next()["until"] != before
        assert status(client)["tzdata"] == {"source": f"system {system}", "version": "2999a"}
