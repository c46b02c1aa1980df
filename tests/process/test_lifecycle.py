"""Start, refuse to start, log, and stop."""

import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from gate.daemon import DRAIN_SECONDS
from tests.support import tell
from tests.support.gate_process import PATIENCE, ROOT, ErrorReply, GateProcess, RawClient, frame
from tests.support.instants import minute, minutes
from tests.support.users import Runner, folder_of_theirs, normal_user

pytestmark = pytest.mark.process

MINUTE = minute()
STOP_SECONDS = 10.0
"""Ten times what a stop may take: a slow machine is not a bug."""
DESCRIBE = frame("org.varlink.service.GetInterfaceDescription", interface="io.schedulegate.Control")

Make = Callable[..., GateProcess]


def run_gate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a gate that ends by itself."""
    command = [sys.executable, "-m", "gate", *map(str, arguments)]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )


def refused(process: GateProcess) -> str:
    """Start it, and wait for that to fail with exit code 2; returns the last line."""
    assert process.spawn().wait(PATIENCE) == 2
    lines = process.log_lines()
    assert not [line for line in lines if "text" in line], "a traceback is no explanation"
    message: str = lines[-1]["message"]
    return message


# ---- stopping


def idle(gate: GateProcess, stack: ExitStack) -> None:
    stack.enter_context(gate.client()).call("org.varlink.service.GetInfo")


def claims_in_flight(gate: GateProcess, stack: ExitStack) -> None:
    for number in range(20):
        client = stack.enter_context(gate.client())
        client.send_raw(b"".join(frame("Send.Claim", schedule=f"s{number}", holder="h", at=at) for at in minutes(60)))


def waiting_with_more(gate: GateProcess, stack: ExitStack) -> None:
    stack.enter_context(gate.client()).claim("s", MINUTE)
    for _ in range(20):
        client = stack.enter_context(gate.client())
        client.post("Send.Claim", more=True, schedule="s", holder="waits", at=MINUTE)
        assert client.recv()["continues"]


def half_read(gate: GateProcess, stack: ExitStack) -> None:
    witness = stack.enter_context(gate.client())
    for _ in range(5):
        client = stack.enter_context(gate.client(0.05))
        try:
            while True:
                client.send_raw(DESCRIBE * 60)
                witness.call("org.varlink.service.GetInfo")
        except TimeoutError:
            pass
        client.sock.recv(1000)


def half_sent(gate: GateProcess, stack: ExitStack) -> None:
    client = stack.enter_context(gate.client())
    client.send_raw(DESCRIBE + DESCRIBE[:20])
    client.recv()


def half_closed(gate: GateProcess, stack: ExitStack) -> None:
    waiting_with_more(gate, stack)
    client = stack.enter_context(gate.client())
    client.post("Send.Claim", more=True, schedule="s", holder="waits", at=MINUTE)
    assert client.recv()["continues"]
    client.sock.shutdown(socket.SHUT_WR)


SITUATIONS = [idle, claims_in_flight, waiting_with_more, half_read, half_sent, half_closed]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.__name__)
def test_a_stop_takes_less_than_a_second(
    gate: GateProcess, situation: Callable[[GateProcess, ExitStack], None]
) -> None:
    with ExitStack() as stack:
        situation(gate, stack)
        begin = time.monotonic()
        assert gate.stop() == 0
        took = time.monotonic() - begin
    tell(f"SIGTERM, {situation.__name__}: ended in {took:.3f} s")
    assert took < STOP_SECONDS
    assert not gate.socket.exists()
    assert not [line for line in gate.log_lines() if "text" in line or line["level"] == "error"]


def test_an_interrupt_is_a_stop(gate: GateProcess) -> None:
    assert gate.stop(signal.SIGINT) == 0
    assert not gate.socket.exists()
    assert "stopping on SIGINT" in [line.get("message") for line in gate.log_lines()]


def test_a_stop_while_the_store_is_locked_takes_less_than_a_second(gate: GateProcess) -> None:
    with gate.client() as client:
        client.claim("s", MINUTE)
        other = sqlite3.connect(gate.state / "gate.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        try:
            for at in minutes(10):
                client.post("Send.Claim", schedule="t", holder="h", at=at)
            begin = time.monotonic()
            assert gate.stop() == 0
            took = time.monotonic() - begin
        finally:
            other.close()
    tell(f"SIGTERM, store locked: ended in {took:.3f} s")
    assert took < STOP_SECONDS


SLOW = """
import sys
from gate.__main__ import main
from gate.stores.sqlite import SqliteStore

apply = SqliteStore.apply

def slow(self, steps):
    if any(step.token == "slow" for step in steps):
        count = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 1000000000) SELECT sum(x) FROM c"
        self._connection.execute(count).fetchone()
    return apply(self, steps)

SqliteStore.apply = slow
sys.exit(main())
"""
"""A gate whose disk takes minutes for a claim with the token `slow`."""


def test_a_stop_does_not_wait_for_a_disk_that_hangs(make_gate: Make) -> None:
    gate = make_gate(program=SLOW).start()
    with gate.client() as client:
        token = client.claim("before", MINUTE)["token"]
        client.post("Send.Claim", schedule="s", holder="h", at=MINUTE, token="slow")
        with gate.client() as witness:
            witness.call("org.varlink.service.GetInfo")
        begin = time.monotonic()
        assert gate.stop() == 0
        took = time.monotonic() - begin
        assert client.at_end()
    tell(f"SIGTERM, disk hangs: ended in {took:.3f} s")
    assert not gate.socket.exists()
    gate = make_gate("next")
    gate.state = gate.state.parents[1] / "gate" / "state"
    with gate, gate.client() as client:
        client.call("Send.Confirm", token=token)
        assert client.claim("s", MINUTE)["decision"] == "send"


def test_what_was_read_before_a_stop_is_answered(gate: GateProcess) -> None:
    """And what was answered is on disk. Only a disk that is too slow for the stop leaves calls without an answer."""
    asked = minutes(60)
    with gate.client() as client, gate.client() as witness:
        client.claim("warm", MINUTE)
        client.send_raw(b"".join(frame("Send.Claim", schedule="s", holder="h", at=at) for at in asked))
        witness.call("org.varlink.service.GetInfo")
        begin = time.monotonic()
        assert gate.stop() == 0
        took = time.monotonic() - begin
        answered = []
        with suppress(EOFError, ConnectionResetError):
            while True:
                answer = client.reply()
                assert answer["decision"] == "send"
                answered.append(answer["at"])
    assert answered == asked or took > DRAIN_SECONDS
    gate.start()
    with gate.client() as client:
        found = client.call("Control.History", schedule="s")["occurrences"]
    assert {o["at"] for o in found if o["state"] == "claimed"} >= set(answered)


def test_a_reload_is_not_a_stop(gate: GateProcess, client: RawClient) -> None:
    assert gate.process is not None
    gate.process.send_signal(signal.SIGHUP)
    assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"
    assert gate.running


def test_a_start_takes_less_than_a_second(make_gate: Make) -> None:
    begin = time.monotonic()
    make_gate().start()
    took = time.monotonic() - begin
    tell(f"start to first answer: {took:.3f} s")
    assert took < 10


# ---- one gate per socket and per state directory


def test_a_stale_socket_is_replaced(gate: GateProcess) -> None:
    gate.kill()
    assert stat.S_ISSOCK(gate.socket.stat().st_mode), "a killed gate leaves its socket behind"
    before = gate.socket.stat().st_ino, gate.socket.stat().st_ctime_ns
    gate.start()
    assert (gate.socket.stat().st_ino, gate.socket.stat().st_ctime_ns) != before


def test_a_second_gate_on_the_same_state_says_who_holds_it(gate: GateProcess, make_gate: Make) -> None:
    second = make_gate("second")
    second.state = gate.state
    message = refused(second)
    assert f"held by gate with pid {gate.pid}, socket {gate.socket}" in message
    assert str(gate.state) in message
    assert "one gate per state directory" in message
    assert not second.socket.exists()
    with gate.client() as client:
        assert client.claim("s", MINUTE)["decision"] == "send"


def test_a_second_gate_on_the_same_socket_says_who_holds_it(gate: GateProcess, make_gate: Make) -> None:
    second = make_gate("second")
    second.socket = gate.socket
    message = refused(second)
    assert f"held by gate with pid {gate.pid}" in message
    with gate.client() as client:
        assert client.claim("s", MINUTE)["decision"] == "send"


def test_a_second_gate_on_the_same_ledger_says_who_holds_it(make_gate: Make, tmp_path: Path) -> None:
    """Each has a state directory and a socket of its own, and both name one file."""
    config = f'[store]\nurl = "sqlite:{tmp_path / "shared.db"}"\n'
    first = make_gate("first", config=config).start()

    message = refused(make_gate("second", config=config))

    assert f"held by gate with pid {first.pid}" in message
    assert str(tmp_path / "shared.db") in message


def test_a_socket_that_another_program_serves_is_left_to_it(make_gate: Make) -> None:
    process = make_gate()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(process.socket))
        other.listen()
        message = refused(process)
        assert str(process.socket) in message
        assert f"in use by the process with pid {os.getpid()}" in message
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(process.socket))


@pytest.mark.parametrize("kind", ["file", "folder", "link to a file"])
def test_what_is_no_socket_is_left_alone(make_gate: Make, kind: str) -> None:
    process = make_gate()
    if kind == "folder":
        process.socket.mkdir()
    elif kind == "file":
        process.socket.write_text("precious")
    else:
        process.socket.with_name("precious").write_text("precious")
        process.socket.symlink_to("precious")
    assert f"{process.socket} is not a socket" in refused(process)
    assert process.socket.is_dir() if kind == "folder" else process.socket.read_text() == "precious"


def test_a_path_that_is_too_long_for_a_socket_is_named(make_gate: Make, tmp_path: Path) -> None:
    process = make_gate()
    process.socket = tmp_path / ("x" * 100) / "gate.sock"
    assert f"{process.socket}: cannot listen: AF_UNIX path too long" in refused(process)


def test_modes_of_socket_and_state(make_gate: Make) -> None:
    before = os.umask(0)
    try:
        gate = make_gate().start()
    finally:
        os.umask(before)
    assert stat.S_IMODE(gate.socket.stat().st_mode) == 0o660
    assert stat.S_IMODE(gate.state.stat().st_mode) == 0o700


# ---- wrong usage and configuration


def test_every_error_of_the_configuration_at_once(make_gate: Make) -> None:
    config = """
colour = "red"
[store]
url = "mysql://"
keep = "5 parsecs"
[[send]]
schedules = []
[[send]]
schedules = ["*"]
on_doubt = "maybe"
[[send]]
schedules = ["*"]
deadline = "soon"
grace = "later"
until = 1
[control]
users = ["no-such-user"]
"""
    process = make_gate(config=config)
    refused(process)
    lines = [line["message"] for line in process.log_lines()]
    assert all(line.startswith(f"{process.config}: ") for line in lines)
    said = [line.removeprefix(f"{process.config}: ").partition(":")[0] for line in lines]
    assert said[:4] == ["colour", "store.url", "store.keep", "send[0].schedules"]
    assert said[4] == "send[1].on_doubt"
    assert "'maybe'" in lines[4]
    assert any("until" in line for line in lines)
    assert not process.state.exists()


def test_an_unknown_key_is_refused_by_name(make_gate: Make) -> None:
    process = make_gate(config='[[send]]\nschedules = ["*"]\non_dout = "resend"\n')
    assert "on_dout" in refused(process)


def test_unknown_users_are_refused_by_name(make_gate: Make) -> None:
    process = make_gate(config='[control]\nusers = ["no-such-user"]\ngroups = ["no-such-group"]\n')
    refused(process)
    text = process.log.read_text()
    assert "no-such-user" in text
    assert "no-such-group" in text


@pytest.mark.parametrize("config", ["store = [", "\x00", "[store]\nurl = 7\n", "send = 3\n"])
def test_a_file_that_makes_no_sense_is_refused(make_gate: Make, config: str) -> None:
    process = make_gate(config=config)
    assert str(process.config) in refused(process)


def test_a_configuration_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run_gate("--socket", tmp_path / "s", "--state", tmp_path / "state", "--config", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "none.toml: cannot be read: No such file or directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_wrong_arguments_are_wrong_usage() -> None:
    done = run_gate("--sockets", "x")
    assert done.returncode == 2
    assert "--sockets" in done.stderr


def test_version_is_said() -> None:
    done = run_gate("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("gate 0.")


@pytest.mark.parametrize("module", ["trio", "outcome"])
def test_without_the_service_extra_one_line_says_how_to_get_it(module: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules[{module!r}] = None; from gate.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "--socket", str(tmp_path / "s"), "--state", str(tmp_path / "state")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == f"gate: {module} is missing: pip install 'schedule-gate[service]'\n"
    assert done.stdout == ""


# ---- log lines


def test_json_lines_parse_and_say_each_grant_refusal_and_doubt(make_gate: Make) -> None:
    gate = make_gate(config='[[send]]\nschedules = ["*"]\ngrace = "1ms"\n').start()
    name = 'night\n"ly" \x1b[31m é'
    with gate.client() as holder, gate.client() as other:
        assert holder.claim(name, MINUTE, holder="first")["decision"] == "send"
        other.post("Send.Claim", more=True, schedule=name, holder="second", at=MINUTE)
        assert other.reply()["decision"] == "held"
        holder.close()
        assert other.reply()["decision"] == "doubt"
    assert gate.stop() == 0
    lines = [json.loads(line) for line in gate.log.read_text().splitlines()]
    assert all({"time", "level", "area", "message"} <= line.keys() for line in lines)
    grant, held, doubt, refusal = (line for line in lines if line.get("schedule") == name)
    assert (grant["level"], grant["message"], grant["holder"], grant["at"]) == ("debug", "granted", "first", MINUTE)
    assert (held["level"], held["decision"], held["holder"]) == ("debug", "held", "second")
    assert (doubt["level"], doubt["by"], doubt["at"]) == ("warning", "first", MINUTE)
    assert (refusal["level"], refusal["decision"]) == ("debug", "doubt")
    assert grant["pid"] == os.getpid()


def test_human_lines_are_one_line_each_whatever_a_peer_calls_itself(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "gate", "--socket", str(tmp_path / "s"), "--state", str(tmp_path / "state")]
    with log.open("wb") as file:
        process = subprocess.Popen([*command, "--log-level", "debug"], cwd=ROOT, stderr=file)
    try:
        with connect(process, tmp_path / "s") as client:
            holder = "me\n12:00:00.000 error   daemon  the sky is falling\x1b[31m"
            assert client.claim("nightly", MINUTE, holder=holder)["decision"] == "send"
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
    lines = log.read_text().splitlines()
    (granted,) = [line for line in lines if "schedule=nightly" in line]
    assert " debug   send " in granted
    assert "sky is falling" in granted
    assert "\x1b" not in log.read_text()
    assert any(" info    daemon  listening at " in line for line in lines)


def connect(process: subprocess.Popen[bytes], path: Path) -> RawClient:
    """A client of a gate that is starting."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return RawClient(path)
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.005)


# ---- as a normal user


@pytest.fixture
def runner() -> Runner:
    found = normal_user()
    if found is None:
        pytest.skip("we are root, and nobody may run no Python that imports the project")
    return found


@pytest.fixture
def theirs() -> Iterator[Path]:
    with folder_of_theirs() as folder:
        yield folder


def test_a_normal_user_needs_no_arguments(runner: Runner, theirs: Path) -> None:
    env = {**runner.env, "XDG_RUNTIME_DIR": str(theirs / "run"), "XDG_STATE_HOME": str(theirs / "state")}
    path = theirs / "run" / "gate" / "gate.sock"
    with (theirs / "log").open("wb") as log:
        process = subprocess.Popen(
            [runner.python, "-m", "gate"], env=env, cwd="/", stderr=log, stdout=log, **runner.popen
        )
    try:
        with connect(process, path) as client:
            assert client.claim("s", MINUTE)["decision"] == "send"
            status = client.call("Control.Status")
            assert status["state"] == str(theirs / "state" / "gate")
            with pytest.raises(ErrorReply, match="NotInDoubt"):
                client.call("Control.Resend", schedule="s", at=MINUTE)
        assert stat.S_IMODE((theirs / "state" / "gate").stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    finally:
        process.terminate()
        code = process.wait(PATIENCE)
    assert code == 0, (theirs / "log").read_text()
    assert not path.exists()


@pytest.mark.parametrize("closed", ["state", "socket"])
def test_a_folder_that_may_not_be_written_is_named(runner: Runner, theirs: Path, closed: str) -> None:
    folder = theirs / "closed"
    folder.mkdir(mode=0o555)
    state = folder / "state" if closed == "state" else theirs / "state"
    path = folder / "s" if closed == "socket" else theirs / "s"
    command = [runner.python, "-m", "gate", "--socket", str(path), "--state", str(state)]
    done = subprocess.run(
        command, env=runner.env, cwd="/", check=False, capture_output=True, text=True, timeout=PATIENCE, **runner.popen
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(folder) in done.stderr
    assert "Permission denied" in done.stderr
