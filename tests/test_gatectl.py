"""gatectl against a real gate: every command, every exit code, for people and for programs."""

import json
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from gate.ctl import asking, output, status
from gate.interface import Counts, ScheduleInfo, State, StatusOut, StoreInfo, Tzdata
from tests.support.gate_process import PATIENCE, GateProcess
from tests.support.gatectl import COMMAND, as_nobody, gatectl, on_terminal, process

pytestmark = pytest.mark.process

MINUTE = datetime.now(UTC).replace(second=0, microsecond=0)
LONG = "taskiq:reports.monthly.tasks:send_the_report_to_everybody#0123456789abcdef~1"
NASTY = ["it's", '"$(touch /tmp/x)"', "--json", "two\nlines \x1b[31m", "日本語 ü", "back\\slash 'and' \t tab", "-"]
STYLE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    """One gate for this module; each test has schedules of its own."""
    config = '[store]\nurl = "memory:"\n[[send]]\nschedules = ["*"]\ngrace = "1ms"\n'
    with GateProcess(tmp_path_factory.mktemp("gate"), config=config) as gate:
        yield gate


@pytest.fixture
def schedule() -> str:
    return f"test:{secrets.token_hex(4)}"


@pytest.fixture(autouse=True)
def named_by_environment(gate: GateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(gate.socket))


def iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def doubt(gate: GateProcess, schedule: str, at: datetime = MINUTE, **claim: Any) -> str:
    """An occurrence in doubt: its holder reads the grant and is gone."""
    with gate.client() as client:
        assert client.claim(schedule, iso(at), **claim)["decision"] == "send"
    wait_for_state(gate, schedule, "doubt")
    return iso(at)


def wait_for_state(gate: GateProcess, schedule: str, state: str) -> None:
    end = time.monotonic() + PATIENCE
    with gate.client() as client:
        while not any(o["state"] == state for o in client.call("Control.History", schedule=schedule)["occurrences"]):
            assert time.monotonic() < end, f"{schedule} is not {state}"
            time.sleep(0.005)


def ok(*arguments: str) -> str:
    result = gatectl(*arguments)
    assert result.exit_code == 0, result.output
    assert not result.stderr
    return result.stdout


def row(text: str, start: str) -> str:
    """The first line that starts so."""
    return next(line for line in text.splitlines() if line.startswith(start))


# ---- status


def test_status_for_people(gate: GateProcess, schedule: str) -> None:
    with gate.client() as client:
        token = client.claim(schedule, iso(MINUTE), holder="web1:7:people", title="every minute")["token"]
        client.call("Send.Confirm", token=token)
        client.claim(f"{schedule}/2", iso(MINUTE), holder="web1:7:people")
        text = ok("status")
    assert row(text, "gate ").split() == [
        "gate",
        "0.1.0,",
        "pid",
        f"{gate.pid},",
        "up",
        *row(text, "gate ").split()[5:],
    ]
    assert row(text, "socket ").split() == ["socket", str(gate.socket)]
    assert row(text, "config ").split()[:3] == ["config", f"{gate.config},", "loaded"]
    assert row(text, "store ").split() == ["store", "memory:,", "0", "B,", "healthy"]
    assert re.fullmatch(r"tzdata +20\d\d\w+(\.\d+)?, (system|wheel).*", row(text, "tzdata "))
    assert re.search(r"\bsend [1-9]", row(text, "answers "))
    line = next(line for line in text.splitlines() if line.endswith(f"  {schedule}"))
    assert re.fullmatch(rf"every minute +\S+( \S+)? \(\S+( ago)?\) +sent +web1:7:people +sent 1 +{schedule}", line)
    holder = row(text, "web1:7:people").split()
    assert holder[1:3] == ["root" if os.getuid() == 0 else holder[1], str(os.getpid())]
    assert holder[-1] == "1", "one claim is open"


def test_status_as_json_is_the_reply_on_the_wire(gate: GateProcess, schedule: str) -> None:
    doubt(gate, schedule, title="in doubt")
    with gate.client() as client:
        client.claim(f"{schedule}/2", iso(MINUTE))
        printed = ok("status", "--json")
        wire = client.call("Control.Status")
    assert printed.count("\n") == 1
    shown = json.loads(printed)
    assert list(shown) == list(wire)
    assert shown["doubts"][0].keys() == wire["doubts"][0].keys()
    changing = {"now", "connections"}
    assert {k: v for k, v in shown.items() if k not in changing} == {k: v for k, v in wire.items() if k not in changing}
    assert shown["now"] < wire["now"]


def test_a_doubt_is_listed_with_the_command_that_settles_it(gate: GateProcess, schedule: str) -> None:
    at = doubt(gate, schedule, holder="web1:7:gone")
    text = ok("status")
    assert f"gatectl resend '{schedule}' {at}" in text.splitlines()
    listed = next(line for line in text.splitlines() if line.startswith(schedule) and "vanished" in line)
    assert "web1:7:gone" in listed
    assert listed.endswith("its holder vanished before confirming")


@pytest.mark.parametrize("name", NASTY)
def test_the_command_that_settles_a_doubt_works_as_it_is_printed(gate: GateProcess, name: str) -> None:
    at = doubt(gate, name)
    lines = ok("--socket", str(gate.socket), "status").splitlines()
    [command] = [
        line for line in lines if line.startswith("gatectl resend") and line.endswith(f"{output.quoted(name)} {at}")
    ]
    assert command.isprintable()
    script = f'gatectl() {{ {shlex.join(COMMAND)} "$@"; }}\nunset GATE_SOCKET\n{command}'
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    wait_for_state(gate, name, "released")
    assert command not in ok("--socket", str(gate.socket), "status").splitlines()


def test_nothing_that_a_client_named_steers_the_terminal(gate: GateProcess) -> None:
    doubt(gate, "evil\x1b]0;title\x07\x9b31m", holder="who\r\x1b[2J", title="\x1b[31mred\u202e")
    for command in (["status"], ["history"]):
        text = ok(*command)
        assert "\x1b" not in text
        assert all(line.isprintable() for line in text.splitlines())
        assert r"\x1b[31mred\u202e" in text
        assert r"who\r\x1b[2J" in text


def test_a_status_that_is_cut_says_so_and_a_store_that_fails_is_loud() -> None:
    now = datetime(2026, 11, 30, 12, tzinfo=UTC)
    info = ScheduleInfo(
        schedule="a", title=None, known_since=now, at=now, state=State.SENT, by="me", paused=None,
        sent=12, refused=0, doubt=1, missed=0, observed=0,
    )  # fmt: skip
    store = StoreInfo(kind="sqlite", url="sqlite:/x", healthy=False, problem="/x: the disk is full", bytes=5 << 20)
    reply = StatusOut(
        version="1", pid=1, started=now - timedelta(hours=30), now=now, socket="/s", state=None, config=None,
        store=store, tzdata=Tzdata(source="wheel", version="2026.1"), connections=1, counts=Counts(),
        schedules=[info], schedules_total=4096, doubts=[], doubts_total=0, holders=[], rules=[], rules_total=0,
        missed=[], missed_total=0, pauses=[],
        watchers=[], watchers_total=0, overrides=[], config_loaded=now, config_problem=None, warnings=[],
        pools=[],
    )  # fmt: skip
    text = shown(reply)
    assert "store     sqlite:/x, 5 MiB, nothing is granted: /x: the disk is full" in text
    assert "schedules: 4096, the 1 used last" in text
    assert "config    built-in defaults, loaded 12:00 (now)" in text
    assert "up 1d6h," in text
    assert "answers   none (since it started)" in text
    assert "in doubt: 0\n" in text
    assert "missed: 0\n" in text
    assert "  sent 12, in doubt 1  " in text
    assert "pauses" not in text
    assert "unknown" not in text
    blind = shown(msgspec.structs.replace(reply, schedules=[], schedules_total=0))
    assert "schedules and doubts: unknown while the store fails\n" in blind
    assert "in doubt: 0" not in blind


def shown(reply: StatusOut) -> str:
    from click.testing import CliRunner

    with CliRunner().isolation() as (stdout, _, _):
        output.show(*status.parts(reply, None))
        return stdout.getvalue().decode()


# ---- history


def test_history_of_one_schedule_the_newest_first(gate: GateProcess, schedule: str) -> None:
    with gate.client() as client:
        for back in range(3):
            token = client.claim(schedule, iso(MINUTE - timedelta(minutes=back)), holder="web1:7:past")["token"]
            client.call(f"Send.{'Release' if back == 1 else 'Confirm'}", token=token)
        wire = client.call("Control.History", schedule=schedule)
    lines = ok("history", schedule).splitlines()
    assert [line.split("web1:7:past")[0].split()[-2] for line in lines[1:]] == ["sent", "released", "sent"]
    assert re.search(r"web1:7:past +after \d+m?s$", lines[1])
    assert lines[2].endswith("released by its holder: not sent")
    assert json.loads(ok("history", schedule, "--json")) == wire
    assert ok("history", schedule, "--json", "--limit", "2").count(f'"{schedule}"') == 2
    assert ok("history", schedule, "--limit", "2").splitlines()[-1] == "These are the newest 2; --limit shows more."


def test_history_since(gate: GateProcess, schedule: str) -> None:
    with gate.client() as client:
        for back in (1, 30, 90):
            client.claim(schedule, iso(MINUTE - timedelta(minutes=back)))
    found = {since: len(json.loads(ok("history", schedule, "--json", "--since", since))["occurrences"]) for since in
             ("45m", "2h", iso(MINUTE), f"{(MINUTE - timedelta(minutes=30)).astimezone():%Y-%m-%d %H:%M}")}  # fmt: skip
    assert list(found.values()) == [2, 3, 0, 2]


def test_history_of_what_is_unknown_says_so(schedule: str) -> None:
    text = ok("history", schedule, "--since", "2026-11-30T12:00:00Z")
    assert text == f"the gate remembers no occurrence of '{schedule}' since 2026-11-30T12:00:00Z\n"
    assert json.loads(ok("history", schedule, "--json")) == {"occurrences": []}


def test_history_counts_grants(gate: GateProcess, schedule: str) -> None:
    at = doubt(gate, schedule)
    ok("resend", schedule, at)
    with gate.client() as client:
        client.call("Send.Confirm", token=client.claim(schedule, at)["token"])
    assert re.search(r"  after \d+m?s, granted 2 times$", ok("history", schedule).splitlines()[1])


# ---- resend


def test_resend_allows_one_new_send(gate: GateProcess, schedule: str) -> None:
    at = doubt(gate, schedule)
    assert re.fullmatch(rf"{schedule} at {at} \([-0-9: ]+local time\) may be sent again, by whoever asks next\n",
                        ok("resend", schedule, at))  # fmt: skip
    with gate.client() as client:
        assert client.claim(schedule, at)["decision"] == "send"
        assert client.claim(schedule, at)["decision"] == "held"


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d|%H:%M", "%Y-%m-%dT%H:%M:%S%:z"])
def test_resend_takes_local_times(gate: GateProcess, schedule: str, form: str) -> None:
    doubt(gate, schedule)
    local = MINUTE.astimezone()
    text = local.isoformat() if "%:z" in form else local.strftime(form)
    ok("resend", schedule, *text.split("|"))
    wait_for_state(gate, schedule, "released")


def test_resend_of_what_is_not_in_doubt_is_a_no(gate: GateProcess, schedule: str) -> None:
    refused = gatectl("resend", schedule, iso(MINUTE))
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"gatectl: {schedule} at {iso(MINUTE)} is neither in doubt nor missed but unknown to the ledger: "
        "only such a one can be sent again\n"
    )
    at = doubt(gate, schedule)
    assert [gatectl("resend", schedule, at).exit_code for _ in range(2)] == [0, 1]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_resend_by_somebody_who_may_not_is_a_no(gate: GateProcess, schedule: str) -> None:
    at = doubt(gate, schedule)
    with reachable_by_all(gate):
        assert as_nobody("status", "--socket", str(gate.socket)).returncode == 0, (
            "reading needs no more than the socket"
        )
        refused = as_nobody("resend", "--socket", str(gate.socket), schedule, at)
    assert refused.returncode == 1
    assert refused.stderr.startswith("gatectl: not allowed: steering needs root")
    assert refused.stderr.count("\n") == 1
    assert gatectl("resend", schedule, at).exit_code == 0, "it is still in doubt"


class reachable_by_all:
    """The socket of a gate with mode 0666, in folders that everybody may pass."""

    def __init__(self, gate: GateProcess) -> None:
        folders = [parent for parent in gate.socket.parents if len(parent.parts) > 2]
        self._modes = {path: path.stat().st_mode & 0o7777 for path in (gate.socket, *folders)}

    def __enter__(self) -> None:
        for path, mode in self._modes.items():
            path.chmod(mode | (0o111 if path.is_dir() else 0o666))

    def __exit__(self, *_: object) -> None:
        for path, mode in self._modes.items():
            path.chmod(mode)


# ---- wrong usage


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "No such command"),
        (["status", "--nonsense"], "No such option"),
        (["status", "extra"], "unexpected extra argument"),
        (["resend"], "Missing argument 'SCHEDULE'"),
        (["resend", "nightly"], "Missing argument 'AT"),
        (["resend", "nightly", "noon"], "'noon' is not a time: write 2026-11-30T12:00:00Z"),
        (["resend", "nightly", "2026-11-30T12:00:61Z"], "is not an RFC 3339 instant"),
        (["history", "--since", "5"], "'5' is neither a time nor a duration"),
        (["history", "--limit", "0"], "0 is not in the range"),
        (["history", "--limit", "1001"], "1001 is not in the range"),
        (["history", "--limit", "all"], "'all' is not a valid integer"),
        (["history", "one", "two"], "unexpected extra argument"),
        ([], "Usage: gatectl"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str) -> None:
    result = gatectl(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not result.stdout


def test_a_local_time_that_exists_twice_is_wrong_usage_and_names_both(schedule: str) -> None:
    env = {"TZ": "CET-1CEST,M3.5.0,M10.5.0/3"}
    refused = process("resend", schedule, "2026-10-25 02:30", env=env)
    assert refused.returncode == 2
    both = re.findall(r"2026-10-25T02:30:00\+0\d:00", refused.stderr)
    assert both == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]
    assert [process("resend", schedule, candidate, env=env).returncode for candidate in both] == [1, 1]


def test_help_and_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATE_SOCKET", str(tmp_path / "nowhere"))
    assert ok("--version") == "gatectl, version 0.1.0\n"
    commands = re.findall(r"^  ([\w-]+) ", ok("-h").partition("Commands:")[2].partition("\n\n")[0], re.MULTILINE)
    assert commands == [
        "auto", "check", "close", "demo", "history", "install-units", "lint", "metrics", "open", "pause",
        "reload", "resend", "resume", "run", "status", "week", "why",
    ]  # fmt: skip
    for command in commands:
        assert ok(command, "-h") == ok(command, "--help")
        assert ok(command, "-h").startswith(f"Usage: gatectl {command} ")


@pytest.mark.parametrize("module", ["click", "rich"])
def test_without_the_service_extra_one_line_says_how_to_get_it(module: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from gate.ctl.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"gatectl: {module}\S* is missing: pip install 'schedule-gate\[service\]'\n", done.stderr)


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("gatectl")
    done = subprocess.run([command, "status", "--json"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["version"] == "0.1.0"


# ---- where the gate is, and when it cannot be reached


def test_the_socket_is_named_before_or_after_the_command_and_later_wins(
    gate: GateProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here, nowhere = str(gate.socket), str(tmp_path / "nowhere")
    monkeypatch.setenv("GATE_SOCKET", nowhere)
    assert gatectl("status").exit_code == 3
    for arguments in (
        ["--socket", here, "status"],
        ["status", "--socket", here],
        ["--socket", nowhere, "status", "--socket", here],
        ["history", "--socket", here],
        [f"--socket={here}", "history"],
    ):
        assert gatectl(*arguments).exit_code == 0, arguments
    assert gatectl("--socket", here, "status", "--socket", nowhere).exit_code == 3


def unreachable(path: Path | str) -> str:
    """The one line that is said when the gate at `path` is not there, and it is said at once."""
    lines = set()
    for arguments in (["status"], ["status", "--json"], ["history"], ["resend", "nightly", "12:00"]):
        result = gatectl("--socket", str(path), *arguments)
        assert (result.exit_code, result.stdout) == (3, "")
        lines.add(result.stderr)
    [line] = lines
    assert line.startswith(f"gatectl: the gate at {path} cannot be reached: ")
    assert line.count("\n") == 1
    return line


def test_no_gate(tmp_path: Path) -> None:
    begin = time.monotonic()
    line = unreachable(tmp_path / "gate.sock")
    assert line.endswith(
        ": no such file or directory: start it with `gate`, or name its socket with --socket or $GATE_SOCKET\n"
    )
    assert time.monotonic() - begin < asking.PATIENCE_SECONDS, "it was waited for"


def test_a_gate_that_was_killed(tmp_path: Path) -> None:
    with GateProcess(tmp_path) as gate:
        gate.kill()
        assert "connection refused: start it with `gate`" in unreachable(gate.socket)


def test_a_file_that_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "gate.sock"
    path.touch()
    assert "connection refused" in unreachable(path)


def test_a_path_that_no_socket_can_have() -> None:
    assert "path too long" in unreachable("/tmp/" + "x" * 200)


def test_no_place_to_look_for_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATE_SOCKET", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    if not Path("/run/gate/gate.sock").exists():
        result = gatectl("status")
        assert result.exit_code == 3
        assert result.stderr.endswith(f" is set: {asking.START_IT}\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_socket_that_one_may_not_use(gate: GateProcess) -> None:
    with reachable_by_all(gate):
        gate.socket.chmod(0o660)
        refused = as_nobody("status", "--socket", str(gate.socket))
    assert refused.returncode == 3
    assert "permission denied: ask for membership in its group (gate-clients)" in refused.stderr


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, r"no answer within 0\.2 s: it may hang or be busy: look at its log"),
        (b"SSH-2.0-nonsense\r\n\0", "sock is no gate of this version: "),
        (b'{"parameters":{"version":"9"}}\0', "sock is no gate of this version: .*missing required field"),
    ],
)
def test_what_answers_is_no_gate_that_can_be_used(
    answer: bytes | None, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "PATIENCE_SECONDS", 0.2)
    with Impostor(tmp_path / "sock", answer) as path:
        result = gatectl("status", "--socket", str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert re.search(says, result.stderr)
    assert result.stderr.count("\n") == 1


class Impostor:
    """Listens where a gate should, and says the same to everything; None is nothing."""

    def __init__(self, path: Path, answer: bytes | None) -> None:
        self._path = path
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._peers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            if self._answer is None:
                self._peers.append(peer)
                continue
            with peer:
                if peer.recv(65_536):
                    peer.sendall(self._answer)

    def __enter__(self) -> Path:
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._thread.start()
        return self._path

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        for sock in (self._listener, *self._peers):
            sock.close()


# ---- terminals and pipes


@pytest.fixture(scope="module")
def names(gate: GateProcess) -> Iterator[list[str]]:
    """Names that are long: of a schedule in doubt, of one held by a connection that stays, of a holder."""
    holder = "scheduler-host-number-one.example:1234567:taskiq"
    doubt(gate, f"{LONG}/doubt", holder=holder, title="send_the_report 0 9 1 * *")
    with gate.client() as client:
        client.claim(f"{LONG}/held", iso(MINUTE), holder=holder)
        yield [f"{LONG}/doubt", f"{LONG}/held", holder]


@pytest.mark.parametrize("command", ["status", "history"])
def test_80_columns_hold_every_character(command: str, names: list[str]) -> None:
    text = STYLE.sub("", on_terminal(command))
    lines = text.splitlines()
    assert max(cell_len(line) for line in lines if not line.startswith("gatectl resend")) <= 80
    assert "…" not in text
    for name in names[2:] if command == "history" else names:
        assert spelled(name, lines), f"{name} is not whole"


def spelled(name: str, lines: list[str]) -> bool:
    """Whether a name stands there, be it folded below itself."""
    for index, line in enumerate(lines):
        for start in (match.start() for match in re.finditer(re.escape(name[:8]), line)):
            width = len(re.split(r"  |$", line[start:])[0])
            column = [line[start : start + width].strip() for line in lines[index : index + 12]]
            if "".join(column).startswith(name):
                return True
    return False


@pytest.mark.parametrize("command", ["status", "history"])
def test_a_pipe_gets_whole_lines_without_styles(command: str, names: list[str]) -> None:
    done = process(command, env={"COLUMNS": "40", "TERM": "xterm-256color"})
    assert "\x1b" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]
    for name in names[2:] if command == "history" else names:
        assert any(name in line for line in done.stdout.splitlines())


def test_colours_are_for_terminals_that_want_them(names: list[str]) -> None:
    assert names
    colour = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
    assert colour.search(on_terminal("status"))
    assert not colour.search(on_terminal("status", env={"NO_COLOR": "1"}))


def test_what_the_terminal_cannot_show_is_escaped(gate: GateProcess, schedule: str) -> None:
    doubt(gate, schedule, title="日本")
    done = process("history", schedule, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0, done.stderr
    assert r"\u65e5\u672c" in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(names: list[str]) -> None:
    assert names
    script = f"set -o pipefail; {shlex.join([*COMMAND, 'history', '--json'])} | true"
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True)
    assert not done.stderr
