"""Whatever a peer sends: its own named error or its own end, the next client as fast as before, memory bounded."""

import json
import resource
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from gate.reactor import ACCEPT_AGAIN_SECONDS, Limits
from tests.bench.loadgen import cpu_seconds
from tests.support import tell
from tests.support.gate_process import PATIENCE, ErrorReply, GateProcess, RawClient, frame
from tests.support.inline_gate import AsyncClient, connect, inline_gate
from tests.support.instants import minute

pytestmark = pytest.mark.process

MESSAGE_BYTES = 64 * 1024
CONNECTIONS = 1000
GET_INFO = frame("org.varlink.service.GetInfo")
CONTROL, SEND, SERVICE = "io.schedulegate.Control.", "io.schedulegate.Send.", "org.varlink.service."
MINUTE = minute()
MORE_KIB = 20 * 1024
"""How much a gate may grow by all that this module does to it."""
SLOWER = 10
"""So many times longer may a fresh client wait for its answers while others misbehave."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateProcess]:
    """One gate for all of this module: whatever is done to it, it goes on."""
    config = '[[send]]\nschedules = ["*"]\ngrace = "100ms"\n'
    with GateProcess(tmp_path_factory.mktemp("bad"), config=config, log_level="warning") as process:
        before = process.rss_kib()
        yield process
        assert process.running
        tell(f"{process.rss_kib() - before:,} KiB on top of {before:,} KiB by the whole module")
        assert process.rss_kib() - before < MORE_KIB
        assert not [line for line in process.log_lines() if "text" in line or "trace" in line]


def claim(**parameters: Any) -> bytes:
    given = {"schedule": "s", "holder": "h", "at": MINUTE, **parameters}
    return frame("Send.Claim", **{name: value for name, value in given.items() if value is not None})


def raw_claim(fields: str) -> bytes:
    return f'{{"method":"{SEND}Claim","parameters":{{"schedule":"s","holder":"h",{fields}}}}}'.encode() + b"\0"


BAD = {
    # not a call at all
    "not JSON": (b"hello\0", CONTROL + "BadMessage", {}),
    "nothing": (b"\0", CONTROL + "BadMessage", {}),
    "half an object": (b'{"method":\0', CONTROL + "BadMessage", {}),
    "two objects": (b"{}{}\0", CONTROL + "BadMessage", {}),
    "an array": (b"[]\0", CONTROL + "BadMessage", {}),
    "no method": (b"{}\0", CONTROL + "BadMessage", {}),
    "a method that is a number": (b'{"method":1}\0', CONTROL + "BadMessage", {}),
    "a flag that is a string": (b'{"method":"org.varlink.service.GetInfo","more":"yes"}\0', CONTROL + "BadMessage", {}),
    "an unknown key beside the method": (
        b'{"method":"org.varlink.service.GetInfo","x":1}\0',
        CONTROL + "BadMessage",
        {},
    ),
    "NaN": (raw_claim('"every":NaN'), CONTROL + "BadMessage", {}),
    "Infinity": (raw_claim('"every":Infinity'), CONTROL + "BadMessage", {}),
    "half a surrogate": (raw_claim('"at":"\\ud800"'), CONTROL + "BadMessage", {}),
    "64 KiB of arrays": (b"[" * MESSAGE_BYTES + b"\0", CONTROL + "BadMessage", {}),
    "64 KiB of nested parameters": (
        b'{"method":"io.schedulegate.Send.Claim","parameters":' + b"[" * 32_000 + b"]" * 32_000 + b"}\0",
        CONTROL + "BadMessage",
        {},
    ),
    "64 KiB of nested objects": (
        b'{"method":"io.schedulegate.Send.Claim","parameters":' + b'{"a":' * 13_000 + b"\0",
        CONTROL + "BadMessage",
        {},
    ),
    "64 KiB of nesting in a field": (
        raw_claim('"at":' + "[" * 32_000 + "]" * 32_000),
        CONTROL + "BadMessage",
        {},
    ),
    # a call of something that does not exist
    "an unknown method": (frame("Send.Take"), SERVICE + "MethodNotFound", {"method": SEND + "Take"}),
    "an unknown interface": (frame("a.b.C"), SERVICE + "InterfaceNotFound", {"interface": "a.b"}),
    "a method without an interface": (frame("Claim"), SERVICE + "InterfaceNotFound", {"interface": ""}),
    "the description of an unknown interface": (
        frame("org.varlink.service.GetInterfaceDescription", interface="a.b"),
        SERVICE + "InterfaceNotFound",
        {"interface": "a.b"},
    ),
    # parameters that the method does not take
    "parameters that are no object": (
        b'{"method":"io.schedulegate.Send.Claim","parameters":[]}\0',
        SERVICE + "InvalidParameter",
        {"parameter": "parameters"},
    ),
    "bytes that are no UTF-8": (
        b'{"method":"io.schedulegate.Send.Confirm","parameters":{"token":"\xff"}}\0',
        SERVICE + "InvalidParameter",
        {"parameter": "parameters"},
    ),
    "a missing field": (frame("Send.Confirm"), SERVICE + "InvalidParameter", {"parameter": "token"}),
    "an unknown field": (claim(color="red"), SERVICE + "InvalidParameter", {"parameter": "color"}),
    "a field of a wrong type": (claim(schedule=7), SERVICE + "InvalidParameter", {"parameter": "schedule"}),
    "a number as text": (claim(lease="30"), SERVICE + "InvalidParameter", {"parameter": "lease"}),
    "a number beyond all numbers": (raw_claim('"every":1e400'), SERVICE + "InvalidParameter", {"parameter": "every"}),
    "a limit below zero": (frame("Control.Status", limit=-1), SERVICE + "InvalidParameter", {"parameter": "limit"}),
    "a naive since": (
        frame("Control.History", since="2026-01-01T00:00:00"),
        SERVICE + "InvalidParameter",
        {"parameter": "since"},
    ),
    "a naive resend": (
        frame("Control.Resend", schedule="s", at="2026-01-01T00:00:00"),
        SERVICE + "InvalidParameter",
        {"parameter": "at"},
    ),
    # claims that make no sense
    "a naive instant": (claim(at="2026-01-01T00:00:00"), SEND + "InvalidClaim", {"field": "at"}),
    "seconds in a minute": (claim(at="2026-01-01T00:00:01Z"), SEND + "InvalidClaim", {"field": "at"}),
    "no instant": (claim(at="noon"), SEND + "InvalidClaim", {"field": "at"}),
    "a leap second": (claim(at="2026-12-31T23:59:60Z"), SEND + "InvalidClaim", {"field": "at"}),
    "before the first year": (claim(at="0001-01-01T00:00:00+14:00"), SEND + "InvalidClaim", {"field": "at"}),
    "after the last year": (claim(at="9999-12-31T23:59:00-14:00"), SEND + "InvalidClaim", {"field": "at"}),
    "neither an instant nor an interval": (claim(at=None), SEND + "InvalidClaim", {"field": "at"}),
    "an instant and an interval": (claim(every=60.0), SEND + "InvalidClaim", {"field": "every"}),
    "no interval": (claim(at=None, every=0), SEND + "InvalidClaim", {"field": "every"}),
    "a lease of a year": (claim(lease=3.2e7), SEND + "InvalidClaim", {"field": "lease"}),
    "a deadline in the past": (claim(deadline=-1), SEND + "InvalidClaim", {"field": "deadline"}),
    "no schedule": (claim(schedule=""), SEND + "InvalidClaim", {"field": "schedule"}),
    "a schedule of 513 bytes": (claim(schedule="é" * 256 + "x"), SEND + "InvalidClaim", {"field": "schedule"}),
    "no holder": (claim(holder=""), SEND + "InvalidClaim", {"field": "holder"}),
    "an unknown token": (frame("Send.Confirm", token="nobody's"), SEND + "UnknownToken", {"token": "nobody's"}),
    "a doubt that is none": (
        frame("Control.Resend", schedule="s", at=MINUTE),
        CONTROL + "NotInDoubt",
        {"schedule": "s", "at": MINUTE},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_message_gets_its_error_and_the_connection_goes_on(gate: GateProcess, name: str) -> None:
    data, error, parameters = BAD[name]
    with gate.client() as client:
        client.send_raw(data + GET_INFO)
        with pytest.raises(ErrorReply) as caught:
            client.reply()
        assert caught.value.name == error
        assert parameters.items() <= caught.value.parameters.items()
        assert client.reply()["product"] == "schedule-gate"


def test_nothing_that_was_refused_left_a_trace(gate: GateProcess) -> None:
    with gate.client() as client:
        for data, _, _ in BAD.values():
            client.send_raw(data)
            with pytest.raises(ErrorReply):
                client.reply()
        assert client.call("Control.History", schedule="s")["occurrences"] == []


def test_the_longest_message_is_served_and_a_longer_one_ends_the_connection(gate: GateProcess) -> None:
    def filled(size: int) -> bytes:
        empty = frame("Send.Confirm", token="")
        return frame("Send.Confirm", token="t" * (size - len(empty) + 1))

    assert len(filled(MESSAGE_BYTES)) == MESSAGE_BYTES + 1
    with gate.client() as client:
        client.send_raw(filled(MESSAGE_BYTES))
        with pytest.raises(ErrorReply) as unknown:
            client.reply()
        assert unknown.value.name == SEND + "UnknownToken"
        client.send_raw(claim(schedule="before too much") + GET_INFO + filled(MESSAGE_BYTES + 1) + GET_INFO)
        assert client.reply()["decision"] == "send"
        assert client.reply()["product"] == "schedule-gate"
        with pytest.raises(ErrorReply) as too_large:
            client.reply()
        assert (too_large.value.name, too_large.value.parameters) == (
            CONTROL + "MessageTooLarge",
            {"limit": MESSAGE_BYTES},
        )
        assert client.at_end()


def test_a_message_without_an_end_is_cut_at_the_limit(gate: GateProcess) -> None:
    with gate.client() as client:
        client.send_raw(b"x" * (MESSAGE_BYTES + 1))
        with pytest.raises(ErrorReply) as too_large:
            client.reply()
        assert too_large.value.name == CONTROL + "MessageTooLarge"
        assert client.at_end()


def test_more_than_64_waiting_calls_are_refused_one_by_one(gate: GateProcess) -> None:
    with gate.client() as holder, gate.client() as client:
        assert holder.claim("pipelined", MINUTE)["decision"] == "send"
        client.post("Send.Claim", more=True, schedule="pipelined", holder="waits", at=MINUTE)
        assert client.recv()["continues"]
        client.send_raw(GET_INFO * 64)
        with gate.client() as other:  # the gate reads in the order of arrival: now it has read those 64
            other.call("org.varlink.service.GetInfo")
        holder.close()
        assert client.reply()["decision"] == "doubt"
        for _ in range(63):
            assert client.reply()["product"] == "schedule-gate"
        with pytest.raises(ErrorReply) as refused:
            client.reply()
        assert (refused.value.name, refused.value.parameters) == (CONTROL + "TooManyCalls", {"limit": 64})
        assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"


def test_who_wants_no_answer_and_more_of_them_waits_for_nothing(gate: GateProcess) -> None:
    with gate.client() as holder, gate.client() as client:
        assert holder.claim("no answer", MINUTE)["decision"] == "send"
        client.send_raw(frame("Send.Claim", more=True, oneway=True, schedule="no answer", holder="w", at=MINUTE))
        client.send_raw(frame("Fetch.Watch", more=True, oneway=True, worker="w", session="s"))
        assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"


def test_too_many_oneway_calls_end_the_connection(gate: GateProcess) -> None:
    """Nobody reads what became of a oneway call, so a refusal has to be louder."""
    with gate.client() as holder, gate.client() as client:
        assert holder.claim("oneway", MINUTE)["decision"] == "send"
        client.post("Send.Claim", more=True, schedule="oneway", holder="waits", at=MINUTE)
        assert client.recv()["continues"]
        client.send_raw(frame("Send.Confirm", oneway=True, token="t" * 32) * 64)
        holder.close()
        assert client.reply()["decision"] == "doubt"
        with pytest.raises(ErrorReply, match="TooManyCalls"):
            client.reply()
        assert client.at_end()


# ---- peers that vanish, and peers that do not read


def connections(client: RawClient) -> int:
    count: int = client.call("Control.Status", limit=0)["connections"]
    return count


def until_alone(client: RawClient) -> None:
    """Wait until the gate has closed every connection but this one."""
    end = time.monotonic() + PATIENCE
    while connections(client) > 1:
        assert time.monotonic() < end, "the gate kept connections of peers that are gone"


def test_peers_that_vanish_are_closed_alone(gate: GateProcess) -> None:
    with gate.client() as witness:
        for number in range(50):
            with gate.client() as silent, gate.client() as middle, gate.client() as unread, gate.client() as half:
                middle.send_raw(GET_INFO + GET_INFO[:17])
                unread.send_raw(claim(schedule="vanished", at=minute(number)) + GET_INFO * 20)
                half.send_raw(GET_INFO[:-1])
                half.sock.shutdown(socket.SHUT_WR)
                assert connections(witness) >= 1
                silent.close()
        until_alone(witness)
        assert witness.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"


def flood(client: RawClient, data: bytes) -> int:
    """Write `data` over and over, reading nothing, until the gate takes no more; returns how many bytes it took."""
    client.sock.settimeout(0.2)
    taken = 0
    while taken < 64 * 1024 * 1024:
        try:
            taken += client.sock.send(data)
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            break
    return taken


def round_trip(gate: GateProcess) -> float:
    """The median time in which a fresh client is answered by the loop and by the store's thread, in seconds."""
    times = []
    for _ in range(41):
        begin = time.perf_counter()
        with gate.client() as client:
            client.call("org.varlink.service.GetInfo")
            with pytest.raises(ErrorReply, match="UnknownToken"):
                client.call("Send.Confirm", token="nobody's")
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def at_least_as_fast(gate: GateProcess, wanted: float) -> float:
    """The median again, measured until it is below `wanted`: now and then something else has the processor."""
    found: list[float] = []
    while not found or found[-1] >= wanted:
        assert len(found) < 10, f"a fresh client waits {found} s, {wanted} s are allowed"
        found.append(round_trip(gate))
    return found[-1]


FLOODS = {
    "calls": GET_INFO * 200,
    "large answers": frame("org.varlink.service.GetInterfaceDescription", interface="io.schedulegate.Control") * 200,
    "garbage": b"\0" * MESSAGE_BYTES,
    "one long message": b"x" * MESSAGE_BYTES,
    "calls that want no answer": frame("Send.Confirm", oneway=True, token="t" * 32) * 200,
    "claims that want no answer": claim(schedule="oneway").replace(b'"}}', b'"},"oneway":true}') * 200,
}


@pytest.mark.parametrize("name", FLOODS)
def test_who_floods_and_never_reads_costs_little_memory_and_nobody_else_any_time(gate: GateProcess, name: str) -> None:
    before, usual = gate.rss_kib(), round_trip(gate)
    with ExitStack() as stack:
        rude = [stack.enter_context(gate.client()) for _ in range(10)]
        taken = [flood(client, FLOODS[name]) for client in rude]
        beside = at_least_as_fast(gate, SLOWER * usual)
        grown = gate.rss_kib() - before
    speed = f"{usual * 1e6:.0f} us, beside it {beside * 1e6:.0f} us"
    tell(f"{name}: took {max(taken):,} bytes each, grew {grown:,} KiB; {speed}")
    assert grown < MORE_KIB
    with gate.client() as witness:
        until_alone(witness)


def test_who_asks_within_its_limits_and_never_reads_is_not_read_from(gate: GateProcess) -> None:
    before, usual = gate.rss_kib(), round_trip(gate)
    describe = frame("org.varlink.service.GetInterfaceDescription", interface="io.schedulegate.Control")
    with ExitStack() as stack:
        witness = stack.enter_context(gate.client())
        for _ in range(10):
            rude = stack.enter_context(gate.client(0.2))
            for _ in range(100):
                try:
                    rude.send_raw(describe * 60)
                except TimeoutError:
                    break
                witness.call("org.varlink.service.GetInfo")  # now those 60 are read and answered, if they will be
            else:
                pytest.fail("the gate took 6,000 calls of a client that reads no answer")
        assert connections(witness) == 11
        beside, grown = at_least_as_fast(gate, SLOWER * usual), gate.rss_kib() - before
        speed = f"{usual * 1e6:.0f} us, beside it {beside * 1e6:.0f} us"
        tell(f"10 clients that never read: grew {grown:,} KiB; {speed}")
        assert grown < MORE_KIB


def test_a_flood_behind_a_call_that_waits_costs_little_memory(gate: GateProcess) -> None:
    before = gate.rss_kib()
    with gate.client() as holder, gate.client() as rude:
        assert holder.claim("flooded", MINUTE)["decision"] == "send"
        rude.post("Send.Claim", more=True, schedule="flooded", holder="rude", at=MINUTE)
        assert rude.recv()["continues"]
        taken = flood(rude, b"\0" * MESSAGE_BYTES)
        grown = gate.rss_kib() - before
        tell(f"took {taken:,} bytes, grew {grown:,} KiB")
        assert grown < MORE_KIB


def test_all_that_bad_input_together_leaves_speed_and_memory_as_they_were(gate: GateProcess) -> None:
    before, usual = gate.rss_kib(), round_trip(gate)
    for _ in range(20):
        for data, _, _ in BAD.values():
            with gate.client() as client:
                client.send_raw(data)
                with pytest.raises(ErrorReply):
                    client.reply()
    grown, after = gate.rss_kib() - before, at_least_as_fast(gate, SLOWER * usual)
    tell(f"{20 * len(BAD)} bad messages: grew {grown:,} KiB; {usual * 1e6:.0f} us before, {after * 1e6:.0f} us after")
    assert grown < MORE_KIB


# ---- one connection too many


@pytest.mark.usefixtures("many_descriptors")
def test_the_1001st_connection_is_turned_away_and_the_others_are_served(gate: GateProcess) -> None:
    before = gate.rss_kib()
    with ExitStack() as stack:
        with gate.client() as witness:
            until_alone(witness)
        clients = [stack.enter_context(gate.client()) for _ in range(CONNECTIONS)]
        for client in clients:
            assert client.call("org.varlink.service.GetInfo")["product"] == "schedule-gate"
        assert connections(clients[0]) == CONNECTIONS
        for _ in range(3):
            with gate.client() as extra:
                message = extra.recv()
                assert message == {"error": CONTROL + "TooManyConnections", "parameters": {"limit": CONNECTIONS}}
                assert extra.at_end()
        for client in clients:
            assert client.call("Send.Claim", schedule="crowd", holder="h", at=MINUTE)["decision"] in {"send", "held"}
        grown = gate.rss_kib() - before
        tell(f"{CONNECTIONS} connections: grew {grown:,} KiB")
        assert grown < MORE_KIB
        clients.pop().close()
        stack.enter_context(admitted(gate))


def test_without_descriptors_those_who_are_here_are_served_and_others_wait(
    make_gate: Callable[..., GateProcess],
) -> None:
    gate = make_gate().start()
    with ExitStack() as stack:
        client = stack.enter_context(gate.client())
        assert connections(client) == 1
        highest = max(int(path.name) for path in Path(f"/proc/{gate.pid}/fd").iterdir())
        soft, hard = resource.prlimit(gate.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gate.pid, resource.RLIMIT_NOFILE, (highest + 1, hard))
        waiting = [stack.enter_context(gate.client()) for _ in range(20)]
        for waits in waiting:
            waits.send_raw(GET_INFO)
        for _ in range(20):
            assert connections(client) <= 20
        before, begun = cpu_seconds(gate.pid), time.monotonic()
        time.sleep(5 * ACCEPT_AGAIN_SECONDS)
        share = (cpu_seconds(gate.pid) - before) / (time.monotonic() - begun)
        tell(f"without descriptors: {share:.1%} of a CPU while it tries again and again")
        assert share < 1 / 4, "it spins"
        assert gate.log.read_text().count("cannot accept a connection") == 1
        resource.prlimit(gate.pid, resource.RLIMIT_NOFILE, (soft, hard))
        for waits in waiting:
            assert waits.reply()["product"] == "schedule-gate"


def admitted(gate: GateProcess) -> RawClient:
    """A client that is served, as soon as there is room."""
    end = time.monotonic() + PATIENCE
    while True:
        client = gate.client()
        try:
            client.call("org.varlink.service.GetInfo")
        except (ErrorReply, OSError):
            client.close()
            assert time.monotonic() < end, "there was room, but nobody was let in"
        else:
            return client


# ---- limits in seconds: in this process, on trio's clock


@pytest.fixture
def mock_clock() -> trio.testing.MockClock:
    """Jumps to the next deadline whenever every task waits; what is in a socket is read before that."""
    return trio.testing.MockClock(autojump_threshold=0)


async def answered(client: AsyncClient) -> str:
    await client.send(GET_INFO)
    product: str = json.loads(await client.recv())["parameters"]["product"]
    return product


async def test_one_byte_a_second_is_cut_off_after_10_seconds(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with inline_gate(tmp_path / "s"), connect(tmp_path / "s") as slow, connect(tmp_path / "s") as other:
        begin = trio.current_time()
        for byte in GET_INFO[:10]:
            await slow.send(bytes([byte]))
            assert await answered(other) == "schedule-gate"
            await trio.sleep(1)
        message = json.loads(await slow.recv())
        assert message == {"error": CONTROL + "MessageTimeout", "parameters": {"seconds": 10.0}}
        assert trio.current_time() - begin == pytest.approx(10, abs=0.1)
        assert await slow.recv() == b""
        assert await answered(other) == "schedule-gate"


async def test_a_slow_message_that_ends_in_time_is_served_and_silence_is_no_fault(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with inline_gate(tmp_path / "s"), connect(tmp_path / "s") as slow:
        for _ in range(3):
            for part in (GET_INFO[:5], GET_INFO[5:20]):
                await slow.send(part)
                await trio.sleep(4.9)
            await slow.send(GET_INFO[20:])
            assert json.loads(await slow.recv())["parameters"]["product"] == "schedule-gate"
            await trio.sleep(3600)
        assert await answered(slow) == "schedule-gate"


async def test_ten_seconds_are_counted_for_each_message_anew(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    """The end of one message and the begin of the next in one packet, every 6 s."""
    async with inline_gate(tmp_path / "s"), connect(tmp_path / "s") as client:
        await client.send(GET_INFO[:9])
        for _ in range(5):
            await trio.sleep(6)
            await client.send(GET_INFO[9:] + GET_INFO[:9])
            assert json.loads(await client.recv())["parameters"]["product"] == "schedule-gate"


async def test_a_fault_of_the_gate_itself_costs_one_call_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr("gate.explain.why", broken)
    async with inline_gate(tmp_path / "s"), connect(tmp_path / "s") as client:
        await client.send(frame("Control.Why", worker="w"))
        assert json.loads(await client.recv())["error"] == SEND + "StoreUnavailable"
        assert await answered(client) == "schedule-gate"
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert record.exc_info[0] is OverflowError


async def test_who_leaves_answers_unread_is_closed_after_30_seconds(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with inline_gate(tmp_path / "s") as reactor, connect(tmp_path / "s") as other:
        with socket.socket(socket.AF_UNIX) as rude:
            rude.setblocking(False)
            rude.connect(str(tmp_path / "s"))
            await trio.testing.wait_all_tasks_blocked()
            describe = frame("org.varlink.service.GetInterfaceDescription", interface="io.schedulegate.Control")
            while True:
                try:
                    rude.send(describe * 60)
                except BlockingIOError:
                    break
                assert await answered(other) == "schedule-gate"
            begin = trio.current_time()
            await trio.sleep(20)
            assert len(reactor.connections) == 2
            assert await answered(other) == "schedule-gate"
            await trio.sleep(60)
            assert len(reactor.connections) == 1
            assert trio.current_time() - begin == pytest.approx(80)
        assert await answered(other) == "schedule-gate"


async def test_who_reads_slowly_but_reads_is_not_closed(tmp_path: Path, mock_clock: trio.testing.MockClock) -> None:
    """A socket counts as read when most of what it holds was; in all this takes four times 30 s."""
    describe = frame("org.varlink.service.GetInterfaceDescription", interface="io.schedulegate.Control")
    async with inline_gate(tmp_path / "s", Limits(calls=1000)), connect(tmp_path / "s") as slow:
        await slow.send(describe * 400)
        for _ in range(400):
            assert b"interface io.schedulegate.Control" in await slow.recv()
            await trio.sleep(0.3)
