"""What `at_once` and `ramp` say, as texts: "night: 8" and "1 every 20s"."""

import re
from collections.abc import Iterator

from msgspec import Struct

from gate.pools import Ramp
from gate.settings import Findings

ELSE = "else"
"""What an `at_once` list ends with: the number for all other times."""
MOST = 1_000_000
RAMP_SECONDS = (1.0, 3600.0)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_RAMP = re.compile(r"([1-9][0-9]{0,9}) every (\S+)")


class Part(Struct, frozen=True, kw_only=True):
    """One entry of an `at_once` list. `when`: a name or a line; None at all other times. `place`: for errors."""

    when: str | None
    number: int
    place: str


def parts(place: str, value: int | tuple[str, ...], findings: Findings) -> list[Part]:
    """Read a number, or a list of "NAME-or-line: N". What is wrong is left out, and goes into `findings`."""
    if isinstance(value, int):
        return [Part(when=None, number=_checked(place, str(value), value, findings), place=place)]
    read = list(_entries(place, value, findings))
    if not any(text.rpartition(":")[0].strip() == ELSE for text in value):
        findings.add(place, f"'{ELSE}: N' is missing: it says what holds at all other times")
    return read


def _entries(place: str, texts: tuple[str, ...], findings: Findings) -> Iterator[Part]:
    """An entry is split at its last colon, since a line has colons of its own."""
    first: dict[str, str] = {}
    for index, text in enumerate(texts):
        here = f"{place}[{index}]"
        when, colon, number = (part.strip() for part in text.rpartition(":"))
        if not colon or not when or not _NUMBER.fullmatch(number):
            findings.add(here, f"{text!r} is no limit: write a name or a line, a colon and a number, as 'night: 8'")
        elif (before := first.get(ELSE, first.get(when))) is not None:
            findings.add(here, f"{text!r} can never hold, since {before!r} comes before it")
        else:
            first[when] = text
            count = _checked(here, text, int(number), findings)
            yield Part(when=None if when == ELSE else when, number=count, place=here)


def _checked(place: str, text: str, number: int, findings: Findings) -> int:
    if number > MOST:
        findings.add(place, f"{text!r} is too large: 0 to {MOST} are allowed")
    return number


def ramp(place: str, text: str | None, findings: Findings) -> Ramp | None:
    """Read "1 every 20s"; None if there is none, or it is wrong."""
    if text is None:
        return None
    found = _RAMP.fullmatch(text)
    if found is None:
        findings.add(place, f"{text!r} is no ramp: write a number of jobs and a duration, such as '1 every 20s'")
        return None
    every = findings.duration(place, found[2], RAMP_SECONDS)
    return None if every is None else Ramp(int(found[1]), every)
