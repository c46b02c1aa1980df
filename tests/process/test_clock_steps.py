"""The wall clock of a running gate is set: noticed within a second, everybody told, edges met by the new time."""

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import tell
from tests.support.faketime import StepTime
from tests.support.gate_process import PATIENCE, GateProcess, RawClient
from tests.support.watcher import RawWatcher, watcher

pytestmark = pytest.mark.process

HOUR = timedelta(hours=1)
NOTICED_SECONDS = 10.0
"""Ten times what a step may take to be noticed."""

Make = Callable[..., GateProcess]


def config(now: datetime) -> str:
    """Open in each hour that lies an odd number of hours from now, half an hour before and after."""
    begin = (now - timedelta(hours=60, minutes=30)).replace(second=0, microsecond=0)
    hours = [begin + n * 2 * HOUR + (HOUR if n < 0 else timedelta()) for n in range(61)]
    lines = ", ".join(f'"{start:%Y-%m-%d %H:%M} .. {start + HOUR:%Y-%m-%d %H:%M}"' for start in hours)
    return f'timezone = "UTC"\n[[fetch]]\nname = "odd"\nqueues = ["odd"]\nclosed = [{lines}]\n'


@pytest.mark.parametrize(
    "step", [HOUR, -HOUR, timedelta(days=2, hours=1), -timedelta(days=2, hours=1)], ids=["+1h", "-1h", "+49h", "-49h"]
)
def test_a_step_is_noticed_and_every_watcher_is_told_by_the_new_time(
    make_gate: Make, step_time: StepTime, step: timedelta
) -> None:
    gate = make_gate(config=config(datetime.now(UTC)), env=step_time.env()).start()
    with ExitStack() as stack:
        watchers = [stack.enter_context(watcher(gate.socket, "w", [queue])) for queue in ("odd", "odd", "other")]
        assert [connection.last["open"] for connection in watchers] == [False, False, True]
        step_time.step(step)
        begin = time.monotonic()
        told = [connection.next() for connection in watchers]
        took = time.monotonic() - begin
        assert [answer["open"] for answer in told] == [True, True, True]
        until = datetime.fromisoformat(told[0]["until"])
        assert timedelta() < until - step_time.now() <= HOUR
        tell(f"a step of {step}: all told after {took * 1e3:.0f} ms")
        assert took < NOTICED_SECONDS
        with gate.client() as client:
            assert client.call("Fetch.Check", worker="w", queues=["odd"])["open"]
            step_time.step(timedelta())
            assert [connection.next()["open"] for connection in watchers] == [False, False, True]
    steps = [line for line in gate.log_lines() if "the clock was set" in line.get("message", "")]
    assert [line["level"] for line in steps] == ["warning", "warning"]
    words = ["forward", "back"] if step > timedelta() else ["back", "forward"]
    for line, word in zip(steps, words, strict=True):
        found = re.search(rf"set {word} by ([0-9.]+) s", line["message"])
        assert found is not None
        assert float(found[1]) == pytest.approx(abs(step).total_seconds(), abs=1.0)


def test_between_a_step_and_its_notice_a_check_goes_by_the_new_time(make_gate: Make, step_time: StepTime) -> None:
    gate = make_gate(config=config(datetime.now(UTC)), env=step_time.env()).start()
    with gate.client() as client:
        for step in (timedelta(), HOUR, -HOUR, 2 * HOUR, 3 * HOUR):
            step_time.step(step)
            answer = client.call("Fetch.Check", worker="w", queues=["odd"])
            assert answer["open"] is bool(step // HOUR % 2)


def test_after_a_step_the_next_edge_is_met(make_gate: Make, step_time: StepTime) -> None:
    gate = make_gate(config=config(datetime.now(UTC)), env=step_time.env()).start()
    with watcher(gate.socket, "w", ["odd"]) as connection:
        edge = datetime.fromisoformat(connection.last["until"])
        step_time.step(edge - timedelta(seconds=3) - datetime.now(UTC))
        assert not connection.next()["open"], "three seconds before the edge"
        assert connection.next()["open"]
        late = (step_time.now() - edge).total_seconds()
        tell(f"the edge after a step: {late * 1e3:.1f} ms late")
        assert 0 <= late < 1.0


def test_small_steps_that_add_up_do_not_open_early_or_late(make_gate: Make, step_time: StepTime) -> None:
    """Half a tenth of a second at a time: below what counts as a step."""
    gate = make_gate(config=config(datetime.now(UTC)), env=step_time.env()).start()
    with watcher(gate.socket, "w", ["odd"]) as connection:
        edge = datetime.fromisoformat(connection.last["until"])
        start = edge - timedelta(seconds=4) - datetime.now(UTC)
        step_time.step(start)
        connection.next()
        for number in range(1, 5):
            time.sleep(0.5)
            step_time.step(start + number * timedelta(seconds=0.05))
        assert connection.next()["open"]
        late = (step_time.now() - edge).total_seconds()
        assert 0 <= late < 1.0
    assert len([line for line in gate.log_lines() if "the clock was set" in line.get("message", "")]) == 1


def test_a_clock_that_nobody_sets_is_never_reported(gate: GateProcess, client: RawClient) -> None:
    with watcher(gate.socket, "w") as connection:
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            client.call("Control.Status")
        assert connection.is_quiet()
    assert not [line for line in gate.log_lines() if "clock was set" in line.get("message", "")]


def test_leases_are_not_ended_by_a_step(make_gate: Make, step_time: StepTime) -> None:
    gate = make_gate(env=step_time.env()).start()
    with gate.client() as client, watcher(gate.socket, "w") as connection:
        assert isinstance(connection, RawWatcher)
        at = step_time.now().replace(second=0, microsecond=0).isoformat()
        assert client.claim("s", at, token="t")["decision"] == "send"
        step_time.step(HOUR)
        connection.next(PATIENCE)
        assert client.call("Send.Confirm", token="t") == {}
