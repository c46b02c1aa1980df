"""The codec, for server and client: any chunking, the order of answers, every limit, and whatever a peer may send."""

import copy
import itertools
import json
import pickle
import re
import socket
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import errors
from gate.interface import (
    METHODS,
    ClaimIn,
    ClaimOut,
    Decision,
    Done,
    Empty,
    GetInfoOut,
    HistoryIn,
    Reply,
    TokenIn,
    Wire,
)
from gate.wire import (
    MESSAGE_BYTES,
    PIPELINED_CALLS,
    ClientProtocol,
    Frames,
    ServerProtocol,
    Slot,
    encode_call,
)
from tests.support.gate_process import frame

GET_INFO = "org.varlink.service.GetInfo"
CLAIM = "io.schedulegate.Send.Claim"
CONFIRM = "io.schedulegate.Send.Confirm"
STATUS = "io.schedulegate.Control.Status"
INFO = GetInfoOut(vendor="v", product="p", version="1", url="u", interfaces=["a", "b"])

BAD = "io.schedulegate.Control.BadMessage"
PARAMETER = "org.varlink.service.InvalidParameter"
INTERFACE = "org.varlink.service.InterfaceNotFound"
METHOD = "org.varlink.service.MethodNotFound"


def messages(stream: bytes) -> list[dict[str, Any]]:
    """A stream of whole messages, each as what its JSON says."""
    assert stream.endswith(b"\0") or not stream
    return [json.loads(part) for part in stream.split(b"\0")[:-1]]


def outcome(message: dict[str, Any]) -> str:
    """The name of the error, or "ok"."""
    name: str = message.get("error", "ok")
    return name


def chunked(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """`data` cut at `cuts` (taken modulo its length)."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in itertools.pairwise([0, *places, len(data)])]


def echo(server: ServerProtocol, slot: Slot) -> None:
    """Answer a call with its own method and holder: enough to tell answers apart."""
    assert slot.call is not None
    if isinstance(slot.parameters, ClaimIn):
        if slot.call.more:
            server.reply(slot, claim_out(slot.parameters.schedule, Decision.HELD), continues=True)
        server.reply(slot, claim_out(slot.parameters.schedule, Decision.SENT))
    else:
        server.reply(slot, INFO)


def claim_out(reason: str, decision: Decision = Decision.SEND) -> ClaimOut:
    return ClaimOut(decision=decision, reason=reason, at=datetime(2026, 11, 30, 12, tzinfo=UTC))


def serve(chunks: Sequence[bytes]) -> tuple[list[tuple[str, Any]], bytes]:
    """What a server makes of chunks: the calls it saw, and all it answered."""
    server = ServerProtocol()
    calls: list[tuple[str, Any]] = []
    answers = b""
    for chunk in chunks:
        for slot in server.receive(chunk):
            assert slot.call is not None
            calls.append((slot.call.method, slot.parameters))
            echo(server, slot)
        answers += server.take()
    assert server.waiting == 0
    return calls, answers


texts = st.text(st.characters(codec="utf-8"), max_size=20)
good_frames = st.one_of(
    st.just(frame(GET_INFO)),
    st.builds(lambda s: frame("Send.Claim", schedule=s, holder="h"), texts),
    st.builds(lambda s: frame("Send.Claim", more=True, schedule=s, holder="h"), texts),
    st.builds(lambda s: frame("Send.Confirm", token=s), texts),
    st.builds(lambda s: frame("Send.Confirm", oneway=True, token=s), texts),
)
bad_frames = st.sampled_from(
    [
        b"\0",
        b"{}\0",
        b"\xff\xfe\0",
        frame("no.such.Method"),
        frame("Send.Nope"),
        frame("Send.Confirm"),
        frame("Send.Confirm", oneway=True, token=1),
        b'{"method": "\\ud800"}\0',
    ]
)
streams = st.lists(good_frames | bad_frames, max_size=20).map(b"".join)
cuts = st.lists(st.integers(min_value=0, max_value=5000), max_size=12)


@given(streams, cuts)
def test_a_server_sees_the_same_calls_and_gives_the_same_answers_however_the_bytes_are_cut(
    stream: bytes, cuts: list[int]
) -> None:
    assert serve(chunked(stream, cuts)) == serve([stream])


@given(streams)
def test_a_server_that_gets_one_byte_at_a_time_answers_as_one_that_gets_all(stream: bytes) -> None:
    assert serve([stream[i : i + 1] for i in range(len(stream))]) == serve([stream])


def conversation(chunks: Sequence[bytes], calls: int) -> list[tuple[object, Any, bool]]:
    client = ClientProtocol()
    for number in range(calls):
        client.call(CLAIM, ClaimIn(schedule="s", holder="h"), number)
    return [answer for chunk in chunks for answer in client.receive(chunk)]


def comparable(answers: list[tuple[object, Any, bool]]) -> list[tuple[object, Any, bool]]:
    return [(tag, str(r) if isinstance(r, errors.CallError) else r, more) for tag, r, more in answers]


@given(st.lists(texts, min_size=1, max_size=10), cuts, st.data())
def test_a_client_sees_the_same_answers_however_the_bytes_are_cut(
    reasons: list[str], cuts: list[int], data: st.DataObject
) -> None:
    server = ServerProtocol()
    for slot in server.receive(frame("Send.Claim", more=True, schedule="s", holder="h") * len(reasons)):
        reason = reasons.pop()
        for _ in range(data.draw(st.integers(0, 2))):
            server.reply(slot, claim_out(reason, Decision.HELD), continues=True)
        if data.draw(st.booleans()):
            server.reply(slot, claim_out(reason))
        else:
            server.fail(slot, errors.InvalidClaim(field="at", reason=reason))
    count, stream = server.waiting, server.take()
    whole = comparable(conversation([stream], count))
    assert comparable(conversation(chunked(stream, cuts), count)) == whole
    assert comparable(conversation([stream[i : i + 1] for i in range(len(stream))], count)) == whole
    assert [tag for tag, _, more in whole if not more] == list(range(count))


@given(st.permutations(range(8)))
def test_answers_leave_in_the_order_of_their_calls_whatever_the_order_of_answering(order: list[int]) -> None:
    server = ServerProtocol()
    slots = server.receive(b"".join(frame("Send.Claim", schedule=str(n), holder="h") for n in range(8)))
    seen: list[dict[str, Any]] = []
    answered: set[int] = set()
    for number in order:
        server.reply(slots[number], claim_out(str(number)))
        answered.add(number)
        seen += messages(server.take())
        first_open = next((n for n in range(8) if n not in answered), 8)
        assert [m["parameters"]["reason"] for m in seen] == [str(n) for n in range(first_open)]
    assert server.waiting == 0


def test_with_more_the_answers_continue_and_later_calls_wait_for_the_last_one() -> None:
    server = ServerProtocol()
    streaming, plain = server.receive(frame("Send.Claim", more=True, schedule="s", holder="h") + frame(GET_INFO))
    server.reply(plain, INFO)
    assert server.take() == b""
    for _ in range(2):
        server.reply(streaming, claim_out("held", Decision.HELD), continues=True)
        (message,) = messages(server.take())
        assert message["continues"] is True
        assert server.waiting == 2
    server.reply(streaming, claim_out("sent", Decision.SENT))
    last, info = messages(server.take())
    assert "continues" not in last
    assert last["parameters"]["decision"] == "sent"
    assert info["parameters"]["vendor"] == "v"
    assert server.waiting == 0


def test_a_oneway_call_gets_no_answer_be_it_good_or_bad() -> None:
    server = ServerProtocol()
    stream = frame("Send.Confirm", oneway=True, token="t") + frame("Send.Confirm", oneway=True) + frame(GET_INFO)
    oneway, plain = server.receive(stream)
    assert oneway.parameters == TokenIn(token="t")
    server.reply(oneway, Done())
    server.reply(plain, INFO)
    assert [m["parameters"].get("vendor") for m in messages(server.take())] == ["v"]


def test_only_answers_that_will_be_written_are_counted_as_made() -> None:
    server = ServerProtocol()
    oneway, plain = server.receive(frame("Send.Confirm", oneway=True, token="t") + frame(GET_INFO))
    server.reply(oneway, Done())
    assert server.made == 0
    server.reply(plain, INFO)
    assert server.made == len(server.take()) == server.queued


def test_the_end_of_an_answer_is_known_once_it_is_taken() -> None:
    server = ServerProtocol()
    first, second = server.receive(frame(GET_INFO) * 2)
    server.reply(second, INFO)
    assert (server.take(), first.end, second.end) == (b"", None, None)
    server.reply(first, INFO)
    stream = server.take()
    assert first.end == len(stream) // 2
    assert second.end == server.queued == len(stream)


# -- limits


def sized_call(size: int) -> bytes:
    """A call of exactly `size` bytes before its NUL."""
    empty = len(frame("Send.Confirm", token="")) - 1
    return frame("Send.Confirm", token="x" * (size - empty))


@pytest.mark.parametrize("step", [1, 1000, MESSAGE_BYTES + 2], ids=["bytewise", "pieces", "whole"])
def test_a_message_may_be_as_long_as_the_limit_and_not_a_byte_longer(step: int) -> None:
    stream = sized_call(MESSAGE_BYTES)
    server = ServerProtocol()
    calls = [c for i in range(0, len(stream), step) for c in server.receive(stream[i : i + step])]
    assert len(calls) == 1
    assert not server.hang_up

    stream = sized_call(MESSAGE_BYTES + 1)
    server = ServerProtocol()
    calls = [c for i in range(0, len(stream), step) for c in server.receive(stream[i : i + step])]
    assert calls == []
    assert server.hang_up
    (message,) = messages(server.take())
    assert message == {
        "error": "io.schedulegate.Control.MessageTooLarge",
        "parameters": {"limit": MESSAGE_BYTES},
    }


def test_a_message_without_an_end_is_refused_as_soon_as_it_exceeds_the_limit() -> None:
    server = ServerProtocol(message_bytes=10)
    assert server.receive(b"x" * 10) == []
    assert not server.hang_up
    assert server.begun
    server.receive(b"x")
    assert server.hang_up
    assert not server.begun
    assert len(messages(server.take())) == 1
    assert server.receive(frame(GET_INFO)) == []
    assert server.take() == b""


def test_calls_before_one_that_is_too_large_are_answered_first() -> None:
    server = ServerProtocol()
    calls = server.receive(frame(GET_INFO) + sized_call(MESSAGE_BYTES + 1) + frame(GET_INFO))
    assert len(calls) == 1
    assert server.take() == b""
    server.reply(calls[0], INFO)
    assert [outcome(m) for m in messages(server.take())] == ["ok", "io.schedulegate.Control.MessageTooLarge"]


def test_sixty_four_calls_may_wait_and_the_next_is_refused_while_the_others_go_on() -> None:
    server = ServerProtocol()
    slots = server.receive(frame(GET_INFO) * PIPELINED_CALLS)
    assert len(slots) == PIPELINED_CALLS == 64
    assert server.receive(frame(GET_INFO)) == []
    for slot in slots:
        server.reply(slot, INFO)
    answers = messages(server.take())
    assert [outcome(m) for m in answers] == ["ok"] * 64 + ["io.schedulegate.Control.TooManyCalls"]
    assert answers[-1]["parameters"] == {"limit": 64}
    assert not server.hang_up
    assert len(server.receive(frame(GET_INFO))) == 1, "there is room again"


def test_one_answer_makes_room_for_one_call() -> None:
    server = ServerProtocol(calls_max=2)
    first, _ = server.receive(frame(GET_INFO) * 2)
    server.reply(first, INFO)
    server.take()
    assert len(server.receive(frame(GET_INFO))) == 1
    assert server.receive(frame(GET_INFO)) == []


@pytest.mark.parametrize(
    "flood",
    [b"\0", frame(GET_INFO), frame("no.such.Method"), frame("Send.Confirm", oneway=True, token="t")],
    ids=["empty", "calls", "unknown", "oneway"],
)
def test_what_is_refused_behind_a_call_that_waits_does_not_grow_without_bound(flood: bytes) -> None:
    server = ServerProtocol()
    slow = server.receive(frame(GET_INFO))
    for _ in range(500):
        slow += server.receive(flood * 40)
    assert server.waiting < 20 * PIPELINED_CALLS
    assert server.hang_up
    for slot in slow:
        server.reply(slot, INFO)
    answers = messages(server.take())
    assert outcome(answers[0]) == "ok"
    assert outcome(answers[-1]) == "io.schedulegate.Control.TooManyCalls"


def test_frames_look_at_each_byte_once() -> None:
    """A frame that comes in small pieces must not cost the square of its length."""
    frames = Frames(10_000_000)
    for _ in range(20_000):
        assert frames.feed(b"x" * 400) == []
    assert frames.feed(b"\0") == [b"x" * 8_000_000]


# -- both ends


def texts_or_none(longest: int = 20) -> st.SearchStrategy[str | None]:
    return st.none() | st.text(st.characters(codec="utf-8"), max_size=longest)


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
claims = st.builds(
    ClaimIn,
    schedule=texts,
    holder=texts,
    at=texts_or_none(),
    every=numbers,
    once=st.none() | st.booleans(),
    deadline=numbers,
    lease=numbers,
    token=texts_or_none(),
    title=texts_or_none(),
)


@given(claims)
def test_what_a_client_asks_arrives_as_it_was_asked(claim: ClaimIn) -> None:
    data = encode_call(CLAIM, claim)
    assert b"null" not in data or "null" in repr(claim)
    (slot,) = ServerProtocol().receive(data)
    assert slot.parameters == claim


@pytest.mark.parametrize(("more", "oneway"), [(False, False), (True, False), (False, True)])
def test_flags_are_only_on_the_wire_when_they_are_set(more: bool, oneway: bool) -> None:
    (call,) = messages(encode_call(STATUS, HistoryIn(limit=3), more=more, oneway=oneway))
    flags = {**({"more": True} if more else {}), **({"oneway": True} if oneway else {})}
    assert call == {"method": STATUS, "parameters": {"limit": 3}, **flags}


instants = st.datetimes(timezones=st.just(UTC))
outs = st.builds(
    ClaimOut,
    decision=st.sampled_from(Decision),
    reason=texts,
    at=instants,
    token=texts_or_none(),
    until=st.none() | instants,
    by=texts_or_none(),
)


@given(outs)
def test_what_a_server_replies_arrives_as_it_was_replied(reply: ClaimOut) -> None:
    client, server = ClientProtocol(), ServerProtocol()
    (slot,) = server.receive(client.call(CLAIM, ClaimIn(schedule="s", holder="h"), "tag"))
    server.reply(slot, reply)
    assert list(client.receive(server.take())) == [("tag", reply, False)]
    assert client.waiting == 0


@pytest.mark.parametrize("error", errors.CALL_ERRORS.values(), ids=lambda error: error.__name__)
def test_an_error_arrives_with_its_fields_and_its_text(error: type[errors.CallError]) -> None:
    fields = re.findall(r"\{(\w+)", error.text)
    sent = error(**{field: f"<{field}>" for field in fields})
    assert all(f"<{field}>" in str(sent) for field in fields)
    client, server = ClientProtocol(), ServerProtocol()
    (slot,) = server.receive(client.call(GET_INFO, Empty()))
    server.fail(slot, sent)
    ((_, got, continues),) = client.receive(server.take())
    assert type(got) is error
    assert str(got) == str(sent)
    assert got.parameters == sent.parameters
    assert not continues


def pump(server_end: socket.socket, answer: Callable[[ServerProtocol, Slot], None]) -> None:
    """A plain server: blocking, one connection, until its peer hangs up."""
    server = ServerProtocol()
    while data := server_end.recv(16 * 1024):
        for slot in server.receive(data):
            answer(server, slot)
        server_end.sendall(server.take())


def test_replies_larger_than_the_socket_buffer_arrive_whole() -> None:
    sizes = [10, 3_000_000, 1, 500_000, 0]

    def answer(server: ServerProtocol, slot: Slot) -> None:
        assert isinstance(slot.parameters, TokenIn)
        server.fail(slot, errors.UnknownToken(token="x" * int(slot.parameters.token)))

    ours, theirs = socket.socketpair()
    with ours, theirs:
        buffer = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert max(sizes) > 2 * buffer
        ours.settimeout(10)
        thread = threading.Thread(target=pump, args=(theirs, answer))
        thread.start()
        client = ClientProtocol()
        ours.sendall(b"".join(client.call(CONFIRM, TokenIn(token=str(size)), size) for size in sizes))
        got: list[tuple[object, int]] = []
        while client.waiting:
            got += [(tag, len(r.token)) for tag, r, _ in client.receive(ours.recv(65536)) if hasattr(r, "token")]
        ours.shutdown(socket.SHUT_WR)
        thread.join(10)
    assert got == [(size, size) for size in sizes]


# -- a client and a peer that is not a gate


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"nonsense", "JSON is malformed"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"parameters":{}}', "Object missing required field"),
        (b'{"parameters":{"vendor":1}}', "Expected `str`, got `int`"),
        (b'{"error":"a.B","parameters":[]}', "Expected `object`, got `array`"),
        (b'{"error":1}', "got `int`"),
        (b"[" * 100_000, "array"),
        (b'{"parameters":' + b"[" * 100_000, "recursion"),
        (b'{"error":"a.B","parameters":{"a":"\xff"}}', "UTF-8"),
    ],
)
def test_an_answer_that_is_none_is_a_bad_message(answer: bytes, reason: str) -> None:
    client = ClientProtocol()
    client.call(GET_INFO, Empty())
    with pytest.raises(errors.BadMessage) as caught:
        list(client.receive(answer + b"\0"))
    assert reason in str(caught.value)


def test_good_answers_before_a_bad_one_are_given() -> None:
    client = ClientProtocol()
    for tag in ("first", "second", "third"):
        client.call(CONFIRM, TokenIn(token="t"), tag)
    answers = client.receive(b"{}\0{}\0?\0{}\0")
    assert [next(answers)[0], next(answers)[0]] == ["first", "second"]
    with pytest.raises(errors.BadMessage, match="malformed"):
        next(answers)
    assert client.waiting == 1


def test_an_answer_that_nobody_asked_for_is_a_bad_message_unless_the_gate_says_that_it_has_no_room() -> None:
    with pytest.raises(errors.BadMessage, match="nobody asked"):
        list(ClientProtocol().receive(b"{}\0"))
    with pytest.raises(errors.BadMessage, match="malformed"):
        list(ClientProtocol().receive(b"?\0"))
    server = ServerProtocol()
    server.refuse(errors.TooManyConnections(limit=1000))
    with pytest.raises(errors.TooManyConnections, match="more than 1000 connections"):
        list(ClientProtocol().receive(server.take()))


def test_an_answer_may_be_as_long_as_the_clients_limit_and_not_longer() -> None:
    answer = b'{"error":"a.B","parameters":{}}'
    client = ClientProtocol(reply_bytes=len(answer))
    client.call(GET_INFO, Empty())
    ((_, error, _),) = client.receive(answer + b"\0")
    assert str(error) == "the peer answered a.B: {}"
    client = ClientProtocol(reply_bytes=len(answer) - 1)
    client.call(GET_INFO, Empty())
    with pytest.raises(errors.BadMessage, match=f"longer than {len(answer) - 1} bytes"):
        list(client.receive(answer))


def test_a_reply_that_says_more_than_we_know_is_understood() -> None:
    client = ClientProtocol()
    client.call(CONFIRM, TokenIn(token="t"), 1)
    assert list(client.receive(b'{"parameters":{"new":1},"also":2}\0')) == [(1, Done(), False)]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"self": 1, "name": 2, "text": 3, "parameters": 4, "cls": 5}, {"token": [{"a": None}]}, {"": "", "{": "}"}],
)
@pytest.mark.parametrize("name", ["a.B", "", *errors.CALL_ERRORS])
def test_whatever_a_peer_puts_into_an_error_it_has_a_text_and_can_be_copied(
    name: str, parameters: dict[str, Any]
) -> None:
    client = ClientProtocol()
    client.call(GET_INFO, Empty())
    ((_, error, _),) = client.receive(json.dumps({"error": name, "parameters": parameters}).encode() + b"\0")
    assert isinstance(error, errors.CallError)
    assert str(error)
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is type(error)
        assert (str(again), again.parameters) == (str(error), error.parameters)


def test_every_method_can_be_called_and_answered() -> None:
    """The decoders of both ends exist for each method of the table."""
    for method, (takes, answers) in METHODS.items():
        assert issubclass(takes, Wire)
        assert issubclass(answers, Reply)
        client = ClientProtocol()
        client.call(method, Empty())
        ((_, error, _),) = client.receive(b'{"error":"a.B"}\0')
        assert isinstance(error, errors.UnknownError)
