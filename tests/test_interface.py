"""The structs and the .varlink files say the same; instants are read and written as RFC 3339; every error's text."""

import re
import string
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as shapes
from varlink import scanner

from gate import errors
from gate.interface import INTERFACES, METHODS, ClaimOut, Decision, NotAnInstant, Reply, State, Wire, instant, rfc3339

# -- one canonical text for a type, from either side: "?string", "[](a: int, b: (x, y))"


@cache
def description(interface: str) -> Any:
    return scanner.Interface(files("gate").joinpath(f"{interface}.varlink").read_text(encoding="utf-8"))


def of_varlink(kind: Any, interface: Any) -> str:
    """A type of the varlink package's parser as text; named types are spelled out."""
    match kind:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case str():
            return "string"
    match type(kind).__name__:
        case "_Maybe":
            return "?" + of_varlink(kind.element_type, interface)
        case "_Array":
            return "[]" + of_varlink(kind.element_type, interface)
        case "_Enum":
            return f"({', '.join(kind.fields)})"
        case "_Struct":
            return f"({', '.join(f'{n}: {of_varlink(t, interface)}' for n, t in kind.fields.items())})"
        case "_CustomType":
            return of_varlink(interface.members[kind.name].type, interface)
    raise AssertionError(f"a type that no struct of ours has: {kind!r}")


def of_struct(kind: shapes.Type) -> str:
    """A type of msgspec's as the same text."""
    match kind:
        case shapes.BoolType():
            return "bool"
        case shapes.IntType():
            return "int"
        case shapes.FloatType():
            return "float"
        case shapes.StrType() | shapes.DateTimeType():
            return "string"
        case shapes.EnumType():
            return f"({', '.join(member.value for member in kind.cls)})"
        case shapes.ListType():
            return "[]" + of_struct(kind.item_type)
        case shapes.StructType():
            return f"({', '.join(f'{f.encode_name}: {of_struct(f.type)}' for f in kind.fields)})"
        case shapes.UnionType():
            (inner,) = [of_struct(t) for t in kind.types if not isinstance(t, shapes.NoneType)]
            return "?" + inner
    raise AssertionError(f"a type that the wire does not have: {kind!r}")


def members(kind: str) -> dict[str, Any]:
    """Every "_Method" or "_Error" of all interfaces, by its full name."""
    return {
        f"{name}.{member.name}": (member, description(name))
        for name in INTERFACES
        for member in description(name).members.values()
        if type(member).__name__ == kind
    }


def test_the_files_describe_the_interfaces_that_are_served() -> None:
    shipped = {p.name for p in files("gate").iterdir() if p.name.endswith(".varlink")}
    assert shipped == {f"{name}.varlink" for name in INTERFACES}
    assert [description(name).name for name in INTERFACES] == list(INTERFACES)


def test_the_files_have_the_methods_that_are_served() -> None:
    assert members("_Method").keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_takes_and_answers_is_what_its_file_says(name: str) -> None:
    described, interface = members("_Method")[name]
    takes, answers = METHODS[name]
    assert of_struct(shapes.type_info(takes)) == of_varlink(described.in_type, interface)
    assert of_struct(shapes.type_info(answers)) == of_varlink(described.out_type, interface)


@pytest.mark.parametrize("name", METHODS)
def test_a_field_that_may_be_null_may_be_left_out_and_no_other(name: str) -> None:
    info = shapes.type_info(METHODS[name].takes)
    assert isinstance(info, shapes.StructType)
    for field in info.fields:
        assert field.required is not isinstance(field.type, shapes.UnionType), field.name
        assert field.required or field.default is None


@pytest.mark.parametrize("name", METHODS)
def test_calls_refuse_what_they_do_not_know_and_answers_allow_it(name: str) -> None:
    takes, answers = METHODS[name]
    assert issubclass(takes, Wire)
    assert issubclass(answers, Reply)
    assert takes.__struct_config__.forbid_unknown_fields
    assert not answers.__struct_config__.forbid_unknown_fields
    assert takes.__struct_config__.frozen
    assert answers.__struct_config__.frozen


def test_the_files_have_the_errors_that_we_raise() -> None:
    described = {name: list(error.type.fields) for name, (error, _) in members("_Error").items()}
    del described["org.varlink.service.MethodNotImplemented"]  # of the standard; what we describe, we implement
    ours = {name: {f for _, f, _, _ in string.Formatter().parse(e.text) if f} for name, e in errors.CALL_ERRORS.items()}
    assert {name: set(fields) for name, fields in described.items()} == ours


ERROR_FIELDS = {
    "InterfaceNotFound": "(interface: string)",
    "MethodNotFound": "(method: string)",
    "InvalidParameter": "(parameter: string)",
    "PermissionDenied": "()",
    "ExpectedMore": "()",
    "InvalidClaim": "(field: string, reason: string)",
    "UnknownToken": "(token: string)",
    "StoreUnavailable": "(retry_after: float)",
    "InvalidWorker": "(field: string, reason: string)",
    "UnknownPermit": "(permit: string)",
    "NoSuchRule": "(rule: string, known: []string)",
    "InvalidOverride": "(field: string, reason: string)",
    "NoSuchPause": "(schedule: string, known: []string)",
    "InvalidPause": "(field: string, reason: string)",
    "InvalidConfig": "(source: string, findings: []string)",
    "NotInDoubt": "(schedule: string, at: string, state: string)",
    "BadMessage": "(reason: string)",
    "MessageTooLarge": "(limit: int)",
    "MessageTimeout": "(seconds: float)",
    "TooManyCalls": "(limit: int)",
    "AnswersUnread": "(limit: int)",
    "TooManyConnections": "(limit: int)",
    "TooManyConnectionsOfUser": "(limit: int, uid: int)",
}


def test_the_fields_of_errors_have_the_types_that_peers_rely_on() -> None:
    described = members("_Error")
    assert {
        cls.__name__: of_varlink(described[name][0].type, described[name][1])
        for name, cls in errors.CALL_ERRORS.items()
    } == ERROR_FIELDS


def test_the_states_and_decisions_are_those_of_the_design() -> None:
    assert list(Decision) == ["send", "sent", "held", "doubt", "wait", "late", "paused"]
    assert list(State) == ["claimed", "sent", "doubt", "released", "missed"]


# -- instants

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
READ = {
    "2026-11-30T12:00:00Z": NOON,
    "2026-11-30t12:00:00z": NOON,
    "2026-11-30 12:00:00Z": NOON,
    "2026-11-30T12:00:00+00:00": NOON,
    "2026-11-30T12:00:00-00:00": NOON,
    "2026-11-30T13:00:00+01:00": NOON,
    "2026-11-30T17:45:00+05:45": NOON,
    "2026-11-30T01:00:00-11:00": NOON,
    "2026-12-01T11:59:00+23:59": NOON,
    "2026-11-30T12:00:00.5Z": NOON + timedelta(seconds=0.5),
    "2026-11-30T12:00:00.000001Z": NOON + timedelta(microseconds=1),
    "2026-11-30T12:00:00.1234564Z": NOON + timedelta(microseconds=123456),
    "2026-11-30T11:59:59.9999999Z": NOON,
    "2024-02-29T00:00:00Z": datetime(2024, 2, 29, tzinfo=UTC),
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59.999999Z": datetime.max.replace(tzinfo=UTC),
}
NAIVE = ["2026-11-30T12:00:00", "2026-11-30 12:00:00", "2026-11-30T12:00:00.5"]
OUTSIDE = ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"]
GARBAGE = [
    "",
    "now",
    "2026-11-30",
    "12:00:00Z",
    "1700000000",
    "2026-11-30T12:00Z",
    "2026-11-30T12:00:60Z",
    "2016-12-31T23:59:60Z",
    "2026-11-30T24:00:00Z",
    "2026-02-29T12:00:00Z",
    "2026-13-01T12:00:00Z",
    "2026-00-01T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.9999999Z",
    "2026-11-30T12:00:00+24:00",
    "2026-11-30T12:00:00+01",
    "2026-11-30T12:00:00+01:60",
    "2026-11-30T12:00:00.Z",
    "2026-11-30T12:00:00,5Z",
    "2026-11-30_12:00:00Z",
    " 2026-11-30T12:00:00Z",
    "2026-11-30T12:00:00Z ",
    "2026-11-30T12:00:00Z\n",
    "2026-11-30T12:00:00 Z",
    "2026-11-30T12:00:00Europe/Berlin",
    "20261130T120000Z",
    "2026-W49-1T12:00:00Z",
    "+2026-11-30T12:00:00Z",
    "２026-11-30T12:00:00Z",  # noqa: RUF001 - a digit, but not one of RFC 3339's
    "2026-11-30T12:00:00−01:00",  # noqa: RUF001 - a minus, but not the one of RFC 3339
]


@pytest.mark.parametrize("text", READ)
def test_an_instant_is_read_as_utc(text: str) -> None:
    value = instant(text)
    assert value == READ[text]
    assert value.tzinfo is UTC


@pytest.mark.parametrize("text", NAIVE)
def test_a_naive_instant_is_refused_and_the_text_says_what_to_write(text: str) -> None:
    with pytest.raises(NotAnInstant) as caught:
        instant(text)
    assert str(caught.value) == f"{text!r} has no zone: write 2026-11-30T12:00:00Z or 2026-11-30T13:00:00+01:00"


@pytest.mark.parametrize("text", OUTSIDE)
def test_an_instant_that_no_datetime_can_hold_in_utc_is_refused(text: str) -> None:
    with pytest.raises(NotAnInstant) as caught:
        instant(text)
    assert str(caught.value) == f"{text!r} is outside the years 1 to 9999 in UTC"


@pytest.mark.parametrize("text", GARBAGE)
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(NotAnInstant) as caught:
        instant(text)
    assert str(caught.value) == f"{text!r} is not an RFC 3339 instant such as 2026-11-30T12:00:00Z"


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text: str) -> None:
    """Hypothesis draws no instant by chance; whatever else comes out of `instant` would be a fault."""
    with pytest.raises(NotAnInstant) as caught:
        instant(text)
    assert repr(text) in str(caught.value)


zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
aware = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001 - bounds are naive


@given(aware)
def test_what_is_written_is_read_back(value: datetime) -> None:
    text = rfc3339(value)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", text)
    assert instant(text) == value


@given(aware)
def test_a_reply_writes_an_instant_as_we_do(value: datetime) -> None:
    reply = ClaimOut(decision=Decision.SEND, reason="r", at=value.astimezone(UTC))
    assert msgspec.json.decode(msgspec.json.encode(reply))["at"] == rfc3339(value)


def test_what_cannot_be_written_is_refused() -> None:
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(NotAnInstant, match=r"has no zone: give it one, such as tzinfo=datetime\.UTC"):
        rfc3339(naive)
    with pytest.raises(NotAnInstant, match="is outside the years 1 to 9999 in UTC"):
        rfc3339(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))


# -- the texts of errors

TEXTS: list[tuple[errors.GateError, str]] = [
    (
        errors.InterfaceNotFound(interface="a.b"),
        "unknown interface 'a.b': org.varlink.service.GetInfo lists those that exist",
    ),
    (
        errors.MethodNotFound(method="a.b.C"),
        "unknown method 'a.b.C': org.varlink.service.GetInterfaceDescription shows those that exist",
    ),
    (errors.InvalidParameter(parameter="at"), "invalid parameter 'at': unknown, missing or of a wrong type"),
    (
        errors.PermissionDenied(),
        "not allowed: steering needs root, the gate's own user, or a user or group listed in [control]",
    ),
    (errors.ExpectedMore(), 'this method streams its answers: call it with "more"'),
    (
        errors.InvalidClaim(field="at", reason="'now' is not an instant"),
        "invalid claim: at: 'now' is not an instant",
    ),
    (
        errors.UnknownToken(token="t"),
        "unknown token 't': no claim with it was granted, or it is older than the ledger remembers tokens",
    ),
    (
        errors.StoreUnavailable(retry_after=1.0),
        "the ledger cannot be written now, so nothing is granted: ask again in 1.0 s",
    ),
    (
        errors.UnknownPermit(permit="p"),
        "unknown permit 'p': no place is held with it by this process",
    ),
    (
        errors.InvalidWorker(field="worker", reason="0 bytes are given, 1 to 256 are allowed"),
        "invalid question: worker: 0 bytes are given, 1 to 256 are allowed",
    ),
    (
        errors.NoSuchRule(rule="dicon", known=["dicom", "mail"]),
        "no [[fetch]] rule is named 'dicon': the configuration has dicom, mail",
    ),
    (
        errors.InvalidOverride(field="until", reason="missing: an override has an end"),
        "invalid override: until: missing: an override has an end",
    ),
    (
        errors.NoSuchPause(schedule="mail", known=["reports:*"]),
        "no pause in force is of 'mail': there are those of reports:*",
    ),
    (
        errors.InvalidPause(field="until", reason="missing: it has an end"),
        "invalid pause: until: missing: it has an end",
    ),
    (
        errors.InvalidConfig(source="gate.toml", findings=["a: b", "c: d"]),
        "gate.toml is not taken over, and what ran before goes on: a: b, c: d",
    ),
    (
        errors.NotInDoubt(schedule="s", at="2026-11-30T12:00:00Z", state="sent"),
        "s at 2026-11-30T12:00:00Z is neither in doubt nor missed but sent: only such a one can be sent again",
    ),
    (errors.BadMessage(reason="no JSON"), "not a Varlink call: no JSON"),
    (errors.MessageTooLarge(limit=65536), "a message is longer than 65536 bytes"),
    (errors.MessageTimeout(seconds=10.0), "a message that was begun did not end within 10.0 s"),
    (errors.TooManyCalls(limit=64), "more than 64 calls of this connection wait for their answers"),
    (
        errors.AnswersUnread(limit=262144),
        "more than 262144 bytes of answers wait to be read: read them, then ask for this again",
    ),
    (errors.TooManyConnections(limit=1000), "more than 1000 connections"),
    (
        errors.TooManyConnectionsOfUser(limit=750, uid=1000),
        "more than 750 connections of the user 1000: the others are kept for other users",
    ),
    (errors.UnknownError("a.B", {"c": 1}), "the peer answered a.B: {'c': 1}"),
    (
        errors.UnknownToken(),
        "unknown token '?': no claim with it was granted, or it is older than the ledger remembers tokens",
    ),
    (errors.StoreError("gate.db is damaged"), "gate.db is damaged"),
    (errors.StartError("gate.sock is in use"), "gate.sock is in use"),
    (errors.ConfigError("gate.toml", ["a: b", "c: d"]), "gate.toml: a: b\ngate.toml: c: d"),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[type(e).__name__ for e, _ in TEXTS])
def test_the_text_of_an_error(error: errors.GateError, text: str) -> None:
    assert str(error) == text
    assert text[0] == text[0].lower()
    assert not text.endswith(".")


def test_every_error_has_its_text_pinned_here() -> None:
    known = {errors.UnknownError, errors.StoreError, errors.StartError, errors.ConfigError}
    assert {type(error) for error, _ in TEXTS} == {*errors.CALL_ERRORS.values(), *known}


def test_every_error_is_a_gate_error_with_a_name_of_its_own() -> None:
    assert all(issubclass(error, errors.GateError) for error in errors.CALL_ERRORS.values())
    assert all(name == error.name for name, error in errors.CALL_ERRORS.items())
    direct = {cls for cls in errors.CallError.__subclasses__() if cls is not errors.UnknownError}
    subclasses = direct.union(*(cls.__subclasses__() for cls in direct))
    assert subclasses == set(errors.CALL_ERRORS.values())


def test_the_fields_of_an_error_are_its_attributes() -> None:
    error = errors.InvalidClaim(field="at", reason="r")
    assert (error.field, error.reason) == ("at", "r")
    with pytest.raises(AttributeError, match="other"):
        _ = error.other
