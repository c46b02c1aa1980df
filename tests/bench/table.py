"""Text: the goals, and the plain figures behind them."""

from collections.abc import Sequence
from statistics import median

from tests.bench.goals import Finding
from tests.bench.loadgen import Result
from tests.bench.rounds import Key, Samples

HEADINGS = ("goal", "what", "measured", "rounds", "floor", "met", "goal", "met")
PLAIN_HEADINGS = ("what", "connections", "server", "calls/s", "p50 µs", "p99 µs", "server CPU µs/call")
WORDS = {
    "check": "check (GetInfo)",
    "storm": "check in a storm",
    "claim": "claim",
    "application": "claim by an asyncio application",
    "shared": "the same, shared Redis",
    "rows": "claim, ledger full or empty",
    "window": "hours: state and next change",
    "job": "empty job, start to start",
}


def goals(findings: Sequence[Finding]) -> str:
    """One row per goal: the median, and the least and the most of the rounds."""
    rows = [HEADINGS]
    for finding in findings:
        goal, measured = finding.goal, finding.measured
        sign = "≥" if goal.more else "≤"
        rows.append(
            (
                goal.id,
                goal.what,
                f"{_short(measured)} {goal.unit}",
                f"{_short(min(finding.rounds))}–{_short(max(finding.rounds))}",
                f"{sign} {goal.floor:g}",
                _met(goal.met(measured, goal.floor)),
                f"{sign} {goal.goal:g}",
                _met(goal.met(measured, goal.goal)),
            )
        )
    return _aligned(rows)


def plain(samples: Samples) -> str:
    """Medians of everything that was measured. Good for comparing within one run, not with another."""
    rows = [PLAIN_HEADINGS]
    for key, results in samples.items():
        rows.append(_plain(key, results))
    return _aligned(rows)


def _plain(key: Key, results: list[Result]) -> tuple[str, str, str, str, str, str, str]:
    rate = median(result.rate for result in results)
    p50 = median(result.p50 for result in results)
    p99 = median(result.p99 for result in results)
    cpu = median(result.cpu for result in results)
    counted = f"{cpu:.0f}" if key.what not in ("application", "job") else f"{cpu:.0f} ({key.what})"
    return WORDS[key.what], str(key.shape), key.server, f"{rate:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}", counted


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _met(value: bool) -> str:
    return "yes" if value else "NO"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
