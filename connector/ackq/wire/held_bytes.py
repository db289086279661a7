"""Counts the bytes of delivered messages until their delivery tags are settled."""

from __future__ import annotations

from bisect import bisect_right


class HeldBytes:
    """The bytes of unsettled messages, added batch by batch.

    Each row of a partly settled batch counts with the mean size of the batch.

    Attributes:
        total: Bytes of all unsettled messages.
    """

    def __init__(self) -> None:
        self.total = 0
        self._firsts: list[int] = []
        # For each batch: its unsettled rows and their bytes.
        self._left: list[tuple[int, int]] = []

    def add(self, first: int, last: int, size: int) -> None:
        """Adds a batch of tags, which follow all other tags, with its bytes."""
        self.total += size
        self._firsts.append(first)
        self._left.append((last - first + 1, size))

    def remove(self, first: int, last: int) -> None:
        """Subtracts the bytes of a settled range of tags, none of them settled before."""
        firsts = self._firsts
        at = bisect_right(firsts, first) - 1
        while first <= last:
            end = min(last, firsts[at + 1] - 1 if at + 1 < len(firsts) else last)
            rows, size = self._left[at]
            freed = size * (end - first + 1) // rows
            self.total -= freed
            if rows > end - first + 1:
                self._left[at] = (rows - (end - first + 1), size - freed)
                at += 1
            else:
                del firsts[at], self._left[at]
            first = end + 1
