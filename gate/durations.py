"""Durations as people write them: "90s", "1h30m", "14d"."""

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
ALLOWED = "write a number and a unit (ms, s, m, h, d, w), such as 90s, 1h30m or 14d"


def seconds(text: str) -> float:
    """Read "1h30m" as 5400.0; raises ValueError, whose text says what is allowed."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration: {ALLOWED}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def text(value: float) -> str:
    """Write seconds for people, at most two units: 5400 as "1h30m", 0.25 as "250ms"."""
    if (milliseconds := round(value * 1000)) < 1000:
        return f"{milliseconds}ms"
    left = round(value)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_SECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
