"""Overrides in the service: on disk, then on every wire, then answered; over a restart; one after the other."""

from datetime import timedelta
from typing import Any

import pytest

from gate import errors
from gate.interface import OverrideOut, Steer
from tests.support.book import NOON
from tests.support.fetch import FetchWorld

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
CONFIG = """
timezone = "UTC"
[[fetch]]
name = "dicom"
queues = ["dicom"]
open = ["daily 20:00-06:00"]
[[fetch]]
name = "mail"
queues = ["mail"]
"""


@pytest.fixture
def world() -> FetchWorld:
    return FetchWorld(CONFIG)


def test_an_override_reaches_those_whose_answer_it_changes_and_ends_by_itself(world: FetchWorld) -> None:
    dicom, mail = world.worker().watch("w", ["dicom"]), world.worker().watch("w", ["mail"])
    answer = world.order("open", "dicom", HOUR, "backlog")
    assert isinstance(answer, OverrideOut)
    (order,) = answer.overrides
    assert (order.rule, order.action, order.until, order.note) == ("dicom", Steer.OPEN, NOON + HOUR, "backlog")
    assert (order.by, order.since) == ("ops", NOON)
    assert dicom.said == [False, True]
    assert dicom.last.until == NOON + HOUR
    assert "override of ops" in dicom.last.reason
    assert "backlog" in dicom.last.reason
    world.move(2 * 3600)
    assert dicom.said == [False, True, False]
    assert dicom.times[-1] == NOON + HOUR
    assert mail.said == [True]
    assert world.order("auto", "mail").overrides == [], "it is not in force any more"


def test_auto_takes_it_back(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["mail"])
    world.order("close", "mail", HOUR)
    world.order("auto", "mail")
    assert worker.said == [True, False, True]
    assert worker.answers[0] == worker.answers[2]


def test_it_is_written_down_then_told_then_answered(world: FetchWorld) -> None:
    worker, seen = world.worker().watch("w", ["mail"]), list[tuple[int, int, bool]]()

    def then(outcome: Any) -> None:
        assert isinstance(outcome, OverrideOut)
        seen.append((len(worker.answers), world.flushes, bool(world.store.notes("override"))))

    world.slow = True
    world.order("close", "mail", HOUR, then=then)
    assert (worker.said, seen, world.flushes) == ([True], [], 0)
    assert world.check("w", ["mail"]).open, "not before it is on disk"
    world.work()
    assert seen == [(2, 1, True)]


def test_an_override_survives_a_restart(world: FetchWorld) -> None:
    world.order("close", "mail", 2 * HOUR)
    world.order("open", "dicom", 1 * HOUR)
    world.order("auto", "dicom")
    world.move(3600)
    world.begin()
    worker = world.worker().watch("w", ["mail"])
    assert (worker.said, worker.last.until) == ([False], NOON + 2 * HOUR)
    assert not world.check("w", ["dicom"]).open
    world.move(3600)
    assert worker.said == [False, True]


def test_what_cannot_be_written_down_changes_nothing(world: FetchWorld) -> None:
    worker = world.worker().watch("w", ["mail"])
    world.store.fault = "before"
    assert isinstance(world.order("close", "mail", HOUR), errors.StoreError)
    assert worker.said == [True]
    assert world.check("w", ["mail"]).open
    world.store.fault = ""
    assert isinstance(world.order("close", "mail", HOUR), OverrideOut)
    assert worker.said == [True, False]


def test_orders_that_come_together_are_taken_one_after_the_other(world: FetchWorld) -> None:
    worker, answers = world.worker().watch("w", ["dicom", "mail"]), list[Any]()
    world.slow = True
    world.order("close", "mail", HOUR, then=answers.append)
    world.order("open", "dicom", HOUR, then=answers.append)
    world.order("open", "none", HOUR, then=answers.append)
    world.order("open", "dicom", -HOUR, then=answers.append)
    world.order("auto", "mail", then=answers.append)
    assert answers == []
    world.work()
    assert [type(answer) for answer in answers] == [
        OverrideOut,
        OverrideOut,
        errors.NoSuchRule,
        errors.InvalidOverride,
        OverrideOut,
    ]
    assert [[order.rule for order in a.overrides] for a in answers if isinstance(a, OverrideOut)] == [
        ["mail"],
        ["dicom", "mail"],
        ["dicom"],
    ]
    assert worker.last.queues == ["dicom", "mail"]
    assert set(world.store.notes("override")) == {"dicom"}


def test_one_that_fails_does_not_stop_those_behind_it(world: FetchWorld) -> None:
    answers: list[Any] = []
    world.slow = True
    world.order("close", "mail", HOUR, then=answers.append)
    world.order("close", "dicom", HOUR, then=answers.append)
    world.store.fault = "before"
    world.work()
    world.store.fault = ""
    world.slow = False
    world.order("close", "dicom", HOUR, then=answers.append)
    assert [type(answer) for answer in answers] == [errors.StoreError, errors.StoreError, OverrideOut]


def test_thousands_of_wrong_orders_at_once_are_all_answered(world: FetchWorld) -> None:
    answers: list[Any] = []
    world.slow = True
    world.order("close", "mail", HOUR, then=answers.append)
    for _ in range(5000):
        world.order("open", "none", HOUR, then=answers.append)
    world.work()
    assert len(answers) == 5001


def test_an_override_that_ended_comes_back_when_the_clock_does(world: FetchWorld) -> None:
    """A clock that was set forward by mistake must not lose what was ordered."""
    world.order("close", "mail", HOUR)
    world.step(timedelta(days=2))
    assert world.check("w", ["mail"]).open
    world.order("close", "dicom", HOUR)
    world.step(timedelta(days=-2))
    assert not world.check("w", ["mail"]).open


def test_one_that_ended_long_ago_is_forgotten_with_the_next(world: FetchWorld) -> None:
    world.order("close", "mail", HOUR)
    world.move(30 * 86_400)
    assert set(world.store.notes("override")) == {"mail"}
    world.order("close", "dicom", HOUR)
    assert set(world.store.notes("override")) == {"dicom"}


def test_an_override_of_a_rule_that_is_gone_can_be_taken_back(world: FetchWorld) -> None:
    world.order("close", "mail", HOUR)
    world.engine.take(FetchWorld("").rules)
    assert world.check("w", ["mail"]).open
    assert world.order("auto", "mail").overrides == []
    assert world.store.notes("override") == {}
