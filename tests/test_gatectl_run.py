"""`gatectl run` against a real gate: every exit code, signals, terminals, leases, and whatever is killed meanwhile."""

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gate.ctl.claimed import Claimed, Confirm
from gate.errors import StoreUnavailable, UnknownToken
from gate_client import AsyncGate
from tests.support.fake_gate import CLAIM, CONFIRM, FakeGate, reply
from tests.support.gate_process import GateProcess
from tests.support.gatectl import gatectl
from tests.support.running import TRAP, UNTIL_READ, OnTerminal, Running, eventually, python, shell, states

pytestmark = pytest.mark.process

MINUTE = datetime.now(UTC).replace(second=0, microsecond=0)
AT = MINUTE.isoformat().replace("+00:00", "Z")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    """One gate for this module; each test has schedules and workers of its own."""
    with GateProcess(tmp_path_factory.mktemp("gate")) as gate:
        yield gate


@pytest.fixture
def schedule() -> str:
    return f"run:{secrets.token_hex(4)}"


@pytest.fixture
def run(gate: GateProcess) -> Iterator[Callable[..., Running]]:
    """Starts `gatectl run`, and sees to its end."""
    with ExitStack() as stack:
        yield lambda *arguments, **popen: stack.enter_context(Running(gate.socket, *arguments, **popen))


def claims(name: str, *more: str) -> list[str]:
    """The options that claim one minute, whatever the clock reads by then."""
    return ["--schedule", name, "--minute", AT, *more, "--"]


# ---- a schedule


def test_the_command_runs_once_for_a_minute_and_its_exit_code_is_kept(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    assert run(*claims(schedule), *shell("echo it runs; exit 3")).end() == (3, "it runs\n", "")
    assert states(gate, schedule) == ["sent"]
    code, out, err = run(*claims(schedule), *shell("echo it runs; exit 3")).end()
    assert (code, out) == (75, "")
    assert err.startswith(f"gatectl: not started: {schedule} at {AT} is sent, by ")
    assert err.endswith(": already sent\n")


def test_it_is_confirmed_while_the_command_runs(gate: GateProcess, schedule: str, run: Callable[..., Running]) -> None:
    running = run(*claims(schedule), *shell(UNTIL_READ))
    assert running.line() == "up"
    eventually(lambda: states(gate, schedule) == ["sent"], "confirmed at its start")
    running.say("4")
    assert running.end() == (4, "", "")


def test_the_minute_is_the_present_one_if_none_is_named(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    assert run("--schedule", schedule, "--holder", "me", "--", "true").end()[0] == 0
    with gate.client() as client:
        (found,) = client.call("Control.History", schedule=schedule)["occurrences"]
    assert before <= datetime.fromisoformat(found["at"]) <= datetime.now(UTC)
    assert datetime.fromisoformat(found["at"]).second == 0
    assert found["by"] == "me"


def test_of_many_at_once_one_runs_and_the_others_are_refused(schedule: str, run: Callable[..., Running]) -> None:
    running = [run(*claims(schedule), *shell("echo it runs")) for _ in range(4)]
    ends = sorted(one.end()[:2] for one in running)
    assert ends == [(0, "it runs\n"), (75, ""), (75, ""), (75, "")]


def test_with_confirm_success_it_is_held_while_it_runs_and_released_when_it_fails(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    options = claims(schedule, "--confirm", "success")
    first = run(*options, *shell(UNTIL_READ))
    assert first.line() == "up"
    assert states(gate, schedule) == ["claimed"]
    code, _, err = run(*options, "true").end()
    assert code == 75
    assert f"{schedule} at {AT} is held, by " in err
    first.say("9")
    assert first.end()[0] == 9
    assert states(gate, schedule) == ["released"]
    assert run(*options, "true").end() == (0, "", "")
    assert states(gate, schedule) == ["sent"]


def test_with_wait_the_outcome_of_a_run_elsewhere_is_waited_for(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    with gate.client() as client:
        token = client.claim(schedule, AT)["token"]
        assert run(*claims(schedule, "--wait", "50ms"), "true").end()[0] == 75
        second = run(*claims(schedule, "--wait", "1m"), *shell("echo it runs"))
        client.call("Send.Release", token=token)
        assert second.end() == (0, "it runs\n", "")


def test_a_command_that_was_killed(gate: GateProcess, schedule: str, run: Callable[..., Running]) -> None:
    assert run(*claims(schedule, "--confirm", "success"), *shell("kill -9 $$")).end() == (128 + 9, "", "")
    assert states(gate, schedule) == ["released"]


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)])
def test_a_command_that_cannot_be_started_leaves_the_minute_to_others(
    program: str, code: int, gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    ended, _, err = run(*claims(schedule), program).end()
    assert ended == code
    assert err.startswith(f"gatectl: {program} cannot be started: ")
    assert states(gate, schedule) == ["released"]


def test_without_a_gate_nothing_runs(tmp_path: Path) -> None:
    with Running(tmp_path / "nowhere", "--schedule", "x", "--", *shell("echo it runs")) as running:
        code, out, err = running.end()
    assert (code, out) == (69, "")
    assert err.startswith(f"gatectl: not started: the gate at {tmp_path / 'nowhere'} cannot be reached: no such file")


def test_while_the_ledger_cannot_be_written_nothing_runs(schedule: str, tmp_path: Path) -> None:
    with FakeGate(tmp_path / "gate.sock") as fake:
        fake.answers[CLAIM] = lambda _: StoreUnavailable(retry_after=1.0)
        with Running(fake.path, *claims(schedule), *shell("echo it runs")) as running:
            code, out, err = running.end()
    assert (code, out) == (75, "")
    assert "nothing is granted" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--", "true"], "give --schedule NAME, --worker NAME, or both"),
        (["--schedule", "x"], "Missing argument"),
        (["--schedule", "x", "--minute", "12:00:01", "true"], "is within a minute: name the whole minute"),
        (["--schedule", "x", "--minute", "noon", "true"], "'noon' is not a time"),
        (["--schedule", "x", "--confirm", "end", "true"], "'end' is not one of"),
        (["--schedule", "x", "--wait", "long", "true"], "'long' is not a duration"),
        (["--schedule", "x", "--queue", "q", "true"], "--queue goes with --worker"),
        (["--worker", "x", "--minute", "12:00", "true"], "--minute goes with --schedule"),
        (["--worker", "x", "--confirm", "start", "true"], "--confirm goes with --schedule"),
        (["--worker", "x", "--holder", "me", "true"], "--holder goes with --schedule"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str) -> None:
    result = gatectl("run", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_what_the_gate_calls_wrong_is_wrong_usage(run: Callable[..., Running]) -> None:
    code, _, err = run(*claims("x" * 600), "true").end()
    assert code == 2
    assert "schedule: has 600 bytes: 1 to 512 are allowed" in err


# ---- what the command has


def test_options_after_the_command_are_its_own(schedule: str, run: Callable[..., Running]) -> None:
    assert run("--schedule", schedule, "--minute", AT, "echo", "--wait", "-h", "--", "x").end()[1] == "--wait -h -- x\n"


def test_files_signals_and_the_process_group_are_as_without_gatectl(schedule: str, run: Callable[..., Running]) -> None:
    program = """
import os, signal, sys
print(os.read(int(sys.argv[1]), 9).decode(), os.getpgrp(), os.getsid(0))
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
print([n for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])], sys.stdin.readline().strip())
"""
    ours, its = os.pipe()
    os.write(its, b"inherited")

    def as_nohup_does() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    running = run(*claims(schedule), *python(program), str(ours), pass_fds=[ours], preexec_fn=as_nohup_does)
    os.close(ours)
    os.close(its)
    running.say("a line")
    assert running.line() == f"inherited {os.getpgrp()} {os.getsid(0)}"
    assert running.line() == "True True"
    assert running.line() == "[] a line"
    assert running.end()[0] == 0


# ---- signals


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_are_passed_on(name: str, schedule: str, run: Callable[..., Running]) -> None:
    running = run(*claims(schedule), *shell(TRAP, name))
    assert running.line() == "up"
    running.process.send_signal(signal.Signals[f"SIG{name}"])
    assert running.end() == (7, f"got {name}\n", "")


def test_a_signal_that_ends_the_command_is_told_by_the_exit_code(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    running = run(*claims(schedule, "--confirm", "success"), *shell("echo up; exec sleep 30"))
    assert running.line() == "up"
    running.process.terminate()
    assert running.end()[0] == 128 + signal.SIGTERM
    assert states(gate, schedule) == ["released"]


def test_a_signal_ends_the_waiting(gate: GateProcess, schedule: str, run: Callable[..., Running]) -> None:
    with gate.client() as client:
        token = client.claim(schedule, AT)["token"]
        waiting = run(*claims(schedule, "--wait", "1h", "--holder", schedule), *shell("echo it runs"))
        eventually(lambda: schedule in holders(gate), "it has asked")
        waiting.process.terminate()
        assert waiting.end() == (128 + signal.SIGTERM, "", "")
        client.call("Send.Release", token=token)
    assert states(gate, schedule) == ["released"], "nobody takes it"


def holders(gate: GateProcess) -> list[str]:
    with gate.client() as client:
        return [holder["holder"] for holder in client.call("Control.Status")["holders"]]


def test_when_gatectl_is_killed_the_command_gets_sigterm_and_the_claim_is_in_doubt(
    gate: GateProcess, schedule: str, run: Callable[..., Running]
) -> None:
    running = run(*claims(schedule, "--confirm", "success"), *shell(TRAP, "TERM"))
    assert running.line() == "up"
    running.process.kill()
    assert running.line() == "got TERM"
    eventually(lambda: states(gate, schedule) == ["doubt"], "in doubt after the grace")


COUNTS = """
import signal
ints = 0
def count(*_):
    global ints
    ints += 1
    print("INT", ints, flush=True)
signal.signal(signal.SIGINT, count)
signal.signal(signal.SIGUSR1, lambda *_: exit(ints))
print("up", open("/dev/tty").isatty(), flush=True)
while True:
    signal.pause()
"""


def test_the_command_has_the_terminal(gate: GateProcess, schedule: str) -> None:
    on_terminal = OnTerminal(gate.socket, *claims(schedule), *python(COUNTS))
    on_terminal.until(b"up True")
    on_terminal.type(b"\x03")
    on_terminal.until(b"INT 1")
    os.kill(on_terminal.pid, signal.SIGUSR1)
    assert on_terminal.code() == 1
    on_terminal.close()


def test_ctrl_c_is_not_passed_on_since_the_terminal_sends_it_to_the_command(gate: GateProcess, schedule: str) -> None:
    """A command that has left our process group would get what is passed on, and nothing else."""
    on_terminal = OnTerminal(gate.socket, *claims(schedule), *python(f"import os; os.setpgid(0, 0){COUNTS}"))
    on_terminal.until(b"up True")
    on_terminal.type(b"\x03")
    on_terminal.until(b"^C")  # the echo comes after the signal
    os.kill(on_terminal.pid, signal.SIGUSR1)
    assert on_terminal.code() == 0
    on_terminal.close()


def test_an_interrupt_that_a_process_sends_is_passed_on(gate: GateProcess, schedule: str) -> None:
    on_terminal = OnTerminal(gate.socket, *claims(schedule), *python(COUNTS))
    on_terminal.until(b"up True")
    os.kill(on_terminal.pid, signal.SIGINT)
    on_terminal.until(b"INT 1")
    os.kill(on_terminal.pid, signal.SIGUSR1)
    assert on_terminal.code() == 1
    on_terminal.close()


def test_a_hangup_reaches_the_command(gate: GateProcess, schedule: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    trap = f'trap "echo hung up > {said}; exit 7" HUP; echo up; for i in $(seq 1000); do sleep 0.01; done'
    on_terminal = OnTerminal(gate.socket, *claims(schedule), *shell(trap))
    on_terminal.until(b"up")
    on_terminal.close()
    assert on_terminal.code() == 7
    assert said.read_text() == "hung up\n"


# ---- the claim while the command runs


def test_the_lease_is_kept_alive(gate: GateProcess, schedule: str) -> None:
    """With a lease of 0.3 s, a second passes: the occurrence stays claimed, and is then sent."""

    async def work() -> None:
        async with AsyncGate(gate.socket) as asker:
            claim = await asker.claim(schedule, MINUTE, lease=0.3)
            claimed = Claimed(asker, claim, Confirm.SUCCESS, warnings.append, lease=0.3)
            claimed.started("job")
            end = time.monotonic() + 1.0
            while time.monotonic() < end:
                assert await asyncio.to_thread(states, gate, schedule) == ["claimed"]
                await asyncio.sleep(0.02)
            await claimed.ended(0)

    warnings: list[str] = []
    asyncio.run(work())
    assert states(gate, schedule) == ["sent"]
    assert warnings == []


@pytest.mark.parametrize(("code", "state"), [(0, "sent"), (1, "released")])
def test_a_gate_that_is_killed_meanwhile_finds_the_claim_again(
    code: int, state: str, schedule: str, tmp_path: Path
) -> None:
    with (
        GateProcess(tmp_path) as gate,
        Running(gate.socket, *claims(schedule, "--confirm", "success"), *shell(UNTIL_READ)) as running,
    ):
        assert running.line() == "up"
        gate.restart()
        end = time.monotonic() + 2.5  # the grace is 2 s
        while time.monotonic() < end:
            assert states(gate, schedule) == ["claimed"]
            time.sleep(0.02)
        running.say(str(code))
        assert running.end() == (code, "", "")
        assert states(gate, schedule) == [state]


def test_a_gate_that_is_away_when_the_command_ends_is_waited_for(schedule: str, tmp_path: Path) -> None:
    with (
        GateProcess(tmp_path) as gate,
        Running(gate.socket, *claims(schedule, "--confirm", "success"), *shell(UNTIL_READ)) as running,
    ):
        assert running.line() == "up"
        gate.kill()
        running.say("0")
        gate.start()
        assert running.end() == (0, "", "")
        assert states(gate, schedule) == ["sent"]


def test_a_gate_that_stays_away_costs_a_line_and_not_the_exit_code(schedule: str, tmp_path: Path) -> None:
    async def work() -> None:
        with FakeGate(tmp_path / "gate.sock") as fake:
            async with AsyncGate(fake.path) as asker:
                claim = await asker.claim(schedule, MINUTE)
                claimed = Claimed(asker, claim, Confirm.SUCCESS, warnings.append, settle=0.1)
                claimed.started("job")
                fake.stop()
                await claimed.ended(0)

    warnings: list[str] = []
    asyncio.run(work())
    assert warnings == [f"{schedule} at {AT} ends in doubt: the gate did not hear within 0.1 s what became of it"]


def test_a_claim_that_was_given_to_another_is_told(schedule: str, tmp_path: Path) -> None:
    async def work() -> None:
        with FakeGate(tmp_path / "gate.sock") as fake:
            async with AsyncGate(fake.path) as asker:
                claim = await asker.claim(schedule, MINUTE, lease=0.06)
                fake.answers[CLAIM] = lambda asked: reply("held", asked, by="another")
                claimed = Claimed(asker, claim, Confirm.SUCCESS, warnings.append, lease=0.06)
                claimed.started("job")
                await fake.when(lambda: len(fake.asked(CLAIM)) > 1)
                await claimed.ended(0)
            assert fake.tokens(CONFIRM) == [claim.token], "it was sent all the same"

    warnings: list[str] = []
    asyncio.run(work())
    assert warnings == [f"{schedule} at {AT} was given to another while the command runs: the test says so"]


def test_a_claim_that_is_confirmed_too_late_is_told(schedule: str, tmp_path: Path) -> None:
    with FakeGate(tmp_path / "gate.sock") as fake:
        fake.answers[CONFIRM] = lambda asked: UnknownToken(token=asked.token)
        with Running(fake.path, *claims(schedule), *shell("exit 4")) as running:
            code, _, err = running.end()
    assert code == 4
    assert err.startswith(f"gatectl: {schedule} at {AT} cannot be confirmed: unknown token")
