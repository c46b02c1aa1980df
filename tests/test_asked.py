"""Rules that nobody asks for are named; too many names say nothing."""

from gate.asked import MOST_NAMES, Asked
from gate.hours import FetchRule

RULES = (
    FetchRule(name="dicom", workers=("transfer-*", "extra"), queues=("dicom",)),
    FetchRule(name="mail", queues=("mail-?", "post")),
    FetchRule(name="rest"),
)


def warnings(*asked: tuple[str, list[str] | None]) -> list[str]:
    """The first words of each warning."""
    book = Asked()
    for worker, queues in asked:
        book.note(worker, queues)
    return [warning.partition(" was")[0] for warning in book.warnings(RULES)]


def test_while_nobody_asks_there_is_one_warning_for_all() -> None:
    assert Asked().warnings(RULES) == ["no worker has asked since the gate started"]
    assert Asked().warnings(()) == []


def test_a_worker_and_a_queue_that_nobody_asked_for_are_named() -> None:
    assert warnings(("transfr-1", ["dicom", "mail-1"])) == ["rule dicom: no worker transfer-* or extra"]
    assert warnings(("extra", ["mail-1"])) == ["rule dicom: no queue dicom"]
    assert warnings(("x", ["x"])) == [
        "rule dicom: no worker transfer-* or extra",
        "rule dicom: no queue dicom",
        "rule mail: no queue mail-? or post",
    ]
    assert warnings(("transfer-9", ["dicom"]), ("y", ["post"])) == []


def test_the_text_of_a_warning() -> None:
    book = Asked()
    book.note("x", ["dicom", "post"])
    assert book.warnings(RULES) == [
        "rule dicom: no worker transfer-* or extra was asked for since the gate started: is it misspelt?"
    ]


def test_whoever_asks_for_all_queues_asks_for_each() -> None:
    assert warnings(("extra", None)) == []


def test_what_is_asked_later_takes_a_warning_back() -> None:
    book = Asked()
    book.note("x", ["dicom", "post"])
    assert len(book.warnings(RULES)) == 1
    book.note("extra", [])
    assert book.warnings(RULES) == []


def test_other_rules_are_looked_at_anew() -> None:
    book = Asked()
    book.note("x", ["x"])
    assert len(book.warnings(RULES)) == 3
    assert book.warnings(RULES[2:]) == []


def test_what_did_not_change_is_not_looked_for_again() -> None:
    book = Asked()
    book.note("x", ["x"])
    before = book.warnings(RULES)
    book.note("x", ["x"])
    assert book.warnings(RULES) is before


def test_with_too_many_names_nothing_is_said() -> None:
    book = Asked()
    for number in range(MOST_NAMES + 1):
        book.note(f"w{number}", [])
    assert [warning.partition(" was")[0] for warning in book.warnings(RULES)] == [
        "rule dicom: no queue dicom",
        "rule mail: no queue mail-? or post",
        "rule rest: no queue *",
    ]
    book.note("x", [f"q{number}" for number in range(MOST_NAMES + 1)])
    assert book.warnings(RULES) == []
