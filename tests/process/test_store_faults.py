"""A disk that is full, locked, gone or read-only: never a grant, a named problem, and back without a restart."""

import errno
import os
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess, RawClient, frame
from tests.support.instants import minute, minutes
from tests.support.users import Runner, folder_of_theirs, normal_user

pytestmark = pytest.mark.process

UNAVAILABLE = "io.schedulegate.Send.StoreUnavailable"
CONFIG = '[[send]]\nschedules = ["*"]\ngrace = "50ms"\n'

Make = Callable[..., GateProcess]
Break = Callable[[GateProcess], AbstractContextManager[None]]


@contextmanager
def full(gate: GateProcess) -> Iterator[None]:
    """No file of the gate may be written any more: what a full disk does, its log included."""
    soft, hard = resource.prlimit(gate.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(gate.pid, resource.RLIMIT_FSIZE, (0, hard))
    yield
    resource.prlimit(gate.pid, resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def locked(gate: GateProcess) -> Iterator[None]:
    """Another process writes and does not end its transaction."""
    other = sqlite3.connect(gate.state / "gate.db", isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        other.close()


@contextmanager
def vanished(gate: GateProcess) -> Iterator[None]:
    """The state directory is somewhere else for a while."""
    away = gate.state.with_name("away")
    gate.state.rename(away)
    yield
    away.rename(gate.state)


@contextmanager
def emptied(gate: GateProcess) -> Iterator[None]:
    """An empty directory stands in its place."""
    with vanished(gate):
        gate.state.mkdir()
        yield
        gate.state.rmdir()


@contextmanager
def replaced(gate: GateProcess) -> Iterator[None]:
    """A ledger of another gate stands in its place: it knows nothing of what was granted here."""
    with vanished(gate):
        other = GateProcess(gate.state.parent / "other")
        with other:
            pass
        other.state.rename(gate.state)
        yield
        shutil.rmtree(gate.state)


FAULTS: dict[Break, tuple[str, ...]] = {
    full: ("full", "disk I/O error"),
    locked: ("locked",),
    vanished: ("vanished",),
    emptied: ("vanished",),
    replaced: ("replaced by another ledger",),
}


def decision(client: RawClient, schedule: str, at: str, **parameters: Any) -> str:
    """The decision on a claim, or the name of the error."""
    try:
        answer: str = client.claim(schedule, at, **parameters)["decision"]
    except ErrorReply as error:
        if error.name != UNAVAILABLE:
            raise
        return error.name
    return answer


def until_back(client: RawClient, schedule: str, at: str) -> str:
    """The first decision after the store is back."""
    end = time.monotonic() + PATIENCE
    while (found := decision(client, schedule, at)) == UNAVAILABLE:
        assert time.monotonic() < end, "the store is back, but the gate does not see it"
        time.sleep(0.01)
    return found


def store_of(client: RawClient) -> dict[str, Any]:
    store: dict[str, Any] = client.call("Control.Status")["store"]
    return store


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_nothing_is_granted_while_the_store_is_away_and_all_is_remembered(make_gate: Make, fault: Break) -> None:
    gate = make_gate(config=CONFIG).start()
    at = minute()
    with ExitStack() as stack:
        holder, other, gone = (stack.enter_context(gate.client()) for _ in range(3))
        kept = holder.claim("kept", at)["token"]
        sent = holder.claim("sent", at)["token"]
        holder.call("Send.Confirm", token=sent)
        assert gone.claim("lost", at)["decision"] == "send"
        pid = gate.pid
        with fault(gate):
            for number, new in enumerate(minutes(3)):
                assert decision(other, "new", new) == UNAVAILABLE
                assert decision(other, f"new{number}", at) == UNAVAILABLE
                assert decision(other, "kept", at) in {UNAVAILABLE, "held"}
                assert decision(other, "sent", at) in {UNAVAILABLE, "sent"}
                store = store_of(other)
                assert store["healthy"] is False
                assert str(gate.state / "gate.db") in store["problem"]
                assert any(word in store["problem"] for word in FAULTS[fault]), store["problem"]
            with pytest.raises(ErrorReply, match="StoreUnavailable"):
                holder.call("Send.Confirm", token=kept)
            gone.close()
            other.call("org.varlink.service.GetInfo")
            assert decision(other, "lost", at) in {UNAVAILABLE, "held"}
        assert until_back(other, "new", at) == "send"
        assert gate.pid == pid
        assert gate.running
        assert store_of(other)["healthy"] is True
        assert store_of(other)["problem"] is None
        assert other.claim("kept", at)["decision"] == "held"
        assert other.claim("sent", at)["decision"] == "sent"
        holder.call("Send.Confirm", token=kept)
        assert other.claim("kept", at)["decision"] == "sent"
        other.post("Send.Claim", more=True, schedule="lost", holder="waits", at=at)
        while (answer := other.recv()).get("continues"):
            assert answer["parameters"]["decision"] == "held"
        assert answer["parameters"]["decision"] == "doubt"


def test_a_fault_is_logged_once_and_so_is_its_end(make_gate: Make) -> None:
    gate = make_gate(config=CONFIG).start()
    with gate.client() as client:
        with locked(gate):
            for at in minutes(3):
                assert decision(client, "s", at) == UNAVAILABLE
        assert until_back(client, "s", minute()) == "send"
    loud = [line for line in gate.log_lines() if line["level"] in {"warning", "error"}]
    assert [line["level"] for line in loud] == ["error", "warning"]
    assert f"{gate.state / 'gate.db'} cannot be written: database is locked" in loud[0]["message"]
    assert "can be written again" in loud[1]["message"]


def test_the_same_token_gets_through_when_the_store_is_back(make_gate: Make) -> None:
    gate = make_gate(config=CONFIG).start()
    with gate.client() as client:
        with full(gate):
            assert decision(client, "s", minute(), token="t" * 32) == UNAVAILABLE
        end = time.monotonic() + PATIENCE
        while (found := decision(client, "s", minute(), token="t" * 32)) == UNAVAILABLE:
            assert time.monotonic() < end
        assert found == "send"
        client.call("Send.Confirm", token="t" * 32)


def test_what_lives_through_a_fault_and_a_kill_is_what_was_answered(make_gate: Make) -> None:
    gate = make_gate(config=CONFIG).start()
    with gate.client() as client:
        token = client.claim("sent", minute())["token"]
        client.call("Send.Confirm", token=token)
        with full(gate):
            assert decision(client, "never", minute()) == UNAVAILABLE
    gate.restart()
    with gate.client() as client:
        assert client.claim("sent", minute())["decision"] == "sent"
        assert client.claim("never", minute())["decision"] == "send"


# ---- at the start


@pytest.mark.parametrize(
    "content", [b"precious" * 1000, b"SQLite format 3\0" + b"\0" * 84], ids=["no database", "a database of others"]
)
def test_a_foreign_file_is_refused_and_left_as_it_is(make_gate: Make, content: bytes) -> None:
    gate = make_gate()
    gate.state.mkdir()
    file = gate.state / "gate.db"
    file.write_bytes(content)
    assert gate.spawn().wait(PATIENCE) == 2
    (line,) = gate.log_lines()
    assert str(file) in line["message"]
    assert "is not a ledger" in line["message"]
    assert file.read_bytes() == content
    assert not list(gate.state.glob("gate.db-*"))


def test_a_damaged_ledger_is_refused_and_left_as_it_is(make_gate: Make) -> None:
    gate = make_gate().start()
    with gate.client() as client:
        for at in minutes(60):
            client.claim("s", at)
    assert gate.stop() == 0
    file = gate.state / "gate.db"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)
    gate.log.unlink()
    assert gate.spawn().wait(PATIENCE) == 2
    (line,) = gate.log_lines()
    assert str(file) in line["message"]
    assert "damaged" in line["message"] or "malformed" in line["message"]
    assert file.read_bytes() == content


# ---- read-only


@pytest.fixture
def theirs() -> Iterator[Path]:
    with folder_of_theirs() as folder:
        yield folder


@pytest.fixture
def runner() -> Runner:
    found = normal_user()
    if found is None:
        pytest.skip("we are root, and nobody may run no Python that imports the project")
    return found


def test_a_ledger_that_becomes_read_only_and_writable_again(runner: Runner, theirs: Path) -> None:
    """What is open stays writable, so the gate has to lose it first: by a lock."""
    gate = GateProcess(theirs / "gate", config=CONFIG, env=runner.env, python=runner.python, popen=runner.popen)
    for path in (gate.socket.parent, gate.config):
        if runner.popen:
            os.chown(path, runner.popen["user"], runner.popen["group"])
    files = [gate.state / name for name in ("gate.db", "gate.db-wal", "gate.db-shm")]
    with gate, gate.client() as client:
        token = client.claim("sent", minute())["token"]
        client.call("Send.Confirm", token=token)
        with locked(gate):
            assert decision(client, "new", minute()) == UNAVAILABLE
            for file in files:
                file.chmod(0o444)
        for at in minutes(10):
            assert decision(client, "new", at) == UNAVAILABLE
            assert decision(client, "sent", minute()) in {UNAVAILABLE, "sent"}
        store = store_of(client)
        assert store["healthy"] is False
        assert f"{files[0]} cannot be" in store["problem"]
        assert "readonly" in store["problem"]
        for file in files:
            if file.exists():
                file.chmod(0o644)
        assert until_back(client, "new", minute()) == "send"
        assert client.claim("sent", minute())["decision"] == "sent"
        assert store_of(client)["healthy"] is True


def fill(file: Path) -> None:
    """Write zeros until the disk is full."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(b"\0" * 4096)
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - whatever else is wrong, this is what was wanted


def until_full(client: RawClient) -> str:
    """Claim until what was preallocated is used up, at last one by one: what is too large for fifty may do for one.

    Returns the last schedule that was granted.
    """
    granted, many, number = "", 50, 0
    while number < 100_000:
        names = [f"{n} {'x' * 500}" for n in range(number, number + many)]
        number += many
        holder, title = "h" * 250, "t" * 500
        client.send_raw(
            b"".join(frame("Send.Claim", schedule=name, holder=holder, title=title, at=minute()) for name in names)
        )
        answers = [client.recv() for _ in names]
        failed = {answer["error"] for answer in answers if "error" in answer}
        assert failed <= {UNAVAILABLE}
        granted = next((n for n, a in zip(names[::-1], answers[::-1], strict=True) if "error" not in a), granted)
        if failed and many == 1:
            return granted
        many = 1 if failed else many
    pytest.fail("the disk is full, but the gate goes on")


def mount(*arguments: str | Path) -> bool:
    return subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_read_only_at_the_start_is_named(make_gate: Make) -> None:
    gate = make_gate()
    gate.state.mkdir()
    if not mount("-t", "tmpfs", "-o", "ro", "none", gate.state):
        pytest.skip("this root may not mount")
    try:
        assert gate.spawn().wait(PATIENCE) == 2
        (line,) = gate.log_lines()
        assert line["message"] == f"{gate.state / 'gate.lock'} cannot be opened: Read-only file system"
    finally:
        subprocess.run(["umount", gate.state], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_is_really_full(make_gate: Make) -> None:
    gate = make_gate(config=CONFIG)
    gate.state.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=20m,mode=0700", "none", gate.state):
        pytest.skip("this root may not mount")
    try:
        with gate, gate.client() as client:
            token = client.claim("sent", minute())["token"]
            client.call("Send.Confirm", token=token)
            filler = gate.state / "filler"
            fill(filler)
            granted = until_full(client)
            # Not from the status: giving the file up frees a little room, so the store may be back already.
            faults = [line["message"] for line in gate.log_lines() if line.get("level") == "error"]
            assert any("full" in fault and str(gate.state / "gate.db") in fault for fault in faults), faults
            filler.unlink()
            assert until_back(client, "new", minute()) == "send"
            assert client.claim("sent", minute())["decision"] == "sent"
            assert client.claim(granted, minute())["decision"] == "held"
    finally:
        gate.close()
        subprocess.run(["umount", gate.state], check=True)


def disk(image: Path, folder: Path) -> bool:
    """Mount a disk of our own, made if it is not there; whether this machine lets us."""
    if not image.exists():
        mkfs = shutil.which("mkfs.ext4", path=f"{os.defpath}:/usr/sbin:/sbin")
        if mkfs is None:
            return False
        with image.open("wb") as file:
            file.truncate(32 * 1024 * 1024)
        subprocess.run([mkfs, "-q", "-F", image], check=True, capture_output=True)
    return mount("-o", "loop", image, folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_disk_that_fails_and_becomes_read_only(make_gate: Make, tmp_path: Path) -> None:
    """What Linux does with a disk that fails. It cannot be mended while the gate has it, so here the gate restarts."""
    gate = make_gate(config=CONFIG)
    gate.state.mkdir()
    if not disk(tmp_path / "disk", gate.state):
        pytest.skip("this root may not mount a disk of its own")
    try:
        with gate.start().client() as client:
            token = client.claim("sent", minute())["token"]
            client.call("Send.Confirm", token=token)
            subprocess.run(["mount", "-o", "remount,abort", gate.state], check=True)
            for at in minutes(3):
                assert decision(client, "new", at) == UNAVAILABLE
                assert decision(client, "sent", minute()) in {UNAVAILABLE, "sent"}
            store = store_of(client)
            assert store["healthy"] is False
            assert str(gate.state / "gate.db") in store["problem"]
        gate.kill()
        subprocess.run(["umount", gate.state], check=True)
        assert disk(tmp_path / "disk", gate.state)
        with gate.start().client() as client:
            assert client.claim("sent", minute())["decision"] == "sent"
            assert client.claim("new", minute())["decision"] == "send"
    finally:
        gate.kill()
        subprocess.run(["umount", gate.state], check=False)
