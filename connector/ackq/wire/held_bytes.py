"""The bytes of messages that are delivered and not settled, as their delivery tags are settled."""

from __future__ import annotations

from bisect import bisect_right


class HeldBytes:
    """The bytes of what is held, added batch by batch.

    Of a batch that is settled in part, the rows count with their mean.

    Attributes:
        total: All of them.
    """

    def __init__(self) -> None:
        self.total = 0
        self._firsts: list[int] = []
        # By batch: the rows and the bytes that are not settled.
        self._left: list[tuple[int, int]] = []

    def add(self, first: int, last: int, size: int) -> None:
        """A batch of tags behind all others, with its bytes."""
        self.total += size
        self._firsts.append(first)
        self._left.append((last - first + 1, size))

    def remove(self, first: int, last: int) -> None:
        """A range of tags is settled, each of them for the first time."""
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
