"""Callers in other namespaces, as containers have them: what the gate knows of them, and what they may."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess
from tests.support.instants import minute

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="making namespaces for others needs root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare: apt install util-linux"),
]

STRANGER = 12_345
"""A user whom the gate's namespace does not know."""


@pytest.fixture
def gate() -> Iterator[GateProcess]:
    """A gate in a pid and a user namespace of its own, as in a container without host users."""
    folder = Path(tempfile.mkdtemp(prefix="gate-namespaces-"))  # pytest's are closed to others
    folder.chmod(0o755)
    inside = folder / "python"
    inside.write_text(
        f'#!/bin/sh\nexec unshare --user --map-root-user --pid --fork --kill-child --mount-proc {sys.executable} "$@"\n'
    )
    inside.chmod(0o755)
    config = 'timezone = "UTC"\n[[fetch]]\nname = "one"\nat_once = 1\n[control]\nusers = [65534]\ngroups = [65534]\n'
    gate = GateProcess(folder / "gate", config=config, python=str(inside))
    try:
        gate.start()
    except RuntimeError as error:
        if "unshare" in str(error):
            pytest.skip(f"no namespaces here: {error}")
        raise
    gate.socket.chmod(0o666)
    yield gate
    gate.kill()
    shutil.rmtree(folder)


def as_stranger(gate: GateProcess, method: str, **parameters: Any) -> str:
    """What a user is answered who has no name in the gate's namespace: the error, or "answered"."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            with gate.client() as client:
                client.call(method, **parameters)
            os.write(write, b"answered")
        except ErrorReply as error:
            os.write(write, error.name.encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as told:  # noqa: PTH123 - a descriptor
        said = told.read().decode()
    os.waitpid(child, 0)
    return said


def test_a_user_of_another_namespace_may_ask_and_never_steer(gate: GateProcess) -> None:
    assert as_stranger(gate, "Send.Claim", schedule="s", holder="h", at=minute()) == "answered"
    refused = as_stranger(gate, "Control.Override", rule="one", action="close", until=minute(-60), note="n")
    assert refused == "org.varlink.service.PermissionDenied", "though the file names 65534"
    line = next(line for line in gate.log_lines() if "refused to steer" in str(line.get("message", line)))
    assert line["uid"] == 65534


def test_places_of_one_whose_process_cannot_be_told_are_free_after_its_connection(gate: GateProcess) -> None:
    with gate.client() as other, gate.client() as worker:
        permit = worker.call("Fetch.Acquire", worker="w", queues=["q"], session="s")["permit"]
        worker.call("Fetch.Bind", permit=permit, queue="q")
        (pool,) = other.call("Control.Status")["pools"]
        assert [place["pid"] for place in pool["places"]] == [0]
        other.post("Fetch.Watch", more=True, worker="o", queues=["q"], session="t")
        assert not other.reply()["place"]
        with gate.client() as asks:
            assert not asks.call("Fetch.Acquire", worker="o", queues=["q"], session="t")["open"]
            worker.close()  # it lives on, but nobody can tell
            assert other.reply(3 * PATIENCE)["place"]
            assert asks.call("Fetch.Acquire", worker="o", queues=["q"], session="t")["permit"]
