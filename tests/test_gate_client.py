"""The blocking client, against a gate that the test plays, and against the real one."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from gate.errors import (
    InvalidClaim,
    StoreUnavailable,
    TooManyConnections,
    UnknownToken,
)
from gate.interface import (
    ClaimIn,
    ClaimOut,
    Decision,
    Done,
    Reply,
    ResendIn,
    StatusOut,
    TokenIn,
)
from gate_client import Gate, GateUnreachable
from gate_client import core as client_core
from gate_client.core import claim_in, cut, default_holder, pauses, socket_path
from tests.support.fake_gate import CLAIM, CONFIRM, RELEASE, Answer, Drop, FakeGate, Keep, done, grant, reply

MINUTE = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RESEND = "io.schedulegate.Control.Resend"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeGate]:
    with FakeGate(tmp_path / "fake.sock") as gate:
        yield gate


@pytest.fixture
def asker(fake: FakeGate) -> Iterator[Gate]:
    with Gate(fake.path, holder="me", timeout=10) as gate:
        yield gate


def in_turn(*answers: Callable[[ClaimIn], Answer]) -> Callable[[ClaimIn], Answer]:
    """Each answer once, then the last one again and again."""
    left = list(answers)
    return lambda parameters: (left.pop(0) if len(left) > 1 else left[0])(parameters)


# ---- the core


def test_socket_is_looked_for_where_the_documentation_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(client_core, "SYSTEM_SOCKET", str(tmp_path / "system.sock"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("GATE_SOCKET", "/named.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert socket_path("/argument.sock") == "/argument.sock"
    assert socket_path(None) == "/named.sock"
    monkeypatch.delenv("GATE_SOCKET")
    assert socket_path(None) == "/run/user/1000/gate/gate.sock"
    (tmp_path / "system.sock").touch()
    assert socket_path(None) == str(tmp_path / "system.sock")
    (tmp_path / "system.sock").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert socket_path(None) == str(tmp_path / "system.sock")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(GateUnreachable, match=r"system\.sock cannot be reached: no such file, and neither"):
        socket_path(None)


def test_holder_names_host_process_and_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/nightly", "--now"])
    assert default_holder() == f"{os.uname().nodename}:{os.getpid()}:nightly"
    monkeypatch.setattr(sys, "argv", ["/lib/python3/taskiq/__main__.py", "scheduler"])
    assert default_holder().endswith(":taskiq")
    monkeypatch.setattr(sys, "argv", ["x" * 1000])
    assert len(default_holder().encode()) == 256


def test_cut_never_ends_within_a_character() -> None:
    assert cut("äöü", 5) == "äö"
    assert cut("a\ud800b", 9) == "a?b"


def test_pauses_double_from_20_ms_to_500_ms() -> None:
    pause = pauses()
    assert [round(next(pause), 3) for _ in range(7)] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_claims_have_a_token_of_128_bits_and_an_instant_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    first, second = (claim_in("s", "me", datetime(2026, 11, 30, 13, tzinfo=berlin)) for _ in range(2))
    assert first.at == "2026-11-30T12:00:00Z"
    assert first.token is not None
    assert len(bytes.fromhex(first.token)) == 16
    assert first.token != second.token
    assert claim_in("s", "me", None, every=10.0, token="mine").token == "mine"


@pytest.mark.parametrize("at", [MINUTE.replace(tzinfo=None), "2026-11-30T12:00:00", "noon"])
def test_an_instant_without_a_zone_is_refused_before_anything_is_sent(
    at: datetime | str, fake: FakeGate, asker: Gate
) -> None:
    with pytest.raises(InvalidClaim, match=r"invalid claim: at: .*(zone|RFC 3339)"):
        asker.claim("nightly", at)
    assert fake.accepted == 0


# ---- calls


def test_a_claim_says_what_the_gate_said(fake: FakeGate, asker: Gate) -> None:
    claim = asker.claim("nightly", MINUTE, deadline=60.0, lease=5.0, title="the nightly")
    assert claim.granted
    assert claim.decision is Decision.SEND
    assert claim.at == MINUTE
    assert claim.by == "me"
    assert claim.until is not None
    assert fake.asked(CLAIM)[0] == ClaimIn(
        schedule="nightly", holder="me", at="2026-11-30T12:00:00Z", deadline=60.0, lease=5.0, title="the nightly",
        token=claim.token,
    )  # fmt: skip
    claim.confirm()
    claim.release()
    assert fake.tokens(CONFIRM) == fake.tokens(RELEASE) == [claim.token]


def test_a_refusal_is_an_answer_that_cannot_be_settled(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = lambda p: reply("sent", p, by="somebody", reason="already sent")
    claim = asker.claim("nightly", MINUTE)
    assert not claim.granted
    assert (claim.decision, claim.by, claim.reason, claim.token) == ("sent", "somebody", "already sent", None)
    assert claim.settled
    with pytest.raises(ValueError, match="was not granted"):
        claim.confirm()


def test_error_replies_are_raised_as_what_they_are(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = lambda p: StoreUnavailable(retry_after=1.5)
    fake.answers[CONFIRM] = lambda p: UnknownToken(token=p.token)
    with pytest.raises(StoreUnavailable) as caught:
        asker.claim("nightly", MINUTE)
    assert caught.value.retry_after == 1.5
    with pytest.raises(UnknownToken):
        asker.confirm("nobody's")
    assert len(fake.calls) == 2, "neither is asked again"


def test_a_lost_answer_is_asked_for_again_with_the_same_token(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = in_turn(lambda p: Drop(), lambda p: Drop(), grant)
    assert asker.claim("nightly", MINUTE).granted
    assert len(set(fake.tokens(CLAIM))) == 1
    assert len(fake.tokens(CLAIM)) == 3


def test_what_is_not_idempotent_is_not_asked_twice(fake: FakeGate, asker: Gate) -> None:
    fake.answers[RESEND] = lambda p: Drop()
    with pytest.raises(GateUnreachable):
        asker.call(RESEND, ResendIn(schedule="nightly", at="2026-11-30T12:00:00Z"))
    assert len(fake.asked(RESEND)) == 1


def test_a_gate_that_is_full_for_a_moment_is_asked_again(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = in_turn(lambda p: TooManyConnections(limit=1000), grant)
    assert asker.claim("nightly", MINUTE).granted


def test_settling_waits_for_a_store_that_is_away(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CONFIRM] = in_turn(lambda p: StoreUnavailable(retry_after=0.01), done)
    asker.confirm("t")
    assert fake.tokens(CONFIRM) == ["t", "t"]
    fake.answers[RELEASE] = lambda p: StoreUnavailable(retry_after=0.01)
    with pytest.raises(StoreUnavailable):
        asker.release("t", timeout=0.1)


def test_without_a_gate_the_error_names_the_socket_and_what_to_do(tmp_path: Path) -> None:
    with Gate(tmp_path / "none.sock", timeout=0.05) as asker:
        begin = time.monotonic()
        with pytest.raises(GateUnreachable, match=r"none\.sock cannot be reached: no such file.*: start it") as caught:
            asker.claim("nightly", MINUTE)
        assert time.monotonic() - begin < 0.5
    assert caught.value.socket == str(tmp_path / "none.sock")


def test_a_path_that_is_too_long_is_an_error_of_the_same_kind(tmp_path: Path) -> None:
    with Gate(str(tmp_path / ("x" * 200)), timeout=0.05) as asker, pytest.raises(GateUnreachable, match="too long"):
        asker.confirm("t")


def test_a_gate_that_comes_late_is_still_asked(tmp_path: Path) -> None:
    fake = FakeGate(tmp_path / "late.sock")
    late = threading.Timer(0.1, fake.start)
    late.start()
    try:
        with Gate(fake.path, timeout=10) as asker:
            assert asker.claim("nightly", MINUTE).granted
    finally:
        late.join()
        fake.stop()


def test_an_idle_connection_that_was_lost_is_no_trouble(fake: FakeGate, asker: Gate) -> None:
    asker.confirm("a")
    fake.drop()
    asker.confirm("b")
    fake.stop()
    fake.start()
    asker.confirm("c")
    assert fake.tokens(CONFIRM) == ["a", "b", "c"]


def test_a_silent_gate_is_given_up_and_its_late_grant_released(fake: FakeGate, asker: Gate) -> None:
    fake.deafen()
    begin = time.monotonic()
    with pytest.raises(GateUnreachable, match=r"fake\.sock cannot be reached: no answer within 0\.1 s"):
        asker.claim("nightly", MINUTE, token="t", timeout=0.1)
    assert time.monotonic() - begin < 1.0
    fake.hear()
    fake.until(lambda: fake.tokens(RELEASE))
    assert set(fake.tokens(RELEASE)) == {"t"}


def test_a_claim_lost_with_its_gate_is_released_by_the_next_call(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = lambda p: Drop()
    with pytest.raises(GateUnreachable, match="closed the connection"):
        asker.claim("nightly", MINUTE, token="t", timeout=0.1)
    fake.stop()
    fake.start()
    asker.confirm("other")
    assert "t" in fake.tokens(RELEASE)
    released = len(fake.tokens(RELEASE))
    asker.confirm("another")
    assert len(fake.tokens(RELEASE)) == released, "what was released is not released again"


def test_a_token_that_is_claimed_again_is_not_released(fake: FakeGate, asker: Gate) -> None:
    fake.stop()
    with pytest.raises(GateUnreachable):
        asker.claim("nightly", MINUTE, token="never written", timeout=0.05)
    fake.start()
    fake.answers[CLAIM] = in_turn(lambda p: Drop(), lambda p: Drop(), grant)
    with pytest.raises(GateUnreachable):
        asker.claim("nightly", MINUTE, token="t", timeout=0.0)
    fake.answers[CLAIM] = grant
    assert asker.claim("nightly", MINUTE, token="t").granted
    asker.confirm("other")
    assert [name for name, p in fake.calls if isinstance(p, ClaimIn | TokenIn) and p.token == "t"][-1] == CLAIM
    assert "never written" not in fake.tokens(RELEASE)


def test_open_claims_are_asked_for_again_on_a_new_connection(fake: FakeGate, asker: Gate) -> None:
    first = asker.claim("first", MINUTE)
    second = asker.claim("second", MINUTE)
    second.confirm()
    fake.drop()
    asker.confirm("other")
    assert fake.tokens(CLAIM) == [first.token, second.token, first.token]


def test_a_generic_call_checks_the_type_of_its_reply(fake: FakeGate, asker: Gate) -> None:
    assert isinstance(asker.call(CONFIRM, TokenIn(token="t")), Done)
    with pytest.raises(TypeError, match="answered Done, not StatusOut"):
        asker.call(CONFIRM, TokenIn(token="t"), StatusOut)


def test_a_call_that_cannot_be_written_down_disturbs_no_other(fake: FakeGate, asker: Gate) -> None:
    with pytest.raises(UnicodeEncodeError):
        asker.claim("\ud800", MINUTE)
    asker.confirm("other")
    assert fake.tokens(CONFIRM) == ["other"]


# ---- many calls


def test_a_pipeline_keeps_order_and_gives_errors_as_values(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CONFIRM] = lambda p: UnknownToken(token=p.token) if int(p.token) % 7 == 0 else Done()
    results = asker.pipeline([(CONFIRM, TokenIn(token=str(n))) for n in range(200)])
    assert [isinstance(r, UnknownToken) for r in results] == [n % 7 == 0 for n in range(200)]
    assert [r.token for r in results if isinstance(r, UnknownToken)] == [str(n) for n in range(0, 200, 7)]


def test_a_pipeline_goes_on_after_a_lost_connection(fake: FakeGate, asker: Gate) -> None:
    dropped: list[str] = []

    def drop_each_once(parameters: ClaimIn) -> Answer:
        token = str(parameters.token)
        if token in ("10", "90") and token not in dropped:
            dropped.append(token)
            return Drop()
        return grant(parameters)

    fake.answers[CLAIM] = drop_each_once
    calls = [(CLAIM, claim_in(f"s{n}", "me", MINUTE, token=str(n))) for n in range(150)]
    results = asker.pipeline(calls)
    assert [r.token for r in results if isinstance(r, ClaimOut)] == [str(n) for n in range(150)]
    assert dropped == ["10", "90"]


def test_a_pipeline_without_a_gate_gives_each_call_its_error(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CONFIRM] = lambda p: Keep() if p.token == "5" else Done()
    results = asker.pipeline([(CONFIRM, TokenIn(token=str(n))) for n in range(10)], timeout=0.1)
    assert [isinstance(r, Reply) for r in results] == [True] * 5 + [False] * 5
    assert all(isinstance(r, GateUnreachable) for r in results[5:])


def test_threads_share_a_connection_and_each_gets_its_own_answers(fake: FakeGate, asker: Gate) -> None:
    wrong: list[str] = []

    def ask(name: str) -> None:
        for n in range(50):
            token = f"{name}-{n}"
            if asker.claim(name, MINUTE, token=token).token != token:
                wrong.append(token)

    threads = [threading.Thread(target=ask, args=(f"thread {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(fake.asked(CLAIM)) == 400
    assert fake.accepted == 1


def test_a_thread_that_gets_no_turn_is_told_so(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CONFIRM] = lambda p: Keep()
    hanging = threading.Thread(target=lambda: asker.confirm("hangs"))
    hanging.start()
    fake.until(lambda: fake.kept)
    with pytest.raises(GateUnreachable, match=r"other threads have been asking it for 0\.05 s"):
        asker.confirm("waits", timeout=0.05)
    fake.finish(Done())
    hanging.join()


# ---- fork


def test_a_child_has_its_own_connection_and_leaves_the_parents_alone(fake: FakeGate, asker: Gate) -> None:
    asker.confirm("parent")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if asker.claim("nightly", MINUTE).granted:
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    asker.confirm("parent")
    assert fake.accepted == 2
    assert fake.asked(CLAIM)[0].holder == "me"


def test_a_child_does_not_hide_the_death_of_its_parent(fake: FakeGate, asker: Gate) -> None:
    asker.confirm("parent")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # until the parent closes its end
        os._exit(0)
    os.close(read)
    try:
        asker.close()
        fake.until(lambda: not fake.live)
    finally:
        os.close(write)
        os.waitpid(pid, 0)


def test_the_holder_is_another_one_in_a_child() -> None:
    asker = Gate("unused")
    before = asker.holder
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, asker.holder.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    told = os.read(read, 1000).decode()
    os.close(read)
    assert before != told == before.replace(f":{os.getpid()}:", f":{pid}:")


# ---- waiting for somebody else


def held(parameters: ClaimIn) -> ClaimOut:
    return reply("held", parameters, by="somebody", until=datetime.now(UTC) + timedelta(seconds=30))


def held_then_kept(fake: FakeGate) -> Callable[[ClaimIn], Answer]:
    """`held`; then the call with `more`, which stays open; then grants."""
    return in_turn(held, lambda p: Keep(held(p)), grant)


def test_held_is_answered_at_once_without_wait(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = held
    assert asker.claim("nightly", MINUTE).decision is Decision.HELD
    assert len(fake.calls) == 1


@pytest.mark.parametrize("outcome", ["send", "sent", "doubt"])
def test_wait_brings_the_outcome(outcome: str, fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = held_then_kept(fake)

    def come() -> None:
        fake.until(lambda: fake.kept)
        fake.finish(reply(outcome, fake.asked(CLAIM)[1]))

    coming = threading.Thread(target=come)
    coming.start()
    claim = asker.claim("nightly", MINUTE, wait=10)
    coming.join()
    assert claim.decision == outcome
    fake.until(lambda: len(fake.live) == 1)
    assert len(set(fake.tokens(CLAIM))) == 1
    assert len(fake.tokens(CLAIM)) == (3 if outcome == "send" else 2), "a grant moves to the connection that stays"


def test_wait_ends_and_leaves_no_claim_behind(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = held_then_kept(fake)
    begin = time.monotonic()
    claim = asker.claim("nightly", MINUTE, wait=0.1)
    assert time.monotonic() - begin < 1.0
    assert claim.decision is Decision.HELD
    fake.until(lambda: fake.tokens(RELEASE) == fake.tokens(CLAIM)[:1])


def test_wait_outlives_a_lost_connection(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: Drop(), lambda p: reply("sent", p))
    assert asker.claim("nightly", MINUTE, wait=10).decision is Decision.SENT


def test_wait_raises_what_the_gate_says(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = in_turn(held, lambda p: StoreUnavailable(retry_after=1.0))
    with pytest.raises(StoreUnavailable):
        asker.claim("nightly", MINUTE, wait=10)


# ---- sending


def test_leaving_the_block_confirms(fake: FakeGate, asker: Gate) -> None:
    with asker.sending("nightly", MINUTE) as claim:
        assert claim.granted
        assert not fake.tokens(CONFIRM)
    assert fake.tokens(CONFIRM) == [claim.token]
    assert not fake.tokens(RELEASE)


def test_an_exception_releases_and_goes_on(fake: FakeGate, asker: Gate) -> None:
    with pytest.raises(ZeroDivisionError), asker.sending("nightly", MINUTE):
        _ = 1 / 0
    assert fake.tokens(RELEASE) == fake.tokens(CLAIM)
    assert not fake.tokens(CONFIRM)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interruption_settles_nothing(end: type[BaseException], fake: FakeGate, asker: Gate) -> None:
    with pytest.raises(end), asker.sending("nightly", MINUTE):
        raise end
    asker.confirm("other")
    assert fake.tokens(CONFIRM) == ["other"]
    assert not fake.tokens(RELEASE)


def test_a_refusal_settles_nothing(fake: FakeGate, asker: Gate) -> None:
    fake.answers[CLAIM] = lambda p: reply("sent", p)
    with asker.sending("nightly", MINUTE) as claim:
        assert not claim.granted
    assert [name for name, _ in fake.calls] == [CLAIM]


def test_what_is_settled_inside_is_not_settled_again(fake: FakeGate, asker: Gate) -> None:
    with asker.sending("nightly", MINUTE) as claim:
        claim.release()

    def confirm_and_fail() -> None:
        claim.confirm()
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError), asker.sending("weekly", MINUTE) as claim:
        confirm_and_fail()
    assert [name for name, _ in fake.calls] == [CLAIM, RELEASE, CLAIM, CONFIRM]


def test_a_confirmation_that_fails_says_that_it_was_sent(fake: FakeGate, asker: Gate) -> None:
    asker.timeout = 0.1
    with (
        pytest.raises(GateUnreachable, match=r"nightly at 2026-11-30T12:00:00Z was sent, but is not confirmed.*doubt"),
        asker.sending("nightly", MINUTE),
    ):
        fake.stop()


def test_a_release_that_fails_does_not_hide_the_error(fake: FakeGate, asker: Gate) -> None:
    asker.timeout = 0.1

    def stop_and_fail() -> None:
        fake.stop()
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError) as caught, asker.sending("nightly", MINUTE):
        stop_and_fail()
    assert "was not released" in caught.value.__notes__[0]


def test_an_interrupted_call_leaves_no_claim_and_a_usable_client(
    fake: FakeGate, asker: Gate, request: pytest.FixtureRequest
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    fake.answers[CLAIM] = lambda p: Keep()

    def interrupt() -> None:
        fake.until(lambda: fake.kept)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    pressing = threading.Thread(target=interrupt)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        asker.claim("nightly", MINUTE, token="t")
    pressing.join()
    asker.confirm("other")
    assert "t" in fake.tokens(RELEASE)


def test_a_good_answer_that_comes_with_nonsense_counts(tmp_path: Path) -> None:
    """The second call is asked again on a new connection, the first is not."""
    calls: list[int] = []

    def serve() -> None:
        for answers in (b"{}\0?\0", b"{}\0"):
            peer, _ = listener.accept()
            with peer:
                data = b""
                while data.count(b"\0") < 2 - len(calls):
                    data += peer.recv(4096)
                calls.append(data.count(b"\0"))
                peer.sendall(answers)
                while peer.recv(4096):
                    pass

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        server = threading.Thread(target=serve)
        server.start()
        with Gate(tmp_path / "s", timeout=10) as asker:
            assert asker.pipeline([(CONFIRM, TokenIn(token=token)) for token in "ab"]) == [Done(), Done()]
        server.join(10)
    assert calls == [2, 1]
