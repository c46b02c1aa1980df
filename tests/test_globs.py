"""Finding rules by their globs."""

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from gate.globs import GlobIndex, first

TEXTS = st.text("ab*?[]-", max_size=5)
LISTS = st.lists(st.lists(TEXTS, max_size=3).map(tuple), max_size=5)


def indexes(lists: int) -> list[int]:
    return [index for index in range(lists.bit_length()) if lists >> index & 1]


@given(LISTS, TEXTS)
def test_every_list_with_a_glob_that_matches_is_found(lists: list[tuple[str, ...]], name: str) -> None:
    expected = [index for index, globs in enumerate(lists) if any(fnmatchcase(name, glob) for glob in globs)]
    assert indexes(GlobIndex(lists).matching(name)) == expected


@given(LISTS, TEXTS, TEXTS)
def test_a_list_that_covers_a_pattern_matches_whatever_the_pattern_matches(
    lists: list[tuple[str, ...]], pattern: str, name: str
) -> None:
    index = GlobIndex(lists)
    if fnmatchcase(name, pattern):
        assert index.covering(pattern) & ~index.matching(name) == 0


def test_a_pattern_is_covered_by_itself_by_everything_and_a_name_by_any_glob() -> None:
    index = GlobIndex([("a*",), ("*",), ("ab",), ("b",)])
    assert indexes(index.covering("a*")) == [0, 1]
    assert indexes(index.covering("ab")) == [0, 1, 2]


def test_a_name_that_looks_like_a_glob_is_a_name() -> None:
    index = GlobIndex([("[a]",), ("a?",), ("a*",)])
    assert indexes(index.matching("[a]")) == []
    assert indexes(index.matching("a")) == [0, 2]
    assert indexes(index.matching("a?")) == [1, 2]


def test_the_first_of_no_lists_is_none() -> None:
    assert (first(0), first(0b1100)) == (-1, 2)
