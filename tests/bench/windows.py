"""Is it open, and until when: compiled hours against croniter, at the same instants, as they come in a service."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import croniter

from gate import lines
from gate.calendars import Days
from gate.windows import Compiler
from tests.bench.loadgen import Result

EXPRESSION = "* 1-5 * * *"
ZONE = "America/New_York"
START = datetime(2026, 11, 30, 4, 30, tzinfo=UTC)
STEP = timedelta(seconds=7)


def gate(seconds: float) -> Result:
    """The state and the next change. Compiling is part of it."""
    compiler = Compiler(Days())
    hours = compiler.hours(lines.parse(f"cron {EXPRESSION}"), compiler.zone(ZONE))

    def ask(at: datetime) -> None:
        hours.contains(at)
        hours.next_change(at)

    return _measured(ask, START, seconds)


def other(seconds: float) -> Result:
    """The last and the next match, of a croniter object for each instant, as `croniter.match` makes one too.

    One that is kept and set anew (`set_current`) is two or three times as fast.
    """

    def ask(at: datetime) -> None:
        schedule = croniter.croniter(EXPRESSION, at, ret_type=datetime)
        schedule.get_prev()
        schedule.get_next()

    return _measured(ask, START.astimezone(ZoneInfo(ZONE)), seconds)


def _measured(ask: Callable[[datetime], None], at: datetime, seconds: float) -> Result:
    taken: list[float] = []
    start = last = time.perf_counter()
    cpu = time.process_time()
    while last - start < seconds:
        ask(at)
        at += STEP
        now = time.perf_counter()
        taken.append((now - last) * 1e6)
        last = now
    cpu = (time.process_time() - cpu) * 1e6 / len(taken)
    taken.sort()
    return Result(len(taken), last - start, taken[len(taken) // 2], taken[int(len(taken) * 0.99)], cpu)
