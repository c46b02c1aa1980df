"""What the README shows is run here: commands, snippets, configuration, the raw exchange and the numbers."""

import json
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import procrastinate
import pytest

import procrastinate_gate.hooks
from gate import claims, config, explain, ledger, lines, reactor, wire
from gate.calendars import Zone
from gate.ctl.picture import Drawing
from gate.fetchrules import FetchRules
from gate.hints import hints
from gate.ical import Calendar
from gate.interface import CatchUp, OverrideIn, Steer, WeekIn, instant
from gate.overrides import NO_OVERRIDES
from gate.rules import SendPolicy
from gate.settings import KEEP_DEFAULT
from gate.stores import base
from gate.week import week
from tests.support import weeks
from tests.support.gate_process import GateProcess

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
LIMIT = reactor.Limits()
LIMITS = README.partition("## Limits and defaults")[2]
SHOWN_AT = instant("2026-12-01T00:31:50Z")
"""When the console shows what it does."""
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)


def block(language: str, containing: str) -> str:
    """The one block of a language that contains a text, without its indentation."""
    (found,) = [text for kind, text in BLOCKS if kind == language and containing in text]
    indent = len(found) - len(found.lstrip())
    return "\n".join(line[indent:] for line in found.splitlines()) + "\n"


def no_events(path: str, zone: Zone) -> Calendar:
    return Calendar(days=frozenset(), spans=(), last=None)


FAULTS = {
    "Redis is killed, the way to it is cut": "process/test_redis_faults.py::test_nothing_is_granted_without_the_store",
    "Redis hangs, or the connection is half-open": "process/test_redis_faults.py::test_nothing_is_granted_without",
    "Redis is slow": "process/test_redis_faults.py::test_a_slow_store_is_slow_and_no_more",
    "an answer is lost on the way": "test_store_redis.py::test_a_grant_whose_outcome_was_lost_is_granted_to_its_token",
    "failover that lost writes": "process/test_redis_failover.py::test_what_no_replica_had_heard_of_this_host_still",
    "too few replicas for `wait_replicas`": "process/test_redis_failover.py::test_nothing_is_granted_of_which_too_few",
    "a Cluster loses a node": "process/test_redis_failover.py::test_a_cluster_lives_on_when_a_node_dies",
    "emptied, or replaced by an empty one": "test_store_redis.py::test_an_emptied_server_is_noticed_and_nothing_from",
    "full (`noeviction`)": "test_store_redis.py::test_a_full_server_writes_nothing_and_goes_on_when_there_is_room",
    "may evict keys": "test_store_redis.py::test_a_server_that_evicts_is_refused_unless_it_is_allowed",
    "a gate is killed": "process/test_hosts.py::test_gates_that_are_killed_at_random_grant_every_minute_once",
    "a host is dead": "process/test_hosts.py::test_claims_of_a_gate_that_was_killed_are_in_doubt",
    "a host's clock is wrong": "test_store_redis.py::test_the_servers_clock_is_the_clock",
    "a gate is cut off from Redis, or Redis is away": "process/test_hosts_places.py::test_a_gate_that_is_cut_off_gives",
    "a gate is killed that holds places": "process/test_hosts_places.py::test_a_gate_that_is_killed_keeps_its_places",
    "a host is dead for longer than the lease, or cut off": "process/test_hosts_places.py::test_the_places_of_a_host",
    "Redis was away for longer than the lease, or emptied": "test_shares.py::test_a_store_that_was_away_for_longer",
    "failover that lost what was agreed on last": "test_shares.py::test_a_failover_that_forgot_a_share_is_over_with",
}
"""Which test shows what a row of the table of faults says."""


def test_every_fault_of_a_shared_store_has_its_test() -> None:
    table = README.partition("## Several hosts with Redis")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row not in ("Fault", "---")] == list(FAULTS)
    for place in FAULTS.values():
        file, _, name = place.partition("::")
        assert f"def {name}" in (ROOT / "tests" / file).read_text()


def test_the_configuration_of_a_shared_store_is_valid() -> None:
    read = config.parse(block("toml", "redis+sentinel://").encode(), "README", no_events)
    assert (read.shared.wait_replicas, read.shared.prefix, read.shared.allow_eviction) == (1, "gate", False)


def test_the_configuration_is_valid_and_says_what_the_comments_say() -> None:
    text = block("toml", "[[send]]")

    read = config.parse(text.encode(), "README", no_events)

    (rule,) = read.send
    assert rule.schedules == ("shop:reports*",)
    assert rule.policy == SendPolicy(
        on_doubt="resend", deadline=600.0, grace=2.0, catch_up=CatchUp.LATEST, catch_up_within=3600.0
    )
    assert (read.store_url, read.keep) == ("sqlite:", 14 * 86_400.0)
    assert read.control == config.Control(users=("deploy",), groups=("ops",))


def test_the_hours_of_the_configuration_are_what_their_comments_say() -> None:
    read = config.parse(block("toml", "[[send]]").encode(), "README", no_events)

    assert [rule.name for rule in read.fetch] == ["dicom", "bulk"]
    rules = FetchRules(read)
    assert not rules.answer("transfer-1", ["dicom"], instant("2026-12-01T01:30:00Z"), NO_OVERRIDES).open  # the backup
    assert rules.answer("transfer-1", ["dicom"], instant("2026-12-25T12:00:00Z"), NO_OVERRIDES).open  # a holiday
    assert not rules.answer("transfer-1", ["dicom"], instant("2026-12-01T04:20:00Z"), NO_OVERRIDES).open  # last_start
    assert not rules.answer("any", ["bulk-1"], instant("2027-02-13T12:00:00Z"), NO_OVERRIDES).open  # the move
    assert rules.answer("any", ["other"], instant("2026-12-01T12:00:00Z"), NO_OVERRIDES).open  # uncovered


def test_the_hours_for_procrastinate_are_valid() -> None:
    read = config.parse(block("toml", 'open   = ["night", "weekend"]').encode(), "README")

    assert not [hint for hint in hints(read, SHOWN_AT) if "dicom" in hint]
    assert FetchRules(read).answer("any", ["dicom"], instant("2026-12-05T12:00:00Z"), NO_OVERRIDES).open


LINE_CELLS = re.findall(r"^\| (`.*?) \|", README.partition("### Lines")[2].partition("\n\n**When")[0], re.MULTILINE)


@pytest.mark.parametrize("text", [text for cell in LINE_CELLS for text in re.findall(r"`(.*?)`", cell)])
def test_a_line_is_one_of_the_language(text: str) -> None:
    if text.startswith("ics:"):
        return
    assert lines.parse(text.replace("… in", "daily 00:00-24:00 in")).text


def test_the_answers_about_hours_are_those_of_the_configuration() -> None:
    shown = block("console", "gatectl why worker")
    read = config.parse(block("toml", "[[send]]").encode(), "README", no_events)
    rules = FetchRules(read)
    order = OverrideIn(rule="dicom", action=Steer.CLOSE, until="2026-12-01T02:31:50Z", note="clinic called")
    ordered = NO_OVERRIDES.order(order, ["dicom", "bulk"], "root", 0, SHOWN_AT - timedelta(seconds=2))

    verdict = rules.why("transfer-1", "dicom", SHOWN_AT, NO_OVERRIDES)
    assert "\n".join(explain.words(verdict, "transfer-1", "dicom", SHOWN_AT, SHOWN_AT, rules)) in shown
    assert rules.answer("transfer-1", ["dicom"], SHOWN_AT, ordered).reason in shown
    drawn = week(read, rules, ordered, WeekIn(rule="dicom"), SHOWN_AT)
    assert weeks.shown(Drawing(80, ascii_only=False).week(drawn), 140) in shown


def test_the_line_for_procrastinate_gates_the_app() -> None:
    names: dict[str, object] = {}
    exec(compile(block("python", "procrastinate_gate.install(app)"), "README.md", "exec"), names)

    app = names["app"]
    assert isinstance(app, procrastinate.App)
    assert procrastinate_gate.hooks.Hooks.of(app) is not None


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
            f"{claims.SCHEDULE_BYTES}, {claims.HOLDER_BYTES}, {claims.TITLE_BYTES} bytes",
        ),
        ("`lease`", f"{claims.LEASE_SECONDS:g} s"),
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
