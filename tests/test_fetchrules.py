"""Which rule decides, what it answers, until when, and in which words."""

from datetime import UTC, date, datetime, timedelta

import pytest

from gate.config import parse
from gate.fetchrules import FetchRules, Verdict
from gate.ical import Calendar
from gate.interface import OverrideIn, Steer
from gate.overrides import NO_OVERRIDES, Overrides

BERLIN = "timezone = 'Europe/Berlin'\n"
NIGHT = """
[hours]
night = ["daily 20:00-06:00"]
"""


def rules(text: str) -> FetchRules:
    return FetchRules(parse((BERLIN + text).encode(), "gate.toml"))


def at(text: str) -> datetime:
    """An instant by the clock of Berlin in winter."""
    return datetime.fromisoformat(f"{text}+01:00").astimezone(UTC)


def ordered(rule: str, action: Steer, until: datetime, now: datetime, over: Overrides = NO_OVERRIDES) -> Overrides:
    request = OverrideIn(rule=rule, action=action, until=until.isoformat(), note="clinic called")
    return over.order(request, ["r", "dicom"], "root", 0, now)


MONDAY_NOON = at("2026-11-30 12:00")
EVENING = at("2026-11-30 20:00")
MORNING = at("2026-12-01 06:00")


def reason(text: str, now: datetime, overrides: Overrides = NO_OVERRIDES, queue: str = "q") -> str:
    return rules(text).answer("w", [queue], now, overrides).reason


def is_open(text: str, now: datetime) -> bool:
    return rules(text).answer("w", ["q"], now, NO_OVERRIDES).open


# -- which rule


def test_without_rules_everything_is_open_for_ever() -> None:
    for queues in (None, ["q"]):
        assert rules("").answer("w", queues, MONDAY_NOON, NO_OVERRIDES) == Verdict(
            open=True,
            queues=None if queues is None else ("q",),
            excluded=None,
            until=None,
            limited=False,
            reason="no rule covers it: open",
        )


def test_what_no_rule_covers_may_be_closed() -> None:
    verdict = rules("uncovered = 'closed'").answer("w", None, MONDAY_NOON, NO_OVERRIDES)
    assert (verdict.open, verdict.queues, verdict.excluded) == (False, (), None)
    assert verdict.reason == "no rule covers it: closed"


def test_the_first_rule_that_covers_worker_and_queue_decides() -> None:
    text = """
        [[fetch]]
        name = "both"
        workers = ["transfer-?"]
        queues = ["dicom"]
        open = ["mon 00:00-24:00"]
        [[fetch]]
        name = "queue"
        queues = ["di*"]
        open = ["tue 00:00-24:00"]
        [[fetch]]
        name = "worker"
        workers = ["transfer-1"]
        open = ["wed 00:00-24:00"]
    """
    found = rules(text)
    asked = [("transfer-1", "dicom"), ("transfer-12", "dicom"), ("transfer-1", "mail"), ("other", "mail")]
    assert [found.why(worker, queue, MONDAY_NOON, NO_OVERRIDES).rule for worker, queue in asked] == [
        "both",
        "queue",
        "worker",
        None,
    ]


def test_globs_are_case_sensitive() -> None:
    found = rules("[[fetch]]\nqueues = ['Dicom', 'x*']\nopen = ['tue 00:00-24:00']")
    assert found.answer("w", ["dicom", "Dicom", "X1", "x1"], MONDAY_NOON, NO_OVERRIDES).queues == ("dicom", "X1")


# -- what is asked and answered

SEVERAL = """
[[fetch]]
name = "a"
queues = ["a-1", "a-2"]
open = ["mon 00:00-24:00"]
[[fetch]]
name = "b"
queues = ["b*", "a-1"]
open = ["tue 00:00-24:00"]
"""
MONDAY, TUESDAY, WEDNESDAY = (at(f"2026-{day} 10:00") for day in ("11-30", "12-01", "12-02"))


@pytest.mark.parametrize(
    ("uncovered", "now", "is_open", "queues", "excluded"),
    [
        ("open", MONDAY, True, None, ("b*",)),
        ("open", TUESDAY, True, None, ("a-1", "a-2")),
        ("open", WEDNESDAY, True, None, ("a-1", "a-2", "b*")),
        ("closed", MONDAY, True, ("a-1", "a-2"), None),
        ("closed", TUESDAY, True, ("b*",), ("a-1", "a-2")),
        ("closed", WEDNESDAY, False, (), None),
    ],
)
def test_whoever_asks_for_all_queues_is_told_patterns(
    uncovered: str, now: datetime, is_open: bool, queues: tuple[str, ...] | None, excluded: tuple[str, ...] | None
) -> None:
    found = rules(f"uncovered = '{uncovered}'\n{SEVERAL}").answer("w", None, now, NO_OVERRIDES)
    assert (found.open, found.queues, found.excluded) == (is_open, queues, excluded)


def test_a_catch_all_decides_the_rest_and_ends_the_search() -> None:
    text = SEVERAL + "[[fetch]]\nname = 'rest'\nqueues = ['c', '*']\nopen = ['wed 00:00-24:00']\n"
    text += "[[fetch]]\nname = 'unreached'\nqueues = ['d']\nopen = ['mon 00:00-24:00']\n"
    found = rules(text)
    assert found.answer("w", None, MONDAY, NO_OVERRIDES).queues == ("a-1", "a-2")
    wednesday = found.answer("w", None, WEDNESDAY, NO_OVERRIDES)
    assert (wednesday.queues, wednesday.excluded) == (None, ("a-1", "a-2", "b*"))
    assert found.answer("w", ["d"], MONDAY, NO_OVERRIDES).open is False


def test_open_queues_come_in_the_order_of_the_question_once_each() -> None:
    asked = ["z", "b1", "a-2", "a-1", "z", "a-2"]
    assert rules(SEVERAL).answer("w", asked, MONDAY, NO_OVERRIDES).queues == ("z", "a-2", "a-1")


def test_whoever_asks_for_no_queue_gets_none() -> None:
    found = rules(SEVERAL).answer("w", [], MONDAY, NO_OVERRIDES)
    assert found == Verdict(
        open=False, queues=(), excluded=None, until=None, limited=False, reason="no queue was asked for"
    )


def test_an_answer_holds_until_the_first_of_its_rules_changes() -> None:
    found = rules(SEVERAL).answer("w", ["a-1", "b1"], MONDAY, NO_OVERRIDES)
    assert found.until == at("2026-12-01 00:00")


def test_a_reason_names_three_rules_and_counts_the_others() -> None:
    text = "".join(f"[[fetch]]\nname = 'r{n}'\nqueues = ['q{n}']\n" for n in range(5))
    found = rules(text).answer("w", [f"q{n}" for n in range(5)], MONDAY, NO_OVERRIDES)
    assert found.reason == "rule r0: open; rule r1: open; rule r2: open; and 2 more"


def test_a_reason_names_what_no_rule_covers_last() -> None:
    found = rules("[[fetch]]\nname = 'r'\nqueues = ['q']").answer("w", ["x", "q"], MONDAY, NO_OVERRIDES)
    assert found.reason == "rule r: open; no rule covers it: open"


def test_a_reason_begins_with_what_makes_the_answer() -> None:
    found = rules(SEVERAL).answer("w", ["a-1", "b1"], TUESDAY, NO_OVERRIDES)
    assert found.reason == (
        "rule b: open by tue 00:00-24:00 until 00:00 Europe/Berlin; "
        "rule a: outside its hours, opens mon 00:00 Europe/Berlin"
    )


# -- hours


def test_open_is_the_union_of_its_lines() -> None:
    """argoproj/argo-cd#10425: of two windows, any inactive one blocked."""
    text = "[[fetch]]\nopen = ['daily 08:00-10:00', 'daily 20:00-22:00']"
    assert [is_open(text, at(f"2026-11-30 {hour}")) for hour in ("09:00", "12:00", "21:00")] == [True, False, True]


def test_closed_closes_only_inside_its_lines() -> None:
    """argoproj/argo-cd#5590: a deny window blocked outside its time."""
    text = "[[fetch]]\nclosed = ['daily 02:00-03:00']"
    hours = ("01:59", "02:00", "02:59", "03:00")
    assert [is_open(text, at(f"2026-11-30 {hour}")) for hour in hours] == [True, False, False, True]


def test_working_hours_weekend_and_holidays_together() -> None:
    """prometheus/alertmanager#3368: always firing or never. The deciding line is named."""
    text = """
        [days]
        holidays = ["12-25"]
        [hours]
        office = ["mon-fri 08:00-18:00"]
        holidays = ["holiday 00:00-24:00"]
        [[fetch]]
        name = "r"
        open = ["office"]
        closed = ["holidays"]
    """
    why = rules(text).why("w", "q", at("2026-12-25 10:00"), NO_OVERRIDES)
    assert (why.open, why.rule, why.line) == (False, "r", "holiday 00:00-24:00")
    assert why.reason == "rule r: closed by holidays (holiday 00:00-24:00), opens mon 08:00 Europe/Berlin"
    assert [is_open(text, at(f"2026-12-{day} 10:00")) for day in (24, 25, 26, 28)] == [True, False, False, True]


def test_no_job_starts_shortly_before_closing() -> None:
    """HaveAGitGat/Tdarr#1284: a job that was started at the end ran on for hours."""
    text = f"{NIGHT}[[fetch]]\nname = 'r'\nopen = ['night']\nlast_start = '45m'"
    assert is_open(text, at("2026-12-01 05:14:59"))
    found = rules(text).answer("w", ["q"], at("2026-12-01 05:15"), NO_OVERRIDES)
    assert not found.open
    assert found.until == at("2026-12-01 20:00")
    assert found.reason == "rule r: within 45m of closing at 06:00 (last_start), opens 20:00 Europe/Berlin"


def test_last_start_looks_at_what_is_left_after_closed_lines() -> None:
    text = "[[fetch]]\nopen = ['daily 20:00-06:00']\nclosed = ['daily 02:00-03:00']\nlast_start = '45m'"
    hours = ("01:14", "01:15", "03:00", "05:14", "05:15")
    assert [is_open(text, at(f"2026-12-01 {hour}")) for hour in hours] == [True, False, True, True, False]


def test_lines_that_touch_or_overlap_give_no_false_end() -> None:
    text = "[[fetch]]\nname = 'r'\nopen = ['daily 20:00-06:00', 'daily 05:00-08:00', 'tue 08:00-09:00']"
    found = rules(text)
    assert found.answer("w", None, EVENING, NO_OVERRIDES).until == at("2026-12-01 09:00")
    reasons = [
        found.answer("w", None, at(f"2026-12-01 {hour}"), NO_OVERRIDES).reason for hour in ("04:59", "05:00", "08:00")
    ]
    assert reasons == [
        f"rule r: open by {line} until 09:00 Europe/Berlin"
        for line in ("daily 20:00-06:00", "daily 05:00-08:00", "tue 08:00-09:00")
    ]


@pytest.mark.parametrize(
    ("keys", "now", "expected"),
    [
        ("open = ['night']", "2026-11-30 20:00", "open by night (daily 20:00-06:00) until 06:00 Europe/Berlin"),
        ("open = ['night']", "2026-11-30 12:00", "outside its hours, opens 20:00 Europe/Berlin"),
        (
            "open = ['fri 20:00 - mon 06:00', 'night']\nclosed = ['mon-thu 00:00-24:00']",
            "2026-11-30 12:00",
            "closed by mon-thu 00:00-24:00, opens fri 00:00 Europe/Berlin",
        ),
        (
            "open = ['night']\nclosed = ['2026-11-30 00:00 .. 2026-12-24 12:00']",
            "2026-11-30 12:00",
            "closed by 2026-11-30 00:00 .. 2026-12-24 12:00, opens 2026-12-24 20:00 Europe/Berlin",
        ),
        (
            "open = ['night']\nclosed = ['daily 00:00-24:00']",
            "2026-11-30 12:00",
            "closed by daily 00:00-24:00, with no opening in the next eight years",
        ),
        ("closed = ['night']", "2026-11-30 12:00", "open until 20:00 Europe/Berlin"),
        ("open = ['night', 'daily 00:00-24:00']", "2026-11-30 21:00", "open by daily 00:00-24:00"),
    ],
)
def test_reasons_name_rule_and_line_and_the_time_of_the_change(keys: str, now: str, expected: str) -> None:
    assert reason(f"{NIGHT}[[fetch]]\nname = 'r'\n{keys}", at(now)) == f"rule r: {expected}"


def test_a_time_that_is_read_twice_is_told_with_its_offset() -> None:
    found = reason("[[fetch]]\nname = 'r'\nopen = ['daily 01:30-02:30']", datetime(2026, 10, 25, 0, 0, tzinfo=UTC))
    assert found == "rule r: open by daily 01:30-02:30 until 02:30 CEST Europe/Berlin"


def test_events_of_a_calendar_close_a_rule() -> None:
    start, end = at("2026-12-01 10:15"), at("2026-12-01 11:00")
    calendar = Calendar(days=frozenset({date(2026, 12, 3)}), spans=((start, end),), last=None)
    text = f"{BERLIN}[[fetch]]\nname = 'r'\nclosed = ['ics:pacs.ics']"
    found = FetchRules(parse(text.encode(), "gate.toml", lambda path, zone: calendar))
    assert found.answer("w", ["q"], MONDAY_NOON, NO_OVERRIDES).until == start
    assert found.answer("w", ["q"], start, NO_OVERRIDES).reason == (
        "rule r: closed by ics:pacs.ics, opens 11:00 Europe/Berlin"
    )
    after = found.answer("w", ["q"], end, NO_OVERRIDES)
    assert (after.open, after.until) == (True, at("2026-12-03 00:00"))


def test_each_rule_reads_the_clock_of_its_own_zone() -> None:
    text = "[[fetch]]\nname = 'r'\nopen = ['daily 20:00-06:00']\ntimezone = 'America/New_York'"
    assert not is_open(text, EVENING)
    assert reason(text, EVENING) == "rule r: outside its hours, opens 20:00 America/New_York"


# -- overrides


def test_an_override_closes_until_its_end_and_then_hours_hold_again() -> None:
    """deskhq/the-desk#739: lift it for tonight only; then it is back by itself."""
    found = rules(f"{NIGHT}[[fetch]]\nname = 'dicom'\nopen = ['night']")
    end = EVENING + timedelta(hours=2, seconds=30)
    table = ordered("dicom", Steer.CLOSE, end, EVENING)
    verdict = found.answer("w", ["q"], EVENING, table)
    assert (verdict.open, verdict.until) == (False, end)
    assert verdict.reason == ("rule dicom: closed by override of root until 22:00:30 Europe/Berlin: clinic called")
    after = found.answer("w", ["q"], end, table)
    assert (after.open, after.until) == (True, MORNING)


def test_an_open_override_beats_open_closed_and_last_start() -> None:
    text = "[[fetch]]\nname = 'r'\nopen = ['daily 20:00-06:00']\nclosed = ['daily 02:00-03:00']\nlast_start = '45m'"
    found = rules(text)
    for hour in ("12:00", "02:30", "05:30"):
        now = at(f"2026-12-01 {hour}")
        table = ordered("r", Steer.OPEN, now + timedelta(minutes=10), now)
        assert not found.answer("w", ["q"], now, NO_OVERRIDES).open
        assert found.answer("w", ["q"], now, table).open


def test_an_override_holds_on_where_hours_say_the_same() -> None:
    found = rules(f"{NIGHT}[[fetch]]\nname = 'r'\nopen = ['night']")
    table = ordered("r", Steer.OPEN, EVENING + timedelta(hours=1), MONDAY_NOON)
    assert found.answer("w", ["q"], MONDAY_NOON, table).until == MORNING


def test_overrides_of_other_rules_change_nothing() -> None:
    found = rules("[[fetch]]\nname = 'r'\n")
    assert found.answer("w", ["q"], EVENING, ordered("dicom", Steer.CLOSE, MORNING, EVENING)).open


def test_why_names_the_override_and_no_line() -> None:
    found = rules(f"{NIGHT}[[fetch]]\nname = 'r'\nopen = ['night']")
    table = ordered("r", Steer.CLOSE, MORNING, EVENING)
    why = found.why("w", "q", EVENING, table)
    assert (why.open, why.rule, why.line) == (False, "r", None)
    assert why.states[0].override == table.table["r"]


def test_the_state_of_every_rule_in_their_order() -> None:
    found = rules(SEVERAL).states(MONDAY, NO_OVERRIDES)
    assert [(state.rule.name, state.open) for state in found if state.rule] == [("a", True), ("b", False)]


# -- what is remembered


def test_rules_that_say_the_same_share_one_timetable() -> None:
    text = "".join(f"[[fetch]]\nname = 'r{n}'\nopen = ['daily 20:00-06:00']\n" for n in range(3))
    assert len({id(table) for table in rules(text).timetables.values()}) == 1


def test_rules_that_differ_in_one_key_share_none() -> None:
    keys = [
        "",
        "open = ['daily 20:00-06:00']",
        "closed = ['daily 20:00-06:00']",
        "open = ['daily 20:00-06:00']\nclosed = ['daily 02:00-03:00']",
        "open = ['daily 20:00-06:00']\nlast_start = '45m'",
        "open = ['daily 20:00-06:00']\ntimezone = 'Asia/Tokyo'",
    ]
    found = rules("".join(f"[[fetch]]\nname = 'r{n}'\nqueues = ['q{n}']\n{key}\n" for n, key in enumerate(keys)))
    assert len({id(table) for table in found.timetables.values()}) == len(keys)
    asked = [f"q{n}" for n in range(len(keys))]
    by_hour = {
        hour: found.answer("w", asked, at(f"2026-12-01 {hour}"), NO_OVERRIDES).queues
        for hour in ("02:30", "05:30", "13:30")
    }
    assert by_hour == {"02:30": ("q0", "q1", "q4"), "05:30": ("q0", "q1", "q3"), "13:30": ("q0", "q2", "q5")}


def test_workers_under_the_same_rules_share_one_answer() -> None:
    found = rules("[[fetch]]\nworkers = ['w*']\nopen = ['daily 20:00-06:00']")
    assert found.answer("w1", ["q"], EVENING, NO_OVERRIDES) is found.answer("w2", ["q"], EVENING, NO_OVERRIDES)


def test_a_question_with_very_many_queues_is_answered_and_not_remembered() -> None:
    found = rules(SEVERAL)
    many = [f"queue-{n}" for n in range(900)] + ["b1"]
    first, again = (found.answer("w", many, MONDAY, NO_OVERRIDES) for _ in range(2))
    assert first.queues == tuple(many[:-1])
    assert first == again
    assert first is not again
