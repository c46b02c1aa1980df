"""gatectl why schedule: the story of one occurrence, against a real gate."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gate.interface import rfc3339
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl

pytestmark = pytest.mark.process

CONFIG = """
timezone = "UTC"
[[send]]
schedules = ["reports:*"]
catch_up = "latest"
deadline = "2h"
[[send]]
schedules = ["night"]
pause = ["daily 00:00-24:00"]
[[send]]
schedules = ["watched"]
mode = "observe"
"""
MINUTE = rfc3339(datetime.now(UTC).replace(second=0, microsecond=0))
EARLIER = rfc3339(datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5))
TIME = r"(\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?( \w+)?"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    with GateProcess(tmp_path_factory.mktemp("gate"), config=CONFIG) as gate:
        yield gate


@pytest.fixture(autouse=True)
def named_by_environment(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))


def why(*arguments: str, code: int) -> list[str]:
    result = gatectl("why", "schedule", *arguments)
    assert (result.exit_code, result.stderr) == (code, "")
    return result.stdout.splitlines()


def matches(lines: list[str], *patterns: str) -> None:
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern.replace("TIME", TIME), line), (line, pattern)


def test_the_story_of_what_was_sent_and_asked_for_by_another(gate: GateProcess) -> None:
    with gate.client() as client:
        client.claim("reports:a", MINUTE, token="a1", holder="web1:7:scheduler")
        client.claim("reports:a", MINUTE, token="a2", holder="web2:9:scheduler")
        client.call("Send.Confirm", token="a1")
        client.claim("reports:a", MINUTE, token="a2", holder="web2:9:scheduler")
    matches(
        why("reports:a", code=0),
        r"reports:a at TIME \(.*\): sent",
        r"TIME refused web2:9:scheduler: held: being sent by its holder",
        r"TIME refused web2:9:scheduler: sent: already sent",
        r"TIME granted to web1:7:scheduler, until TIME",
        r"TIME sent, by web1:7:scheduler: confirmed",
        r"its rule: on_doubt skip, catch_up latest within 1h, deadline 2h, mode enforce",
    )


def test_the_story_of_a_doubt(gate: GateProcess) -> None:
    with gate.client() as client:
        client.claim("doubted", MINUTE, token="d1", holder="me")
        client.call("Send.Release", token="d1")
        client.claim("doubted", MINUTE, token="d2", holder="me", lease=0.001)
        assert client.claim("doubted", MINUTE, holder="other", more=False)["decision"] in {"held", "doubt"}
        while client.claim("doubted", MINUTE, holder="other")["decision"] != "doubt":
            pass
    lines = why("doubted", "--at", MINUTE, code=1)
    assert lines[0].endswith(": in doubt")
    matches(
        lines[-4:],
        r"TIME granted to me, until TIME, the last of 2 grants",
        r"TIME in doubt, by me: its holder did not confirm within the lease",
        r"gatectl resend 'doubted' \S+ allows a new send",
        r"its rule: on_doubt skip, catch_up none, mode enforce",
    )


def test_the_story_of_what_was_missed(gate: GateProcess) -> None:
    with gate.client() as client:
        client.call("Send.Missed", schedule="missed", holder="web1", at=EARLIER, reason="the scheduler was away")
    matches(
        why("missed", code=1),
        r"missed at TIME \(.*\): missed",
        r"TIME missed, by web1: the scheduler was away",
        r"gatectl resend 'missed' \S+ allows a new send",
        r"its rule: .*",
    )


def test_the_story_of_what_is_paused_and_of_what_is_only_observed(gate: GateProcess) -> None:
    with gate.client() as client:
        client.claim("night", MINUTE, holder="me")
        client.claim("watched", MINUTE, holder="me", token="w1")
        client.call("Send.Confirm", token="w1")
        client.claim("watched", MINUTE, holder="me", token="w2")
    lines = why("night", code=1)
    assert re.fullmatch(rf"{TIME} refused me: paused: paused by daily 00:00-24:00", lines[1])
    assert lines[-2] == "now paused by daily 00:00-24:00"
    assert re.fullmatch(
        rf"{TIME} granted, though enforce would refuse me: sent: observed: .*already sent", why("watched", code=0)[1]
    )


def test_the_story_of_what_nobody_knows(gate: GateProcess) -> None:
    matches(why("never", code=1), r"the gate remembers no occurrence of never", r"its rule: .*")
    with gate.client() as client:
        client.claim("reports:a", MINUTE, token="a1")
    assert why("reports:a", "--at", "2001-01-01T00:00:00Z", code=1)[0].endswith(": never granted")


def test_json_is_the_reply_on_the_wire(gate: GateProcess) -> None:
    with gate.client() as client:
        client.claim("json", MINUTE)
        wire = client.call("Control.Story", schedule="json")
    printed = json.loads("".join(why("json", "--json", code=1)))
    assert {**printed, "now": None} == {**wire, "now": None}


def test_a_time_that_is_none_is_wrong_usage(gate: GateProcess) -> None:
    assert gatectl("why", "schedule", "a", "--at", "noonish").exit_code == 2


def test_the_story_tells_of_starts_of_its_task(gate: GateProcess) -> None:
    with gate.client() as client:
        client.call("Send.Confirm", token=client.claim("started", MINUTE, holder="web1")["token"])
        first = client.call("Send.Start", schedule="started", at=MINUTE, holder="worker1")["token"]
        running = why("started", code=0)
        client.call("Send.Confirm", token=first)
        client.call("Send.Start", schedule="started", at=MINUTE, holder="worker2", attempt=1)
        lines = why("started", code=0)
    begin = [".*: sent", "TIME granted to web1, until TIME", "TIME sent, by web1: confirmed"]
    matches(running, *begin, "TIME started by worker1", "its rule: .*")
    again = ["TIME started by worker1", "TIME ended", r"TIME started again \(retry 1\) by worker2"]
    matches(lines, *begin, *again, "its rule: .*")


def test_the_story_of_one_of_many_that_were_missed_together(gate: GateProcess) -> None:
    at = datetime.fromisoformat(EARLIER)
    first, inside, before = (rfc3339(at - timedelta(minutes=n)) for n in (30, 20, 31))
    with gate.client() as client:
        client.call(
            "Send.Missed", schedule="old", holder="me", at=EARLIER, first=first, count=7, reason="nobody asked for it"
        )
        client.claim("old", MINUTE, token="old")
    matches(
        why("old", "--at", inside, code=1),
        r"old at TIME \(.* ago\): missed",
        "if it was due at all: it is among those that TIME( \\(.*\\))? stands for",
        f"TIME missed, by me: nobody asked for it; stands for 7 since {first}",
        rf"gatectl .*resend 'old' {EARLIER} allows a new send",
        "its rule: .*",
    )
    matches(why("old", "--at", before, code=1), r"old at TIME \(.* ago\): never granted", "its rule: .*")
