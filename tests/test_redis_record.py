"""Records as they are written in Redis: nothing of them is lost, and those of a schedule lie in the order of `at`."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.interface import State
from gate.ledger import REASONS, Occurrence, Schedule, Token
from gate.stores.redisrecord import member, pack, parted, span, token_field, token_of, unpack

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
tokens = texts | st.binary(min_size=16, max_size=16).map(bytes.hex) | st.just("AB" * 16) | st.just("x" * 32)
instants = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds


@given(
    st.builds(
        Occurrence,
        schedule=texts,
        at=instants,
        state=st.sampled_from(State),
        token=tokens | st.just(""),
        holder=texts,
        claimed=instants,
        until=instants,
        touched=instants,
        settled=st.none() | instants,
        reason=st.sampled_from([*REASONS.values()]) | texts,
        grants=st.integers(0, 2**31),
    )
)
def test_nothing_of_an_occurrence_is_lost(one: Occurrence) -> None:
    assert unpack(member(one.schedule, one.at), pack(one), Occurrence) == one


@given(st.builds(Token, token=tokens, schedule=texts, at=instants, holder=texts, born=instants))
def test_nothing_of_a_token_is_lost(one: Token) -> None:
    assert unpack(token_field(one.token), pack(one), Token) == one


@given(
    st.builds(
        Schedule,
        name=texts,
        title=st.none() | texts,
        known_since=instants,
        newest=instants,
        once=st.booleans(),
        touched=instants,
    )
)
def test_nothing_of_a_schedule_is_lost(one: Schedule) -> None:
    assert unpack(one.name.encode(), pack(one), Schedule) == one


@given(tokens, tokens)
def test_no_two_tokens_share_a_field(one: str, other: str) -> None:
    assert token_of(token_field(one)) == one
    assert (token_field(one) == token_field(other)) == (one == other)


@given(texts, texts, instants, instants)
def test_the_occurrences_of_a_schedule_lie_together_and_in_order(
    name: str, other: str, at: datetime, since: datetime
) -> None:
    low, high = (bound.removeprefix(b"[") for bound in span(name, since))
    assert parted(member(name, at)) == (name, at)
    assert (low <= member(name, at) <= high) == (at >= since)
    assert other == name or not low <= member(other, at) <= high


@pytest.mark.parametrize("kind", [Occurrence, Schedule, Token])
@pytest.mark.parametrize("value", [b"", b"?", pack(Token(token="t", schedule="s", at=AT, holder="h", born=AT))[:-3]])
def test_what_is_no_record_is_said_to_be_none(kind: Any, value: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        unpack(member("s", AT), value, kind)
