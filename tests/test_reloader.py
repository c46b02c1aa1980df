"""What is in force: taken over whole or not at all, for all who ask, and when what the file names changes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gate.errors import ConfigError
from gate.reload import Loaded
from gate.reloader import LOOK_RARELY_SECONDS, LOOK_SECONDS, Outcome, Reloader
from tests.support.book import ManualClock

GOOD = '[[fetch]]\nname = "good"\n'
OTHER = '[[fetch]]\nname = "other"\n'
HOLIDAYS = 'timezone = "UTC"\n[days]\nholidays = ["ics:days.ics"]\n[[fetch]]\nclosed = ["holiday 00:00-24:00"]\n'
EMPTY = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//test//\r\nEND:VCALENDAR\r\n"


async def at_once(work: Callable[[], Outcome]) -> Outcome:
    """Instead of a thread, which a mock clock would not wait for."""
    await trio.lowlevel.checkpoint()
    return work()


class Rig:
    """A reloader of one file, what it took over, and what it answered.

    A test names `autojump_clock` as well: pytest-trio looks for clocks there, and nowhere else.
    """

    def __init__(self, file: Path, text: str | None) -> None:
        self.file = file
        self.clock = ManualClock()
        self.taken: list[Loaded] = []
        self.answers: list[Outcome] = []
        if text is not None:
            file.write_text(text)
        self.reloader = Reloader(lambda: file if file.exists() else None, self.clock.now, at_once)
        self.reloader.take = self.taken.append

    @property
    def rules(self) -> list[str]:
        return [rule.name for rule in self.reloader.current.config.fetch]

    async def reload(self, text: str | None = None, times: int = 1) -> list[Outcome]:
        """Ask for a reload; gives the answers that came."""
        if text is not None:
            self.file.write_text(text)
        self.answers.clear()
        for _ in range(times):
            self.reloader.ask(self.answers.append)
        await trio.sleep(0.001)
        return list(self.answers)


@pytest.fixture
async def rig(nursery: trio.Nursery, tmp_path: Path) -> Rig:
    made = Rig(tmp_path / "gate.toml", GOOD)
    nursery.start_soon(made.reloader.run)
    return made


async def test_nothing_is_read_while_nobody_asks(autojump_clock: MockClock, rig: Rig) -> None:
    rig.file.write_text(OTHER)
    await trio.sleep(86_400)
    assert (rig.rules, rig.taken) == (["good"], [])


async def test_a_good_file_is_taken_over_before_it_is_answered(autojump_clock: MockClock, rig: Rig) -> None:
    (answer,) = await rig.reload(OTHER)
    assert isinstance(answer, Loaded)
    assert rig.taken == [answer] == [rig.reloader.current]
    assert (rig.rules, rig.reloader.problem) == (["other"], None)


async def test_a_bad_file_changes_nothing_and_the_problem_stays_until_a_good_one(
    autojump_clock: MockClock, rig: Rig
) -> None:
    (answer,) = await rig.reload("[fetch]\nx = 1\n[[send]]\n")
    assert isinstance(answer, ConfigError)
    assert (rig.rules, rig.taken) == (["good"], [])
    problem = rig.reloader.problem
    assert problem is not None
    assert problem.startswith(f"{rig.file}: ")
    assert problem.splitlines() == [f"{rig.file}: {finding}" for finding in answer.findings]
    rig.clock.move(86_400)
    await trio.sleep(2 * LOOK_RARELY_SECONDS)
    assert rig.reloader.problem == problem
    assert rig.rules == ["good"]
    await rig.reload(GOOD)
    assert rig.reloader.problem is None


async def test_a_file_that_is_gone_is_a_problem_and_no_default(autojump_clock: MockClock, rig: Rig) -> None:
    rig.file.unlink()
    (answer,) = await rig.reload()
    assert isinstance(answer, ConfigError)
    assert rig.rules == ["good"]


async def test_all_who_ask_are_answered(autojump_clock: MockClock, rig: Rig) -> None:
    assert len(await rig.reload(OTHER, times=100)) == 100
    assert len(rig.taken) == 1, "one reading serves all who wait"


async def test_whoever_asks_while_a_file_is_read_gets_an_answer_of_a_later_reading(
    autojump_clock: MockClock, rig: Rig
) -> None:
    answers: list[Outcome] = []
    rig.file.write_text("bad")

    def again(first: Outcome) -> None:
        answers.append(first)
        rig.file.write_text(OTHER)
        rig.reloader.ask(answers.append)

    rig.reloader.ask(again)
    await trio.sleep(0.001)
    assert [type(answer) for answer in answers] == [ConfigError, Loaded]


async def test_a_file_that_appears_later_is_found_by_a_reload(
    nursery: trio.Nursery, autojump_clock: MockClock, tmp_path: Path
) -> None:
    rig = Rig(tmp_path / "gate.toml", None)
    nursery.start_soon(rig.reloader.run)
    first = rig.reloader.current
    assert first.file is None
    await rig.reload(GOOD)
    assert (rig.rules, rig.reloader.current.file) == (["good"], rig.file)


@pytest.mark.parametrize("store", ['url = "memory:"', 'keep = "1d"'])
async def test_another_store_is_refused(autojump_clock: MockClock, rig: Rig, store: str) -> None:
    (answer,) = await rig.reload(f"{OTHER}[store]\n{store}\n")
    assert isinstance(answer, ConfigError)
    assert answer.findings == ["store: a reload cannot change it: restart the gate"]
    assert rig.rules == ["good"]


async def test_a_fault_of_ours_is_answered_and_ends_nothing(
    autojump_clock: MockClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("gate.reload.parse", fail)
    (answer,) = await rig.reload(OTHER)
    assert isinstance(answer, ConfigError)
    assert rig.rules == ["good"]
    monkeypatch.undo()
    assert isinstance((await rig.reload(OTHER))[0], Loaded)


# -- when what the file names changes


@pytest.fixture
async def holidays(nursery: trio.Nursery, tmp_path: Path) -> Rig:
    pytest.importorskip("icalendar")
    (tmp_path / "days.ics").write_text(EMPTY)
    made = Rig(tmp_path / "gate.toml", HOLIDAYS)
    nursery.start_soon(made.reloader.run)
    return made


async def test_a_calendar_that_changes_is_taken_in_within_ten_seconds(autojump_clock: MockClock, holidays: Rig) -> None:
    await trio.sleep(3 * LOOK_SECONDS)
    assert holidays.taken == []
    holidays.file.write_text("what is in the file now is nobody's business before a reload")
    os.utime(holidays.file.with_name("days.ics"), (1, 1))
    await trio.sleep(LOOK_SECONDS + 1)
    assert len(holidays.taken) == 1
    await trio.sleep(3 * LOOK_SECONDS)
    assert len(holidays.taken) == 1


async def test_a_calendar_that_breaks_is_warned_of_once_and_mended(
    autojump_clock: MockClock, holidays: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    calendar = holidays.file.with_name("days.ics")
    calendar.write_text("nonsense")
    await trio.sleep(5 * LOOK_SECONDS)
    assert len(holidays.taken) == 1
    assert any("broken" in warning for warning in holidays.reloader.current.warnings)
    assert len([record for record in caplog.records if "broken" in record.message]) == 1
    calendar.write_text(EMPTY)
    await trio.sleep(LOOK_SECONDS + 1)
    assert not any("broken" in warning for warning in holidays.reloader.current.warnings)


async def test_without_calendars_another_day_is_noticed_within_an_hour(autojump_clock: MockClock, rig: Rig) -> None:
    rig.clock.move(86_400)
    await trio.sleep(LOOK_RARELY_SECONDS + 1)
    assert len(rig.taken) == 1
    assert rig.reloader.current.at == rig.clock.now()


async def test_other_time_zone_data_is_taken_in(
    autojump_clock: MockClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gate.tzdata.stamp", lambda keys: "other data")
    await trio.sleep(LOOK_RARELY_SECONDS + 1)
    assert len(rig.taken) == 1


async def test_what_cannot_be_read_anew_leaves_what_is_in_force(
    autojump_clock: MockClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a time zone that new data does not have any more."""

    def fail(*_: object) -> None:
        raise ConfigError("gate.toml", ["timezone: gone"])

    monkeypatch.setattr("gate.reload.parse", fail)
    rig.clock.move(86_400)
    await trio.sleep(3 * LOOK_RARELY_SECONDS)
    assert (rig.rules, rig.taken, rig.reloader.problem) == (["good"], [], None)
