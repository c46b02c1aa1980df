"""Durations as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import durations

READ = {
    "1s": 1.0,
    "90s": 90.0,
    "0s": 0.0,
    "250ms": 0.25,
    "1.5s": 1.5,
    "2m": 120.0,
    "1h30m": 5400.0,
    "1d": 86_400.0,
    "14d": 1_209_600.0,
    "2w": 1_209_600.0,
    "1w1d1h1m1s1ms": 604_800 + 86_400 + 3600 + 60 + 1 + 0.001,
    "30m1h": 5400.0,
}
REFUSED = [
    "",
    "90",
    "s",
    "1 h",
    " 1h",
    "1h ",
    "1h\n",
    "-1s",
    "+1s",
    "1H",
    "1y",
    "1.s",
    ".5s",
    "1,5s",
    "1e3s",
    "1h30",
    "h1",
    "1hs",
]


@pytest.mark.parametrize("text", READ)
def test_a_duration_is_read_as_seconds(text: str) -> None:
    assert durations.seconds(text) == pytest.approx(READ[text])


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_duration_is_refused_and_the_text_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration") as caught:
        durations.seconds(text)
    assert str(caught.value) == (
        f"{text!r} is not a duration: write a number and a unit (ms, s, m, h, d, w), such as 90s, 1h30m or 14d"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (0.9, "900ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (5400, "1h30m"),
        (5401, "1h30m"),
        (86_400, "1d"),
        (90_061, "1d1h"),
        (86_400 + 60, "1d1m"),
        (14 * 86_400, "14d"),
    ],
)
def test_seconds_are_written_for_people_in_at_most_two_units(seconds: float, text: str) -> None:
    assert durations.text(seconds) == text


@given(st.integers(0, 10**9))
def test_what_is_written_can_be_read_and_is_not_far_off(seconds: int) -> None:
    read = durations.seconds(durations.text(seconds))
    assert read <= seconds
    assert math.isclose(read, seconds, rel_tol=0.05)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert durations.seconds(text) >= 0
    except ValueError as error:
        assert durations.ALLOWED in str(error)  # noqa: PT017 - either is right
