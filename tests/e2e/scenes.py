"""Scenes of four minutes, played side by side: schedulers that are killed, restarted and doubled by the clock.

Those of `scenes_of` are the rows of the table that was measured without a gate.
"""

import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tests.e2e.rig import Entry, Events, Scheduler, Sent, Timeline, add_schedules, doubts, ledger, sent
from tests.e2e.settings import KINDS, OTHER_KINDS, Settings
from tests.support.gate_process import GateProcess

MINUTES = 4
LEAD = 45.0
"""Seconds of the timeline before the first minute that counts."""
FIRST_START = -10.0
"""When schedulers start; seconds here count from the first minute."""
RESTARTS = (
    (10.0, 10.0), (25.0, 25.0), (40.0, 40.0),
    (70.0, 70.0), (85.0, 85.0), (100.0, 100.0), (117.5, 122.0),
    (130.0, 130.0), (145.0, 145.0), (160.0, 160.0),
    (190.0, 190.0), (205.0, 205.0), (220.0, 220.0),
)  # fmt: skip
"""When a scheduler is killed, and when the next one starts."""
IN_SEND = (25.0, 85.0, 145.0, 205.0)
"""The kills that come sooner, where the scene wants it: in the first send after the start before."""
SLOW_KICK = 8.0
"""How long that send takes."""
END = MINUTES * 60.0 - 3.0
ONCE = 45.0
"""When the one-off is due."""


class Scene(Struct, frozen=True, kw_only=True):
    """What is played. `number`: the signal of the restarts, None for none.

    `second`: another scheduler starts with the first. `standby`: another one starts when the first has been killed in
    a send, so that it cannot come before it, however slow the machine is.
    """

    name: str
    sources: tuple[str, ...]
    gated: bool = True
    number: int | None = None
    second: bool = False
    standby: bool = False
    in_send: bool = False
    kinds: tuple[str, ...] = KINDS + OTHER_KINDS
    arguments: tuple[str, ...] = ()

    @property
    def restarts(self) -> tuple[tuple[float, float], ...]:
        """When the first scheduler is killed, and when the next one starts."""
        return () if self.number is None else RESTARTS


def scenes_of(source: str, *, gated: bool) -> list[Scene]:
    """The rows of the table for one source, or for `both` in one scheduler."""
    name, sources = f"{'gated' if gated else 'bare'}-{source}", _sources(source)
    skip = ("--skip-first-run",)
    return [
        Scene(name=f"{name}-sigterm", sources=sources, gated=gated, number=signal.SIGTERM),
        Scene(name=f"{name}-sigkill", sources=sources, gated=gated, number=signal.SIGKILL),
        Scene(name=f"{name}-two", sources=sources, gated=gated, second=True),
        Scene(name=f"{name}-skip", sources=sources, gated=gated, number=signal.SIGTERM, arguments=skip),
    ]


def hard_scenes(source: str) -> list[Scene]:
    """Kills while it sends: alone, by the policy `skip`; with a standby that nobody touches, by `resend`."""
    sources = _sources(source)
    kill = signal.SIGKILL
    return [
        Scene(name=f"gated-{source}-in-send", sources=sources, number=kill, in_send=True, kinds=KINDS),
        Scene(name=f"resend-{source}-standby", sources=sources, number=kill, in_send=True, kinds=KINDS, standby=True),
    ]


def _sources(source: str) -> tuple[str, ...]:
    return ("label", "redis") if source == "both" else (source,)


CONFIG = """
[[send]]
schedules = ["resend-*"]
on_doubt = "resend"

[[send]]
schedules = ["gated-*-skip-*"]
catch_up = "latest"
"""
"""A start under --skip-first-run skips a minute that nobody has sent: catch-up alone sends it."""


class Played(Struct, frozen=True, kw_only=True):
    """What became of a scene. `first`: the first minute that counts. `late`: of the latest kill, in seconds."""

    scene: Scene
    first: datetime
    starts: int
    late: float
    sends: list[Sent]
    entries: list[Entry]
    doubts: list[tuple[str, datetime]]

    @property
    def minutes(self) -> list[datetime]:
        return [self.first + timedelta(minutes=number) for number in range(MINUTES)]

    def copies(self, entry: Entry) -> list[Sent]:
        """The messages of an occurrence."""
        return [one for one in self.sends if one.task_id == entry.task_id]

    def of_kind(self, *kinds: str) -> list[Sent]:
        """The messages of schedules of these kinds."""
        return [one for one in self.sends if one.kind in kinds]

    @property
    def counts(self) -> dict[str, list[int]]:
        """How often each cron schedule was sent, for each minute that counts.

        With a gate by the ledger's occurrences, without one by the clock at the send.
        """
        crons = self.of_kind(*KINDS)
        if self.scene.gated:
            times = Counter(one.task_id for one in crons)
            names = {entry.schedule for entry in self.entries if times[entry.task_id]}
            sends = Counter({(entry.schedule, entry.at): times[entry.task_id] for entry in self.entries})
        else:
            names = {one.kind for one in crons}
            sends = Counter((one.kind, _minute(one.at)) for one in crons)
        return {name: [sends[name, minute] for minute in self.minutes] for name in sorted(names)}

    @property
    def turns(self) -> int:
        """How often an interval was sent in the time that counts, over all sources."""
        end = self.first + timedelta(minutes=MINUTES)
        return sum(self.first <= one.at < end for one in self.of_kind("often"))


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


class Stage:
    """The processes of one scene while it is played."""

    def __init__(self, scene: Scene, redis: str, gate: GateProcess, timeline: Timeline, folder: Path) -> None:
        self.scene = scene
        self._timeline = timeline
        self._first = first_minute(timeline)
        self._log = folder / f"{scene.name}.log"
        self._events = Events(folder / f"{scene.name}.events")
        self._schedulers: list[Scheduler] = []
        self._late = 0.0
        self._caught = False
        """Whether a scheduler was killed in a send already."""
        self._settings = Settings(
            redis=redis,
            name=scene.name,
            events=str(self._events.path),
            sources=scene.sources,
            socket=str(gate.socket) if scene.gated else None,
            held=True,
            slow=SLOW_KICK if scene.in_send else 0.0,
            kinds=scene.kinds,
            once=self._first + timedelta(seconds=ONCE),
        )
        add_schedules(self._settings)

    def play(self) -> Played:
        """Play it; returns when its time is over."""
        try:
            self._play()
        finally:
            for scheduler in self._schedulers:
                scheduler.close()
            self._events.close()
        return Played(
            scene=self.scene,
            first=self._first,
            starts=len(self._schedulers),
            late=self._late,
            sends=sent(self._settings),
            entries=[],
            doubts=[],
        )

    def _play(self) -> None:
        running = self._make()
        others = [self._make()] if self.scene.second else []
        standby = [self._make()] if self.scene.standby else []
        self._sleep_until(FIRST_START)
        for scheduler in (running, *others):
            scheduler.go()
        for kill, start in self.scene.restarts:
            following = self._make()
            self._kill(running, kill, following)
            if kill in IN_SEND and standby:
                standby.pop().go()
            self._sleep_until(start)
            following.go()
            running = following
        self._sleep_until(END)

    def _make(self) -> Scheduler:
        self._schedulers.append(Scheduler(self._settings, self._timeline, self._log, self.scene.arguments))
        return self._schedulers[-1]

    def _kill(self, running: Scheduler, at: float, following: Scheduler) -> None:
        """Kill it at this time; on a machine that is too slow later, when it has asked and the next one is ready."""
        assert self.scene.number is not None
        if self.scene.in_send and at in IN_SEND:
            # Nobody competes for the first time, so that it is caught for certain; later a standby may come before it.
            outcomes = ("kicking", "refused") if self._caught else ("kicking",)
            for _ in range(len(self.scene.sources) * len(self.scene.kinds)):
                self._events.wait(*outcomes, by=running)
            self._caught = True
        else:
            self._events.wait("held", by=following)
            self._sleep_until(at)
            self._events.wait("asked", by=running)
        self._late = max(self._late, self._now() - at)
        running.end(self.scene.number)

    def _now(self) -> float:
        return (self._timeline.now() - self._first).total_seconds()

    def _sleep_until(self, at: float) -> None:
        time.sleep(max((at - self._now()) / self._timeline.speed, 0.0))


def first_minute(timeline: Timeline) -> datetime:
    """The next minute that leaves time to make processes."""
    return _minute(timeline.now() + timedelta(seconds=LEAD + 59.999))


def play(scenes: list[Scene], redis: str, gate: GateProcess, timeline: Timeline, folder: Path) -> dict[str, Played]:
    """Play the scenes side by side, and give what became of each, by name."""
    with ThreadPoolExecutor(len(scenes)) as pool:
        stages = [Stage(scene, redis, gate, timeline, folder) for scene in scenes]
        played = list(pool.map(Stage.play, stages))
    with gate.client() as client:
        return {
            each.scene.name: replace(
                each, entries=ledger(client, each.scene.name), doubts=doubts(client, each.scene.name)
            )
            for each in played
        }
