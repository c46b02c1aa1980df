"""How a record is written in Redis, and in the journal beside it: short, since there is one for each minute of each
schedule, and all of them are in memory. No I/O.

A record is a field of a hash. What its field says is not in its value.
"""

from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

import msgspec

from gate.interface import State
from gate.ledger import Occurrence, Schedule, Token

AnyRecord: TypeAlias = Schedule | Occurrence | Token
Record = TypeVar("Record", Schedule, Occurrence, Token)


def micros(instant: datetime) -> int:
    """Microseconds since 1970: exact as a score, which is a double."""
    return (instant - _EPOCH) // _MICROSECOND


def instant(value: float) -> datetime:
    """The instant of so many microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=int(value))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_STATES = (State.CLAIMED, State.SENT, State.DOUBT, State.RELEASED, State.MISSED)
_STATE_NUMBERS = {state: number for number, state in enumerate(_STATES)}
_REASONS = ("granted", "confirmed")
"""The common ones, by their number; others stand there as text."""
_REASON_NUMBERS: dict[str, int] = {reason: number for number, reason in enumerate(_REASONS)}

_encode = msgspec.msgpack.Encoder().encode
_schedules = msgspec.msgpack.Decoder(tuple[str | None, int, int, bool, int])
"""Title, known_since, newest, once, touched."""
_occurrences = msgspec.msgpack.Decoder(tuple[int, bytes, str, int, int, int, int | None, int | str, int])
"""State, token, holder, claimed; until, touched, settled since then; reason, grants."""
_tokens = msgspec.msgpack.Decoder(tuple[str, int, str, int])
"""Schedule, at, holder, born."""


def pack(record: AnyRecord) -> bytes:
    """A record as it is stored, without what its field says."""
    if isinstance(record, Occurrence):
        claimed, settled = micros(record.claimed), record.settled
        return _encode(
            (
                _STATE_NUMBERS[record.state],
                token_field(record.token),
                record.holder,
                claimed,
                micros(record.until) - claimed,
                micros(record.touched) - claimed,
                None if settled is None else micros(settled) - claimed,
                _REASON_NUMBERS.get(record.reason, record.reason),
                record.grants,
            )
        )
    if isinstance(record, Token):
        return _encode((record.schedule, micros(record.at), record.holder, micros(record.born)))
    known_since, newest, touched = micros(record.known_since), micros(record.newest), micros(record.touched)
    return _encode((record.title, known_since, newest, record.once, touched))


def unpack(field: bytes, value: bytes, kind: type[Record]) -> Record:
    """The record of a stored value; raises ValueError (as msgspec's errors are) or LookupError for what is none."""
    record = _UNPACK[kind](field, value)
    assert isinstance(record, kind)
    return record


def _unpack_schedule(field: bytes, value: bytes) -> Schedule:
    title, known_since, newest, once, touched = _schedules.decode(value)
    return Schedule(
        name=field.decode(),
        title=title,
        known_since=instant(known_since),
        newest=instant(newest),
        once=once,
        touched=instant(touched),
    )


def _unpack_occurrence(field: bytes, value: bytes) -> Occurrence:
    state, token, holder, claimed, until, touched, settled, reason, grants = _occurrences.decode(value)
    schedule, at = parted(field)
    return Occurrence(
        schedule=schedule,
        at=at,
        state=_STATES[state],
        token=token_of(token),
        holder=holder,
        claimed=instant(claimed),
        until=instant(claimed + until),
        touched=instant(claimed + touched),
        settled=None if settled is None else instant(claimed + settled),
        reason=reason if isinstance(reason, str) else _REASONS[reason],
        grants=grants,
    )


def _unpack_token(field: bytes, value: bytes) -> Token:
    schedule, at, holder, born = _tokens.decode(value)
    return Token(token=token_of(field), schedule=schedule, at=instant(at), holder=holder, born=instant(born))


_UNPACK = {Schedule: _unpack_schedule, Occurrence: _unpack_occurrence, Token: _unpack_token}

_HEX, _NO_TEXT = 32, b"\xff"
"""A byte that begins no text, and is nowhere in one."""
_ZERO = 1 << 63


def token_field(token: str) -> bytes:
    """A token in half the room, if it is 128 bits in hexadecimal as clients make them."""
    if len(token) == _HEX:
        try:
            short = bytes.fromhex(token)
        except ValueError:
            return token.encode()
        if short.hex() == token:
            return _NO_TEXT + short
    return token.encode()


def token_of(field: bytes) -> str:
    """The token that is written so."""
    return field[1:].hex() if field.startswith(_NO_TEXT) else field.decode()


def member(name: str, at: datetime) -> bytes:
    """An occurrence as a field, and in a sorted set. As bytes, those of a schedule are in the order of `at`."""
    return name.encode() + _NO_TEXT + (micros(at) + _ZERO).to_bytes(8, "big")


def parted(place: bytes) -> tuple[str, datetime]:
    """Schedule and `at` of such a member."""
    return place[:-9].decode(), instant(int.from_bytes(place[-8:], "big") - _ZERO)


def span(name: str, since: datetime) -> tuple[bytes, bytes]:
    """The bounds, as Redis wants them, of the members of a schedule that are not before `since`."""
    return b"[" + member(name, since), b"[" + name.encode() + _NO_TEXT * 10
