"""gatectl lint: what taskiq's own cron code makes of the schedules of an application."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from taskiq.cli.scheduler.run import CronValueError, is_cron_task_now

from gate.ctl import crons
from tests.support.gatectl import ROOT, process

APP = """
from taskiq import InMemoryBroker, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_gate import GatedScheduleSource

broker = InMemoryBroker()

{tasks}

scheduler = TaskiqScheduler(broker, [GatedScheduleSource(LabelScheduleSource(broker), socket="/nowhere")])

def make():
    return scheduler

number = 7
"""


def fires(cron: str, moment: datetime) -> bool:
    try:
        return is_cron_task_now(cron, moment)
    except CronValueError as error:
        raise crons.Refused(str(error)) from error


# -- expressions


@pytest.mark.parametrize(
    "cron",
    [
        "* * * * *",
        "*/5 0-6 * * *",
        "0 3 29 2 *",
        "0 0 1-7 * 1",
        "0 0 31 12 0",
        "5,10 */7 * * mon-fri",
        "0 0 * * fri-mon",
    ],
)
def test_what_fires_has_no_fault(cron: str) -> None:
    assert crons.faults(cron, fires) == []


@pytest.mark.parametrize(
    ("cron", "fault"),
    [
        ("0 0 * * 7", "it never fires: '7' matches no weekday"),
        ("0 22-2 * * *", "it never fires: '22-2' matches no hour"),
        ("0 0 * mar *", "it never fires: 'mar' matches no month"),
        ("5/15 * * * *", "it never fires: '5/15' matches no minute"),
        ("0 0 L * *", "it never fires: 'L' matches no day of the month"),
        ("0 0 * * 5#1", "it never fires: '5#1' matches no weekday"),
        ("0 0 31 2 *", "it never fires: no day of 8 years is one of '31 2 *'"),
        ("0 0 * * 1,7", "'7' in '1,7' matches no weekday"),
        ("*/0 * * * *", "it ends the loop of taskiq's scheduler: ZeroDivisionError: "),
        ("5 4 */0 * *", "it ends the loop of taskiq's scheduler: ZeroDivisionError: "),
        ("5 */0 * * *", "it ends the loop of taskiq's scheduler: ZeroDivisionError: "),
        ("@daily", "it never fires: taskiq cannot read it and warns at every tick ("),
        ("0  3 * * *", "it never fires: taskiq cannot read it and warns at every tick ("),
        ("*/x 3 * * *", "it never fires: taskiq cannot read it and warns at every tick ("),
    ],
)
def test_what_does_not_fire_says_why(cron: str, fault: str) -> None:
    (found,) = crons.faults(cron, fires)
    assert found.startswith(fault)


def test_the_moments_have_every_value_of_their_field() -> None:
    def values(index: int, value: Callable[[datetime], int]) -> set[int]:
        return {value(moment) for moment in crons.MOMENTS[index]}

    assert values(0, lambda m: m.minute) == set(range(60))
    assert values(1, lambda m: m.hour) == set(range(24))
    assert values(2, lambda m: m.day) == set(range(1, 32))
    assert values(3, lambda m: m.month) == set(range(1, 13))
    assert values(4, lambda m: m.weekday()) == set(range(7))
    assert datetime(2024, 1, 1, tzinfo=UTC) == crons.START


# -- the command


def lint(folder: Path, tasks: str, *arguments: str) -> tuple[int, list[str], str]:
    (folder / "shop.py").write_text(APP.format(tasks=tasks))
    given = arguments or ("--app", "shop:scheduler")
    done = process("lint", *given, env={"PYTHONPATH": f"{ROOT}:{ROOT}/clients"}, cwd=folder)
    return done.returncode, done.stdout.splitlines(), done.stderr


def task(name: str, *schedules: str) -> str:
    return f"@broker.task('{name}', schedule=[{', '.join(schedules)}])\nasync def {name}(): ...\n"


@pytest.mark.process
def test_an_application_that_is_well_has_no_findings(tmp_path: Path) -> None:
    tasks = task("fine", "{'cron': '*/5 * * * *', 'cron_offset': 'Europe/Berlin'}", "{'interval': 60}")
    assert lint(tmp_path, tasks) == (0, ["2 schedules, 0 findings"], "")
    assert lint(tmp_path, tasks, "--app", "shop:make")[0] == 0


@pytest.mark.process
def test_findings_name_source_task_id_and_expression(tmp_path: Path) -> None:
    tasks = (
        task("never", "{'cron': '0 22-2 * * *', 'schedule_id': 'n'}")
        + task("zone", "{'cron': '0 3 * * *', 'cron_offset': 'Mars/Base', 'schedule_id': 'z'}")
        + task("one", "{'cron': '0 3 * * *', 'schedule_id': 'same'}")
        + task("two", "{'cron': '0 4 * * *', 'schedule_id': 'same'}")
    )
    code, lines, _ = lint(tmp_path, tasks)
    assert code == 1
    never, zone, same, total = lines
    source = "source 1 (LabelScheduleSource)"
    assert never == f"{source}: never (n): cron '0 22-2 * * *': it never fires: '22-2' matches no hour"
    assert zone.startswith(
        f"{source}: zone (z): cron_offset 'Mars/Base': it never fires, and taskiq warns at every tick"
    )
    assert same == "the id 'same' is in the labels of one, two: taskiq keeps the last alone"
    assert total == "3 schedules, 3 findings"


@pytest.mark.process
def test_an_id_in_two_sources_collides(tmp_path: Path) -> None:
    tasks = task("one", "{'interval': 60, 'schedule_id': 'same'}")
    (tmp_path / "two.py").write_text(
        "from shop import *\ntwice = TaskiqScheduler(broker, [*scheduler.sources, *scheduler.sources])\n"
    )
    code, lines, _ = lint(tmp_path, tasks, "--app", "two:twice")
    assert code == 1
    assert lines[0].startswith("the id 'same' is that of 2 schedules, of which taskiq sends one: source 1 ")


@pytest.mark.process
def test_schedules_that_are_the_same_are_named_together(tmp_path: Path) -> None:
    same = ["{'cron': '0 3 * * *', 'args': [1]}"] * 3
    code, lines, _ = lint(tmp_path, task("one", *same, "{'cron': '0 3 * * *'}", "{'interval': 9, 'schedule_id': 'i'}"))
    assert code == 1
    says, total = lines
    assert says.startswith("source 1 (LabelScheduleSource): one (")
    assert ": the same schedule is listed 3 times: taskiq sends each, a gate the first (" in says
    assert total == "5 schedules, 1 findings"


@pytest.mark.process
@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("nowhere:scheduler", "nowhere:scheduler cannot be imported: ModuleNotFoundError"),
        ("shop:nothing", "shop:nothing cannot be imported: AttributeError"),
        ("shop:number", "shop:number is no TaskiqScheduler but int"),
        ("shop", "shop cannot be imported: ValueError"),
    ],
)
def test_what_is_no_application_is_wrong_usage(tmp_path: Path, app: str, says: str) -> None:
    code, lines, said = lint(tmp_path, "", "--app", app)
    assert (code, lines) == (2, [])
    assert said.startswith(f"gatectl: {says}")
