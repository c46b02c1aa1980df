"""Which process is which: real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gate import processes

PATIENCE = 10.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_key_is_that_of_one_process_and_names_its_pid(child: subprocess.Popen[bytes]) -> None:
    mine, other = processes.key_of(os.getpid()), processes.key_of(child.pid)
    assert mine is not None
    assert other is not None
    assert mine != other
    assert processes.key_of(os.getpid()) == mine
    assert processes.pid_of(mine) == os.getpid()
    assert processes.lives(mine)


def test_another_process_of_the_same_pid_is_another_one() -> None:
    mine = processes.key_of(os.getpid())
    assert mine is not None
    boot, pid, start = mine.split(":")
    assert not processes.lives(f"{boot}:{pid}:{int(start) + 1}")
    assert not processes.lives(f"another-boot:{pid}:{start}")


def test_a_stopped_process_lives_and_a_zombie_does_not(child: subprocess.Popen[bytes]) -> None:
    key = processes.key_of(child.pid)
    assert key is not None
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert processes.lives(key)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # nobody has taken its exit status
    end = time.monotonic() + PATIENCE
    while processes.lives(key):
        assert time.monotonic() < end
    assert processes.key_of(child.pid) is None
    child.wait()
    assert not processes.lives(key)


@pytest.mark.parametrize("key", ["connection:0123456789abcdef", "", "a:b:c", "::"])
def test_what_is_no_key_of_a_process_does_not_live(key: str) -> None:
    assert processes.pid_of(key) == 0
    assert not processes.lives(key)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_a_pid_that_names_no_process_cannot_be_told(pid: int) -> None:
    assert processes.key_of(pid) is None
