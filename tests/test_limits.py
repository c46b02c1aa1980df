"""Limits at an instant: the number, why and until when; what 0 closes; where a ramp begins; what a question needs."""

from datetime import datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.config import parse
from gate.fetchlimits import FetchLimits
from gate.fetchrules import FetchRules
from gate.interface import Steer, instant
from gate.overrides import NO_OVERRIDES, Override, Overrides
from gate.permit import Choice
from gate.pools import Limit, Ramp
from tests.support import wall_clock
from tests.support.wall_clock import DAY, MINUTE, Case, moments

SECOND = timedelta(seconds=1)
FILE = """
timezone = "Europe/Berlin"
[hours]
night = ["daily 20:00-06:00"]
weekend = ["fri 20:00 - mon 06:00"]
[[fetch]]
name = "dicom"
queues = ["dicom", "dicom-*"]
needs = ["pacs-1"]
at_once = ["weekend: 12", "night: 8", "else: 3"]
ramp = "1 every 20s"
[[fetch]]
name = "mail"
queues = ["mail"]
open = ["night"]
at_once = ["daily 01:00-02:00: 0", "else: 5"]
[[fetch]]
name = "scan"
workers = ["scan-*"]
needs = ["pacs-1"]
[[fetch]]
name = "rest"
[[resource]]
name = "pacs-1"
at_once = ["night: 8", "daily 12:00-13:00: 0", "else: 4"]
"""
UTC_RULE = "timezone = 'UTC'\n[[fetch]]\nname = 'r'\n"
TUESDAY = "2026-12-01T{}:00+01:00"


@pytest.fixture(name="rules")
def make_rules() -> FetchRules:
    return FetchRules(parse(FILE.encode(), "gate.toml"))


@pytest.fixture(name="limits")
def make_limits(rules: FetchRules) -> FetchLimits:
    return FetchLimits(rules)


def at(clock: str) -> datetime:
    """A time of 1 December 2026, a Tuesday, in Berlin."""
    return instant(TUESDAY.format(clock))


def ordered(action: str, since: str, until: str, rule: str = "mail") -> Overrides:
    order = Override(rule=rule, action=Steer(action), until=at(until), note="n", by="ops", uid=0, since=at(since))
    return Overrides({rule: order})


def short(limit: Limit) -> tuple[int | None, str, datetime | None]:
    return limit.number, limit.reason, limit.until


# -- numbers


def test_the_first_entry_that_holds_decides(limits: FetchLimits) -> None:
    friday = timedelta(days=3)
    found = [
        limits.limit("rule dicom", when, NO_OVERRIDES) for when in (at("19:00"), at("21:00"), at("21:00") + friday)
    ]
    assert [limit.number for limit in found] == [3, 8, 12]
    assert [limit.reason for limit in found] == [
        "limit 3 by else",
        "limit 8 by night (daily 20:00-06:00)",
        "limit 12 by weekend (fri 20:00 - mon 06:00)",
    ]


def test_until_is_when_the_number_changes(limits: FetchLimits) -> None:
    assert limits.limit("resource pacs-1", at("21:00"), NO_OVERRIDES).until == at("06:00") + DAY
    assert short(limits.limit("resource pacs-1", at("12:30"), NO_OVERRIDES)) == (
        0,
        "limit 0 by daily 12:00-13:00",
        at("13:00"),
    )


def test_one_number_needs_no_reason_and_never_changes() -> None:
    limits = FetchLimits(FetchRules(parse(b"[[fetch]]\nname = 'r'\nat_once = 3", "gate.toml")))
    assert short(limits.limit("rule r", at("12:00"), NO_OVERRIDES)) == (3, "limit 3", None)


def test_entries_of_the_same_number_are_no_change() -> None:
    text = "at_once = ['daily 10:00-12:00: 3', 'daily 14:00-15:00: 2', 'else: 3']"
    limits = FetchLimits(FetchRules(parse((UTC_RULE + text).encode(), "gate.toml")))
    found = limits.limit("rule r", instant("2026-12-01T11:00:00Z"), NO_OVERRIDES)
    assert short(found) == (3, "limit 3 by daily 10:00-12:00", instant("2026-12-01T14:00:00Z"))
    later = limits.limit("rule r", instant("2026-12-01T12:00:00Z"), NO_OVERRIDES)
    assert later.reason == "limit 3 by else"


def test_a_rule_that_only_needs_a_resource_counts_without_a_limit(limits: FetchLimits) -> None:
    assert limits.limit("rule scan", at("21:00"), NO_OVERRIDES).number is None


def test_a_closed_rule_gives_no_place_and_says_why(limits: FetchLimits) -> None:
    assert short(limits.limit("rule mail", at("12:00"), NO_OVERRIDES)) == (
        0,
        "outside its hours, opens 20:00 Europe/Berlin",
        at("20:00"),
    )
    closed = ordered("close", "20:00", "22:00")
    assert limits.limit("rule mail", at("21:00"), closed).number == 0
    assert limits.limit("rule mail", at("21:00"), NO_OVERRIDES).number == 5
    assert limits.limit("rule mail", at("22:00"), closed).number == 5


def test_a_pool_that_is_gone_gives_no_place(limits: FetchLimits) -> None:
    assert short(limits.limit("rule gone", at("12:00"), NO_OVERRIDES)) == (0, "it is not in the configuration", None)


def test_the_pools_are_those_of_limited_rules_and_the_resources(limits: FetchLimits) -> None:
    assert limits.pools == ["rule dicom", "rule mail", "rule scan", "resource pacs-1"]


# -- 0 closes


def test_a_limit_of_0_closes_its_rule(rules: FetchRules) -> None:
    now = at("01:30")
    verdict = rules.answer("w", ["mail"], now, NO_OVERRIDES)
    assert (verdict.open, verdict.until) == (False, at("02:00"))
    assert verdict.reason == "rule mail: limit 0 by daily 01:00-02:00, opens 02:00 Europe/Berlin"
    assert rules.why("w", "mail", now, NO_OVERRIDES).line == "daily 01:00-02:00"
    before = rules.answer("w", ["mail"], at("00:30"), NO_OVERRIDES)
    assert (before.open, before.until) == (True, at("01:00"))


def test_a_resource_of_0_closes_the_rules_that_need_it(rules: FetchRules) -> None:
    verdict = rules.answer("w", ["dicom"], at("12:30"), NO_OVERRIDES)
    assert (verdict.open, verdict.until) == (False, at("13:00"))
    assert verdict.reason == ("rule dicom: resource pacs-1: limit 0 by daily 12:00-13:00, opens 13:00 Europe/Berlin")


def test_outside_its_hours_a_rule_is_closed_by_them_and_not_by_a_limit() -> None:
    text = "open = ['daily 08:00-10:00']\nat_once = ['daily 11:00-12:00: 0', 'else: 1']"
    rules = FetchRules(parse((UTC_RULE + text).encode(), "gate.toml"))
    reason = rules.answer("w", None, instant("2026-12-01T11:30:00Z"), NO_OVERRIDES).reason
    assert reason.startswith("rule r: outside its hours")


def test_an_override_beats_hours_but_no_limit_of_0(rules: FetchRules) -> None:
    opened = ordered("open", "00:30", "03:00")
    verdict = rules.answer("w", ["mail"], at("01:30"), opened)
    assert (verdict.open, verdict.until) == (False, at("02:00"))
    assert verdict.reason == (
        "rule mail: limit 0 by daily 01:00-02:00, although open by override of ops until 03:00 Europe/Berlin: n"
    )
    assert rules.answer("w", ["mail"], at("00:45"), opened).until == at("01:00")
    assert rules.answer("w", ["mail"], at("02:00"), opened).open


def test_what_is_remembered_under_an_override_ends_with_the_limit(rules: FetchRules) -> None:
    opened = ordered("open", "00:30", "03:00")
    assert [rules.answer("w", ["mail"], at(clock), opened).open for clock in ("00:45", "01:00", "01:59", "02:00")] == [
        True,
        False,
        False,
        True,
    ]


def test_the_entry_that_closes_now_is_named() -> None:
    text = "at_once = ['daily 01:00-02:00: 0', 'daily 02:00-03:00: 0', 'else: 1']"
    rules = FetchRules(parse((UTC_RULE + text).encode(), "gate.toml"))
    answers = [rules.answer("w", None, utc(clock), NO_OVERRIDES) for clock in ("01:30", "02:30")]
    assert [answer.reason for answer in answers] == [
        "rule r: limit 0 by daily 01:00-02:00, opens 03:00 UTC",
        "rule r: limit 0 by daily 02:00-03:00, opens 03:00 UTC",
    ]


def test_of_two_rules_with_the_same_hours_each_has_its_own_limit() -> None:
    text = "queues = ['a']\nat_once = 0\n[[fetch]]\nat_once = 3"
    rules = FetchRules(parse((UTC_RULE + text).encode(), "gate.toml"))
    assert rules.answer("w", ["a", "b"], utc("12:00"), NO_OVERRIDES).queues == ("b",)


# -- where a ramp begins

RAMPED = """
timezone = "UTC"
[[fetch]]
name = "r"
open = ["daily 20:00-06:00"]
at_once = 8
ramp = "1 every 20m"
"""


def opening(clock: str, order: Overrides = NO_OVERRIDES) -> datetime | None:
    limits = FetchLimits(FetchRules(parse(RAMPED.encode(), "gate.toml")))
    return limits.limit("rule r", utc(clock), order).opening


def utc(clock: str) -> datetime:
    return instant(f"2026-12-01T{clock}:00Z")


def order(action: str, since: str, until: str) -> Overrides:
    made = Override(rule="r", action=Steer(action), until=utc(until), note="n", by="ops", uid=0, since=utc(since))
    return Overrides({"r": made})


def test_a_ramp_begins_when_the_hours_open(limits: FetchLimits) -> None:
    assert opening("20:00") == utc("20:00")
    assert opening("22:39") == utc("20:00")
    assert opening("22:40") is None, "8 slots of 20 minutes are over"
    assert limits.limit("rule dicom", at("21:00"), NO_OVERRIDES).ramp == Ramp(1, 20.0)


def test_an_order_to_open_is_an_opening_unless_it_was_open() -> None:
    assert opening("13:00", order("open", "12:45", "14:00")) == utc("12:45")
    assert opening("20:30", order("open", "20:15", "22:00")) == utc("20:00")
    assert opening("20:30", order("open", "19:15", "20:15")) == utc("19:15"), "it has been open ever since"
    assert opening("20:30", order("open", "17:15", "17:30")) == utc("20:00")


def test_under_an_order_to_open_the_end_of_a_limit_of_0_is_an_opening() -> None:
    text = RAMPED.replace("at_once = 8", "at_once = ['daily 12:30-13:00: 0', 'else: 8']")
    limits = FetchLimits(FetchRules(parse(text.encode(), "gate.toml")))
    assert limits.limit("rule r", utc("13:15"), order("open", "12:00", "14:00")).opening == utc("13:00")


def test_the_end_of_an_order_to_close_is_an_opening() -> None:
    assert opening("22:00", order("close", "20:30", "21:45")) == utc("21:45")
    assert opening("20:30", order("close", "12:00", "13:00")) == utc("20:00")


# -- questions


def test_a_question_needs_the_pools_of_the_open_rules_that_decide_it(limits: FetchLimits) -> None:
    dicom = Choice(rule="dicom", queues=("dicom",), pools=("rule dicom", "resource pacs-1"))
    mail = Choice(rule="mail", queues=("mail",), pools=("rule mail",))
    assert limits.choices("w", ["dicom", "mail"], at("21:00"), NO_OVERRIDES) == (dicom, mail)
    assert limits.choices("w", ["dicom", "mail"], at("15:00"), NO_OVERRIDES) == (dicom,)
    assert limits.choices("w", None, at("15:00"), NO_OVERRIDES) == (
        Choice(rule="dicom", queues=("dicom", "dicom-*"), pools=("rule dicom", "resource pacs-1")),
        Choice(rule="rest", queues=("*",)),
    )
    assert limits.choices("scan-1", ["x"], at("15:00"), NO_OVERRIDES)[0].pools == ("rule scan", "resource pacs-1")


def test_a_queue_is_decided_by_its_rule_whether_it_is_open_or_not(limits: FetchLimits) -> None:
    assert limits.choice("w", "mail").pools == ("rule mail",)
    assert limits.choice("w", "dicom-ct").rule == "dicom"
    assert limits.choice("w", "other") == Choice(rule="rest", queues=("other",))


def test_what_no_rule_covers_has_no_limit() -> None:
    limits = FetchLimits(FetchRules(parse(b"[[fetch]]\nqueues = ['a']\nat_once = 1", "gate.toml")))
    assert limits.choices("w", ["b"], at("12:00"), NO_OVERRIDES) == (Choice(rule="", queues=("b",)),)


# -- against plain code, minute by minute

KEY = "Europe/Berlin"
LOOKED_AT = 1.5 * DAY
HOLIDAYS = [str(day) for day in wall_clock.HOLIDAYS] + [f"{month:02}-{day:02}" for month, day in wall_clock.YEARLY]
AtOnce = list[tuple[Case | None, int]]


class Plain:
    """A rule, its resource and an order, as this oracle reads them."""

    def __init__(self, opens: list[Case], at_once: AtOnce, resource: AtOnce, made: Override | None) -> None:
        self.opens, self.at_once, self.resource, self.order = opens, at_once, resource, made
        self.known: dict[datetime, tuple[bool, int, int]] = {}

    def toml(self) -> str:
        return f"""
timezone = "{KEY}"
[[fetch]]
name = "r"
needs = ["s"]
open = {[case.text for case in self.opens] or ["daily 00:00-24:00"]}
at_once = {written(self.at_once)}
ramp = "2 every 20m"
[[resource]]
name = "s"
at_once = {written(self.resource)}
"""

    def at(self, minute: datetime) -> tuple[bool, int, int]:
        """Open, and the numbers of rule and resource."""
        if minute not in self.known:
            reads = wall_clock.wall(minute, ZoneInfo(KEY))
            own, shared = (
                next(number for case, number in cases if case is None or case.reads(reads))
                for cases in (self.at_once, self.resource)
            )
            is_open = not self.opens or any(case.reads(reads) for case in self.opens)
            if self.order is not None and self.order.since <= minute < self.order.until:
                is_open = self.order.action is Steer.OPEN
            self.known[minute] = is_open and own > 0 and shared > 0, own, shared
        return self.known[minute]

    def first_other(self, minute: datetime, what: int) -> datetime | None:
        """The first minute in which one thing is another than now; None if there is none soon enough."""
        ahead = (minute + n * MINUTE for n in range(1, int(LOOKED_AT / MINUTE)))
        return next((later for later in ahead if self.at(later)[what] != self.at(minute)[what]), None)

    def opening(self, minute: datetime, phase: timedelta) -> datetime | None:
        first = minute
        while first > minute - phase and self.at(first - MINUTE)[0]:
            first -= MINUTE
        return first if first > minute - phase else None


def written(at_once: AtOnce) -> list[str]:
    return [f"{'else' if case is None else case.text}: {number}" for case, number in at_once]


@st.composite
def at_onces(draw: st.DrawFn) -> AtOnce:
    cases = draw(st.lists(wall_clock.lines(KEY), max_size=2, unique_by=lambda case: case.text))
    numbers = st.sampled_from([0, 1, 3, 8])
    return [*((case, draw(numbers)) for case in cases), (None, draw(numbers))]


@st.composite
def plain_worlds(draw: st.DrawFn) -> tuple[Plain, list[datetime]]:
    moment = draw(moments(KEY))
    made = None
    if draw(st.booleans()):
        since = moment - draw(st.integers(0, 300)) * MINUTE
        until = since + draw(st.integers(1, 600)) * MINUTE
        action = draw(st.sampled_from([Steer.OPEN, Steer.CLOSE]))
        made = Override(rule="r", action=action, until=until, note="n", by="ops", uid=0, since=since)
    opens = draw(st.lists(wall_clock.lines(KEY), max_size=2))
    later = draw(st.lists(st.integers(0, 2000), min_size=2, max_size=4))
    return Plain(opens, draw(at_onces()), draw(at_onces()), made), [moment + n * MINUTE for n in [0, *later]]


@given(plain_worlds())
@settings(max_examples=settings.default.max_examples // 2)  # type: ignore[union-attr]
def test_limits_are_those_that_plain_code_finds_minute_by_minute(drawn: tuple[Plain, list[datetime]]) -> None:
    plain, minutes = drawn
    text = f"{plain.toml()}[days]\nholidays = {HOLIDAYS}"
    rules = FetchRules(parse(text.encode(), "gate.toml"))
    limits = FetchLimits(rules)
    overrides = NO_OVERRIDES if plain.order is None else Overrides({"r": plain.order})
    for minute in minutes:
        now = minute + 30 * SECOND
        is_open, own, shared = plain.at(minute)
        verdict = rules.answer("w", None, now, overrides)
        assert verdict.open == is_open
        same_until(verdict.until, plain.first_other(minute, 0), minute)
        limit, resource = limits.limit("rule r", now, overrides), limits.limit("resource s", now, overrides)
        assert (limit.number, resource.number) == (own if is_open else 0, shared)
        same_until(resource.until, plain.first_other(minute, 2), minute)
        edges = [plain.first_other(minute, 0), plain.first_other(minute, 1) if is_open else None]
        same_until(limit.until, min((edge for edge in edges if edge is not None), default=None), minute)
        if is_open:
            phase = ceil(own / 2) * 20 * MINUTE
            known = limit.opening if limit.opening is not None and limit.opening + phase > now else None
            assert known == plain.opening(minute, phase)


def same_until(found: datetime | None, expected: datetime | None, minute: datetime) -> None:
    if expected is None:
        assert found is None or found >= minute + LOOKED_AT - MINUTE
    else:
        assert found == expected
