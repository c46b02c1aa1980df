"""Clients that are not ours: the PyPI package varlink, and a few bytes through a pipe."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import varlink

from tests.support.gate_process import PATIENCE, GateProcess, RawClient
from tests.support.instants import minute

pytestmark = pytest.mark.process

INTERFACES = ["org.varlink.service", "io.schedulegate.Send", "io.schedulegate.Fetch", "io.schedulegate.Control"]
PIPE = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(sys.stdin.buffer.read())
sock.shutdown(socket.SHUT_WR)
while data := sock.recv(65536):
    sys.stdout.buffer.write(data)
"""
"""What `nc -U` does with a pipe: send it all, half close, print what comes until the other side closes."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    """One gate; each test has its own schedule."""
    with GateProcess(tmp_path_factory.mktemp("varlink")) as process:
        yield process


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m varlink.cli`."""
    command = [sys.executable, "-W", "ignore", "-m", "varlink.cli", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE)


def call(gate: GateProcess, method: str, *options: str, **parameters: Any) -> subprocess.CompletedProcess[str]:
    return cli("call", *options, f"unix:{gate.socket}/{method}", json.dumps(parameters))


def answers(text: str) -> list[dict[str, Any]]:
    """The JSON objects that the command printed one after the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


# ---- the command


def test_info_lists_the_interfaces(gate: GateProcess) -> None:
    done = cli("info", f"unix:{gate.socket}")
    assert done.returncode == 0, done.stderr
    assert "Product: schedule-gate" in done.stdout
    assert done.stdout.partition("Interfaces:")[2].split() == INTERFACES


@pytest.mark.parametrize("interface", INTERFACES)
def test_help_describes_each_interface(gate: GateProcess, interface: str) -> None:
    done = cli("help", f"unix:{gate.socket}/{interface}")
    assert done.returncode == 0, done.stderr
    shipped = Path(__file__).parents[2] / "gate" / f"{interface}.varlink"
    assert done.stdout.strip() == shipped.read_text().strip()


def test_call_claims_and_confirms(gate: GateProcess) -> None:
    claimed = call(gate, "io.schedulegate.Send.Claim", schedule="cli", holder="varlink", at=minute())
    assert claimed.returncode == 0, claimed.stderr
    (answer,) = answers(claimed.stdout)
    assert (answer["decision"], answer["at"]) == ("send", minute())
    confirmed = call(gate, "io.schedulegate.Send.Confirm", token=answer["token"])
    assert (confirmed.returncode, confirmed.stderr) == (0, "")
    again = call(gate, "io.schedulegate.Send.Claim", schedule="cli", holder="varlink", at=minute())
    assert answers(again.stdout)[0]["decision"] == "sent"


def test_call_asks_whether_a_worker_may_fetch(gate: GateProcess) -> None:
    for queues in (None, ["dicom", "mail"]):
        asked = {"worker": "transfer-1"} if queues is None else {"worker": "transfer-1", "queues": queues}
        done = call(gate, "io.schedulegate.Fetch.Check", **asked)
        assert done.returncode == 0, done.stderr
        (answer,) = answers(done.stdout)
        assert (answer["open"], answer.get("queues"), answer["limited"], answer["place"]) == (True, queues, False, True)


def test_call_watches_and_prints_every_change(gate: GateProcess) -> None:
    address = f"unix:{gate.socket}/io.schedulegate.Fetch.Watch"
    command = [sys.executable, "-W", "ignore", "-u", "-m", "varlink.cli", "call", "--more", address]
    asked = json.dumps({"worker": "w", "session": "s"})
    with subprocess.Popen([*command, asked], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = "".join(iter(process.stdout.readline, "}\n")) + "}"
            assert json.loads(first)["open"] is True
        finally:
            process.kill()


def test_call_shows_the_status(gate: GateProcess) -> None:
    (answer,) = answers(call(gate, "io.schedulegate.Control.Status").stdout)
    assert answer["pid"] == gate.pid


@pytest.mark.parametrize(
    ("method", "parameters", "error"),
    [
        ("io.schedulegate.Send.Take", {}, "org.varlink.service.MethodNotFound"),
        ("io.schedulegate.Send.Claim", {"schedule": 1}, "org.varlink.service.InvalidParameter"),
        ("io.schedulegate.Send.Claim", {"schedule": "x", "holder": "y"}, "io.schedulegate.Send.InvalidClaim"),
        ("io.schedulegate.Send.Confirm", {"token": "x"}, "io.schedulegate.Send.UnknownToken"),
    ],
)
def test_call_shows_errors(gate: GateProcess, method: str, parameters: dict[str, Any], error: str) -> None:
    done = call(gate, method, **parameters)
    assert done.stdout == ""
    assert error in done.stderr


def test_call_with_more_prints_the_outcome_when_it_comes(gate: GateProcess) -> None:
    address = f"unix:{gate.socket}/io.schedulegate.Send.Claim"
    asked = json.dumps({"schedule": "cli more", "holder": "waits", "at": minute()})
    with gate.client() as holder:
        token = holder.claim("cli more", minute(), holder="first")["token"]
        command = [sys.executable, "-W", "ignore", "-u", "-m", "varlink.cli", "call", "--more", address, asked]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                first = "".join(iter(process.stdout.readline, "}\n")) + "}"
                assert json.loads(first)["decision"] == "held"
                holder.call("Send.Confirm", token=token)
                rest, _ = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
    (answer,) = answers(rest)
    assert (answer["decision"], answer["by"]) == ("sent", "first")
    assert process.returncode == 0


# ---- its Python interface


def test_the_library_claims_confirms_and_sees_errors(gate: GateProcess) -> None:
    with varlink.Client.new_with_address(f"unix:{gate.socket}") as client:
        assert client.get_interfaces() == INTERFACES
        with client.open("io.schedulegate.Send", namespaced=True) as send:
            answer = send.Claim("library", "varlink", minute())
            assert (answer.decision, answer.by) == ("send", "varlink")
            send.Confirm(answer.token)
            assert send.Claim(schedule="library", holder="varlink", at=minute()).decision == "sent"
            with pytest.raises(varlink.VarlinkError) as caught:
                send.Confirm("nobody's")
            assert caught.value.as_dict() == {
                "error": "io.schedulegate.Send.UnknownToken",
                "parameters": {"token": "nobody's"},
            }
            with pytest.raises(varlink.VarlinkError, match="InvalidClaim"):
                send.Claim(schedule="library", holder="varlink", at="2026-01-01T00:00:00")
            assert send.Claim(schedule="library", holder="varlink", at=minute()).decision == "sent"


def test_the_library_gets_what_it_waits_for(gate: GateProcess) -> None:
    with varlink.Client.new_with_address(f"unix:{gate.socket}") as client, gate.client() as holder:
        token = holder.claim("library more", minute(), holder="first")["token"]
        with client.open("io.schedulegate.Send") as send:
            coming = send.Claim(schedule="library more", holder="waits", at=minute(), _more=True)
            assert next(coming)["decision"] == "held"
            holder.call("Send.Release", token=token)
            granted = next(coming)
            assert granted["decision"] == "send"
            assert list(coming) == []
            send.Confirm(granted["token"])
        assert holder.claim("library more", minute())["decision"] == "sent"


def test_the_library_asks_oneway(gate: GateProcess) -> None:
    with varlink.Client.new_with_address(f"unix:{gate.socket}") as client, gate.client() as holder:
        token = holder.claim("library oneway", minute())["token"]
        with client.open("io.schedulegate.Send") as send:
            send.Confirm(token, _oneway=True)
            # The answer of the next call is the next answer, and the confirm was before it.
            assert send.Claim("library oneway", "varlink", minute())["decision"] == "sent"


# ---- a pipe


def through_a_pipe(gate: GateProcess, text: str) -> list[dict[str, Any]]:
    """Like `printf TEXT | nc -U SOCKET`."""
    command = [sys.executable, "-c", PIPE, str(gate.socket)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE, input=text.encode())
    assert done.stdout.endswith(b"\0")
    return [json.loads(message) for message in done.stdout.split(b"\0")[:-1]]


def claim_of(schedule: str, **parameters: str) -> str:
    """A claim as somebody would type it."""
    given = {"schedule": schedule, "holder": "nc", "at": minute(), **parameters}
    return json.dumps({"method": "io.schedulegate.Send.Claim", "parameters": given})


def test_a_few_bytes_through_a_pipe_are_answered(gate: GateProcess) -> None:
    (answer,) = through_a_pipe(gate, '{"method":"org.varlink.service.GetInfo"}\0')
    assert answer["parameters"]["interfaces"] == INTERFACES


def test_several_calls_through_a_pipe_are_all_answered_in_order(gate: GateProcess) -> None:
    claim = claim_of("pipe", token="n" * 32)
    confirm = json.dumps({"method": "io.schedulegate.Send.Confirm", "parameters": {"token": "n" * 32}})
    first, second, third, fourth = through_a_pipe(gate, f"{claim}\0{confirm}\0{claim}\0nonsense\0")
    assert first["parameters"]["decision"] == "send"
    assert second == {"parameters": {}}
    assert third["parameters"]["decision"] == "sent"
    assert fourth["error"] == "io.schedulegate.Control.BadMessage"


def test_a_claim_through_a_pipe_is_held_for_its_grace(gate: GateProcess) -> None:
    (answer,) = through_a_pipe(gate, claim_of("pipe 2") + "\0")
    assert answer["parameters"]["decision"] == "send"
    with gate.client() as client:
        client.call("Send.Confirm", token=answer["parameters"]["token"])
        assert client.claim("pipe 2", minute())["decision"] == "sent"


def test_who_half_closes_while_it_waits_still_gets_the_outcome(gate: GateProcess) -> None:
    with gate.client() as holder, gate.client() as waiting:
        token = holder.claim("half closed", minute())["token"]
        waiting.post("Send.Claim", more=True, schedule="half closed", holder="waits", at=minute())
        waiting.sock.shutdown(socket.SHUT_WR)
        assert waiting.recv()["continues"]
        holder.call("Send.Confirm", token=token)
        assert waiting.reply()["decision"] == "sent"
        assert waiting.at_end()


def test_an_unfinished_call_through_a_pipe_ends_without_an_answer(gate: GateProcess) -> None:
    with RawClient(gate.socket) as client:
        client.send_raw(b'{"method":"org.varlink.service.GetInfo"}')
        client.sock.shutdown(socket.SHUT_WR)
        assert client.at_end()
