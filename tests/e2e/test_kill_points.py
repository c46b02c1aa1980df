"""The outcome table of a send, row by row: who is killed or hangs at which point, and what the next scheduler does.

Each row has a gate and a timeline of its own. They are played a few at a time, and checked by a test each.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.e2e.rig import eventually
from tests.e2e.row import Row
from tests.e2e.row import played as played_rows
from tests.e2e.settings import POINTS
from tests.support.redis import RedisServer, find_server

pytestmark = [pytest.mark.process, pytest.mark.slow]

SOURCES = {"before claim": "redis", "claim to kick": "label", "kick to confirm": "redis", "after confirm": "label"}


class Outcome(Struct, frozen=True, kw_only=True):
    """`next`: what became of the next scheduler's ask. `copies`: how often the minute was sent. `state`: in the ledger.

    `doubts`: how many occurrences the status listed as in doubt after the next one had asked.
    """

    next: str
    copies: int
    state: str
    doubts: int


# ---- what happens


def killed(row: Row, point: str, policy: str, follower: str) -> Outcome:
    """A scheduler is killed at this point; a standby waits already, or another is started then."""
    row.start_gate(policy)
    row.settings = replace(row.settings, sources=(SOURCES[point],))
    row.add_schedules()
    following = row.scheduler(held=True)
    scheduler = row.stopped_at(point)
    if follower == "standby":
        following.go()
        if point in ("claim to kick", "kick to confirm"):
            eventually(lambda: row.status()["counts"]["held"] > 0, "the standby waits for the outcome")
        scheduler.end()
    else:
        scheduler.end()
        following.go()
    outcome = row.outcome(following)
    entry = row.entry()
    return Outcome(next=outcome, copies=row.copies(), state=entry.state, doubts=row.doubts())


def resent_by_an_operator(row: Row) -> Outcome:
    row.start_gate()
    row.stopped_at("claim to kick").end()
    row.becomes("doubt")
    assert row.outcome(row.scheduler()) == "refused"
    assert row.doubts() == 1
    assert row.copies() == 0
    assert row.resend() == 0
    assert row.resend() == 1, "nothing is in doubt any more"
    outcome = row.outcome(row.scheduler())
    return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=row.doubts())


def hung_past_its_lease(row: Row, policy: str) -> Outcome:
    """Alive, but hung in the send: the next one asks, then the first comes back and sends after all."""
    row.start_gate(policy)
    following = row.scheduler(held=True)
    scheduler = row.stopped_at("claim to kick", options={"lease": 1.0})
    row.becomes("doubt")
    following.go()
    outcome = row.outcome(following)
    listed = row.doubts()
    assert row.copies() == (1 if policy == "resend" else 0)
    scheduler.go()
    assert row.outcome(scheduler) == "sent"
    return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=listed)


def refused_by_the_broker(row: Row) -> Outcome:
    """Redis is stopped during a kick, and comes back."""
    binary = find_server()
    assert binary is not None
    with closing(RedisServer(binary)) as redis:
        redis.start()
        row.settings = replace(row.settings, redis=redis.url)
        row.start_gate()
        following = row.scheduler(held=True)
        scheduler = row.stopped_at("claim to kick")
        redis.stop()
        scheduler.go()
        row.becomes("released")
        redis.start()
        following.go()
        outcome = row.outcome(following)
        assert scheduler.running
        return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=row.doubts())


def gate_killed(row: Row, point: str) -> Outcome:
    """The gate is killed when the scheduler is at this point, and is back a moment after that goes on."""
    row.start_gate(grace="2s")
    following = row.scheduler(held=True)
    scheduler = row.stopped_at(point)
    row.gate.kill()
    scheduler.go()
    row.start_gate_again()
    assert row.outcome(scheduler) == "sent"
    following.go()
    outcome = row.outcome(following)
    return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=row.doubts())


def gate_killed_and_back_during_the_send(row: Row) -> Outcome:
    """The scheduler comes back by itself within the grace, and keeps its claim beyond that."""
    row.start_gate(grace="2s")
    following = row.scheduler(held=True)
    scheduler = row.stopped_at("claim to kick")
    row.gate.kill()
    row.start_gate_again()
    eventually(lambda: any(each["claims"] for each in row.status()["holders"]), "the claim has its holder back")
    following.go()
    eventually(lambda: row.status()["counts"]["held"] > 0, "the standby waits for the outcome")
    scheduler.go()
    assert row.outcome(scheduler) == "sent"
    outcome = row.outcome(following)
    return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=row.doubts())


def gate_away(row: Row, on_gate_down: str) -> Outcome:
    """No gate for longer than the scheduler's patience; then it is there, and another scheduler asks."""
    scheduler = row.scheduler(options={"patience": 1.0, "timeout": 1.0, "on_gate_down": on_gate_down})
    assert row.outcome(scheduler) == ("refused" if on_gate_down == "hold" else "sent")
    assert len(row.sends()) == (0 if on_gate_down == "hold" else 1)
    assert " is not sent: " in row.log.read_text() or on_gate_down == "send"
    assert " is sent without a claim: " in row.log.read_text() or on_gate_down == "hold"
    assert scheduler.running
    row.start_gate()
    outcome = row.outcome(row.scheduler())
    return Outcome(next=outcome, copies=row.copies(), state=row.entry().state, doubts=row.doubts())


# ---- what shall become of it

SENT_BY_NEXT = Outcome(next="sent", copies=1, state="sent", doubts=0)
SENT_BEFORE = Outcome(next="refused", copies=1, state="sent", doubts=0)
TWO_COPIES = Outcome(next="sent", copies=2, state="sent", doubts=0)
TABLE = {
    ("before claim", "skip"): SENT_BY_NEXT,
    ("before claim", "resend"): SENT_BY_NEXT,
    ("claim to kick", "skip"): Outcome(next="refused", copies=0, state="doubt", doubts=1),
    ("claim to kick", "resend"): SENT_BY_NEXT,
    ("kick to confirm", "skip"): Outcome(next="refused", copies=1, state="doubt", doubts=1),
    ("kick to confirm", "resend"): TWO_COPIES,
    ("after confirm", "skip"): SENT_BEFORE,
    ("after confirm", "resend"): SENT_BEFORE,
}

Play = Callable[[Row], Outcome]

ROWS: dict[str, tuple[Play, Outcome]] = {
    **{
        f"killed {point}, {policy}, {follower}": (
            partial(killed, point=point, policy=policy, follower=follower),
            expected,
        )
        for (point, policy), expected in TABLE.items()
        for follower in ("restart", "standby")
    },
    "killed claim to kick, resent by an operator": (resent_by_an_operator, SENT_BY_NEXT),
    "hung past its lease, skip": (
        partial(hung_past_its_lease, policy="skip"),
        Outcome(next="refused", copies=1, state="sent", doubts=1),
    ),
    "hung past its lease, resend": (partial(hung_past_its_lease, policy="resend"), TWO_COPIES),
    "refused by the broker": (refused_by_the_broker, SENT_BY_NEXT),
    **{f"gate killed {point}": (partial(gate_killed, point=point), SENT_BEFORE) for point in POINTS},
    "gate killed and back during the send": (gate_killed_and_back_during_the_send, SENT_BEFORE),
    "gate away, hold": (partial(gate_away, on_gate_down="hold"), SENT_BY_NEXT),
    "gate away, send": (partial(gate_away, on_gate_down="send"), TWO_COPIES),
}


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """The outcomes to come."""
    redis_server.start()
    plays = {name: play for name, (play, _) in ROWS.items()}
    with played_rows(
        request.session, plays, Path(__file__), redis_server.url, tmp_path_factory.mktemp("rows")
    ) as outcomes:
        yield outcomes


@pytest.mark.parametrize("name", ROWS)
def test_row(played: dict[str, Future[Outcome]], name: str) -> None:
    assert played[name].result() == ROWS[name][1]
