"""Warnings: what a configuration can hardly mean."""

from datetime import UTC, date, datetime

import pytest

from gate.calendars import Zone
from gate.config import parse
from gate.hints import hints
from gate.ical import Calendar

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def warnings(text: str, now: datetime = NOW, calendar: Calendar | None = None) -> list[str]:
    def read_calendar(path: str, zone: Zone) -> Calendar:
        assert calendar is not None
        return calendar

    return hints(parse(("timezone = 'Europe/Berlin'\n" + text).encode(), "gate.toml", read_calendar), now)


def rule(*lines: str, more: str = "") -> str:
    return f"[[fetch]]\nname = 'r'\nopen = {list(lines)}\n{more}"


def test_a_configuration_that_can_be_meant_gives_no_warning() -> None:
    assert hints(parse(b"", "gate.toml"), NOW) == []
    text = """
        [days]
        holidays = ["12-24"]
        [hours]
        quiet = ["daily 20:00-06:00", "freeday 00:00-24:00", "fri 18:00 - mon 08:30", "sun-thu 22:00-05:00"]
        backup = ["daily 02:00-03:00"]
        [[fetch]]
        queues = ["dicom"]
        open = ["quiet", "cron * 1-5 * * *", "cron 0 2 * * sun for 4h"]
        closed = ["backup"]
        last_start = "45m"
        [[fetch]]
        workers = ["w"]
        [[send]]
        schedules = ["*"]
        pause = ["backup", "freeday 10:00-11:00"]
        catch_up = "all"
        catch_up_within = "14d"
    """
    assert warnings(text) == []


# -- pauses


def send(pause: list[str], more: str = "") -> str:
    return f"[[send]]\nschedules = ['a', 'b:*']\npause = {pause}\n{more}"


def test_a_pause_that_never_comes_and_one_that_never_ends() -> None:
    assert warnings(send(["2025-01-01 00:00 .. 2025-01-02 00:00"])) == [
        "send[0].pause: '2025-01-01 00:00 .. 2025-01-02 00:00' is never open in the next 400 days"
    ]
    assert warnings(send(["daily 00:00-24:00"])) == ["send[0].pause: nothing of a, b:* is ever sent: it always pauses"]


def test_a_pause_that_ends_at_23_59() -> None:
    assert warnings("[hours]\nlate = ['daily 22:00-23:59']\n" + send(["late"])) == [
        "hours.late: 'daily 22:00-23:59' ends at 23:59, and leaves that minute out: write 24:00"
    ]


def test_holidays_may_be_used_by_a_pause_alone() -> None:
    text = "[days]\nholidays = ['12-24']\n" + send(["holiday 00:00-24:00"])
    assert warnings(text) == []


def test_catching_up_further_back_than_the_ledger_remembers() -> None:
    assert warnings(
        "[store]\nkeep = '2d'\n" + send(["sat 10:00-11:00"], "catch_up = 'latest'\ncatch_up_within = '3d'")
    ) == ["send[0].catch_up_within: 3d is longer than store.keep, 2d: what is older is not caught up with"]


# -- nights


def test_a_morning_that_a_union_of_nights_leaves_out() -> None:
    """backuppc/backuppc#321: an overnight rule from Monday to Friday does not cover the morning of Monday."""
    assert warnings(rule("mon-fri 20:00-06:00", "sat,sun 00:00-24:00")) == [
        "rule r: 'mon-fri 20:00-06:00' leaves mon 00:00-06:00 closed while sun and tue 00:00-06:00 are open: "
        "meant daily?"
    ]


def test_the_nights_of_workdays_are_asked_about() -> None:
    assert warnings(rule("mon-fri 20:00-06:00")) == [
        "rule r: 'mon-fri 20:00-06:00' leaves mon 00:00-06:00 closed and sat 00:00-06:00 open, as a line belongs to "
        "the day it starts on: meant sun-thu or daily?"
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["daily 20:00-06:00"],
        ["sun-thu 20:00-06:00"],
        ["sat 20:00-06:00"],
        ["mon-fri 20:00-06:00", "mon 00:00-06:00"],
        ["mon-fri 20:00-06:00", "sun 20:00 - mon 06:00"],
        ["mon-fri 08:00-20:00", "sat,sun 00:00-24:00"],
    ],
)
def test_nights_without_a_hole(lines: list[str]) -> None:
    assert warnings(rule(*lines)) == []


def test_a_hole_is_looked_for_in_the_months_of_the_line() -> None:
    assert len(warnings(rule("mon,tue,thu-sun 20:00-06:00 in jun", "daily 00:00-01:00 in jan"))) == 1
    assert warnings(rule("mon,tue,thu-sun 20:00-06:00 in jun", "daily 00:00-06:00 in jun-aug")) == []


# -- lines


@pytest.mark.parametrize("line", ["daily 20:00-23:59", "mon 00:00 - fri 23:59", "2026-12-24 12:00 .. 2026-12-26 23:59"])
def test_an_end_at_23_59_leaves_a_minute_out(line: str) -> None:
    """grafana/grafana#62849."""
    assert warnings(rule(line)) == [f"rule r: {line!r} ends at 23:59, and leaves that minute out: write 24:00"]


def test_a_line_of_named_hours_is_warned_of_once_under_their_name() -> None:
    text = "[hours]\nlate = ['daily 20:00-23:59']\n" + rule("late") + "[[fetch]]\nqueues = ['a']\nopen = ['late']\n"
    found = [warning for warning in warnings(text) if "23:59" in warning]
    assert found == ["hours.late: 'daily 20:00-23:59' ends at 23:59, and leaves that minute out: write 24:00"]


@pytest.mark.parametrize("line", ["2026-11-01 00:00 .. 2026-11-02 00:00", "holiday 00:00-24:00", "cron 0 0 29 2 *"])
def test_a_line_that_does_not_open_within_400_days(line: str) -> None:
    assert warnings(rule("daily 20:00-06:00", line)) == [f"rule r: {line!r} is never open in the next 400 days"]


def test_a_calendar_without_events_to_come() -> None:
    empty = Calendar(days=frozenset(), spans=(), last=None)
    assert warnings(rule("daily 20:00-06:00", "ics:a.ics"), calendar=empty) == [
        "rule r: 'ics:a.ics' is never open in the next 400 days"
    ]


# -- rules


def test_a_rule_that_is_always_closed() -> None:
    assert warnings(rule("daily 20:00-06:00", more="closed = ['daily 12:00-07:00']")) == [
        "rule r: no job starts in the next 400 days: its hours are always closed"
    ]


def test_where_nothing_opens_closed_lines_are_not_blamed() -> None:
    assert warnings(rule("holiday 00:00-24:00", more="closed = ['daily 12:00-13:00']")) == [
        "rule r: 'holiday 00:00-24:00' is never open in the next 400 days",
        "rule r: no job starts in the next 400 days: its hours are always closed",
    ]


def test_a_last_start_that_is_longer_than_all_windows() -> None:
    assert warnings(rule("daily 20:00-20:45", more="last_start = '45m'")) == [
        "rule r: no job starts in the next 400 days: its hours are always closed"
    ]


def test_a_last_start_that_is_longer_than_some_window() -> None:
    text = rule("daily 20:00-06:00", more="closed = ['wed 02:00-05:15']\nlast_start = '45m'")
    assert warnings(text) == ["rule r: last_start 45m leaves nothing of the 45m from wed 2026-12-02 05:15"]
    assert warnings(text.replace("05:15", "05:14")) == []


def test_a_window_that_runs_already_is_not_called_short() -> None:
    text = rule("daily 12:00-14:00", more="last_start = '90m'")
    assert warnings(text, now=datetime(2026, 11, 30, 12, 30, tzinfo=UTC)) == []


def test_a_last_start_of_hours_that_never_end() -> None:
    assert warnings("[[fetch]]\nname = 'r'\nlast_start = '45m'") == [
        "rule r: last_start changes nothing, since its hours never end"
    ]


def test_closed_lines_that_never_meet_open_ones() -> None:
    assert warnings(rule("daily 20:00-06:00", more="closed = ['daily 12:00-13:00', 'daily 05:00-07:00']")) == [
        "rule r: closed daily 12:00-13:00 never meets its open hours in the next 400 days"
    ]


@pytest.mark.parametrize(
    ("earlier", "later", "hidden"),
    [
        ("", "queues = ['a']", True),
        ("queues = ['a', 'b']", "queues = ['b']", True),
        ("queues = ['a*']", "queues = ['ab', 'ac']", True),
        ("queues = ['a*']", "queues = ['a*', 'b']", False),
        ("queues = ['a*']", "queues = ['ab*']", False),  # it is, but only what is plain is said
        ("workers = ['w*']", "queues = ['a']", False),
        ("workers = ['w*']", "workers = ['w1']\nqueues = ['a']", True),
        ("workers = ['w*']\nqueues = ['b']", "workers = ['w1']\nqueues = ['a']", False),
    ],
)
def test_a_rule_that_can_never_decide(earlier: str, later: str, hidden: bool) -> None:
    found = warnings(f"[[fetch]]\nname = 'one'\n{earlier}\n[[fetch]]\nname = 'two'\n{later}\n")
    said = ["rule two: it can never decide, since rule one before it covers all of it"]
    assert found == (said if hidden else [])


def test_nothing_is_uncovered_where_a_rule_covers_everything() -> None:
    assert warnings("uncovered = 'closed'\n[[fetch]]\nqueues = ['a']\n[[fetch]]\nname = 'all'\n") == [
        "uncovered: nothing is uncovered, since rule all covers everything"
    ]
    assert warnings("uncovered = 'closed'\n[[fetch]]\nqueues = ['a']\n") == []


# -- holidays


def days(*holidays: str) -> str:
    return f"[days]\nholidays = {list(holidays)}\n" + rule("daily 20:00-06:00", "freeday 00:00-24:00")


def test_holidays_that_no_line_uses() -> None:
    """nfrastack/db-backup#367: a setting that is accepted and ignored."""
    assert warnings("[days]\nholidays = ['12-24']\n" + rule("sat,sun 00:00-24:00")) == [
        "days.holidays: no line uses them: workday, freeday and holiday do, plain weekdays do not"
    ]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (date(2027, 1, 30), []),
        (date(2027, 1, 29), ["days.holidays: 'ics:a.ics' ends on 2027-01-29: add the days after it"]),
        (date(2026, 11, 30), ["days.holidays: 'ics:a.ics' ends on 2026-11-30: add the days after it"]),
        (date(2026, 11, 29), ["days.holidays: 'ics:a.ics' is over since 2026-11-29: add the days to come"]),
        (None, ["days.holidays: 'ics:a.ics' names no day"]),
    ],
)
def test_a_calendar_of_holidays_that_ends_soon(last: date | None, expected: list[str]) -> None:
    calendar = Calendar(days=frozenset(), spans=(), last=last)
    assert warnings(days("ics:a.ics", "12-24", "2026-05-15"), calendar=calendar) == expected


def test_a_list_of_dates_that_ends_soon() -> None:
    assert warnings(days("2026-12-25", "2026-12-26", "12-24")) == [
        "days.holidays: its list of dates ends on 2026-12-26: add the days after it"
    ]
    assert warnings(days("12-24", "12-25")) == []
    assert warnings(days("2026-12-25", "2027-12-25")) == []


def test_hours_of_very_many_rules_are_not_all_looked_at() -> None:
    text = "".join(
        f"[[fetch]]\nqueues = ['q{n}']\nopen = ['daily {n // 60:02}:{n % 60:02}-20:00']\n" for n in range(501)
    )
    assert warnings(text) == ["of 501 different hours of rules, 500 were looked at for warnings"]


# -- limits


def test_an_entry_of_a_limit_that_never_decides_is_named() -> None:
    text = """
        [hours]
        night = ["daily 20:00-06:00"]
        [[fetch]]
        name = "r"
        needs = ["pacs-1"]
        at_once = ["night: 8", "daily 21:00-22:00: 9", "else: 3"]
        [[resource]]
        name = "pacs-1"
        at_once = ["daily 00:00-12:00: 1", "daily 12:00-24:00: 2", "else: 3"]
        """
    assert warnings(text) == [
        "resource pacs-1: 'else: 3' of at_once never decides in the next 400 days",
        "rule r: 'daily 21:00-22:00: 9' of at_once never decides in the next 400 days",
    ]


def test_holidays_that_only_a_limit_knows_are_used() -> None:
    text = "[days]\nholidays = ['12-24']\n[[fetch]]\nat_once = ['holiday 00:00-24:00: 8', 'else: 3']"
    assert warnings(text) == []


def test_a_rule_that_its_limit_closes_for_good_never_starts_a_job() -> None:
    assert warnings(rule("daily 00:00-24:00", more="at_once = 0")) == [
        "rule r: no job starts in the next 400 days: its hours are always closed"
    ]
