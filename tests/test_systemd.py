"""gate/systemd.py without systemd: what it hands over, and what it is told. tests/boot has the real one."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gate.errors import StartError
from gate.systemd import Notifier, listener
from tests.support.frozen import frozen, threads
from tests.support.gate_process import PATIENCE, ROOT, GateProcess, RawClient
from tests.support.gatectl import gatectl

PROGRAM = """
import os, runpy, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "gate", *sys.argv[2:]])
"""


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """Where systemd listens for notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(PATIENCE)
        yield sock


def told(systemd: socket.socket) -> list[str]:
    return systemd.recv(4096).decode().split("\n")


def heard_until_silent(systemd: socket.socket, seconds: float, stop: str = "") -> list[str]:
    """What was told before nothing more came for so long, or up to a certain message."""
    systemd.settimeout(seconds)
    heard: list[str] = []
    end = time.monotonic() + PATIENCE
    while stop not in heard:
        assert time.monotonic() < end, "it never falls silent"
        try:
            heard += told(systemd)
        except TimeoutError:
            break
    return heard


def test_without_systemd_nothing_is_said_and_nothing_handed_over() -> None:
    environment: dict[str, str] = {"LISTEN_PID": "1", "LISTEN_FDS": "1"}
    assert listener(environment, 2) is None
    assert environment == {}, "no child takes them for its own"
    notifier = Notifier(environment, 2)
    notifier.ready("serving")
    assert notifier.watchdog is None


@pytest.mark.parametrize(("pid", "seconds"), [({"WATCHDOG_PID": "7"}, 4.0), ({}, 4.0), ({"WATCHDOG_PID": "8"}, None)])
def test_the_watchdog_is_that_of_this_process(pid: dict[str, str], seconds: float | None) -> None:
    assert Notifier({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "4000000", **pid}, 7).watchdog == seconds


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0gate-test-{os.getpid()}")
        sock.settimeout(PATIENCE)
        Notifier({"NOTIFY_SOCKET": f"@gate-test-{os.getpid()}"}, 1).ready("serving")
        assert told(sock) == ["READY=1", "STATUS=serving"]


def test_a_systemd_that_is_gone_is_no_fault_of_the_gate(caplog: pytest.LogCaptureFixture) -> None:
    Notifier({"NOTIFY_SOCKET": "/nowhere"}, 1).alive()
    assert "systemd cannot be told WATCHDOG=1" in caplog.text


def test_more_than_one_socket_is_refused() -> None:
    with pytest.raises(StartError, match="hands over 2 sockets"):
        listener({"LISTEN_PID": "5", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"}, 5)


@pytest.mark.process
def test_a_gate_that_is_handed_its_socket_serves_it_and_leaves_it_there(tmp_path: Path, systemd: socket.socket) -> None:
    path = tmp_path / "gate.sock"
    config = tmp_path / "gate.toml"
    config.write_text("")
    with socket.socket(socket.AF_UNIX) as handed:
        handed.bind(str(path))
        handed.listen()
        environment = os.environ | {
            "LISTEN_FDS": "1",
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "600000",
        }
        options = ["--state", str(tmp_path / "state"), "--config", str(config), "--log", "json"]
        gate = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(handed.fileno()), *options],
            cwd=ROOT,
            env=environment,
            pass_fds=[handed.fileno()],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            with RawClient(path) as client:  # it connects before the gate is there
                assert client.call("org.varlink.service.GetInfo", timeout=6 * PATIENCE)["product"] == "schedule-gate"
                assert client.call("Control.Status")["socket"] == str(path)
            assert told(systemd) == ["READY=1", "STATUS=serving"]
            assert told(systemd) == ["WATCHDOG=1"]
            config.write_text("nonsense = 1\n")
            assert gatectl("reload", "--socket", str(path)).exit_code == 2
            messages = [told(systemd) for _ in range(20)]
            reload = next(n for n, message in enumerate(messages) if message[0] == "RELOADING=1")
            assert messages[reload][1].startswith("MONOTONIC_USEC=")
            ready = next(message for message in messages[reload:] if message[0] == "READY=1")
            assert ready[1].startswith(f"STATUS=serving; not taken over: {config}: nonsense")
            gate.send_signal(signal.SIGTERM)
            assert gate.wait(PATIENCE) == 0
            assert "STOPPING=1" in heard_until_silent(systemd, 0.2)
            assert path.exists()
            assert gate.stderr is not None
            assert [line for line in gate.stderr.read().splitlines() if json.loads(line)["level"] == "warning"] == []
        finally:
            gate.kill()
            gate.wait()
            assert gate.stderr is not None
            gate.stderr.close()


@pytest.mark.process
def test_systemd_hears_nothing_while_the_threads_of_the_store_stand_still(
    tmp_path: Path, systemd: socket.socket
) -> None:
    """The event loop goes round and answers all the same: what cannot be claimed is worth a restart."""
    made = GateProcess(tmp_path / "gate")
    made.env |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    with made as gate, gate.client() as client, ExitStack() as still:
        heard_until_silent(systemd, PATIENCE, stop="WATCHDOG=1")
        client.claim("before", "2026-11-30T12:00:00Z")
        _, *others = threads(gate.pid)
        try:
            for thread in others:
                still.enter_context(frozen(thread))
        except PermissionError as error:
            pytest.skip(f"no thread may be stopped here: {error}")
        heard_until_silent(systemd, 1.0)  # ten times as long as it takes to say that all is well
        assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"
        still.close()
        systemd.settimeout(PATIENCE)
        assert told(systemd) == ["WATCHDOG=1"]


# -- install-units


def test_install_units_writes_units_for_this_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/gate-1.2/bin/gatectl"])
    dry = gatectl("install-units", "--root", str(tmp_path), "--dry-run")
    assert dry.exit_code == 0
    assert list(tmp_path.iterdir()) == []
    result = gatectl("install-units", "--root", str(tmp_path), "--with", "redis")
    assert result.exit_code == 0, result.stderr
    units = tmp_path / "etc/systemd/system"
    service = (units / "gate.service").read_text()
    assert "\nExecStart=/opt/gate-1.2/bin/gate\n" in service
    assert "\nExecReload=+/opt/gate-1.2/bin/gatectl reload\n" in service
    assert service in dry.stdout
    assert (units / "gate.service.d/redis.conf").exists()
    assert not (units / "gate.service.d/static-user.conf").exists()
    assert (tmp_path / "etc/sysusers.d/gate-clients.conf").read_text().endswith("g gate-clients -\n")
    assert "systemctl enable --now gate.socket" in result.stdout


def test_a_gate_that_the_sandbox_hides_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/venv/bin/gatectl"])
    result = gatectl("install-units", "--root", str(tmp_path))
    assert result.exit_code == 2
    assert "/home/me/venv/bin/gate is where the sandbox of the service does not look" in result.stderr


def test_a_start_that_takes_long_asks_for_more_time(
    tmp_path: Path, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gate.systemd.START_SECONDS", 0.02)
    with Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")}, 1).starting():
        assert told(systemd) == ["EXTEND_TIMEOUT_USEC=20000", "STATUS=opening the store"]
        assert told(systemd)[0].startswith("EXTEND_TIMEOUT_USEC=")
