"""Overrides: who may be ordered what, until when, and how the store keeps it."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gate.errors import InvalidOverride, NoSuchRule
from gate.interface import OverrideIn, OverrideInfo, Steer, rfc3339
from gate.overrides import NO_OVERRIDES, Override, Overrides, changes, from_notes, matching

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)
RULES = ["dicom", "dicom-urgent", "mail", "fetch[3]", "transfer-*"]


def request(
    rule: str = "dicom",
    action: Steer = Steer.CLOSE,
    until: str | None = "2026-11-30T14:00:00Z",
    note: str | None = "clinic called",
) -> OverrideIn:
    return OverrideIn(rule=rule, action=action, until=until, note=note)


def order(asked: OverrideIn, over: Overrides = NO_OVERRIDES, now: datetime = NOW) -> Overrides:
    return over.order(asked, RULES, "ops", 1000, now)


def made(rule: str = "dicom", until: datetime = LATER) -> Override:
    return Override(rule=rule, action=Steer.CLOSE, until=until, note="clinic called", by="ops", uid=1000, since=NOW)


def test_an_order_holds_until_before_its_end() -> None:
    table = order(request())
    assert table.get("dicom", NOW) == made()
    assert table.get("dicom", LATER - timedelta(microseconds=1)) == made()
    assert table.get("dicom", LATER) is None
    assert table.get("mail", NOW) is None
    assert NO_OVERRIDES.table == {}


def test_an_order_says_nothing_of_the_time_before_it() -> None:
    table = order(request())
    assert table.as_of(NOW - timedelta(minutes=1), LATER).get("dicom", NOW - timedelta(minutes=1)) is None
    assert table.as_of(NOW, LATER).get("dicom", NOW) == made()
    early = NOW - timedelta(hours=1)
    assert table.as_of(early, early).get("dicom", early) == made(), "a clock that was set back does not end it"


def test_a_glob_orders_each_rule_that_it_matches() -> None:
    table = order(request("dicom*"))
    assert table.in_force(NOW) == [made("dicom"), made("dicom-urgent")]


def test_a_later_order_takes_the_place_of_the_one_before() -> None:
    table = order(request(until="2026-11-30T13:00:00Z"), order(request()))
    assert table.in_force(NOW) == [made(until=NOW + timedelta(hours=1))]


def test_auto_takes_orders_back() -> None:
    table = order(request("*"))
    assert set(table.table) == set(RULES)
    left = order(request("dicom*", Steer.AUTO, until=None, note=None), table)
    assert set(left.table) == {"mail", "fetch[3]", "transfer-*"}


def test_auto_reaches_orders_over_rules_that_are_gone() -> None:
    table = NO_OVERRIDES.order(request("old"), ["old"], "ops", 1000, NOW)
    assert order(request("old", Steer.AUTO, until=None, note=None), table) == NO_OVERRIDES


def test_auto_has_no_end() -> None:
    with pytest.raises(InvalidOverride) as caught:
        order(request(action=Steer.AUTO))
    assert str(caught.value) == "invalid override: until: auto ends an override now: leave it out"


@pytest.mark.parametrize(
    ("until", "reason"),
    [
        (None, "missing: it has an end"),
        ("18:00", "'18:00' is not an RFC 3339 instant such as 2026-11-30T12:00:00Z"),
        (
            "2026-11-30T18:00:00",
            "'2026-11-30T18:00:00' has no zone: write 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00",
        ),
        ("2026-11-30T12:00:00Z", "'2026-11-30T12:00:00Z' is not in the future"),
        ("2027-12-01T12:00:01Z", "'2027-12-01T12:00:01Z' is more than 366 days ahead"),
    ],
)
def test_an_end_is_mandatory_and_lies_in_the_year_to_come(until: str | None, reason: str) -> None:
    with pytest.raises(InvalidOverride) as caught:
        order(request(until=until))
    assert caught.value.parameters == {"field": "until", "reason": reason}


def test_the_last_end_that_may_be() -> None:
    assert order(request(until="2027-12-01T12:00:00Z")).get("dicom", NOW) is not None


@pytest.mark.parametrize(
    ("note", "reason"),
    [
        (None, "missing: say why, so that others know"),
        (" \t", "missing: say why, so that others know"),
        ("ä" * 257, "514 bytes are too long: at most 512 are allowed"),
        ("a\nb", r"'a\nb' is not one line of printable text"),
        ("\x1b[31mred", r"'\x1b[31mred' is not one line of printable text"),
    ],
)
def test_a_note_is_mandatory_and_one_line(note: str | None, reason: str) -> None:
    with pytest.raises(InvalidOverride) as caught:
        order(request(note=note))
    assert caught.value.parameters == {"field": "note", "reason": reason}


def test_a_note_is_kept_without_the_space_around_it() -> None:
    found = order(request(note="  ä  " + "b" * 500)).get("dicom", NOW)
    assert found is not None
    assert found.note == "ä  " + "b" * 500


def test_an_unknown_rule_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(NoSuchRule) as caught:
        order(request("dicm"))
    assert caught.value.parameters == {"rule": "dicm", "known": RULES}
    with pytest.raises(NoSuchRule) as caught:
        matching("x", [f"r{n}" for n in range(100)])
    assert len(caught.value.parameters["known"]) == 20


@pytest.mark.parametrize("name", ["fetch[3]", "transfer-*"])
def test_a_name_that_looks_like_a_glob_means_its_rule(name: str) -> None:
    assert matching(name, [*RULES, "fetch3", "transfer-1"]) == [name]


def test_rules_are_matched_in_their_order_and_with_case() -> None:
    assert matching("*i*", RULES) == ["dicom", "dicom-urgent", "mail"]
    with pytest.raises(NoSuchRule):
        matching("Dicom", RULES)


def test_what_has_ended_is_forgotten() -> None:
    table = order(request(until=rfc3339(LATER)), order(request("mail", until=rfc3339(LATER + timedelta(hours=1)))))
    assert table.expire(NOW) is table
    assert set(table.expire(LATER).table) == {"mail"}


def test_an_order_goes_over_the_wire() -> None:
    assert made().info() == OverrideInfo(
        rule="dicom", action=Steer.CLOSE, until=LATER, note="clinic called", by="ops", since=NOW
    )


# -- the store


def test_the_store_is_told_what_is_new_and_what_is_gone() -> None:
    before = order(request("*"))
    after = order(request("mail", Steer.OPEN, note="backlog"), before)
    after = order(request("dicom*", Steer.AUTO, until=None, note=None), after)
    written = changes(before, after)
    assert {rule for rule, note in written.items() if note is None} == {"dicom", "dicom-urgent"}
    assert set(written) == {"dicom", "dicom-urgent", "mail"}
    assert changes(after, after) == {}


def test_what_the_store_keeps_is_read_as_it_was() -> None:
    table = order(request("*", until="2026-11-30T14:00:00.123456+01:00"), now=NOW - timedelta(hours=1))
    notes = {rule: note for rule, note in changes(NO_OVERRIDES, table).items() if note is not None}
    assert from_notes(notes) == (table, [])


def test_a_note_that_cannot_be_read_is_left_out_and_told() -> None:
    good = msgspec.json.encode(made("mail"))
    table, problems = from_notes({"dicom": b"{", "old": b'{"rule":"old"}', "mail": good})
    assert set(table.table) == {"mail"}
    assert [problem.partition(": ")[0] for problem in problems] == [
        "the override of rule dicom cannot be read and is left out",
        "the override of rule old cannot be read and is left out",
    ]
