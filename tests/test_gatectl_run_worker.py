"""`gatectl run --worker`: places under hours and limits, with a gate that the test plays and with a real one."""

import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gate.interface import AcquireIn, AcquireOut, BindIn, Decision, Done, PermitIn, RestoreIn, RestoreOut
from gate_client.places import ACQUIRE, BIND, RELEASE, RESTORE
from tests.support.fake_gate import CLAIM, reply
from tests.support.fake_gate import RELEASE as UNCLAIM
from tests.support.fetch_gate import CHECK, WATCH, FetchGate, says
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl, on_terminal
from tests.support.running import UNTIL_READ, Running, eventually, shell, states

pytestmark = pytest.mark.process


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FetchGate]:
    with FetchGate(tmp_path / "fake.sock") as fake:
        fake.answers |= {ACQUIRE: granted, BIND: done, RELEASE: done, RESTORE: restored}
        yield fake


def done(_: BindIn | PermitIn) -> Done:
    return Done()


def restored(asked: RestoreIn) -> RestoreOut:
    return RestoreOut(kept=[held.permit for held in asked.permits])


def granted(asked: AcquireIn, until: datetime | None = None) -> AcquireOut:
    return AcquireOut(
        open=True, queues=asked.queues, excluded=None, permit=asked.permit, until=until, reason="a place of rule x"
    )


def refused(_: AcquireIn, until: datetime | None = None) -> AcquireOut:
    return AcquireOut(open=True, queues=[], excluded=None, permit=None, until=until, reason="rule x: 3 of 3 taken")


def in_turn(*answers: Callable[[AcquireIn], AcquireOut]) -> Callable[[AcquireIn], AcquireOut]:
    """Each answer once, then the last one again and again."""
    left = list(answers)
    return lambda asked: (left.pop(0) if len(left) > 1 else left[0])(asked)


def methods(fake: FetchGate) -> list[str]:
    return [method.rpartition(".")[2] for method, _ in fake.calls if method != RESTORE]


# ---- against a gate that the test plays


def test_a_place_is_taken_bound_to_the_command_and_given_back(fake: FetchGate) -> None:
    with Running(fake.path, "--worker", "copy-1", "--", *shell("exit 5")) as running:
        assert running.end() == (5, "", "")
    assert methods(fake) == ["Acquire", "Bind", "Release"]
    acquire, bind, release = fake.asked(ACQUIRE)[0], fake.asked(BIND)[0], fake.asked(RELEASE)[0]
    assert (acquire.worker, acquire.queues) == ("copy-1", ["run"])
    assert bind.permit == release.permit == acquire.permit
    assert bind.queue == "run"
    assert bind.job.startswith("sh[")


def test_a_queue_may_be_named(fake: FetchGate) -> None:
    with Running(fake.path, "--worker", "copy-1", "--queue", "dicom", "--", "true") as running:
        assert running.end()[0] == 0
    assert fake.asked(ACQUIRE)[0].queues == ["dicom"]
    assert fake.asked(BIND)[0].queue == "dicom"


def test_without_a_place_nothing_runs(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = refused
    with Running(fake.path, "--worker", "copy-1", "--", *shell("echo it runs")) as running:
        assert running.end() == (
            75, "", "gatectl: not started: worker copy-1, queue run: rule x: 3 of 3 taken\n"
        )  # fmt: skip
    assert methods(fake) == ["Acquire"], "who does not wait is not told"


def test_a_place_that_is_pushed_is_used(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = in_turn(refused, refused, granted)
    fake.close()
    with Running(fake.path, "--worker", "copy-1", "--wait", "1h", "--", *shell("echo it runs")) as running:
        fake.until(lambda: len(fake.asked(ACQUIRE)) == 2 and fake.asked(WATCH))
        fake.open()
        assert running.end() == (0, "it runs\n", "")
    assert [asked.session for asked in fake.asked(WATCH)] == [fake.asked(ACQUIRE)[0].session]
    made = methods(fake)
    assert sorted(made[:3]) == ["Acquire", "Acquire", "Watch"], "once without, once with a watch"
    assert made[3:] == ["Acquire", "Bind", "Release"], "and once more, when something was pushed"


def test_the_wait_ends_with_a_refusal(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = refused
    with Running(fake.path, "--worker", "copy-1", "--wait", "300ms", "--", "true") as running:
        code, _, err = running.end()
    assert code == 75
    assert "3 of 3 taken" in err


def test_a_gate_that_comes_back_is_asked_again_while_waiting(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = in_turn(refused, refused, granted)
    fake.close()
    with Running(fake.path, "--worker", "copy-1", "--wait", "1h", "--", *shell("echo it runs")) as running:
        fake.until(lambda: len(fake.asked(ACQUIRE)) == 2 and fake.asked(WATCH))
        fake.stop()
        fake.start()
        assert running.end() == (0, "it runs\n", "")


def test_a_signal_ends_the_waiting_for_a_place(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = refused
    with Running(fake.path, "--worker", "copy-1", "--wait", "1h", "--", "true") as running:
        fake.until(lambda: fake.asked(WATCH))
        running.process.send_signal(signal.SIGINT)
        assert running.end() == (128 + signal.SIGINT, "", "")


def test_hours_that_end_while_the_command_would_start_are_not_used(fake: FetchGate) -> None:
    fake.answers[ACQUIRE] = in_turn(lambda asked: granted(asked, datetime.now(UTC) + timedelta(seconds=0.03)), refused)
    with Running(fake.path, "--worker", "copy-1", "--", *shell("echo it runs")) as running:
        code, out, _ = running.end()
    assert (code, out) == (75, "")
    assert methods(fake) == ["Acquire", "Release", "Acquire"]


def test_a_program_that_cannot_be_started_gives_its_place_back(fake: FetchGate) -> None:
    with Running(fake.path, "--worker", "copy-1", "--", "no-such-program") as running:
        assert running.end()[0] == 127
    assert methods(fake) == ["Acquire", "Release"]


def test_with_a_schedule_the_place_comes_first(fake: FetchGate) -> None:
    both = ["--worker", "copy-1", "--schedule", "nightly", "--"]
    with Running(fake.path, *both, "true") as running:
        assert running.end() == (0, "", "")
    made = methods(fake)
    assert made[:3] == ["Acquire", "Claim", "Check"]
    assert sorted(made[3:]) == ["Bind", "Confirm", "Release"]


def test_with_a_schedule_that_is_sent_the_place_is_given_back(fake: FetchGate) -> None:
    fake.answers[CLAIM] = lambda asked: reply(Decision.SENT, asked, by="another")
    both = ["--worker", "copy-1", "--schedule", "nightly", "--wait", "1h", "--"]
    with Running(fake.path, *both, "true") as running:
        assert running.end()[0] == 75
    assert methods(fake) == ["Acquire", "Claim", "Release"]


def test_nobody_waits_for_anothers_run_while_he_holds_a_place(fake: FetchGate) -> None:
    fake.answers[CLAIM] = lambda asked: reply(Decision.HELD, asked, by="another")
    both = ["--worker", "copy-1", "--schedule", "nightly", "--wait", "1h", "--"]
    with Running(fake.path, *both, "true") as running:
        assert running.end()[0] == 75
    assert methods(fake) == ["Acquire", "Claim", "Release"]


def test_hours_that_were_closed_during_the_claim_stop_both(fake: FetchGate) -> None:
    fake.answers[CHECK] = lambda _: says([], reason="closed by override")
    both = ["--worker", "copy-1", "--schedule", "nightly", "--"]
    with Running(fake.path, *both, "true") as running:
        code, _, err = running.end()
    assert code == 75
    assert "closed by override" in err
    assert methods(fake)[:3] == ["Acquire", "Claim", "Check"]
    assert len(fake.asked(RELEASE)) == len(fake.asked(UNCLAIM)) == 1


# ---- against a real gate

CONFIG = """
timezone = "UTC"
[[fetch]]
name    = "shut"
queues  = ["shut"]
open    = ["2020-01-01 00:00 .. 2020-01-02 00:00"]

[[fetch]]
name    = "one"
queues  = ["one"]
at_once = 1

[[resource]]
name    = "archive"
at_once = 3

[[fetch]]
name    = "read"
queues  = ["read"]
needs   = ["archive"]

[[fetch]]
name    = "write"
queues  = ["write"]
needs   = ["archive"]

[[fetch]]
name    = "programs"
workers = ["program-*"]
queues  = ["run"]
needs   = ["archive"]
"""
COUNTED = 'echo + >> "$0"; sleep 0.1; echo - >> "$0"'
"""For sh -c: tells the file $0 when it begins and when it ends."""


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[GateProcess]:
    with GateProcess(tmp_path / "gate", config=CONFIG) as gate:
        yield gate


@pytest.fixture
def run(gate: GateProcess) -> Iterator[Callable[..., Running]]:
    """Starts `gatectl run --worker program-1`, and sees to its end."""
    with ExitStack() as stack:

        def start(queue: str, *arguments: str) -> Running:
            options = ["--worker", "program-1", "--queue", queue]
            return stack.enter_context(Running(gate.socket, *options, *arguments))

        yield start


def pools(gate: GateProcess) -> dict[str, dict[str, Any]]:
    with gate.client() as client:
        return {pool["pool"]: pool for pool in client.call("Control.Status")["pools"]}


def taken(gate: GateProcess, pool: str) -> list[str | None]:
    """The jobs in the places of a pool."""
    return [place["job"] for place in pools(gate)[pool]["places"]]


def test_outside_its_hours_nothing_runs_until_an_operator_opens_them(
    gate: GateProcess, run: Callable[..., Running]
) -> None:
    code, out, err = run("shut", "--", *shell("echo it runs")).end()
    assert (code, out) == (75, "")
    assert err.startswith("gatectl: not started: worker program-1, queue shut: rule shut: outside its hours")
    waiting = run("shut", "--wait", "1h", "--", *shell("echo it runs"))
    eventually(lambda: watchers(gate), "it waits")
    assert gatectl("open", "shut", "--for", "1h", "--note", "n", "--socket", str(gate.socket)).exit_code == 0
    assert waiting.end() == (0, "it runs\n", "")


def watchers(gate: GateProcess) -> int:
    with gate.client() as client:
        return len(client.call("Control.Status")["watchers"])


def test_of_two_under_a_limit_of_one_the_second_is_refused_or_waits(
    gate: GateProcess, run: Callable[..., Running]
) -> None:
    first = run("one", "--", *shell(UNTIL_READ))
    assert first.line() == "up"
    code, out, err = run("one", "--", *shell("echo it runs")).end()
    assert (code, out) == (75, "")
    assert "rule one" in err
    second = run("one", "--wait", "1h", "--", *shell(UNTIL_READ))
    eventually(lambda: pools(gate)["rule one"]["waiting"], "it waits")
    first.say("0")
    assert first.end()[0] == 0
    assert second.line() == "up"


def test_people_see_which_command_has_the_place(gate: GateProcess, run: Callable[..., Running]) -> None:
    assert run("one", "--", *shell(UNTIL_READ)).line() == "up"
    eventually(lambda: taken(gate, "rule one") != [None], "it is bound")
    (job,) = taken(gate, "rule one")
    assert job is not None
    lines = gatectl("status", "--socket", str(gate.socket)).stdout.splitlines()
    (place,) = [line.split() for line in lines if line.startswith("program-1 ")]
    assert place[:5] == ["program-1", "one", job, "rule", "one"]
    limit = next(line.split() for line in lines if line.startswith("rule one "))
    assert limit[:4] == ["rule", "one", "1", "1"]
    terminal = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("status", "--socket", str(gate.socket)))
    assert max(len(row.rstrip()) for row in terminal[terminal.index("limits: ") :].splitlines()) <= 80
    assert job in terminal
    why = gatectl("why", "worker", "program-1", "--queue", "one", "--socket", str(gate.socket))
    assert "limit 1" in why.stdout, why.stdout
    assert "1 taken" in why.stdout, why.stdout


@pytest.mark.parametrize("victim", ["gatectl", "command"])
def test_the_place_is_free_again_however_it_ends(victim: str, gate: GateProcess, run: Callable[..., Running]) -> None:
    running = run("one", "--", *shell("echo $$; read line"))
    command = int(running.line())
    os.kill(running.pid if victim == "gatectl" else command, signal.SIGKILL)
    eventually(lambda: not taken(gate, "rule one"), "free after the grace")
    assert not alive(command)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_place_is_kept_while_the_gate_is_killed_and_restarted(
    gate: GateProcess, run: Callable[..., Running]
) -> None:
    first = run("one", "--", *shell(UNTIL_READ))
    assert first.line() == "up"
    eventually(lambda: taken(gate, "rule one") != [None], "it is bound")
    (job,) = taken(gate, "rule one")
    gate.restart()
    second = run("one", "--wait", "1h", "--", *shell(UNTIL_READ))
    eventually(lambda: taken(gate, "rule one") == [job] and pools(gate)["rule one"]["waiting"], "it took it back")
    end = time.monotonic() + 2.5  # the grace is 2 s
    while time.monotonic() < end:
        assert taken(gate, "rule one") == [job]
        time.sleep(0.02)
    first.say("6")
    assert first.end() == (6, "", "")
    assert second.line() == "up"


def test_a_wait_goes_on_over_a_restart_of_the_gate(gate: GateProcess, run: Callable[..., Running]) -> None:
    first = run("one", "--", *shell(UNTIL_READ))
    assert first.line() == "up"
    second = run("one", "--wait", "1h", "--", *shell(UNTIL_READ))
    eventually(lambda: pools(gate)["rule one"]["waiting"], "it waits")
    gate.restart()
    eventually(lambda: pools(gate)["rule one"]["waiting"], "it waits again")
    first.say("0")
    assert second.line() == "up"


def test_a_shared_limit_holds_over_two_queues_and_programs(
    gate: GateProcess, run: Callable[..., Running], tmp_path: Path
) -> None:
    counts = tmp_path / "counts"
    command = ["--wait", "1h", "--", *shell(COUNTED, str(counts))]
    running = [run(queue, *command) for queue in ("read", "write", "run") * 4]
    assert [one.end()[0] for one in running] == [0] * 12
    now = most = 0
    for line in counts.read_text().split():
        now += 1 if line == "+" else -1
        most = max(most, now)
    assert (now, most) == (0, 3)


def test_with_a_schedule_both_are_given_back(gate: GateProcess, run: Callable[..., Running]) -> None:
    schedule = f"run:{secrets.token_hex(4)}"
    both = ["--schedule", schedule, "--confirm", "success", "--"]
    first = run("one", *both, *shell(UNTIL_READ))
    assert first.line() == "up"
    assert states(gate, schedule) == ["claimed"]
    first.say("1")
    assert first.end()[0] == 1
    assert states(gate, schedule) == ["released"]
    assert taken(gate, "rule one") == []
