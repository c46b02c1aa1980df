"""Both clients against the real gate, and what importing them costs."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gate.errors import MethodNotFound, UnknownToken
from gate.interface import ClaimOut, Decision, Empty, GetInfoOut, StatusIn, StatusOut
from gate_client import AsyncGate, Gate
from gate_client.core import claim_in
from tests.support.fake_gate import CLAIM
from tests.support.gate_process import GateProcess

ROOT = Path(__file__).resolve().parent.parent


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


def run(path: Path, work: Callable[[AsyncGate], Awaitable[Any]]) -> None:
    """Do work with a client in an event loop of its own, and close the client."""

    async def main() -> None:
        async with AsyncGate(path, timeout=10) as asker:
            await work(asker)

    asyncio.run(main())


# ---- the blocking client


@pytest.mark.process
def test_the_real_gate_grants_once_and_remembers(gate: GateProcess) -> None:
    with Gate(gate.socket) as one, Gate(gate.socket, holder="two") as two:
        with one.sending("nightly", this_minute()) as claim:
            assert claim.granted
            assert two.claim("nightly", claim.at).decision is Decision.HELD
        second = two.claim("nightly", claim.at)
        assert second.decision is Decision.SENT
        assert second.by == one.holder
        assert isinstance(one.call("org.varlink.service.GetInfo", Empty(), GetInfoOut), GetInfoOut)
        assert one.call("io.schedulegate.Control.Status", StatusIn(), StatusOut).counts.send == 1
        with pytest.raises(UnknownToken):
            two.confirm("nobody's")
        with pytest.raises(MethodNotFound):
            two.call("io.schedulegate.Send.Nothing", Empty())


@pytest.mark.process
def test_the_real_gate_pushes_the_outcome(gate: GateProcess) -> None:
    with Gate(gate.socket) as one, Gate(gate.socket) as two:
        claim = one.claim("nightly", this_minute())
        waiting: list[str] = []
        thread = threading.Thread(target=lambda: waiting.append(two.claim("nightly", claim.at, wait=10).decision))
        thread.start()
        claim.release()
        thread.join()
        assert waiting == ["send"]


@pytest.mark.process
def test_the_real_gate_takes_a_pipeline_longer_than_its_limit(gate: GateProcess) -> None:
    with Gate(gate.socket) as asker:
        at = this_minute()
        results = asker.pipeline([(CLAIM, claim_in(f"s{n}", "me", at)) for n in range(300)])
        assert [r.decision for r in results if isinstance(r, ClaimOut)] == [Decision.SEND] * 300


@pytest.mark.process
def test_a_killed_gate_is_asked_again(gate: GateProcess) -> None:
    with Gate(gate.socket, timeout=30) as asker:
        claim = asker.claim("nightly", this_minute())
        gate.kill()
        back = threading.Thread(target=gate.start)
        back.start()
        claim.confirm()
        back.join()
        assert asker.claim("nightly", claim.at).decision is Decision.SENT


# ---- the asyncio client


@pytest.mark.process
def test_the_real_gate_answers_hundreds_at_once(gate: GateProcess) -> None:
    async def work(asker: AsyncGate) -> None:
        at = this_minute()
        claims = await asyncio.gather(*(asker.claim(f"s{n % 150}", at) for n in range(300)))
        assert sum(claim.granted for claim in claims) == 150
        status = await asker.call("io.schedulegate.Control.Status", StatusIn(), StatusOut)
        assert status.counts.held == 150

    run(gate.socket, work)


@pytest.mark.process
def test_the_real_gate_hands_over_what_is_released(gate: GateProcess) -> None:
    async def work(one: AsyncGate) -> None:
        async with AsyncGate(gate.socket, timeout=10) as two:
            claim = await one.claim("nightly", this_minute())
            waiting = asyncio.create_task(two.claim("nightly", claim.at, wait=10))
            await asyncio.sleep(0)
            await claim.release()
            taken = await waiting
            assert taken.granted
            await taken.confirm()
            assert (await one.claim("nightly", claim.at)).decision is Decision.SENT

    run(gate.socket, work)


@pytest.mark.process
@pytest.mark.slow
def test_open_claims_survive_a_kill_of_the_real_gate(gate: GateProcess) -> None:
    """Without the renewal they would be in doubt 2 s after the restart, and the second sender be told so."""

    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", this_minute(), lease=30)
        await asyncio.to_thread(gate.restart)
        async with AsyncGate(gate.socket, timeout=10) as other:
            begin = time.monotonic()
            while time.monotonic() - begin < 3:  # longer than the grace
                assert (await other.claim("nightly", claim.at)).decision is Decision.HELD
                await asyncio.sleep(0.1)
            await claim.confirm()
            assert (await other.claim("nightly", claim.at)).decision is Decision.SENT

    run(gate.socket, work)


# ---- importing


def python(*arguments: str, **env: str) -> str:
    paths = f"{ROOT}:{ROOT / 'clients'}"
    command = [sys.executable, *arguments]
    cached = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(
        command, env={**cached, "PYTHONPATH": paths, **env}, check=True, stdout=subprocess.PIPE, text=True
    )
    return result.stdout


@pytest.mark.process
def test_importing_brings_nothing_but_msgspec_and_the_standard_library() -> None:
    program = """
import sys, msgspec
before = set(sys.modules)
import gate_client
assert not {"asyncio", "socket", "threading"} & set(sys.modules)
from gate_client import Gate, GateUnreachable
assert "asyncio" not in sys.modules
from gate_client import AsyncGate
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - set(sys.stdlib_module_names)))
"""
    assert python("-c", program).split() == ["gate", "gate_client"]


@pytest.mark.process
def test_importing_costs_little(tmp_path: Path) -> None:
    """Goal 5 of perf.md: 5 ms of CPU over msgspec; asserted is ten times that."""
    program = """
import msgspec, time
begin = time.process_time()
from gate_client import Gate
print(time.process_time() - begin)
"""
    spent = [float(python("-c", program, PYTHONPYCACHEPREFIX=str(tmp_path))) for _ in range(4)]
    assert min(spent) < 0.05
