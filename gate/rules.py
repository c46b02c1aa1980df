"""Which rule covers a schedule: the first `[[send]]` table whose glob matches, else the defaults."""

from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache
from re import compile as compile_pattern
from typing import Literal

from msgspec import Struct

GRACE_SECONDS = 2.0
"""How long a claim stays held after its connection closed or the gate restarted."""


class SendPolicy(Struct, frozen=True, kw_only=True):
    """How doubt and lateness of a schedule are treated. Durations in seconds."""

    on_doubt: Literal["skip", "resend"] = "skip"
    deadline: float | None = None
    grace: float = GRACE_SECONDS


class SendRule(Struct, frozen=True, kw_only=True):
    """One `[[send]]` table: schedules as globs, and their policy."""

    schedules: tuple[str, ...]
    policy: SendPolicy


DEFAULT_POLICY = SendPolicy()


def policies(rules: tuple[SendRule, ...]) -> Callable[[str], SendPolicy]:
    """A function from schedule to policy; the answers for the last 4,096 schedules are remembered."""
    compiled = [(compile_pattern("|".join(translate(glob) for glob in rule.schedules)), rule.policy) for rule in rules]

    @lru_cache(maxsize=4096)
    def policy(schedule: str) -> SendPolicy:
        return next((policy for pattern, policy in compiled if pattern.match(schedule)), DEFAULT_POLICY)

    return policy
