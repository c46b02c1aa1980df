"""`gatectl lint`: schedules of a taskiq application that never fire, that end its scheduler, or whose ids collide."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gate.ctl import crons, output
from gate.ctl.asking import WrongUsage

if TYPE_CHECKING:
    from taskiq import ScheduledTask, ScheduleSource, TaskiqScheduler


class Listed(NamedTuple):
    """A schedule and what people call its source."""

    source: str
    task: "ScheduledTask"

    def __str__(self) -> str:
        return f"{self.source}: {self.task.task_name} ({self.task.schedule_id})"


@click.command(short_help="Find schedules of a taskiq application that never fire.")
@click.option("--app", metavar="MODULE:SCHEDULER", required=True, help="What `taskiq scheduler` is given.")
@click.argument("modules", nargs=-1)
def lint(app: str, modules: tuple[str, ...]) -> None:
    """Find schedules that taskiq never sends, or sends in another way than they say.

    Imports the application, and MODULES with its tasks, from the current directory, as `taskiq scheduler` does, and
    starts its sources to list their schedules; nothing is sent, and no gate is asked. Names the schedules whose cron
    expression taskiq's own cron code never fires in part or as a whole, those that end its loop, and ids that collide.
    The exit code is 0 if there are none, 1 if there are some.
    """
    if find_spec("taskiq") is None:
        raise WrongUsage("lint needs taskiq: install schedule-gate[taskiq]")
    scheduler = _import(app, modules)
    try:
        listed = asyncio.run(_list(scheduler))
    except Exception as error:
        raise WrongUsage(f"the schedules of {app} cannot be listed: {type(error).__name__}: {error}") from error
    findings = [*_of_crons(listed), *_of_ids(listed), *_of_labels(scheduler), *_of_twins(listed)]
    for finding in findings:
        click.echo(output.safe(finding))
    click.echo(f"{len(listed)} schedules, {len(findings)} findings")
    click.get_current_context().exit(1 if findings else 0)


def _import(app: str, modules: tuple[str, ...]) -> "TaskiqScheduler":
    from taskiq import TaskiqScheduler
    from taskiq.cli.utils import import_object, import_tasks

    try:
        scheduler = import_object(app, app_dir=".")
        if inspect.isfunction(scheduler):
            scheduler = scheduler()
        if isinstance(scheduler, TaskiqScheduler):
            scheduler.broker.is_scheduler_process = True
            import_tasks(list(modules), "", fs_discover=False)
    except Exception as error:  # whatever the application does
        raise WrongUsage(f"{app} cannot be imported: {type(error).__name__}: {error}") from error
    if not isinstance(scheduler, TaskiqScheduler):
        raise WrongUsage(f"{app} is no TaskiqScheduler but {type(scheduler).__name__}")
    return scheduler


async def _list(scheduler: "TaskiqScheduler") -> list[Listed]:
    """All schedules, as they are now."""
    listed: list[Listed] = []
    for number, source in enumerate(map(_ungated, scheduler.sources), 1):
        await source.startup()
        try:
            name = f"source {number} ({type(source).__name__})"
            listed += [Listed(name, task) for task in await source.get_schedules()]
        finally:
            await source.shutdown()
    return listed


def _ungated(source: "ScheduleSource") -> "ScheduleSource":
    """The source inside a GatedScheduleSource, which would ask the gate."""
    from taskiq_gate import GatedScheduleSource

    while isinstance(source, GatedScheduleSource):
        source = source.source
    return source


# -- what is looked for


def _of_crons(listed: list[Listed]) -> Iterator[str]:
    known: dict[str, list[str]] = {}
    for each in listed:
        cron, offset = each.task.cron, each.task.cron_offset
        if cron is None:
            continue
        if cron not in known:
            known[cron] = crons.faults(cron, _fires)
        yield from (f"{each}: cron {cron!r}: {fault}" for fault in known[cron])
        try:
            _fires("* * * * *", crons.START, offset)
        except crons.Refused as error:
            yield f"{each}: cron_offset {offset!r}: it never fires, and taskiq warns at every tick ({error})"


def _fires(cron: str, moment: datetime, offset: Any = None) -> bool:
    from taskiq.cli.scheduler.run import CronValueError, is_cron_task_now

    try:
        return is_cron_task_now(cron, moment, offset)
    except CronValueError as error:
        raise crons.Refused(str(error)) from error


def _of_ids(listed: list[Listed]) -> Iterator[str]:
    by_id: dict[str, list[Listed]] = defaultdict(list)
    for each in listed:
        by_id[each.task.schedule_id].append(each)
    for schedule_id, same in by_id.items():
        if len(same) > 1:
            where = ", ".join(f"{each.source}: {each.task.task_name}" for each in same)
            yield f"the id {schedule_id!r} is that of {len(same)} schedules, of which taskiq sends one: {where}"


def _of_twins(listed: list[Listed]) -> Iterator[str]:
    """Schedules that are the same in all but an id that nobody chose."""
    from taskiq_gate import identity

    ids: dict[str, dict[str, Listed]] = defaultdict(dict)
    for source in dict.fromkeys(each.source for each in listed):
        tasks = {each.task.schedule_id: each for each in listed if each.source == source}
        for schedule_id, key in identity.keys(source, [each.task for each in tasks.values()]).items():
            ids[key][schedule_id] = tasks[schedule_id]
    for same in ids.values():
        if len(same) > 1:
            first, *others = same.values()
            also = ", ".join(each.task.schedule_id for each in others)
            text = f"the same schedule is listed {len(same)} times: taskiq sends each, a gate the first ({also})"
            yield f"{first}: {text}"


def _of_labels(scheduler: "TaskiqScheduler") -> Iterator[str]:
    """Ids that a LabelScheduleSource has lost already: the later schedule replaces the earlier."""
    from taskiq.schedule_sources import LabelScheduleSource

    sources = [source for source in map(_ungated, scheduler.sources) if isinstance(source, LabelScheduleSource)]
    for broker in dict.fromkeys(source.broker for source in sources):
        tasks: dict[str, list[str]] = defaultdict(list)
        for name, task in broker.get_all_tasks().items():
            for schedule in task.labels.get("schedule", []):
                if "schedule_id" in schedule:
                    tasks[schedule["schedule_id"]].append(name)
        for schedule_id, names in tasks.items():
            if len(names) > 1:
                yield f"the id {schedule_id!r} is in the labels of {', '.join(names)}: taskiq keeps the last alone"
