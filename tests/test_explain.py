"""Why, in words."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gate.config import parse
from gate.explain import why, words
from gate.fetchrules import FetchRules
from gate.interface import OverrideIn, Steer, WhyIn, rfc3339
from gate.overrides import NO_OVERRIDES, Overrides
from gate.wallclock import dated, soon, spoken

BERLIN = ZoneInfo("Europe/Berlin")
CONFIG = """
timezone = "Europe/Berlin"
[hours]
night  = ["daily 20:00-06:00"]
backup = ["daily 02:00-03:00"]
[[fetch]]
name = "dicom"
workers = ["transfer-*"]
queues = ["dicom", "dicom-*"]
open = ["night", "sat,sun 00:00-24:00"]
closed = ["backup"]
last_start = "45m"
[[fetch]]
name = "mail"
queues = ["mail"]
"""


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(UTC)


NOON = at("2026-11-30 12:00")


def told(queue: str | None, when: datetime, now: datetime = NOON, overrides: Overrides = NO_OVERRIDES) -> list[str]:
    rules = FetchRules(parse(CONFIG.encode(), "gate.toml"))
    return words(rules.why("transfer-1", queue, when, overrides), "transfer-1", queue, when, now, rules)


def test_a_closed_rule_says_what_it_allows_and_when_it_opens() -> None:
    assert told("dicom", NOON) == [
        "closed at mon 2026-11-30 12:00 Europe/Berlin for worker transfer-1, queue dicom",
        "rule dicom: outside its hours, opens 20:00 Europe/Berlin",
        "rule dicom is the first that covers it: workers transfer-*; queues dicom, dicom-*",
        "open: night (daily 20:00-06:00), sat,sun 00:00-24:00",
        "closed: backup (daily 02:00-03:00)",
        "last start: 45m before it closes",
        "next change: today 20:00 Europe/Berlin, then open",
    ]


def test_today_is_that_of_whoever_asks() -> None:
    later = at("2026-12-01 21:00")
    assert told("dicom", later)[-1] == "next change: wed 01:15 Europe/Berlin, then closed"
    assert told("dicom", later, now=later)[-1] == "next change: tomorrow 01:15 Europe/Berlin, then closed"


def test_an_override_is_named_with_its_reason() -> None:
    request = OverrideIn(rule="dicom", action=Steer.OPEN, until=rfc3339(NOON + timedelta(hours=2)), note="backlog")
    found = told("dicom", NOON, overrides=NO_OVERRIDES.order(request, ["dicom"], "anna", 1000, NOON))
    assert found[1] == "rule dicom: open by override of anna until 14:00 Europe/Berlin: backlog"
    assert found[-2:] == [
        "an override beats these hours until it ends",
        "next change: today 14:00 Europe/Berlin, then closed",
    ]


def test_a_rule_without_hours_is_always_open() -> None:
    assert told("mail", NOON)[1:] == [
        "rule mail: open",
        "rule mail is the first that covers it: workers *; queues mail",
        "open: always",
        "nothing is known to change this",
    ]


def test_what_no_rule_covers() -> None:
    assert told("other", NOON) == [
        "open at mon 2026-11-30 12:00 Europe/Berlin for worker transfer-1, queue other",
        "no rule covers it: open",
        "nothing is known to change this",
    ]


def test_of_all_queues_every_rule_that_has_a_say_is_told() -> None:
    assert told(None, NOON) == [
        "open at mon 2026-11-30 12:00 Europe/Berlin for worker transfer-1, all queues",
        "rule mail: open",
        "no rule covers it: open",
        "rule dicom: outside its hours, opens 20:00 Europe/Berlin",
        "next change: today 20:00 Europe/Berlin",
    ]


def test_of_very_many_rules_some_are_told() -> None:
    rules = FetchRules(parse("".join(f"[[fetch]]\nqueues = ['q{n}']\n" for n in range(7)).encode(), "gate.toml"))
    found = words(rules.why("w", None, NOON, NO_OVERRIDES), "w", None, NOON, NOON, rules)
    assert found[5:7] == ["rule q4: open", "and 3 more rules: ask for one queue"]


# -- the wall clock in words


@pytest.mark.parametrize(
    ("when", "in_short", "in_speech"),
    [
        ("2026-11-30 12:00", "12:00", "today 12:00"),
        ("2026-11-30 20:00:30", "20:00:30", "today 20:00:30"),
        ("2026-12-01 06:00", "06:00", "tomorrow 06:00"),
        ("2026-12-01 11:59", "11:59", "tomorrow 11:59"),
        ("2026-12-01 12:00", "tue 12:00", "tomorrow 12:00"),
        ("2026-12-04 20:00", "fri 20:00", "fri 20:00"),
        ("2026-12-06 23:59", "sun 23:59", "sun 23:59"),
        ("2026-12-07 00:00", "2026-12-07 00:00", "2026-12-07 00:00"),
        ("2026-11-29 12:00", "2026-11-29 12:00", "2026-11-29 12:00"),
        ("2026-11-30 11:00", "mon 11:00", "today 11:00"),
    ],
)
def test_a_time_is_told_as_short_as_it_is_clear(when: str, in_short: str, in_speech: str) -> None:
    assert soon(at(when), NOON, BERLIN) == in_short
    assert spoken(at(when), NOON, BERLIN) == in_speech


def test_days_are_those_of_the_zone() -> None:
    """Late in the evening of UTC it is tomorrow in Berlin."""
    now = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)
    assert spoken(now + timedelta(hours=1), now, BERLIN) == "today 01:30"
    assert spoken(now + timedelta(hours=1), now, ZoneInfo("UTC")) == "tomorrow 00:30"
    assert dated(now, BERLIN) == "tue 2026-12-01 00:30"


def test_an_override_does_not_explain_the_time_before_it() -> None:
    rules = FetchRules(parse(CONFIG.encode(), "gate.toml"))
    order = OverrideIn(rule="mail", action=Steer.CLOSE, until=rfc3339(NOON + timedelta(hours=2)), note="clinic called")
    overrides = NO_OVERRIDES.order(order, ["mail"], "ops", 1000, NOON)

    def is_open(hour: str) -> bool:
        asked = WhyIn(worker="w", queue="mail", at=rfc3339(at(f"2026-11-30 {hour}")))
        return why(rules, overrides, asked, NOON + timedelta(hours=1)).open

    assert [is_open(hour) for hour in ("11:59", "12:00", "13:59", "14:00")] == [True, False, False, True]


@pytest.mark.parametrize(("hour", "expected"), [(0, "02:30 CEST"), (1, "02:30 CET"), (2, "03:30")])
def test_a_time_that_is_read_twice_has_the_name_of_its_offset(hour: int, expected: str) -> None:
    night = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
    assert soon(night, night, BERLIN) == expected
