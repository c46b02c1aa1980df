"""Schedulers that were down for ten minutes, by each policy: what they send when they are back, and what is listed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from taskiq_gate.recovery import OFFERS
from tests.e2e.rig import Entry, Events, Scheduler, Sent, environment, ledger, sent
from tests.e2e.settings import TASK, TICK, Settings
from tests.support.faketime import FakeTime, find_library, remove_leftovers
from tests.support.gate_process import GateProcess
from tests.support.redis import RedisServer

pytestmark = [pytest.mark.process, pytest.mark.slow]

DOWN = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
"""The minute in which the schedulers are killed, and the gate with them, has been sent then."""
BACK = DOWN + timedelta(minutes=11)
ONCE = DOWN - timedelta(seconds=2.5)
UPDATE_SECONDS = 60.0
SENDS = {"none": 1, "latest": 2, "all": 11, "short": 3}
"""What each policy sends after the return, the present minute included. "short" is all of two and a half minutes."""
MANY = "many"
CRONS = tuple(f"cron-{number}" for number in range(7))
"""Of a scheduler by the policy `all` with more to make up for than one listing may offer."""
MANY_UPDATE_SECONDS = 5.0
"""And how often it lists them."""
RULES = {policy: f'catch_up = "{policy}"' for policy in SENDS} | {
    "short": 'catch_up = "all"\ncatch_up_within = "150s"',
    MANY: 'catch_up = "all"',
}
CONFIG = "\n".join(f'[[send]]\nschedules = ["{policy}-*"]\n{rule}' for policy, rule in RULES.items())
DEFERRED_TICKS = 3
"""Ticks of the loop that are waited for after that, in which nothing more may be sent."""


class Returned(Struct, frozen=True, kw_only=True):
    """What one policy's scheduler sent before and after. `in_order`: with its ticks of every second."""

    sends: list[Sent]
    in_order: list[Sent]
    entries: list[Entry]
    back: datetime

    @property
    def after(self) -> list[Sent]:
        return [one for one in self.sends if one.at >= self.back]

    @property
    def minutes_after(self) -> list[str]:
        """The minutes that were sent after the return."""
        ats = {entry.task_id: entry.at for entry in self.entries}
        return sorted(f"{ats[one.task_id]:%H:%M}" for one in self.after)

    @property
    def missed(self) -> list[str]:
        return [f"{entry.at:%H:%M}" for entry in self.entries if entry.state == "missed"]


@pytest.fixture(scope="module")
def returned(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Returned]]:
    library = find_library()
    if library is None:
        pytest.skip("no libfaketime on this machine: apt install faketime, or run tests/run.py")
    redis_server.start()
    folder = tmp_path_factory.mktemp("catch_up")
    with ExitStack() as stack:
        events = Events(folder / "events")
        stack.callback(events.close)
        timeline = FakeTime(library, DOWN)
        gate = stack.enter_context(GateProcess(folder / "gate", config=CONFIG, env=environment(timeline)))
        kinds = dict.fromkeys(SENDS, ("random", "once")) | {MANY: CRONS}
        every = {
            name: Settings(
                redis=redis_server.url,
                name=name,
                events=str(events.path),
                kinds=of,
                socket=str(gate.socket),
                once=ONCE,
            )
            for name, of in kinds.items()
        }
        first = {p: stack.enter_context(Scheduler(s, timeline, folder / "log")) for p, s in every.items()}
        for name, scheduler in first.items():
            for _ in kinds[name]:
                events.wait("sent", by=scheduler)
            scheduler.end()
        gate.kill()
        timeline = FakeTime(library, BACK)
        gate.env = environment(timeline)
        gate.start()
        back = timeline.now()
        often = {MANY: ("--update-interval", f"{MANY_UPDATE_SECONDS:g}")}
        second = {
            p: stack.enter_context(Scheduler(replace(s, ticks=True), timeline, folder / "log", often.get(p, ())))
            for p, s in every.items()
        }
        for name, count in (SENDS | {MANY: len(CRONS) * SENDS["all"]}).items():
            for _ in range(count):
                events.wait("sent", by=second[name])
        for scheduler in second.values():
            for _ in range(DEFERRED_TICKS):
                events.wait("tick", by=scheduler)
        with gate.client() as client:
            yield {
                p: Returned(sends=sent(s), in_order=sent(s, TASK, TICK), entries=ledger(client, p), back=back)
                for p, s in every.items()
            }
    remove_leftovers()


@pytest.mark.parametrize(
    ("policy", "minutes", "missed"),
    [
        ("none", ["12:11"], ["12:10"]),
        ("latest", ["12:10", "12:11"], ["12:09"]),
        ("all", [f"12:{minute:02}" for minute in range(1, 12)], []),
        ("short", ["12:09", "12:10", "12:11"], ["12:08"]),
    ],
)
def test_each_policy_sends_what_it_says_as_its_own_minute(
    returned: dict[str, Returned], policy: str, minutes: list[str], missed: list[str]
) -> None:
    assert returned[policy].minutes_after == minutes
    assert returned[policy].missed == missed, "minutes that were missed together are one record"


@pytest.mark.parametrize("policy", SENDS)
def test_it_is_sent_soon_after_the_return(returned: dict[str, Returned], policy: str) -> None:
    end = returned[policy].back + timedelta(seconds=UPDATE_SECONDS + 2)
    assert all(one.at <= end for one in returned[policy].after)


@pytest.mark.parametrize("policy", SENDS)
def test_nothing_is_sent_twice_and_one_offs_never_again(returned: dict[str, Returned], policy: str) -> None:
    ids = Counter(one.task_id for one in returned[policy].sends)
    assert set(ids.values()) == {1}
    assert Counter(one.kind for one in returned[policy].sends)["once"] == 1
    assert {one.kind for one in returned[policy].after} == {"random"}


def test_several_schedules_come_at_the_capped_rate(returned: dict[str, Returned]) -> None:
    """All minutes of all of them, no more of the old ones in one listing than it may offer, and those at once."""
    found = returned[MANY]
    ats = {entry.task_id: entry.at for entry in found.entries}
    minutes = Counter((one.kind, ats[one.task_id]) for one in found.after)
    expected = [DOWN.replace(second=0) + timedelta(minutes=number) for number in range(1, 12)]
    assert minutes == {(kind, minute): 1 for kind in CRONS for minute in expected}
    back = [one for one in found.in_order if one.at >= found.back]
    old = [number for number, one in enumerate(back) if one.task_id in ats and ats[one.task_id] < expected[-1]]
    assert len(old) == 70 > OFFERS
    ticks = [number for number, one in enumerate(back) if one.kind == "tick"]
    assert sum(number < old[OFFERS] for number in ticks) >= MANY_UPDATE_SECONDS - 1, "one listing, and then the next"
    began = back[ticks[0]].at
    for part, listings in ((old[:OFFERS], 1), (old, 2)):
        end = began + timedelta(seconds=listings * MANY_UPDATE_SECONDS + 2)
        assert all(back[number].at <= end for number in part)
