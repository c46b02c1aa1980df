"""What is wrong with a call, and the error that names it; and a server that nothing a peer sends can upset."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate import errors
from gate.interface import METHODS, ClaimIn, Done, GetInfoOut, TokenIn
from gate.wire import ServerProtocol
from tests.support.gate_process import frame

GET_INFO = "org.varlink.service.GetInfo"
STATUS = "io.schedulegate.Control.Status"
INFO = GetInfoOut(vendor="v", product="p", version="1", url="u", interfaces=[])

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


def claim_json(more: bytes) -> bytes:
    return b'{"method":"io.schedulegate.Send.Claim","parameters":{"schedule":"s","holder":"h"%s}}' % more


WRONG: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "an unknown interface": (b'{"method":"a.b.C"}', INTERFACE, {"interface": "a.b"}),
    "a name without a dot": (b'{"method":"Claim"}', INTERFACE, {"interface": ""}),
    "an empty name": (b'{"method":""}', INTERFACE, {"interface": ""}),
    "an unknown method": (
        b'{"method":"io.schedulegate.Send.Nope"}',
        METHOD,
        {"method": "io.schedulegate.Send.Nope"},
    ),
    "a missing field": (b'{"method":"io.schedulegate.Send.Claim"}', PARAMETER, {"parameter": "schedule"}),
    "an unknown field": (claim_json(b',"when":1'), PARAMETER, {"parameter": "when"}),
    "a string for a number": (claim_json(b',"every":"3"'), PARAMETER, {"parameter": "every"}),
    "a number for a string": (claim_json(b',"at":1700000000'), PARAMETER, {"parameter": "at"}),
    "a number for a bool": (claim_json(b',"once":1'), PARAMETER, {"parameter": "once"}),
    "a bool for a number": (claim_json(b',"every":true'), PARAMETER, {"parameter": "every"}),
    "a number beyond a double": (claim_json(b',"every":1e400'), PARAMETER, {"parameter": "every"}),
    "a number of 5,000 digits": (claim_json(b',"every":' + b"9" * 5000), PARAMETER, {"parameter": "every"}),
    "an integer of 5,000 digits": (
        b'{"method":"%s","parameters":{"limit":%s}}' % (STATUS.encode(), b"9" * 5000),
        PARAMETER,
        {"parameter": "limit"},
    ),
    "an integer too large": (
        b'{"method":"%s","parameters":{"limit":1001}}' % STATUS.encode(),
        PARAMETER,
        {"parameter": "limit"},
    ),
    "a negative limit": (
        b'{"method":"%s","parameters":{"limit":-1}}' % STATUS.encode(),
        PARAMETER,
        {"parameter": "limit"},
    ),
    "half an integer": (
        b'{"method":"%s","parameters":{"limit":0.5}}' % STATUS.encode(),
        PARAMETER,
        {"parameter": "limit"},
    ),
    "parameters that are null": (
        b'{"method":"io.schedulegate.Send.Claim","parameters":null}',
        PARAMETER,
        {"parameter": "parameters"},
    ),
    "parameters that are a list": (
        b'{"method":"io.schedulegate.Send.Claim","parameters":[]}',
        PARAMETER,
        {"parameter": "parameters"},
    ),
    "invalid UTF-8 in a value": (claim_json(b',"title":"\xff"'), PARAMETER, {"parameter": "parameters"}),
    "a lone high surrogate": (
        claim_json(b',"title":"\\ud800 x"'),
        BAD,
        {"reason": "JSON is malformed: unexpected end of escaped utf-16 surrogate pair (byte 95)"},
    ),
    "a lone low surrogate": (
        claim_json(b',"title":"\\udc00 x"'),
        BAD,
        {"reason": "JSON is malformed: invalid utf-16 surrogate pair (byte 93)"},
    ),
    "nothing": (b"", BAD, {"reason": "Input data was truncated"}),
    "a blank": (b" ", BAD, {"reason": "Input data was truncated"}),
    "no JSON": (b"\xff", BAD, {"reason": "JSON is malformed: invalid character (byte 0)"}),
    "NaN": (claim_json(b',"every":NaN'), BAD, {"reason": "JSON is malformed: invalid character (byte 89)"}),
    "infinity": (claim_json(b',"every":Infinity'), BAD, {"reason": "JSON is malformed: invalid character (byte 89)"}),
    "a comma too many": (
        b'{"method":"a.b",}',
        BAD,
        {"reason": "JSON is malformed: trailing comma in object (byte 16)"},
    ),
    "something after the call": (
        b'{"method":"a.b"} x',
        BAD,
        {"reason": "JSON is malformed: trailing characters (byte 17)"},
    ),
    "null": (b"null", BAD, {"reason": "Expected `object`, got `null`"}),
    "a list": (b"[]", BAD, {"reason": "Expected `object`, got `array`"}),
    "no method": (b"{}", BAD, {"reason": "Object missing required field `method`"}),
    "a method that is no text": (b'{"method":1}', BAD, {"reason": "Expected `str`, got `int` - at `$.method`"}),
    "a flag that is no bool": (
        b'{"method":"a.b","more":1}',
        BAD,
        {"reason": "Expected `bool`, got `int` - at `$.more`"},
    ),
    "an unknown key of the call": (b'{"method":"a.b","x":1}', BAD, {"reason": "Object contains unknown field `x`"}),
    "64 KiB of nesting": (
        b'{"method":"a.b","parameters":' + b"[" * 65_000,
        BAD,
        {"reason": "maximum recursion depth exceeded while deserializing an object"},
    ),
    "nesting that ends": (
        b'{"method":"%s","parameters":' % GET_INFO.encode() + b"[" * 32_000 + b"]" * 32_000 + b"}",
        BAD,
        {"reason": "maximum recursion depth exceeded while deserializing an object"},
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_call_gets_the_error_that_names_its_fault_and_its_neighbours_go_on(what: str) -> None:
    wrong, name, parameters = WRONG[what]
    server = ServerProtocol()
    before, after = server.receive(frame(GET_INFO) + wrong + b"\0" + frame(GET_INFO))
    server.reply(after, INFO)
    server.reply(before, INFO)
    answers = messages(server.take())
    assert [outcome(m) for m in answers] == ["ok", name, "ok"]
    if name == BAD:
        assert answers[1]["parameters"].keys() == {"reason"}
        if "malformed" not in parameters["reason"]:  # the words after that are msgspec's own
            assert answers[1]["parameters"] == parameters
    else:
        assert answers[1]["parameters"] == parameters
    assert not server.hang_up


def test_of_a_key_that_comes_twice_the_last_one_counts() -> None:
    (slot,) = ServerProtocol().receive(claim_json(b',"schedule":"second"') + b"\0")
    assert isinstance(slot.parameters, ClaimIn)
    assert slot.parameters.schedule == "second"


def test_every_text_that_json_can_say_arrives() -> None:
    text = "\0 \x7f é 😀 \u2028"
    (slot,) = ServerProtocol().receive(frame("Send.Confirm", token=text))
    assert slot.parameters == TokenIn(token=text)


def test_null_stands_for_a_field_that_is_left_out() -> None:
    (slot,) = ServerProtocol().receive(claim_json(b',"at":null,"every":null,"title":null') + b"\0")
    assert slot.parameters == ClaimIn(schedule="s", holder="h")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
methods = st.sampled_from([*METHODS, "a.b.C", "io.schedulegate.Send.Nope", ""])
keys = st.sampled_from(["schedule", "holder", "at", "every", "once", "deadline", "token", "limit", "since", "x"])
near_calls = st.fixed_dictionaries(
    {"method": methods},
    optional={
        "parameters": st.dictionaries(keys, json_values, max_size=5) | json_values,
        "more": st.booleans() | json_values,
        "oneway": st.booleans() | json_values,
        "upgrade": st.booleans(),
    },
)
near_frames = st.builds(lambda call: json.dumps(call).encode(), near_calls)
mangled_frames = st.builds(
    lambda data, place, byte: data[: place % (len(data) + 1)] + byte + data[place % (len(data) + 1) :],
    near_frames,
    st.integers(0, 400),
    st.binary(max_size=2),
)


@given(st.lists(st.binary(max_size=60) | near_frames | mangled_frames, max_size=12), st.binary(max_size=20))
def test_a_server_answers_every_frame_whatever_it_is_and_never_raises(frames: list[bytes], tail: bytes) -> None:
    stream = b"".join(part + b"\0" for part in frames) + tail.replace(b"\0", b"")
    server = ServerProtocol()
    slots = server.receive(stream)
    oneway = [slot for slot in slots if slot.call is not None and slot.call.oneway]
    open_calls = [slot for slot in slots if slot not in oneway]
    for slot in slots:
        server.reply(slot, Done())
    answers = messages(server.take())
    assert server.waiting == 0
    assert sum(outcome(m) == "ok" for m in answers) == len(open_calls)
    assert len(answers) == stream.count(b"\0") - len(oneway) - refused_oneway(stream)
    for answer in answers:
        assert answer.keys() <= {"parameters", "error"}
        if "error" in answer:
            str(errors.from_wire(answer["error"], answer["parameters"]))


def refused_oneway(stream: bytes) -> int:
    """How many frames are whole calls that want no answer and would have got an error."""
    count = 0
    for part in stream.split(b"\0")[:-1]:
        probe = ServerProtocol()
        if not probe.receive(part + b"\0") and not probe.take():
            count += 1
    return count
