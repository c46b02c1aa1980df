"""What the README shows is run here: commands, snippets, configuration, the raw exchange and the numbers."""

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gate import config, ledger, reactor, wire
from gate.rules import SendPolicy
from gate.settings import KEEP_DEFAULT
from gate.stores import base
from tests.support.gate_process import GateProcess

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
LIMIT = reactor.Limits()
LIMITS = README.partition("## Limits and defaults")[2]
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)


def block(language: str, containing: str) -> str:
    """The one block of a language that contains a text, without its indentation."""
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    indent = len(found) - len(found.lstrip())
    return "\n".join(line[indent:] for line in found.splitlines()) + "\n"


def test_the_configuration_is_valid_and_says_what_the_comments_say() -> None:
    text = block("toml", "[[send]]")

    read = config.parse(text.encode(), "README")

    (rule,) = read.send
    assert rule.schedules == ("shop:reports*",)
    assert rule.policy == SendPolicy(on_doubt="resend", deadline=600.0, grace=2.0)
    assert (read.store_url, read.keep) == ("sqlite:", 14 * 86_400.0)
    assert read.control == config.Control(users=("deploy",), groups=("ops",))


def test_ci_runs_the_test_command_and_nothing_else() -> None:
    command = block("sh", "tests/run.py").strip()

    assert command == "python3 tests/run.py"
    ci = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line and not line.startswith("#")]
    assert ci[-1] == f"exec {command}"


def test_the_demo_command_installs_what_the_demo_needs() -> None:
    command = block("sh", "venv .venv").strip()

    make, install, demo = (shlex.split(part) for part in command.split("&&"))
    assert make == ["python3", "-m", "venv", ".venv"]
    assert install == [".venv/bin/pip", "install", "-q", "-c", "requirements.lock", ".[service,taskiq]"]
    assert demo == [".venv/bin/gatectl", "demo"]


@pytest.mark.process
def test_the_raw_exchange_is_answered_as_shown(gate: GateProcess) -> None:
    shown = block("console", "gate.sendall")
    script = shown.split("<<'END'\n", 1)[1].split("\nEND\n", 1)[0]
    answer = json.loads(shown.split("\nEND\n", 1)[1])

    done = subprocess.run(
        [sys.executable, "-"],
        input=script,
        env={**os.environ, "GATE_SOCKET": str(gate.socket)},
        capture_output=True,
        text=True,
        check=True,
    )

    real = json.loads(done.stdout)
    assert real["parameters"].keys() == answer["parameters"].keys()
    for field in ("decision", "reason", "at", "by"):
        assert real["parameters"][field] == answer["parameters"][field]


@pytest.mark.process
def test_the_snippet_for_any_other_program_sends_once(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))
    snippet = block("python", "gate_client.Gate()")
    sends: list[int] = []
    minute = datetime.now(UTC).replace(second=0, microsecond=0)

    for _ in range(2):
        names = {"minute": minute, "send_it": lambda: sends.append(1)}
        exec(compile(snippet, "README.md", "exec"), names)
        names["gate"].close()  # type: ignore[attr-defined]

    assert len(sends) == 1


def test_the_line_for_taskiq_makes_a_gated_scheduler() -> None:
    from taskiq import InMemoryBroker

    from taskiq_gate import GatedScheduleSource

    names: dict[str, object] = {"broker": InMemoryBroker()}
    exec(compile(block("python", "GatedScheduleSource("), "README.md", "exec"), names)

    (source,) = names["scheduler"].sources  # type: ignore[attr-defined]
    assert isinstance(source, GatedScheduleSource)
    assert source.name == "shop"


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("one message", f"{wire.MESSAGE_BYTES // 1024} KiB"),
        ("connections", f"{LIMIT.connections:,}"),
        ("calls that wait for their answers, per connection", str(wire.PIPELINED_CALLS)),
        ("a started message", f"{LIMIT.message_seconds:g} s"),
        ("answers left unread", f"{LIMIT.unread_bytes // 1024} KiB, {LIMIT.unread_seconds:g} s"),
        (
            "`schedule`, `holder`, `title`",
            f"{ledger.SCHEDULE_BYTES}, {ledger.HOLDER_BYTES}, {ledger.TITLE_BYTES} bytes",
        ),
        ("`lease`", f"{ledger.LEASE_SECONDS:g} s"),
        ("grace after a lost connection", f"{SendPolicy().grace:g} s"),
        ("claim ahead of time", f"{ledger.EARLY_SECONDS:g} s"),
        ("memory of the ledger", f"{KEEP_DEFAULT.removesuffix('d')} days"),
        ("memory of the ledger", f"tokens {base.TOKEN_DAYS} day"),
        ("memory of the ledger", f"recurring schedules {base.SCHEDULE_DAYS} days"),
    ],
)
def test_a_limit_is_the_one_in_the_code(what: str, shown: str) -> None:
    (row,) = re.findall(rf"^\| {re.escape(what)} \| (.*?) \|", LIMITS, re.MULTILINE)

    assert shown in row
