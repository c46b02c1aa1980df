"""Check, Watch and overrides over the wire of a real gate."""

import json
import pwd
import signal
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import tell
from tests.support.faketime import FakeTime
from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess, RawClient
from tests.support.users import Runner, folder_of_theirs, normal_user
from tests.support.watcher import RawWatcher, watcher

pytestmark = pytest.mark.process

CONFIG = """
timezone = "UTC"
[[fetch]]
name = "dicom"
workers = ["transfer-*"]
queues = ["dicom"]
open = ["daily 00:00-24:00"]
[[fetch]]
name = "never"
queues = ["never"]
open = ["cron 0 0 29 2 *"]
"""
OVERRIDE_SECONDS = 1.0
"""Ten times what an override may take to reach a watcher."""

Make = Callable[..., GateProcess]


def soon(seconds: float = 3600.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def override(client: RawClient, action: str, rule: str = "dicom", **parameters: Any) -> list[dict[str, Any]]:
    """Open or close for an hour, or take it back; gives what is in force."""
    if action != "auto":
        parameters = {"until": soon(), "note": "test", **parameters}
    found: list[dict[str, Any]] = client.call("Control.Override", action=action, rule=rule, **parameters)["overrides"]
    return found


@pytest.fixture
def gate(make_gate: Make) -> GateProcess:
    return make_gate(config=CONFIG).start()


@pytest.fixture
def transfer(gate: GateProcess) -> Iterator[RawWatcher]:
    with watcher(gate.socket, "transfer-1", ["dicom"]) as connection:
        yield connection


# ---- Check


def test_without_a_configuration_everything_is_open(make_gate: Make) -> None:
    with make_gate().start().client() as client:
        answer = client.call("Fetch.Check", worker="anybody")
        reason = answer.pop("reason")
        assert answer == {
            "open": True, "queues": None, "excluded": None, "until": None, "limited": False, "place": True
        }  # fmt: skip
        assert reason


def test_check_answers_for_names_and_for_all(client: RawClient) -> None:
    assert client.call("Fetch.Check", worker="transfer-1", queues=["dicom", "never"])["queues"] == ["dicom"]
    everything = client.call("Fetch.Check", worker="transfer-1")
    assert (everything["open"], everything["queues"], everything["excluded"]) == (True, None, ["never"])
    closed = client.call("Fetch.Check", worker="x", queues=["never"])
    assert (closed["open"], closed["queues"]) == (False, [])


def test_check_needs_no_store(gate: GateProcess, client: RawClient) -> None:
    client.call("Control.Status")
    other = sqlite3.connect(gate.state / "gate.db", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        client.post("Send.Claim", schedule="s", holder="h", at="2026-01-01T00:00:00Z")
        with gate.client() as second:
            begin = time.monotonic()
            assert second.call("Fetch.Check", worker="transfer-1")["open"]
            assert time.monotonic() - begin < 0.2, "the store waits a quarter of a second for a lock"
    finally:
        other.close()


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"worker": ""}, "worker"),
        ({"worker": "é" * 129}, "worker"),
        ({"worker": "w", "queues": ["q" * 513]}, "queues[0]"),
        ({"worker": "w", "queues": ["q"] * 1001}, "queues"),
    ],
)
def test_a_question_that_may_not_be_is_refused_and_the_connection_lives(
    client: RawClient, parameters: dict[str, Any], field: str
) -> None:
    for method, asked in (("Fetch.Check", parameters), ("Fetch.Watch", {**parameters, "session": "s"})):
        with pytest.raises(ErrorReply) as caught:
            client.call(method, **asked)
        assert (caught.value.name, caught.value.parameters["field"]) == ("io.schedulegate.Fetch.InvalidWorker", field)
    assert client.call("Fetch.Check", worker="w")["open"]


# ---- Watch and overrides


def test_an_override_reaches_a_watcher_at_once(client: RawClient, transfer: RawWatcher) -> None:
    assert transfer.last["open"]
    times: list[float] = []
    for number in range(20):
        action = "open" if number % 2 else "close"
        begin = time.perf_counter()
        client.post("Control.Override", action=action, rule="dicom", until=soon(), note=f"test {number}")
        assert transfer.next()["open"] is (action == "open")
        times.append(time.perf_counter() - begin)
        client.reply()
    tell(f"override to watcher: median {statistics.median(times) * 1e3:.2f} ms, most {max(times) * 1e3:.2f} ms of 20")
    assert statistics.median(times) < OVERRIDE_SECONDS


def test_whoever_has_the_answer_to_an_override_knows_that_all_watchers_are_told(
    gate: GateProcess, client: RawClient
) -> None:
    with ExitStack() as stack:
        watchers = [stack.enter_context(watcher(gate.socket, f"transfer-{n % 7}", ["dicom"])) for n in range(100)]
        for action in ("close", "open", "auto"):
            override(client, action)
            for connection in watchers:
                connection.next_at_once()
        assert {connection.last["open"] for connection in watchers} == {True}


def test_an_override_says_who_why_and_until_when(client: RawClient, transfer: RawWatcher) -> None:
    (order,) = override(client, "close", note="the clinic called")
    assert (order["rule"], order["action"], order["note"]) == ("dicom", "close", "the clinic called")
    told = transfer.next()
    assert (told["open"], told["queues"], told["until"] is not None) == (False, [], True)
    assert "the clinic called" in told["reason"]
    assert order["by"] in told["reason"]
    status = client.call("Control.Status")
    assert status["overrides"] == [order]
    assert override(client, "auto") == []
    assert transfer.next()["open"]


def test_an_override_ends_by_itself(client: RawClient, transfer: RawWatcher) -> None:
    end = time.time() + 0.5
    override(client, "close", until=soon(0.5))
    assert not transfer.next()["open"]
    assert transfer.next()["open"]
    late = time.time() - end
    tell(f"an override ended {late * 1e3:.2f} ms after its end")
    assert 0 <= late < 1.0
    assert client.call("Control.Status")["overrides"] == []


def test_overrides_survive_kill_9_and_watchers_come_back(gate: GateProcess) -> None:
    with gate.client() as client:
        override(client, "close")
        override(client, "open", rule="never")
    before = watcher(gate.socket, "transfer-1", ["dicom", "never"])
    assert before.last["queues"] == ["never"]
    gate.kill()
    assert before.at_end()
    before.close()
    gate.spawn()
    with watcher(gate.socket, "transfer-1", ["dicom", "never"]) as after, gate.client() as client:
        assert after.last["queues"] == ["never"]
        assert [order["rule"] for order in client.call("Control.Status")["overrides"]] == ["dicom", "never"]
        override(client, "auto")
        assert after.next()["queues"] == ["dicom", "never"]


def test_an_override_that_cannot_be_written_down_is_refused_and_changes_nothing(
    gate: GateProcess, client: RawClient, transfer: RawWatcher
) -> None:
    other = sqlite3.connect(gate.state / "gate.db", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ErrorReply, match="StoreUnavailable"):
            override(client, "close")
    finally:
        other.close()
    assert transfer.is_quiet()
    assert client.call("Fetch.Check", worker="transfer-1", queues=["dicom"])["open"]
    override(client, "close")
    assert not transfer.next()["open"]


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"rule": "none", "action": "close", "until": soon(), "note": "x"}, "NoSuchRule"),
        ({"rule": "dicom", "action": "close", "note": "x"}, "InvalidOverride"),
        ({"rule": "dicom", "action": "close", "until": "2020-01-01T00:00:00Z", "note": "x"}, "InvalidOverride"),
        ({"rule": "dicom", "action": "close", "until": "2999-01-01T00:00:00", "note": "x"}, "InvalidOverride"),
        ({"rule": "dicom", "action": "shut", "note": "x"}, "InvalidParameter"),
    ],
)
def test_an_override_that_may_not_be_is_refused(client: RawClient, parameters: dict[str, Any], error: str) -> None:
    with pytest.raises(ErrorReply) as caught:
        client.call("Control.Override", **parameters)
    assert caught.value.name.rpartition(".")[2] == error


def test_a_connection_watches_once_and_goes_on_with_other_calls_when_it_is_refused(
    gate: GateProcess, client: RawClient
) -> None:
    with RawWatcher(gate.socket) as connection:
        connection.post("Fetch.Watch", more=False, worker="transfer-1", session="s")
        assert connection.reply()["open"]
        connection.watch("transfer-1", ["dicom"])
        connection.post("Fetch.Watch", more=True, worker="other", session="s")
        override(client, "close")
        assert not connection.next()["open"], "the refusal waits behind the watch"


def test_who_watches_is_in_the_status_until_it_hangs_up(gate: GateProcess, client: RawClient) -> None:
    with watcher(gate.socket, "transfer-1", ["dicom"]):
        (shown,) = client.call("Control.Status")["watchers"]
        assert (shown["worker"], shown["queues"]) == ("transfer-1", ["dicom"])
        assert (shown["open"], shown["until"]) == (True, None)
    end = time.monotonic() + PATIENCE
    while client.call("Control.Status")["watchers_total"]:
        assert time.monotonic() < end


def test_a_gate_with_watchers_stops_in_less_than_a_second(gate: GateProcess) -> None:
    with ExitStack() as stack:
        watchers = [stack.enter_context(watcher(gate.socket, f"w{n}")) for n in range(50)]
        begin = time.monotonic()
        assert gate.stop() == 0
        took = time.monotonic() - begin
        assert all(connection.at_end() for connection in watchers)
    tell(f"SIGTERM with 50 watchers: ended in {took:.3f} s")
    assert took < 0.4 * 10


# ---- who may


@pytest.fixture
def runner() -> Runner:
    found = normal_user()
    if found is None:
        pytest.skip("no Python here that a normal user can run")
    if not found.popen:
        pytest.skip("not root, so there is no other user to be")
    return found


ASK = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
for call in json.loads(sys.argv[2]):
    sock.sendall(json.dumps(call).encode() + b"\\0")
    data = b""
    while not data.endswith(b"\\0"):
        data += sock.recv(65536)
    print(json.loads(data[:-1]).get("error"))
"""
REFUSED = "org.varlink.service.PermissionDenied"


def ask_as(runner: Runner, gate: GateProcess, *calls: tuple[str, dict[str, Any]]) -> list[str]:
    """Each call's error, or "None", when the normal user makes it."""
    asked = json.dumps([{"method": f"io.schedulegate.{method}", "parameters": given} for method, given in calls])
    command = [runner.python, "-c", ASK, str(gate.socket), asked]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, check=True, capture_output=True, text=True, env=runner.env, cwd="/", **runner.popen
    )
    return done.stdout.split()


def test_steering_needs_the_right_and_reading_does_not(make_gate: Make, runner: Runner) -> None:
    if runner.popen:  # nobody may be anybody, so he never steers
        daemon = pwd.getpwnam("daemon")
        runner = runner._replace(popen={**runner.popen, "user": daemon.pw_uid, "group": daemon.pw_gid})
    with folder_of_theirs() as folder:
        gate = GateProcess(folder / "gate", config=CONFIG)
        folder.chmod(0o755)
        with gate:
            gate.socket.parent.chmod(0o755)
            gate.socket.chmod(0o666)
            steering: tuple[tuple[str, dict[str, Any]], ...] = (
                ("Control.Override", {"rule": "dicom", "action": "close", "until": soon(), "note": "x"}),
                ("Control.Reload", {}),
            )
            reading: tuple[tuple[str, dict[str, Any]], ...] = (
                ("Fetch.Check", {"worker": "w"}),
                ("Fetch.Watch", {"worker": "w", "session": "s"}),
                ("Control.Why", {"worker": "w"}),
                ("Control.Week", {}),
            )
            assert ask_as(runner, gate, *steering) == [REFUSED, REFUSED]
            assert ask_as(runner, gate, *reading) == ["None"] * 4
            with gate.client() as client:
                assert client.call("Control.Status")["overrides"] == []
            gate.config.write_text(CONFIG + f"[control]\nusers = [{runner.popen['user']}]\n")
            with gate.client() as client:
                client.call("Control.Reload")
            assert ask_as(runner, gate, *steering) == ["None", "None"], "a reload takes [control] over"
            with gate.client() as client:
                (order,) = client.call("Control.Status")["overrides"]
                assert order["by"] == "daemon"


# ---- edges


def test_a_watcher_is_told_at_the_edge_and_never_before_it(
    make_gate: Make, fake_time: Callable[[datetime, float], FakeTime]
) -> None:
    edge = datetime(2026, 6, 1, 18, tzinfo=UTC)
    clock = fake_time(edge - timedelta(seconds=6), 1.0)
    config = 'timezone = "Europe/Berlin"\n[[fetch]]\nname = "night"\nopen = ["daily 20:00-06:00"]\n'
    gate = make_gate(config=config, env=clock.env()).start()
    with watcher(gate.socket, "w") as connection:
        assert (connection.last["open"], connection.last["until"]) == (False, "2026-06-01T18:00:00Z")
        told = connection.next(timeout=PATIENCE + 6)
        late = (clock.now() - edge).total_seconds()
    assert (told["open"], told["until"]) == (True, "2026-06-02T04:00:00Z")
    tell(f"edge to watcher: {late * 1e3:.1f} ms, the start of a process included")
    assert 0 <= late < 1.0, "the gate's time began after the test's, so early here is early there"


def test_a_night_of_ten_hours_passes_in_seconds(
    make_gate: Make, fake_time: Callable[[datetime, float], FakeTime]
) -> None:
    clock = fake_time(datetime(2026, 6, 1, 17, 50, tzinfo=UTC), 3600.0)
    config = 'timezone = "Europe/Berlin"\n[[fetch]]\nname = "night"\nopen = ["daily 20:00-06:00"]\n'
    gate = make_gate(config=config, env=clock.env()).start()
    with watcher(gate.socket, "w") as connection:
        said = [connection.last]
        while len(said) < 3:  # two clocks that run so fast may seem to step apart, and then all are told again
            answer = connection.next(60)
            if answer["open"] is not said[-1]["open"]:
                said.append(answer)
    assert [answer["open"] for answer in said] in ([False, True, False], [True, False, True])
    untils = [datetime.fromisoformat(answer["until"]) for answer in said]
    assert untils[2] - untils[0] == timedelta(hours=24)


# ---- inspecting


def test_status_shows_rules_and_the_configuration(gate: GateProcess, client: RawClient) -> None:
    status = client.call("Control.Status")
    assert [(rule["rule"], rule["open"]) for rule in status["rules"]] == [("dicom", True), ("never", False)]
    assert status["rules"][0]["workers"] == ["transfer-*"]
    assert status["rules"][0]["queues"] == ["dicom"]
    assert status["rules_total"] == 2
    assert (status["config"], status["config_problem"]) == (str(gate.config), None)
    assert datetime.fromisoformat(status["config_loaded"]) <= datetime.fromisoformat(status["now"])
    assert not [warning for warning in status["warnings"] if "asked" in warning], "it has just started"


def test_after_ten_minutes_the_status_names_rules_that_nobody_asked_for(
    make_gate: Make, fake_time: Callable[[datetime, float], FakeTime]
) -> None:
    gate = make_gate(config=CONFIG, env=fake_time(datetime(2026, 6, 1, tzinfo=UTC), 600.0).env()).start()
    with gate.client() as client:
        client.call("Fetch.Check", worker="transfr-1", queues=["dicom", "never"])
        end = time.monotonic() + PATIENCE
        while not (found := [w for w in client.call("Control.Status")["warnings"] if "asked" in w]):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found == ["rule dicom: no worker transfer-* was asked for since the gate started: is it misspelt?"]
        status = client.call("Control.Status")
        up = datetime.fromisoformat(status["now"]) - datetime.fromisoformat(status["started"])
        assert up >= timedelta(minutes=10)


def test_why_names_rule_and_line(client: RawClient) -> None:
    answer = client.call("Control.Why", worker="transfer-1", queue="dicom")
    assert (answer["open"], answer["rule"], answer["line"]) == (True, "dicom", "daily 00:00-24:00")
    assert any("dicom" in line for line in answer["words"])
    leap = client.call("Control.Why", worker="w", queue="never", at="2028-02-29T00:00:30Z")
    assert (leap["open"], leap["at"], leap["until"]) == (True, "2028-02-29T00:00:30Z", "2028-02-29T00:01:00Z")
    override(client, "close")
    assert not client.call("Control.Why", worker="transfer-1", queue="dicom")["open"]


@pytest.mark.parametrize(
    ("method", "parameters", "error"),
    [
        ("Control.Why", {"worker": "w", "at": "2026-01-01T00:00:00"}, "InvalidParameter"),
        ("Control.Why", {"worker": ""}, "InvalidWorker"),
        ("Control.Week", {"rule": "none"}, "NoSuchRule"),
        ("Control.Week", {"start": "tomorrow"}, "InvalidParameter"),
        ("Control.Week", {"days": 32}, "InvalidParameter"),
    ],
)
def test_a_wrong_question_of_an_operator_is_refused(
    client: RawClient, method: str, parameters: dict[str, Any], error: str
) -> None:
    with pytest.raises(ErrorReply) as caught:
        client.call(method, **parameters)
    assert caught.value.name.rpartition(".")[2] == error
    assert client.call("Fetch.Check", worker="w")["open"]


def test_week_shows_the_hours_of_each_rule(client: RawClient) -> None:
    answer = client.call("Control.Week", start="2026-06-01", days=2)
    assert (answer["start"], answer["end"]) == ("2026-06-01T00:00:00Z", "2026-06-03T00:00:00Z")
    dicom = next(rule for rule in answer["rules"] if rule["rule"] == "dicom")
    assert dicom["open"] == [{"start": "2026-06-01T00:00:00Z", "end": "2026-06-03T00:00:00Z"}]


def test_weeks_that_are_asked_for_together_are_all_answered(client: RawClient) -> None:
    for _ in range(20):
        client.post("Control.Week")
    answers = [client.reply() for _ in range(20)]
    assert len(answers) == 20


def test_what_is_asked_for_after_a_week_is_answered_though_nobody_else_asks(client: RawClient) -> None:
    """A week is made beside the loop: its end is no round of calls, and the store must hear of the next call too."""
    for method in ("Control.Week", "Control.Status", "Control.Week", "Control.History"):
        client.post(method)
    assert [key in client.reply() for key in ("rules", "version", "rules", "occurrences")] == [True] * 4


def test_sigterm_ends_a_gate_that_is_asked_for_weeks(gate: GateProcess, client: RawClient) -> None:
    for _ in range(60):
        client.post("Control.Week", days=31)
    assert gate.stop(signal.SIGTERM) == 0
    assert not [line for line in gate.log_lines() if "text" in line or line["level"] == "error"]


def test_the_built_in_defaults_serve_watch_too(tmp_path: Path) -> None:
    """The built-in defaults serve Watch too, for ever open."""
    with GateProcess(tmp_path / "plain") as process, watcher(process.socket, "w") as connection:
        assert (connection.last["open"], connection.last["until"]) == (True, None)
        assert connection.is_quiet()
