"""Frames that are nearly calls, against a real gate: each gets one valid answer. For longer: python -m tests.fuzz."""

from pathlib import Path

import pytest

from tests.fuzz.run import run
from tests.support import tell
from tests.support.gate_process import GateProcess

pytestmark = pytest.mark.process

FRAMES = 20_000
MORE_KIB = 20 * 1024


@pytest.mark.parametrize("store", ["memory:", "sqlite:"])
def test_every_frame_gets_a_valid_answer_and_the_gate_does_not_grow(tmp_path: Path, store: str) -> None:
    with GateProcess(tmp_path, config=f'[store]\nurl = "{store}"\n', log_level="error") as gate:
        before = gate.rss_kib()
        answers = run(gate.socket, FRAMES, seed=1)
        tell(f"{answers.total():,} answers, {answers['ok']:,} of them replies; {gate.rss_kib() - before:,} KiB more")
        assert answers.total() >= FRAMES
        assert answers["ok"] > FRAMES // 10
        assert gate.rss_kib() - before < MORE_KIB
        assert not gate.log_lines()
