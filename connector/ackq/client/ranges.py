"""A set of integers as sorted, disjoint, inclusive ranges.

The cost depends on the number of ranges, not of integers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class Range(NamedTuple):
    """The integers first..last, both included; never empty."""

    first: int
    last: int


class Ranges:
    """A set of positive integers, grown at its upper end and shrunk anywhere."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[Range]:
        return map(Range, self._firsts, self._lasts)

    @property
    def lowest(self) -> int:
        """The smallest member; the set must not be empty."""
        return self._firsts[0]

    def extend(self, first: int, last: int) -> None:
        """Adds first..last, which must be above every member."""
        assert first <= last, "a range is not empty"
        assert not self._lasts or self._lasts[-1] < first, "the set grows at its end"
        if self._lasts and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)

    def intersection(self, first: int, last: int) -> list[Range]:
        """The members in first..last."""
        low, high = self._overlap(first, last)
        return [
            Range(max(first, self._firsts[at]), min(last, self._lasts[at]))
            for at in range(low, high)
        ]

    def remove(self, first: int, last: int) -> list[Range]:
        """Removes first..last; returns the integers of the range that were members."""
        removed = self.intersection(first, last)
        if removed:
            low, high = self._overlap(first, last)
            left = [(self._firsts[low], first - 1), (last + 1, self._lasts[high - 1])]
            kept = [(begin, end) for begin, end in left if begin <= end]
            self._firsts[low:high] = [begin for begin, _ in kept]
            self._lasts[low:high] = [end for _, end in kept]
        return removed

    def _overlap(self, first: int, last: int) -> tuple[int, int]:
        """Indices low..high (exclusive) of the ranges that share a member with first..last."""
        return bisect_left(self._lasts, first), bisect_right(self._firsts, last)
