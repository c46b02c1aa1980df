"""`gatectl demo`: shows what it says, leaves nothing behind, and admits it when nothing was shown."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gate.ctl import demo
from tests.support.gatectl import COMMAND, ROOT, gatectl

PATIENCE = 300.0
MINUTE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NEXT = MINUTE + timedelta(minutes=1)


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """Where the demo makes its folder; afterwards it is empty, and no process of the demo lives."""
    folder = tmp_path / "t"
    folder.mkdir()
    yield folder
    assert not list(folder.iterdir())
    end = time.monotonic() + PATIENCE  # one that was killed takes a moment to go on a busy machine
    while started_below(folder) and time.monotonic() < end:
        time.sleep(0.05)
    assert not started_below(folder)


def started_below(folder: Path) -> list[str]:
    """The command lines of living processes whose arguments or environment name the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:  # gone, or somebody else's
            continue
        if f"{folder}/gate-demo-".encode() in command + environment:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def start(temporary: Path, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "demo"], cwd=ROOT, env=os.environ | {"TMPDIR": str(temporary)} | env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.process
@pytest.mark.slow
def test_the_demo_kills_real_schedulers_and_proves_what_it_says(temporary: Path, tmp_path: Path) -> None:
    elsewhere = {
        "GATE_SOCKET": str(tmp_path / "nowhere"),
        "GATE_CONFIG": str(tmp_path / "none"),
        "STATE_DIRECTORY": "/none",
    }
    running = start(temporary, **elsewhere)
    text, problems = running.communicate(timeout=PATIENCE)
    assert (running.returncode, problems) == (0, ""), text
    starts = re.findall(r"^\d\d:\d\d:\d\d  (?:killed, )?start \d +(sent) +(.*)$", text, re.MULTILINE)
    table = re.search(r"^minute .*\n((?:.*\d\d:\d\d.*\n)+)", text, re.MULTILINE)
    assert table
    ungated, gated = zip(
        *(map(int, line.replace("-", "0").split()[-2:]) for line in table[1].splitlines()), strict=True
    )
    assert sum(ungated) == len(starts) > len(ungated)
    assert sum(gated) == [answer for _, answer in starts].count("sent")
    assert set(gated) <= {0, 1}
    assert re.search(r"^\$ gatectl status\ngate +0\.1\.0, pid \d+", text, re.MULTILINE)
    assert re.search(r"^heartbeat \* \* \* \* \* .* sent ", text, re.MULTILINE)
    assert "in doubt: 0\n" in text
    assert "\nProven: without the gate, the scheduler sent at each of its" in text


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_demo_that_is_stopped_leaves_nothing_behind(temporary: Path, number: signal.Signals) -> None:
    running = start(temporary)
    assert running.stdout
    while not running.stdout.readline().endswith(" sent\n"):
        assert running.poll() is None
    assert len(started_below(temporary)) >= 1
    running.send_signal(number)
    running.communicate(timeout=PATIENCE)
    assert running.returncode == (1 if number is signal.SIGINT else 128 + number)


@pytest.mark.process
def test_a_demo_whose_schedulers_fail_says_why(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "pycron.py").write_text("raise ImportError('this pycron is broken')\n")
    running = start(temporary, PYTHONPATH=str(tmp_path))
    _, problems = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    assert re.match(r"gatectl: the demo could not be played: ungated: it ended with exit code \d; its log", problems)
    assert "this pycron is broken" in problems


@pytest.mark.parametrize("module", ["taskiq", "trio"])
def test_without_taskiq_one_line_says_how_to_get_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = gatectl("demo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"gatectl: {module} is missing: pip install 'schedule-gate[service,taskiq]'\n"


@pytest.mark.parametrize(
    ("ungated", "gated", "sends", "says"),
    [
        ({MINUTE: 5}, {MINUTE: 1}, 1, None),
        ({MINUTE: 2, NEXT: 1}, {MINUTE: 1, NEXT: 1}, 2, None),
        ({MINUTE: 5}, {MINUTE: 2}, 2, "was sent 2 times with the gate"),
        ({MINUTE: 5}, {MINUTE: 0}, 0, "was sent 0 times with the gate"),
        ({MINUTE: 5}, {MINUTE: 1}, 2, "2 tasks were sent, but it knows of 1"),
        ({MINUTE: 1, NEXT: 1}, {MINUTE: 1, NEXT: 1}, 2, "no minute was sent twice"),
    ],
)
def test_what_counts_as_proven(
    ungated: dict[datetime, int], gated: dict[datetime, int], sends: int, says: str | None
) -> None:
    wrong = demo.wrong(Counter(ungated), Counter(gated), sends)
    assert [says in text for text in wrong] == [True] if says else wrong == []
