"""Which of many lists of globs match a name: rules are found without trying each of them.

Sets of lists are integers: bit i is the list at index i. Matching is case-sensitive.
"""

from collections.abc import Iterable
from fnmatch import translate
from re import compile as compile_pattern

EVERYTHING = "*"


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match other names than itself."""
    return any(character in pattern for character in "*?[")


def first(lists: int) -> int:
    """The index of the first list in a set; -1 if it is empty."""
    return (lists & -lists).bit_length() - 1


class GlobIndex:
    """Lists of globs, by index."""

    def __init__(self, lists: Iterable[tuple[str, ...]]) -> None:
        self._holding: dict[str, int] = {}
        for index, globs in enumerate(lists):
            for glob in globs:
                self._holding[glob] = self._holding.get(glob, 0) | 1 << index
        real = [glob for glob in self._holding if is_glob(glob)]
        # Nearly all globs are a beginning and a star: those are looked up.
        beginnings = {glob for glob in real if glob.endswith("*") and not is_glob(glob[:-1])}
        self._beginnings = sorted({len(glob) - 1 for glob in beginnings})
        others = (glob for glob in real if glob not in beginnings)
        self._others = [(compile_pattern(translate(glob)), self._holding[glob]) for glob in others]

    def matching(self, name: str) -> int:
        """The lists of which a glob matches a name."""
        lists = 0 if is_glob(name) else self._holding.get(name, 0)
        for length in self._beginnings:
            lists |= self._holding.get(name[:length] + "*", 0)
        for pattern, holding in self._others:
            if pattern.match(name):
                lists |= holding
        return lists

    def covering(self, pattern: str) -> int:
        """The lists that surely match all that a pattern matches: they hold it, or `*`, or match its only name."""
        if is_glob(pattern):
            return self._holding.get(pattern, 0) | self._holding.get(EVERYTHING, 0)
        return self.matching(pattern)
