"""`python -m tests.fuzz --frames 10000000 --store memory:`: a real gate, and how it was afterwards."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.run import run
from tests.support.gate_process import GateProcess

ROUND = 200_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", default="sqlite:", help="sqlite: (in a temporary folder) or memory:")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no round after so long")
    given = parser.parse_args()
    answers: Counter[str] = Counter()
    config = f'[store]\nurl = "{given.store}"\n'
    with (
        tempfile.TemporaryDirectory(prefix="gate-fuzz-", dir="/dev/shm") as folder,
        GateProcess(Path(folder), config=config, log_level="error") as gate,
    ):
        before, begun, seed = gate.rss_kib(), time.monotonic(), given.seed
        while answers.total() < given.frames and time.monotonic() - begun < given.seconds:
            answers += run(gate.socket, min(ROUND, given.frames - answers.total()), seed)
            seed += 1
            print(f"{answers.total():,} frames, {time.monotonic() - begun:.0f} s, {gate.rss_kib():,} KiB", flush=True)
        assert gate.running
        print(
            f"{given.store} before {before:,} KiB, after {gate.rss_kib():,} KiB; logged {len(gate.log_lines())} lines"
        )
        for line in gate.log_lines()[:3]:
            print(line)
    print(dict(answers.most_common()))


if __name__ == "__main__":
    main()
