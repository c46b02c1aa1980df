"""The asyncio client, against a gate that the test plays, and against the real one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gate.errors import InvalidClaim, StoreUnavailable, TooManyConnections, UnknownToken
from gate.interface import ClaimIn, ClaimOut, Decision, Done, Reply, ResendIn, TokenIn
from gate_client import AsyncGate, GateError, GateUnreachable
from gate_client.core import claim_in
from tests.support.fake_gate import CLAIM, CONFIRM, RELEASE, Answer, Drop, FakeGate, Keep, done, grant, reply

MINUTE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RESEND = "io.schedulegate.Control.Resend"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


def run(path: Path, work: Callable[[AsyncGate], Awaitable[Any]], timeout: float = 10.0) -> None:
    """Do work with a client in an event loop of its own, and close the client."""

    async def main() -> None:
        async with AsyncGate(path, holder="me", timeout=timeout) as asker:
            await work(asker)

    asyncio.run(main())


def in_turn(*answers: Callable[[ClaimIn], Answer]) -> Callable[[ClaimIn], Answer]:
    """Each answer once, then the last one again and again."""
    left = list(answers)
    return lambda parameters: (left.pop(0) if len(left) > 1 else left[0])(parameters)


def held(parameters: ClaimIn) -> ClaimOut:
    return reply("held", parameters, by="somebody", until=datetime.now(UTC) + timedelta(seconds=30))


# ---- calls


def test_a_claim_is_granted_and_settled(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", MINUTE, lease=5.0)
        assert claim.granted
        assert claim.at == MINUTE
        await claim.confirm()
        await claim.release()
        assert fake.tokens(CLAIM) == fake.tokens(CONFIRM) == fake.tokens(RELEASE) == [claim.token]
        with pytest.raises(InvalidClaim, match="has no zone"):
            await asker.claim("nightly", MINUTE.replace(tzinfo=None))

    run(fake.path, work)
    fake.until(lambda: not fake.live)


def test_coroutines_share_one_connection_and_do_not_wait_for_each_other(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = lambda p: Keep()

    async def work(asker: AsyncGate) -> None:
        asking = [asyncio.create_task(asker.confirm(str(n))) for n in range(5)]
        await fake.when(lambda: len(fake.kept) == 5)
        for _ in range(4):
            fake.finish(Done())
        fake.finish(UnknownToken(token="4"))
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert results[:4] == [None] * 4
        assert isinstance(results[4], UnknownToken)
        assert fake.accepted == 1

    run(fake.path, work)


def test_no_more_than_64_calls_wait_at_once(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = lambda p: Keep()

    async def work(asker: AsyncGate) -> None:
        asking = [asyncio.create_task(asker.confirm(str(n))) for n in range(200)]
        await fake.when(lambda: len(fake.kept) == 64)
        asking[64].cancel()
        asking[70].cancel()
        for n in range(198):
            await fake.when(lambda: fake.kept)
            assert len(fake.kept) <= 64
            fake.finish(Done())
            assert len(fake.calls) <= 65 + n
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert [n for n, result in enumerate(results) if result is not None] == [64, 70]
        assert "64" not in fake.tokens(CONFIRM)

    run(fake.path, work)


def test_a_lost_answer_is_asked_for_again_with_the_same_token(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(lambda p: Drop(), lambda p: TooManyConnections(limit=1000), grant)

    async def work(asker: AsyncGate) -> None:
        assert (await asker.claim("nightly", MINUTE)).granted
        assert len(fake.tokens(CLAIM)) == 3
        assert len(set(fake.tokens(CLAIM))) == 1

    run(fake.path, work)


def test_what_is_not_idempotent_is_not_asked_twice(fake: FakeGate) -> None:
    fake.answers[RESEND] = lambda p: Drop()

    async def work(asker: AsyncGate) -> None:
        with pytest.raises(GateUnreachable, match="connection was lost"):
            await asker.call(RESEND, ResendIn(schedule="nightly", at="2026-11-30T12:00:00Z"))
        assert len(fake.asked(RESEND)) == 1

    run(fake.path, work)


def test_settling_waits_for_a_store_that_is_away_and_claiming_does_not(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = in_turn(lambda p: StoreUnavailable(retry_after=0.01), done)
    fake.answers[CLAIM] = lambda p: StoreUnavailable(retry_after=0.01)

    async def work(asker: AsyncGate) -> None:
        await asker.confirm("t")
        with pytest.raises(StoreUnavailable):
            await asker.claim("nightly", MINUTE)
        assert len(fake.asked(CLAIM)) == 1

    run(fake.path, work)


def test_without_a_gate_the_error_names_the_socket(tmp_path: Path) -> None:
    async def work(asker: AsyncGate) -> None:
        begin = time.monotonic()
        with pytest.raises(GateUnreachable, match=r"none\.sock cannot be reached: no such file.*: start it"):
            await asker.claim("nightly", MINUTE)
        assert time.monotonic() - begin < 0.5

    run(tmp_path / "none.sock", work, timeout=0.05)


def test_a_gate_that_comes_late_is_still_asked(tmp_path: Path) -> None:
    fake = FakeGate(tmp_path / "late.sock")

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE))
        await asyncio.sleep(0)
        await asyncio.to_thread(fake.start)
        assert (await claiming).granted

    try:
        run(fake.path, work)
    finally:
        fake.stop()


def test_a_pipeline_keeps_order_and_gives_errors_as_values(fake: FakeGate) -> None:
    fake.answers[CONFIRM] = lambda p: UnknownToken(token=p.token) if int(p.token) % 7 == 0 else Done()

    async def work(asker: AsyncGate) -> None:
        results = await asker.pipeline([(CONFIRM, TokenIn(token=str(n))) for n in range(200)])
        assert [isinstance(r, UnknownToken) for r in results] == [n % 7 == 0 for n in range(200)]

    run(fake.path, work)


def test_a_cancelled_pipeline_leaves_no_claim_behind(fake: FakeGate) -> None:
    fake.answers[CLAIM] = lambda p: Keep() if p.token == "9" else grant(p)

    async def work(asker: AsyncGate) -> None:
        calls = [(CLAIM, claim_in(f"s{n}", "me", MINUTE, token=str(n))) for n in range(10)]
        asking = asyncio.create_task(asker.pipeline(calls))
        await fake.when(lambda: len(fake.asked(CLAIM)) == 10)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        fake.finish(reply("send", calls[9][1]))
        await fake.when(lambda: len(fake.tokens(RELEASE)) == 10)
        assert sorted(fake.tokens(RELEASE)) == [str(n) for n in range(10)]

    run(fake.path, work)


def test_a_call_that_cannot_be_written_down_disturbs_no_other(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        with pytest.raises(UnicodeEncodeError):
            await asker.claim("\ud800", MINUTE)
        await asker.confirm("other", timeout=5)

    run(fake.path, work)


# ---- event loops


def test_a_client_can_be_used_in_one_loop_after_another(fake: FakeGate) -> None:
    asker = AsyncGate(fake.path, timeout=10)

    async def use() -> None:
        await asker.confirm("t")
        await asker.close()

    asyncio.run(use())
    asyncio.run(use())
    assert fake.tokens(CONFIRM) == ["t", "t"]


def test_two_loops_at_once_are_refused(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        await asker.confirm("t")
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(asker.confirm("u")))

    run(fake.path, work)


def test_making_one_needs_no_loop_and_closing_an_unused_one_does_nothing() -> None:
    asyncio.run(AsyncGate("unused").close())


# ---- leaving


def test_a_cancelled_claim_is_released_when_its_grant_comes(fake: FakeGate) -> None:
    fake.answers[CLAIM] = lambda p: Keep()

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE, token="t"))
        await fake.when(lambda: fake.kept)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        fake.finish(reply("send", fake.asked(CLAIM)[0]))
        await fake.when(lambda: fake.tokens(RELEASE) == ["t"])
        assert fake.accepted == 1

    run(fake.path, work)


@pytest.mark.parametrize("turns", range(8))
def test_wherever_a_cancellation_falls_a_grant_is_used_or_released(turns: int, fake: FakeGate) -> None:
    """The answer may be read, and its coroutine not yet have gone on, when the cancellation comes."""
    fake.answers[CLAIM] = lambda p: Keep()

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE, token="t"))
        await fake.when(lambda: fake.kept)
        fake.finish(reply("send", fake.asked(CLAIM)[0]))
        for _ in range(turns):
            await asyncio.sleep(0)
        claiming.cancel()
        try:
            claim = await claiming
        except asyncio.CancelledError:
            await fake.when(lambda: fake.tokens(RELEASE) == ["t"])
        else:
            assert claim.granted
            assert not fake.tokens(RELEASE)

    run(fake.path, work)


def test_a_refusal_that_comes_late_needs_no_release(fake: FakeGate) -> None:
    fake.answers[CLAIM] = lambda p: Keep()

    async def work(asker: AsyncGate) -> None:
        with pytest.raises(GateUnreachable, match=r"no answer within 0\.05 s"):
            await asker.claim("nightly", MINUTE, timeout=0.05)
        fake.finish(reply("sent", fake.asked(CLAIM)[0]))
        await asker.confirm("other")
        assert not fake.tokens(RELEASE)

    run(fake.path, work)


def test_a_silent_gate_is_given_up_and_its_late_grant_released(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        fake.deafen()
        begin = time.monotonic()
        with pytest.raises(GateUnreachable, match=r"no answer within 0\.1 s"):
            await asker.claim("nightly", MINUTE, token="t", timeout=0.1)
        assert time.monotonic() - begin < 1.0
        fake.hear()
        await fake.when(lambda: fake.tokens(RELEASE) == ["t"])

    run(fake.path, work)


def test_a_claim_lost_with_its_gate_is_released_when_it_is_back(fake: FakeGate) -> None:
    fake.answers[CLAIM] = lambda p: Drop()

    async def work(asker: AsyncGate) -> None:
        with pytest.raises(GateUnreachable):
            await asker.claim("nightly", MINUTE, token="t", timeout=0.1)
        await fake.when(lambda: fake.tokens(RELEASE) == ["t"])

    run(fake.path, work)


def test_a_token_that_is_claimed_again_is_not_released(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(lambda p: Keep(), grant)

    async def work(asker: AsyncGate) -> None:
        with pytest.raises(GateUnreachable):
            await asker.claim("nightly", MINUTE, token="t", timeout=0.05)
        again = asyncio.create_task(asker.claim("nightly", MINUTE, token="t"))
        await fake.when(lambda: len(fake.asked(CLAIM)) == 2)
        fake.finish(reply("send", fake.asked(CLAIM)[0]))
        assert (await again).granted
        await asker.confirm("other")
        assert not fake.tokens(RELEASE)

    run(fake.path, work)


# ---- a gate that restarts while claims are open


def test_open_claims_are_asked_for_again_at_once_when_the_connection_is_lost(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        claims = [await asker.claim(f"s{n}", MINUTE) for n in range(3)]
        await claims[0].confirm()
        fake.drop()
        await fake.when(lambda: len(fake.asked(CLAIM)) == 5)
        assert set(fake.tokens(CLAIM)[3:]) == {claims[1].token, claims[2].token}
        assert fake.asked(CLAIM)[3] in fake.asked(CLAIM)[1:3], "the same parameters"
        await claims[1].confirm()
        fake.stop()
        fake.start()
        await fake.when(lambda: len(fake.asked(CLAIM)) == 6)
        assert fake.tokens(CLAIM)[5] == claims[2].token
        assert not fake.tokens(RELEASE)

    run(fake.path, work)


def test_a_gate_away_longer_than_a_moment_is_told_as_well(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", MINUTE)
        fake.stop()
        with pytest.raises(GateUnreachable):
            await asker.call(CONFIRM, TokenIn(token="other"), timeout=0.1)
        fake.start()
        await fake.when(lambda: fake.tokens(CLAIM) == [claim.token, claim.token])

    run(fake.path, work)


def test_a_claim_whose_lease_is_over_is_not_asked_for_again(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("short", MINUTE, lease=0.01)
        assert claim.until is not None
        await asyncio.sleep((claim.until - datetime.now(UTC)).total_seconds() + 0.01)
        await asker.claim("long", MINUTE)
        fake.drop()
        await fake.when(lambda: len(fake.asked(CLAIM)) == 3)
        assert fake.asked(CLAIM)[2].schedule == "long"
        await asker.confirm("other")
        assert len(fake.asked(CLAIM)) == 3

    run(fake.path, work)


def test_a_renewal_that_is_refused_ends_there(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(grant, lambda p: reply("doubt", p))

    async def work(asker: AsyncGate) -> None:
        await asker.claim("nightly", MINUTE)
        fake.drop()
        await fake.when(lambda: len(fake.asked(CLAIM)) == 2)
        fake.drop()
        await asker.confirm("other")
        assert len(fake.asked(CLAIM)) == 2

    run(fake.path, work)


# ---- settling without waiting


def test_release_soon_is_written_at_once(fake: FakeGate) -> None:
    told: list[Reply | GateError] = []

    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", MINUTE)
        asker.release_soon(claim.token or "", then=told.append)
        fake.until(lambda: fake.tokens(RELEASE) == [claim.token])  # no turn of the loop was needed
        await asker.drain()
        assert told == [Done()]

    run(fake.path, work)


def test_confirm_soon_goes_on_until_the_gate_is_back(fake: FakeGate) -> None:
    told: list[Reply | GateError] = []

    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", MINUTE)
        fake.stop()
        asker.confirm_soon(claim.token or "", then=told.append)
        with pytest.raises(GateUnreachable):
            await asker.call(RELEASE, TokenIn(token="other"), timeout=0.1)
        fake.start()
        await fake.when(lambda: fake.tokens(CONFIRM) == [claim.token])
        await asker.drain()
        assert told == [Done()]

    run(fake.path, work)


def test_what_cannot_be_settled_is_told(tmp_path: Path) -> None:
    told: list[Reply | GateError] = []

    async def work(asker: AsyncGate) -> None:
        asker.release_soon("first", timeout=0.01, then=told.append)
        await asker.drain(5)
        asker.confirm_soon("second", then=told.append)

    run(tmp_path / "none.sock", work)
    assert [type(result) for result in told] == [GateUnreachable] * 2


def test_closing_waits_for_what_is_being_settled(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        asker.release_soon("t")

    run(fake.path, work)
    assert fake.tokens(RELEASE) == ["t"]


# ---- waiting for somebody else


@pytest.mark.parametrize("outcome", ["send", "sent", "doubt"])
def test_wait_brings_the_outcome(outcome: str, fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)), grant)

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE, wait=10))
        await fake.when(lambda: fake.kept)
        await asker.confirm("the main connection is free meanwhile")
        fake.finish(reply(outcome, fake.asked(CLAIM)[1]))
        assert (await claiming).decision == outcome
        assert len(fake.tokens(CLAIM)) == (3 if outcome == "send" else 2), "a grant moves to the connection that stays"
        assert len(set(fake.tokens(CLAIM))) == 1
        await fake.when(lambda: len(fake.live) == 1)

    run(fake.path, work)


def test_wait_ends_and_leaves_no_claim_behind(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)))

    async def work(asker: AsyncGate) -> None:
        claim = await asker.claim("nightly", MINUTE, wait=0.1)
        assert claim.decision is Decision.HELD
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1])

    run(fake.path, work)


def test_a_cancelled_wait_leaves_no_claim_behind(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Keep(held(p)))

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE, wait=10))
        await fake.when(lambda: fake.kept)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        await fake.when(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1])
        await fake.when(lambda: len(fake.live) == 1)

    run(fake.path, work)


def test_a_wait_that_is_cancelled_while_its_grant_moves_leaves_no_claim_behind(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, grant, lambda p: Keep())

    async def work(asker: AsyncGate) -> None:
        claiming = asyncio.create_task(asker.claim("nightly", MINUTE, wait=10))
        await fake.when(lambda: fake.kept)
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        fake.finish(reply("send", fake.asked(CLAIM)[0]))
        await fake.when(lambda: fake.tokens(RELEASE)[-1:] == fake.tokens(CLAIM)[:1])
        assert fake.calls[-1][0] == RELEASE

    run(fake.path, work)


def test_wait_outlives_a_lost_connection(fake: FakeGate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Drop(), held, lambda p: reply("sent", p))

    async def work(asker: AsyncGate) -> None:
        assert (await asker.claim("nightly", MINUTE, wait=10)).decision is Decision.SENT

    run(fake.path, work)


# ---- sending


def test_leaving_the_block_confirms_and_an_exception_releases(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        async with asker.sending("nightly", MINUTE) as claim:
            assert claim.granted
        assert fake.tokens(CONFIRM) == [claim.token]
        with pytest.raises(ZeroDivisionError):
            async with asker.sending("weekly", MINUTE) as claim:
                _ = 1 / 0
        assert fake.tokens(RELEASE) == [claim.token]
        async with asker.sending("monthly", MINUTE) as claim:
            await claim.release()
        assert len(fake.calls) == 6

    run(fake.path, work)


def test_a_cancellation_inside_settles_nothing(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        entered = asyncio.Event()

        async def send() -> None:
            async with asker.sending("nightly", MINUTE):
                entered.set()
                await asyncio.sleep(3600)

        sending = asyncio.create_task(send())
        await entered.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asker.confirm("other")
        assert [name for name, _ in fake.calls] == [CLAIM, CONFIRM]

    run(fake.path, work)


def test_a_confirmation_that_fails_says_that_it_was_sent(fake: FakeGate) -> None:
    async def work(asker: AsyncGate) -> None:
        with pytest.raises(GateUnreachable, match=r"nightly at 2026-11-30T12:00:00Z was sent, but is not confirmed"):
            async with asker.sending("nightly", MINUTE):
                await asyncio.to_thread(fake.stop)

    run(fake.path, work, timeout=0.1)
