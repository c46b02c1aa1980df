"""Pauses: hours of the file, and orders of operators until an end."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gate import pauses
from gate.config import parse
from gate.errors import InvalidPause, NoSuchPause
from gate.interface import Halt, PauseIn, rfc3339
from gate.pauses import NO_PAUSES, PauseHours, Pauses
from gate.rules import Paused

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
FILE = """
timezone = "Europe/Berlin"
[hours]
backup = ["daily 02:00-03:00"]
[[send]]
schedules = ["reports:*"]
pause = ["backup", "sun 01:00-06:00"]
[[send]]
schedules = ["never"]
pause = ["daily 00:00-24:00"]
[[send]]
schedules = ["reports:x", "mail"]
"""


def hours() -> PauseHours:
    return PauseHours(parse(FILE.encode(), "gate.toml"))


def at(day: int, hour: int, minute: int = 0) -> datetime:
    """A time of November or December 2026, as the clocks of Berlin have it."""
    month, day = (11, day) if day > 15 else (12, day)
    return datetime(2026, month, day, hour, minute, tzinfo=UTC) - HOUR


# -- hours


def test_a_pause_names_its_line_and_its_end() -> None:
    assert hours().paused("reports:daily", at(1, 2)) == Paused(
        reason="paused by backup (daily 02:00-03:00) until 03:00 Europe/Berlin", until=at(1, 3)
    )
    assert hours().paused("reports:daily", at(1, 3)) is None
    assert hours().paused("reports:daily", at(1, 1, 59)) is None


def test_of_several_lines_the_one_that_holds_longest_is_named() -> None:
    found = hours().paused("reports:daily", at(29, 2))
    assert found is not None
    assert found.reason == "paused by sun 01:00-06:00 until 06:00 Europe/Berlin"
    assert found.until == at(29, 6)


def test_the_first_rule_that_covers_a_schedule_decides() -> None:
    assert hours().paused("reports:x", at(1, 2)) is not None
    assert hours().paused("mail", at(1, 2)) is None
    assert hours().paused("other", at(1, 2)) is None


def test_a_pause_without_end_has_none() -> None:
    assert hours().paused("never", NOON) == Paused(reason="paused by daily 00:00-24:00", until=None)


# -- orders


def order(table: Pauses, schedule: str, now: datetime = NOON, **fields: Any) -> Pauses:
    asked = PauseIn(
        schedule=schedule,
        action=fields.pop("action", Halt.PAUSE),
        until=rfc3339(fields.pop("until", now + HOUR)),
        note=fields.pop("note", "database moves"),
    )
    return table.order(asked, "anna", 1000, now)


def resume(table: Pauses, schedule: str, now: datetime = NOON) -> Pauses:
    return table.order(PauseIn(schedule=schedule, action=Halt.RESUME), "anna", 1000, now)


def test_an_order_pauses_what_its_glob_matches_until_its_end() -> None:
    table = order(NO_PAUSES, "reports:*")
    assert table.paused("reports:daily", NOON) == Paused(reason="paused by anna: database moves", until=NOON + HOUR)
    assert table.paused("mail", NOON) is None
    assert table.paused("reports:daily", NOON + HOUR) is None
    assert [pause.info().schedule for pause in table.in_force(NOON)] == ["reports:*"]
    assert table.in_force(NOON + HOUR) == []


def test_a_name_with_brackets_is_a_name() -> None:
    assert order(NO_PAUSES, "job[1]").paused("job[1]", NOON) is not None


def test_of_several_orders_the_one_that_ends_last_counts() -> None:
    table = order(order(NO_PAUSES, "*", note="all"), "mail", until=NOON + 2 * HOUR)
    found = table.paused("mail", NOON)
    assert found is not None
    assert (found.reason, found.until) == ("paused by anna: database moves", NOON + 2 * HOUR)


def test_a_new_order_replaces_the_one_of_the_same_name_and_drops_those_that_have_ended() -> None:
    table = order(order(NO_PAUSES, "mail"), "old", until=NOON + timedelta(minutes=1))
    table = order(table, "mail", NOON + timedelta(minutes=2), note="again")
    assert {name: pause.note for name, pause in table.table.items()} == {"mail": "again"}


def test_resuming_takes_back_a_name_or_all_that_a_glob_matches() -> None:
    table = order(order(order(NO_PAUSES, "a:1"), "a:*"), "b")
    assert set(resume(table, "a:*").table) == {"a:1", "b"}, "a glob that was ordered is that order"
    assert set(resume(table, "a*").table) == {"b"}
    assert set(resume(table, "*").table) == set()
    with pytest.raises(NoSuchPause, match="no pause in force is of 'c': there are those of"):
        resume(table, "c")
    with pytest.raises(NoSuchPause):
        resume(table, "b", NOON + HOUR)


def test_an_order_and_hours_are_one_pause_that_ends_with_the_last_of_them() -> None:
    now = at(1, 2)
    table = order(NO_PAUSES, "reports:*", now, until=at(1, 2, 30))
    assert pauses.paused(hours(), table, "reports:x", now) == hours().paused("reports:x", now)
    table = order(NO_PAUSES, "reports:*", now, until=at(1, 4))
    assert pauses.paused(hours(), table, "reports:x", now) == table.paused("reports:x", now)
    assert pauses.paused(hours(), table, "never", now) == hours().paused("never", now)
    assert pauses.paused(hours(), table, "mail", now) is None


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"schedule": ""}, "schedule", "has 0 bytes: 1 to 512 are allowed"),
        ({"schedule": "x" * 513}, "schedule", "has 513 bytes: 1 to 512 are allowed"),
        ({"until": None}, "until", "missing: it has an end"),
        ({"until": rfc3339(NOON)}, "until", "'2026-11-30T12:00:00Z' is not in the future"),
        ({"until": "tomorrow"}, "until", "'tomorrow' is not an RFC 3339 instant such as 2026-11-30T12:00:00Z"),
        ({"note": " "}, "note", "missing: say why, so that others know"),
        ({"action": Halt.RESUME}, "until", "resume ends a pause now: leave it out"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(fields: dict[str, Any], field: str, reason: str) -> None:
    good: dict[str, Any] = {"schedule": "s", "action": Halt.PAUSE, "until": rfc3339(NOON + HOUR), "note": "n"}
    with pytest.raises(InvalidPause) as caught:
        NO_PAUSES.order(PauseIn(**good | fields), "anna", 1000, NOON)
    assert (caught.value.field, caught.value.reason) == (field, reason)


def test_no_more_than_a_number_of_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "MOST_ORDERS", 1)
    table = order(NO_PAUSES, "a")
    assert order(table, "a", note="again").table["a"].note == "again"
    with pytest.raises(InvalidPause, match="there are 1 pauses already"):
        order(table, "b")


def test_what_is_kept_is_read_again() -> None:
    table = order(order(NO_PAUSES, "a"), "b")
    notes = pauses.changes(NO_PAUSES, table)
    kept = {name: note for name, note in notes.items() if note is not None}
    assert pauses.from_notes(kept) == (table, [])
    assert pauses.changes(table, resume(table, "a")) == {"a": None}
    found, problems = pauses.from_notes({**kept, "bad": b"{}"})
    assert found == table
    assert len(problems) == 1
    assert problems[0].startswith("the pause of bad cannot be read and is left out: ")
