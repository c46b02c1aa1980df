"""Which test holds which row of the notes on the send side (send.md): none is forgotten, and each has a test.

D1 to D11 are its duplicates, L1 to L13 its losses, E1 to E40 the expectations that it draws from reports on other
schedulers (numbers that are missing here are missing there), F1 to F8 the faults that need no crash (issue 5, Build 4),
each with the source's wrapper alone. All run taskiq's own scheduler loop, but those of E that are about the gate alone.
Where a row is held in another way than the notes expect, `but` says how, and why.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

from tests.e2e import test_kill_points, test_rows

TESTS = Path(__file__).resolve().parent
LOSSES, RECOVERY = "test_taskiq_gate_losses.py", "test_taskiq_gate_recovery.py"
FAULTS, OCCURRENCE, CLAIMS = "test_taskiq_gate_faults.py", "test_taskiq_occurrence.py", "test_claims.py"
STORY, POINT, RESTARTS = "e2e/test_rows.py::test_story", "e2e/test_kill_points.py::test_row", "e2e/test_restarts.py"
CATCH_UP = "e2e/test_catch_up.py"
ONCE_A_MINUTE = f"{RESTARTS}::test_no_minute_is_sent_twice"
NONE_MISSING = f"{RESTARTS}::test_no_minute_is_missing_but_one_that_is_listed_in_doubt"
CASES = {"test_story": frozenset(test_rows.STORIES), "test_row": frozenset(test_kill_points.ROWS)}
"""Of tests that are named with a case."""


class Held(Struct, frozen=True):
    """What a row is about, and the tests that hold it."""

    says: str
    tests: tuple[str, ...]
    but: str = ""


def held(says: str, *tests: str, but: str = "") -> Held:
    return Held(says, tests, but)


DUPLICATES = {
    "D1": held(
        "a restart within a cron minute",
        ONCE_A_MINUTE,
        f"{POINT}[killed after confirm, skip, restart]",
        f"{LOSSES}::test_d1_a_restart_within_a_minute_sends_it_once",
    ),
    "D2": held("two schedulers", ONCE_A_MINUTE, f"{LOSSES}::test_d2_two_schedulers_send_each_minute_once"),
    "D3": held(
        "a restart fires every interval",
        f"{RESTARTS}::test_an_interval_keeps_its_cadence_through_all_restarts",
        "test_taskiq_gate_intervals.py::test_a_restart_waits_for_the_next_turn",
    ),
    "D4": held(
        "a scheduler that a program runs",
        f"{STORY}[run by a program]",
        f"{LOSSES}::test_d4_a_scheduler_that_a_program_runs_is_no_different",
    ),
    "D5": held(
        "a source that fails for a moment",
        f"{STORY}[source that fails]",
        f"{LOSSES}::test_d5_a_source_that_fails_for_a_moment_sends_nothing_twice",
    ),
    "D6": held(
        "killed between the send of a one-off and its deletion",
        f"{STORY}[one off not deleted]",
        f"{LOSSES}::test_d6_a_one_off_that_was_sent_before_the_kill_is_not_sent_again",
    ),
    "D7": held(
        "schedules that each deployment adds anew",
        f"{STORY}[deployed thrice]",
        f"{LOSSES}::test_d7_schedules_that_each_deployment_adds_anew_are_one",
        "test_taskiq_identity.py::test_others_that_are_the_same_are_one",
    ),
    "D8": held(
        "ids that are drawn anew at each start",
        f"{RESTARTS}::test_every_schedule_is_known_by_one_name_through_all_restarts",
        f"{LOSSES}::test_d8_ids_that_taskiq_draws_anew_at_each_start_are_one_schedule",
    ),
    "D9": held(
        "an hour that is read twice",
        f"{STORY}[clocks go back]",
        f"{OCCURRENCE}::test_an_hour_that_is_read_twice_has_two_occurrences",
        but="both are sent, each once: what an expression means is said by taskiq's own cron code (design 4)",
    ),
    "D10": held(
        "a source that fails under --skip-first-run",
        f"{STORY}[source that fails]",
        f"{LOSSES}::test_d10_a_source_that_fails_under_skip_first_run_sends_nothing_twice",
    ),
    "D11": held(
        "a schedule with a cron and a past instant",
        f"{STORY}[cron and instant]",
        f"{LOSSES}::test_d11_a_schedule_with_a_cron_and_a_past_instant_is_sent_by_both_once",
    ),
}

THE_LOSSES = {
    "L1": held(
        "the broker refuses",
        f"{POINT}[refused by the broker]",
        f"{LOSSES}::test_l1_a_minute_that_the_broker_refused_is_sent_at_the_next_listing",
        f"{RECOVERY}::test_a_one_off_that_the_broker_refused_is_sent_at_the_next_listing",
    ),
    "L2": held(
        "the gate is away",
        f"{POINT}[gate away, hold]",
        f"{LOSSES}::test_l2_minutes_without_a_gate_are_dealt_with_when_it_is_back",
        f"{LOSSES}::test_l2_a_one_off_without_a_gate_is_sent_when_it_is_back",
    ),
    "L3": held(
        "a send that hangs",
        f"{POINT}[hung past its lease, skip]",
        f"{LOSSES}::test_l3_a_broker_that_hangs_once_costs_no_later_minute",
        f"{LOSSES}::test_l3_a_send_timeout_is_followed_by_one_send",
    ),
    "L4": held(
        "no scheduler ran",
        f"{CATCH_UP}::test_each_policy_sends_what_it_says_as_its_own_minute",
        f"{RECOVERY}::test_all_sends_each_in_its_own_name",
    ),
    "L5": held(
        "--skip-first-run after a death before the send",
        NONE_MISSING,
        f"{LOSSES}::test_l5_a_minute_that_skip_first_run_skips_unsent_is_not_lost",
    ),
    "L6": held(
        "a late tick at the end of a minute",
        f"{LOSSES}::test_l6_a_loop_that_ticks_at_the_end_of_its_minutes_leaves_none_out",
        f"{FAULTS}::test_a_minute_that_was_stepped_over_is_asked_for_first",
    ),
    "L7": held(
        "a clock that is set forward and back",
        f"{STORY}[frozen]",
        f"{LOSSES}::test_l7_a_clock_that_was_wrong_for_a_while_silences_nobody",
    ),
    "L8": held(
        "a source that fails empties the list",
        f"{STORY}[source that fails]",
        f"{LOSSES}::test_l8_a_source_that_fails_keeps_its_schedules",
        f"{LOSSES}::test_l8_a_source_that_fails_at_the_start_costs_nothing_that_is_not_listed",
    ),
    "L9": held(
        "two sources with one id",
        f"{LOSSES}::test_l9_of_two_sources_with_one_id_both_have_their_say",
        "test_gatectl_lint.py::test_an_id_in_two_sources_collides",
    ),
    "L10": held(
        "a time that does not exist",
        f"{STORY}[clocks go forward]",
        but="it is no occurrence for taskiq's own cron code, so it is neither sent nor missed (design 4)",
    ),
    "L11": held(
        "crons that never fire",
        f"{STORY}[dead crons]",
        "test_gatectl_lint.py::test_what_does_not_fire_says_why",
        f"{RECOVERY}::test_a_cron_that_cannot_be_read_spoils_no_other",
    ),
    "L12": held(
        "skip_past_schedules",
        f"{STORY}[hidden one offs]",
        but="what a source never lists, nobody can list as missed: a warning at the start says what is lost, and why",
    ),
    "L13": held(
        "a loop that stands still",
        f"{STORY}[frozen]",
        f"{LOSSES}::test_l13_minutes_in_which_the_process_stood_still_are_caught_up",
        f"{RECOVERY}::test_however_many_schedules_there_are_the_search_comes_to_an_end",
    ),
}

EXPECTATIONS = {
    "E1": held(
        "after a kill the next asks in the same minute: refused, with whose it was",
        f"{POINT}[killed after confirm, skip, restart]",
        "test_engine.py::test_one_is_granted_and_the_others_are_told_who_has_it",
    ),
    "E2": held(
        "one fingerprint under several random ids is one, and a warning names them", f"{STORY}[deployed thrice]"
    ),
    "E4": held(
        "a gate that is stopped holds nobody; claims older than their lease are in doubt",
        "e2e/test_cli.py::test_a_gate_that_is_stopped_does_not_stop_the_schedulers_loop",
        f"{POINT}[hung past its lease, skip]",
    ),
    "E5": held(
        "a crash after the confirmation: never again",
        f"{POINT}[killed after confirm, resend, restart]",
        "test_stores.py::test_what_was_forgotten_is_late",
    ),
    "E6": held(
        "granted and never confirmed: offered again (resend), or listed (skip)",
        f"{POINT}[killed claim to kick, skip, restart]",
        f"{POINT}[killed claim to kick, resend, standby]",
    ),
    "E7": held(
        "two schedules that were missed together are sent at once, each with its own minutes",
        f"{CATCH_UP}::test_several_schedules_come_at_the_capped_rate",
    ),
    "E9": held(
        "many ask for one minute at once: one grant",
        "process/test_hosts.py::test_50_clients_and_1000_minutes_over_three_gates_are_1000_grants",
    ),
    "E10": held(
        "an error of the store is never a grant",
        "process/test_redis_faults.py::test_nothing_is_granted_without_the_store_and_the_next_request_after_it_is",
        "test_engine.py::test_while_the_store_fails_nothing_is_granted_and_nothing_is_lost",
    ),
    "E11": held(
        "a gate that is cut off refuses, and extends nothing that it lost",
        "process/test_hosts.py::test_nothing_is_granted_without_the_store_and_all_go_on_when_it_is_back",
        "process/test_hosts.py::test_claims_of_a_gate_that_was_killed_are_in_doubt_and_what_was_sent_stays_sent",
    ),
    "E12": held(
        "a lease that is shorter than its renewal is refused",
        f"{CLAIMS}::test_durations_have_their_limits",
        "test_engine.py::test_a_holder_that_hangs_past_its_lease_is_in_doubt",
        but="a claim for a send is not renewed, so a lease has limits, and nothing to be shorter than",
    ),
    "E13": held(
        "no answer depends on who was leader",
        "test_store_redis.py::test_two_gates_never_grant_one_occurrence",
        "process/test_hosts.py::test_gates_that_are_killed_at_random_grant_every_minute_once",
    ),
    "E15": held(
        "nobody was there as the minute began: the first who asks in it has it",
        NONE_MISSING,
        f"{POINT}[killed before claim, skip, restart]",
    ),
    "E16": held(
        "sends that take longer than any lease are not granted twice",
        f"{POINT}[hung past its lease, skip]",
        f"{RECOVERY}::test_offers_that_hang_do_not_become_many",
        but="under resend a send past its lease is granted again, with its task id; OnceMiddleware starts one of them",
    ),
    "E17": held(
        "the key is the nominal minute in UTC alone, and the second is told that it exists",
        f"{OCCURRENCE}::test_it_is_the_minute_that_matches_at_or_just_before",
        f"{CLAIMS}::test_the_minutes_that_may_be_named",
        "test_stores.py::test_a_refusal_writes_nothing",
    ),
    "E18": held(
        "a refusal is a line and no error, and is counted apart",
        "test_taskiq_gate.py::test_a_refusal_sends_nothing",
        "test_tallies.py::test_what_becomes_of_claims_is_counted_by_schedule",
    ),
    "E19": held(
        "what a failover forgot this host still refuses",
        "test_store_redis.py::test_what_a_failover_forgot_this_host_still_refuses",
        "test_store_redis.py::test_too_few_replicas_are_no_grant",
    ),
    "E20": held(
        "an evicting server is refused, and an emptied one noticed",
        "test_store_redis.py::test_a_server_that_evicts_is_refused_unless_it_is_allowed",
        "test_store_redis.py::test_an_emptied_server_is_noticed_and_nothing_from_before_is_granted",
    ),
    "E21": held(
        "after an outage the next request is answered",
        "process/test_redis_faults.py::test_nothing_is_granted_without_the_store_and_the_next_request_after_it_is",
        "test_store_redis.py::test_nothing_is_granted_without_the_server_and_it_is_found_again_at_once",
    ),
    "E23": held(
        "clocks of schedulers that differ by minutes: one grant for each minute, and it is said",
        f"{STORY}[two clocks]",
        "test_store_redis.py::test_the_servers_clock_is_the_clock",
    ),
    "E24": held(
        "a clock that is set back: what was sent is refused",
        f"{STORY}[frozen]",
        f"{CLAIMS}::test_a_grant_that_was_early_stays_one_when_the_clock_is_set_back",
    ),
    "E26": held(
        "an early timer and the minute itself are one occurrence",
        f"{OCCURRENCE}::test_an_early_timer_means_the_next_minute",
        f"{CLAIMS}::test_an_occurrence_may_be_claimed_up_to_five_seconds_early",
    ),
    "E28": held(
        "memory does not depend on the task's end",
        "test_stores.py::test_occurrences_are_forgotten_by_their_last_touch_and_the_newest_stays",
        f"{CLAIMS}::test_what_was_sent_is_sent_and_not_late",
    ),
    "E29": held("scheduler and gate stand still for hours: exactly what the policy says", f"{STORY}[frozen]"),
    "E30": held(
        "02:30 on the two nights in which clocks change",
        f"{STORY}[clocks go forward]",
        f"{STORY}[clocks go back]",
        but="no option sends it once: as D9 and L10",
    ),
    "E31": held(
        "*/30 has 46 and 50 occurrences on these days, 09:00 has one",
        f"{STORY}[clocks go forward]",
        f"{STORY}[clocks go back]",
    ),
    "E32": held(
        "a naive time is refused",
        "test_interface.py::test_a_naive_instant_is_refused_and_the_text_says_what_to_write",
    ),
    "E34": held(
        "an expression means what the client's cron code says",
        f"{RECOVERY}::test_a_cron_with_an_offset_is_caught_up_in_its_own_zone",
        "test_gatectl_lint.py::test_what_does_not_fire_says_why",
        but="the gate evaluates no expression of a scheduler: the shim asks taskiq's own code",
    ),
    "E35": held(
        "too late is refused, and counted",
        f"{CLAIMS}::test_the_stricter_of_the_claims_deadline_and_the_rules_counts",
        "test_missed.py::test_what_is_past_its_deadline_is_missed",
        "test_taskiq_gate_too_old.py::test_what_is_older_than_catch_up_within_is_listed_and_not_sent",
    ),
    "E36": held(
        "identity survives another order and another start; another cron begins anew",
        "test_taskiq_identity.py::test_three_startups_of_a_label_source_give_the_same_keys",
        "test_taskiq_identity.py::test_an_id_that_was_given_is_the_name",
        f"{RECOVERY}::test_a_new_schedule_and_one_with_a_new_cron_are_not_filled_back",
    ),
    "E37": held(
        "a new schedule, or one that was disabled, is never filled back",
        f"{RECOVERY}::test_a_new_schedule_and_one_with_a_new_cron_are_not_filled_back",
        "test_review.py::test_a_schedule_that_was_not_listed_for_a_round_begins_anew",
    ),
    "E39": held(
        "a deployment that takes minutes: sent once on return",
        f"{CATCH_UP}::test_each_policy_sends_what_it_says_as_its_own_minute",
        f"{RECOVERY}::test_latest_sends_one_in_its_own_name_and_lists_the_others",
    ),
    "E40": held(
        "the ledger shows every ask, and whose it was",
        "test_gatectl_story.py::test_the_story_of_what_was_sent_and_asked_for_by_another",
        "test_gatectl_story.py::test_the_story_of_what_was_missed",
    ),
}

NEEDS_NO_CRASH = {
    "F1": held("broker refuses", *THE_LOSSES["L1"].tests[1:]),
    "F2": held("broker hangs, with and without --send-timeout", *THE_LOSSES["L3"].tests[1:]),
    "F3": held(
        "gate away",
        *THE_LOSSES["L2"].tests[1:],
        f"{LOSSES}::test_l2_a_wait_for_the_gate_that_a_send_timeout_ends_loses_no_one_off",
        f"{LOSSES}::test_what_was_sent_without_the_gate_is_not_sent_again_when_it_is_back",
    ),
    "F4": held("an error of the source", *THE_LOSSES["L8"].tests),
    "F5": held(
        "a tick at :59.9",
        *THE_LOSSES["L6"].tests,
        f"{LOSSES}::test_l6_a_tick_at_the_very_end_of_a_minute_loses_and_doubles_none",
    ),
    "F6": held("the clock is set back", *THE_LOSSES["L7"].tests),
    "F7": held("two sources with one id", THE_LOSSES["L9"].tests[0]),
    "F8": held("--skip-first-run after a death before the send", *THE_LOSSES["L5"].tests),
}

ROWS = {**DUPLICATES, **THE_LOSSES, **EXPECTATIONS, **NEEDS_NO_CRASH}
REPORTS = (
    *(1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 23, 24, 26, 28, 29, 30, 31, 32, 34, 35, 36, 37),
    *(39, 40),
)  # fmt: skip


def test_no_row_is_forgotten() -> None:
    letters = {"D": range(1, 12), "L": range(1, 14), "E": REPORTS, "F": range(1, 9)}
    assert list(ROWS) == [f"{letter}{number}" for letter, numbers in letters.items() for number in numbers]


@cache
def functions(file: str) -> frozenset[str]:
    """The tests of a file."""
    found = ast.walk(ast.parse((TESTS / file).read_text()))
    return frozenset(
        node.name
        for node in found
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_"
    )


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_tests_that_exist(row: str) -> None:
    assert ROWS[row].tests
    for test in ROWS[row].tests:
        found = re.fullmatch(r"([\w/]+\.py)::(test_\w+)(?:\[(.+)\])?", test)
        assert found, test
        file, name, case = found.groups()
        assert name in functions(file), test
        assert case is None or case in CASES[name], test


def _of_story(name: str) -> Iterator[str]:
    yield from (row for row, held in ROWS.items() if row[0] != "F" and f"{STORY}[{name}]" in held.tests)


@pytest.mark.parametrize("name", test_rows.STORIES)
def test_each_story_names_its_rows(name: str) -> None:
    says = (test_rows.STORIES[name].__doc__ or "").partition(":")[0]
    assert sorted(says.split(", ")) == sorted(_of_story(name))
