"""Other users at the socket: what they read is of no use to them, and what they may not do is logged."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.gate_process import PATIENCE, GateProcess
from tests.test_gatectl import reachable_by_all

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]

STRANGER = """
import json, os, socket, sys
path, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sock = socket.socket(socket.AF_UNIX); sock.connect(path)
reader = sock.makefile("rb")
def call(method, **parameters):
    sock.sendall(json.dumps({"method": "io.schedulegate." + method, "parameters": parameters}).encode() + b"\\0")
    answer = b""
    while not answer.endswith(b"\\0"):
        answer += reader.read(1)
    answer = json.loads(answer[:-1])
    return answer.get("error") or answer["parameters"]
permit = call("Control.Status")["pools"][0]["places"][0]["permit"]
print(json.dumps([
    permit,
    call("Fetch.Bind", permit=permit, queue="default"),
    call("Fetch.Release", permit=permit),
    call("Fetch.Restore", worker="w", permits=[{"permit": permit, "queue": "default"}]),
    call("Fetch.Acquire", worker="w", session="s", permit=permit)["permit"],
]))
"""


@pytest.mark.parametrize("uid", [0, 65534])
def test_who_reads_the_permit_of_another_in_the_status_can_do_nothing_with_it(
    make_gate: Callable[..., GateProcess], uid: int
) -> None:
    """The status shows permits to all who may read: they belong to processes, so an id alone is worth nothing."""
    gate = make_gate(config='timezone = "UTC"\n[[fetch]]\nname = "all"\nat_once = 1\n').start()
    with gate.client() as holder, reachable_by_all(gate):
        permit = holder.call("Fetch.Acquire", worker="w", session="s")["permit"]
        command = [sys.executable, "-c", STRANGER, str(gate.socket), str(uid)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        read, bound, released, restored, acquired = json.loads(done.stdout)
        assert read == permit
        assert bound == "io.schedulegate.Fetch.UnknownPermit"
        assert released == {}
        assert restored["kept"] == []
        assert acquired is None
        assert holder.call("Control.Status")["pools"][0]["taken"] == 1, "it is still held"
        assert holder.call("Fetch.Bind", permit=permit, queue="default") == {}


REFUSED = """
import json, os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(5):
    sock = socket.socket(socket.AF_UNIX); sock.connect(sys.argv[1])
    sock.sendall(b'{"method":"io.schedulegate.Control.Reload"}\\0')
    print(json.loads(sock.recv(65536)[:-1])["error"])
"""


def test_a_refusal_to_steer_is_logged_once_in_a_while_for_each_user(make_gate: Callable[..., GateProcess]) -> None:
    gate = make_gate(log_level="warning").start()
    with reachable_by_all(gate):
        command = [sys.executable, "-c", REFUSED, str(gate.socket)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    assert done.stdout.split() == [b"org.varlink.service.PermissionDenied"] * 5
    (line,) = gate.log_lines()
    assert line["uid"] == 65534
    assert line["not_logged"] == 0
