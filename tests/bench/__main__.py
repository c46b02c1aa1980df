"""`python -m tests.bench`: see the package."""

import argparse
import os
import platform
import sqlite3
import sys
from pathlib import Path

from tests.bench import footprint, goals, table
from tests.bench.processes import Bench, Pace, bench
from tests.bench.rounds import Rounds

PARTS = {
    "checks": "G1 G2 G3",
    "claims": "G4 G5, and half of G6",
    "applications": "G6",
    "shared": "G8 G9",
    "rows": "G7",
    "windows": "G14",
    "permits": "G10",
    "footprint": "G11 G12 G13 G15",
}


def main() -> None:
    """Measure, and print."""
    options = _options()
    parts = options.only or list(PARTS)
    with bench(options.folder, Pace(options.seconds, options.warm_up)) as running:
        rounds = Rounds(running, options.rows, _say, brief=options.quick)
        for number in range(options.rounds):
            _say(f"round {number + 1} of {options.rounds}")
            rounds.run([part for part in parts if part in rounds.parts])
        idle = _footprint(running, options) if "footprint" in parts else {}
    print(_about(options))
    print(table.goals(goals.findings(rounds.samples, idle)))
    print()
    print(table.plain(rounds.samples))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure the gate, and print a table.")
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured (5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long one measurement takes (1.5)")
    parser.add_argument("--warm-up", type=float, default=0.3, help="seconds before each that do not count (0.3)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="how many rows a full ledger has (1000000)")
    parser.add_argument("--idle-seconds", type=float, default=10.0, help="how long idle CPU is watched (10)")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {PARTS}; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that it runs, and nothing else")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk to be measured (/var/tmp)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.warm_up = 1, 0.1, 0.02
        options.rows, options.idle_seconds = 20_000, 0.5
    return options


def _footprint(running: Bench, options: argparse.Namespace) -> dict[str, list[float]]:
    runs: int = options.rounds
    _say("import, idle CPU, memory, start")
    return {
        "import": footprint.import_milliseconds(running, "import gate_client", runs),
        "client": footprint.import_milliseconds(running, "from gate_client import Gate", runs),
        "idle": [footprint.idle_cpu_milliseconds(running, options.idle_seconds)],
        "memory": footprint.resident_megabytes(running, runs),
        "start": footprint.start_seconds(running, runs),
    }


def _about(options: argparse.Namespace) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} CPUs, "
        f"Linux {platform.release()}; load average {load} (our own work is about 2 of it)\n"
        f"{options.rounds} rounds of {options.seconds:g} s; medians, and least and most of the rounds; "
        f"full ledger: {options.rows:,} rows\n"
    )


def _say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")


if __name__ == "__main__":
    main()
