"""The target that atheris runs for hours: here over its seeds, and over what hypothesis makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.codec import SEEDS, one

FOUND = {path.name: path.read_bytes() for path in sorted(SEEDS.iterdir())}


@pytest.mark.parametrize("name", FOUND)
def test_the_codec_stands_every_seed(name: str) -> None:
    one(FOUND[name])


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(sorted(FOUND.values()))), max_size=4))
def test_the_codec_stands_what_is_made_of_them(parts: list[bytes]) -> None:
    one(b"".join(parts))
