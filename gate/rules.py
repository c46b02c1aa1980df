"""Which rule covers a schedule: the first `[[send]]` table whose glob matches, else the defaults."""

from collections.abc import Callable
from datetime import datetime
from fnmatch import translate
from functools import lru_cache
from re import compile as compile_pattern
from typing import Literal

from msgspec import Struct

from gate.hours import Entry
from gate.interface import CatchUp

GRACE_SECONDS = 2.0
"""How long a claim stays held after its connection closed or the gate restarted."""
CATCH_UP_SECONDS = 3600.0
"""How far back missed occurrences are looked for."""


class Paused(Struct, frozen=True, kw_only=True):
    """Why nothing is sent, and until when; None: no end is known."""

    reason: str
    until: datetime | None


class SendPolicy(Struct, frozen=True, kw_only=True):
    """How doubt, lateness and what was missed of a schedule are treated. Durations in seconds.

    `mode`: "observe" grants every claim, and says what the answer would have been.
    """

    on_doubt: Literal["skip", "resend"] = "skip"
    deadline: float | None = None
    grace: float = GRACE_SECONDS
    catch_up: CatchUp = CatchUp.NONE
    catch_up_within: float = CATCH_UP_SECONDS
    mode: Literal["enforce", "observe"] = "enforce"


class SendRule(Struct, frozen=True, kw_only=True):
    """One `[[send]]` table: schedules as globs, their policy, and when they pause."""

    schedules: tuple[str, ...]
    policy: SendPolicy
    pause: tuple[Entry, ...] = ()


DEFAULT_POLICY = SendPolicy()
NO_RULE = SendRule(schedules=("*",), policy=DEFAULT_POLICY)
"""What holds for a schedule that no rule covers."""


def covering(rules: tuple[SendRule, ...]) -> Callable[[str], SendRule]:
    """A function from schedule to its rule; the answers for the last 4,096 schedules are remembered."""
    compiled = [(compile_pattern("|".join(translate(glob) for glob in rule.schedules)), rule) for rule in rules]

    @lru_cache(maxsize=4096)
    def rule(schedule: str) -> SendRule:
        return next((rule for pattern, rule in compiled if pattern.match(schedule)), NO_RULE)

    return rule


def policies(rules: tuple[SendRule, ...]) -> Callable[[str], SendPolicy]:
    """A function from schedule to policy."""
    rule = covering(rules)
    return lambda schedule: rule(schedule).policy
