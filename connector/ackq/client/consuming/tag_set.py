"""A set of delivery tags as bits: a quarter of a byte per tag (C16).

Invariant: the cost of adding and removing a tag does not depend on the number or pattern of other
tags; the cost of a range grows with the range, one step for about a thousand tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ackq.client.ranges import Range

# Tags per word. A word is a Python int: small enough to be copied at each change, large enough for
# cheap ranges.
_BITS = 1024
_ALL = (1 << _BITS) - 1


class TagSet:
    """A set of positive integers that lie close together, as a channel's tags do."""

    __slots__ = ("_count", "_low", "_words")

    def __init__(self) -> None:
        self._words: dict[int, int] = {}
        self._count = 0
        self._low = 0  # no word is below this index

    def __len__(self) -> int:
        return self._count

    def __contains__(self, tag: int) -> bool:
        return bool(self._words.get(tag // _BITS, 0) >> tag % _BITS & 1)

    @property
    def lowest(self) -> int | None:
        """The smallest member; None in an empty set."""
        if not self._count:
            return None
        # Tags grow, so this walk passes each word once.
        while self._low not in self._words:
            self._low += 1
        word = self._words[self._low]
        return self._low * _BITS + (word & -word).bit_length() - 1

    def add(self, first: int, last: int) -> None:
        """Adds first..last."""
        words = self._words
        at = first // _BITS
        if at < self._low or not words:
            self._low = at
        for at, mask in _masks(first, last):
            word = words.get(at, 0)
            self._count += (mask & ~word).bit_count()
            words[at] = word | mask

    def insert(self, tag: int) -> None:
        """Adds one tag."""
        at, bit = tag // _BITS, 1 << tag % _BITS
        if at < self._low or not self._words:
            self._low = at
        word = self._words.get(at, 0)
        if not word & bit:
            self._words[at] = word | bit
            self._count += 1

    def discard(self, tag: int) -> bool:
        """Removes one tag; returns whether it was a member."""
        at, bit = tag // _BITS, 1 << tag % _BITS
        word = self._words.get(at, 0)
        if not word & bit:
            return False
        if word == bit:
            del self._words[at]
        else:
            self._words[at] = word ^ bit
        self._count -= 1
        return True

    def count(self, first: int, last: int) -> int:
        """The number of members in first..last."""
        return sum((self._words.get(at, 0) & mask).bit_count() for at, mask in _masks(first, last))

    def remove(self, first: int, last: int) -> int:
        """Removes first..last; returns the number of removed members."""
        removed = 0
        for at, mask in _masks(first, last):
            word = self._words.get(at, 0)
            common = word & mask
            if not common:
                continue
            removed += common.bit_count()
            if common == word:
                del self._words[at]
            else:
                self._words[at] = word ^ common
        self._count -= removed
        return removed

    def up_to(self, tag: int) -> list[Range]:
        """All members up to and including a tag, as ranges."""
        lowest = self.lowest
        return [] if lowest is None or lowest > tag else list(self._between(lowest, tag))

    def _between(self, first: int, last: int) -> Iterator[Range]:
        """The members in first..last, as ranges that do not touch."""
        open_first = open_last = 0
        for at, mask in _masks(first, last):
            for low, high in _runs(self._words.get(at, 0) & mask, at * _BITS):
                if open_first and open_last + 1 == low:
                    open_last = high
                    continue
                if open_first:
                    yield Range(open_first, open_last)
                open_first, open_last = low, high
        if open_first:
            yield Range(open_first, open_last)


def _masks(first: int, last: int) -> Iterable[tuple[int, int]]:
    """The word indices of first..last, each with the mask of the bits in the range."""
    low, high = first // _BITS, last // _BITS
    if low == high:
        return ((low, (1 << last - first + 1) - 1 << first % _BITS),)
    return _masks_of_many(first, last, low, high)


def _masks_of_many(first: int, last: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    yield low, _ALL >> first % _BITS << first % _BITS
    for at in range(low + 1, high):
        yield at, _ALL
    yield high, (1 << last % _BITS + 1) - 1


def _runs(word: int, base: int) -> Iterator[tuple[int, int]]:
    """The runs of set bits in a word, as tags."""
    while word:
        start = (word & -word).bit_length() - 1
        word >>= start
        length = (~word & word + 1).bit_length() - 1
        word >>= length
        base += start
        yield base, base + length - 1
        base += length
