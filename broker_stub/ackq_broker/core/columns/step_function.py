"""A function of ascending integers that is constant over long stretches: a row where it changes.

Keys are added in ascending order and never again; the owner of the function knows which of them are
still needed (`present`, a bitmap). Invariant: a row exists as long as one of its keys is present.
Rows of 16 bytes and up lie in pages of numpy arrays, so a million keys in a stretch cost one row,
and a million keys with a value each cost no Python object.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.columns.pieces import Parts

PAGE_ROWS: Final = 1024
_FIRST_PAGE_ROWS: Final = 8
# Pages with fewer rows are not worth packing when half of them are empty.
_PACK_ROWS: Final = 64


class _StepPage:
    """A page: row i holds from `keys[i]` to below `keys[i + 1]`; `live` keys are present."""

    __slots__ = ("_keys", "_values", "live", "used")

    def __init__(self, keys: Int64s, values: NDArray[Any], used: int) -> None:
        self._keys = keys
        self._values = values
        self.used = used
        self.live = 0

    @property
    def keys(self) -> Int64s:
        return self._keys[: self.used]

    @property
    def values(self) -> NDArray[Any]:
        return self._values[: self.used]

    def append(self, key: int, value: tuple[Any, ...]) -> None:
        self._make_room(1)
        self._keys[self.used] = key
        self._values[self.used] = value
        self.used += 1

    def extend(self, keys: Int64s, values: NDArray[Any]) -> None:
        end = self.used + len(keys)
        self._make_room(len(keys))
        self._keys[self.used : end] = keys
        self._values[self.used : end] = values
        self.used = end

    def _make_room(self, rows: int) -> None:
        if self.used + rows > len(self._keys):
            more = min(max(self.used, rows), PAGE_ROWS - self.used)
            self._keys = np.concatenate((self.keys, np.zeros(more, np.int64)))
            self._values = np.concatenate((self.values, np.zeros(more, self._values.dtype)))

    def at(self, keys: Int64s) -> NDArray[Any]:
        found: NDArray[Any] = self.values[np.searchsorted(self.keys, keys, "right") - 1]
        return found

    def pack(self, keys: Int64s) -> None:
        """Keeps only the rows of these keys."""
        kept = np.unique(np.searchsorted(self.keys, keys, "right") - 1)
        self._keys, self._values, self.used = self.keys[kept], self.values[kept], len(kept)


class Dumped(NamedTuple):
    """The rows in parts: keys (int64) and values, one after the other."""

    keys: Parts
    values: Parts


class Steps:
    """A step function: values of a structured numpy type by key."""

    __slots__ = ("_firsts", "_pages", "_value")

    def __init__(self, value: np.dtype[Any]) -> None:
        self._value = value
        self._pages: list[_StepPage] = []
        self._firsts: list[int] = []

    def append(self, first: int, count: int, value: tuple[Any, ...]) -> None:
        """Gives the keys first to first + count - 1, above all earlier ones, this value."""
        page = self._pages[-1] if self._pages else None
        if page is None or page.values[-1].item() != value:
            page = self._page_for(first)
            page.append(first, value)
        page.live += count

    def extend(self, firsts: Int64s, counts: Int64s, values: NDArray[Any]) -> None:
        """Appends many stretches at a fraction of the cost of `append` for each."""
        at = 0
        if self._pages and self._pages[-1].values[-1] == values[0]:
            self._pages[-1].live += int(counts[0])
            at = 1
        while at < len(firsts):
            page = self._page_for(int(firsts[at]))
            end = at + PAGE_ROWS - page.used
            page.extend(firsts[at:end], values[at:end])
            page.live += int(counts[at:end].sum())
            at = end

    def at(self, keys: Int64s) -> NDArray[Any]:
        """The values of present keys, which must ascend."""
        if not len(keys):
            return np.empty(0, self._value)
        begin, end = self._page_index(int(keys[0])), self._page_index(int(keys[-1]))
        if begin == end:
            return self._pages[begin].at(keys)
        cuts = np.searchsorted(keys, self._firsts[begin + 1 : end + 1])
        parts = np.split(keys, cuts)
        pages = self._pages[begin : end + 1]
        return np.concatenate(
            [page.at(part) for page, part in zip(pages, parts, strict=True) if len(part)]
        )

    def constant(self, first: int, last: int) -> tuple[Any, ...] | None:
        """The value of all keys between two present keys if one row has them; otherwise None."""
        index = self._page_index(first)
        if self._page_index(last) != index:
            return None
        page = self._pages[index]
        begin, end = np.searchsorted(page.keys, (first, last), "right").tolist()
        value: tuple[Any, ...] = page.values[begin - 1].item()
        return value if begin == end else None

    def remove(self, keys: BitMap64, present: BitMap64) -> None:
        """Removes keys; `present` are the remaining ones."""
        if not keys:
            return
        begin, end = self._page_index(keys.min()), self._page_index(keys.max()) + 1
        kept = []
        for index in range(begin, end):
            page, first = self._pages[index], self._firsts[index]
            after = self._after(index)
            whole = begin + 1 == end
            page.live -= len(keys) if whole else keys.range_cardinality(first, after)
            assert page.live >= 0
            if page.live:
                if page.used >= _PACK_ROWS and page.live * 2 < page.used:
                    page.pack(bitmaps.array(bitmaps.between(present, first, after - 1)))
                kept.append(index)
        if len(kept) < end - begin:
            self._firsts[begin:end] = [self._firsts[index] for index in kept]
            self._pages[begin:end] = [self._pages[index] for index in kept]

    def dump(self, present: BitMap64) -> Dumped:
        """The fewest rows with the values of the present keys, independent of their history.

        Rows are written once, after the existing ones, so that later changes do not affect the
        dump.
        """
        pages = [
            (self._firsts[index], self._after(index) - 1, page.keys, page.values)
            for index, page in enumerate(self._pages)
        ]
        held = present.copy()
        return Dumped(
            Parts(lambda: (keys for keys, _ in _fewest(pages, held))),
            Parts(lambda: (values for _, values in _fewest(pages, held))),
        )

    @classmethod
    def load(
        cls, value: np.dtype[Any], key_bytes: bytes, value_bytes: bytes, present: BitMap64
    ) -> Steps:
        """Restores the function from the output of `dump`."""
        self = cls(value)
        keys, values = np.frombuffer(key_bytes, np.int64), np.frombuffer(value_bytes, value)
        for begin in range(0, len(keys), PAGE_ROWS):
            part = slice(begin, begin + PAGE_ROWS)
            self._pages.append(_StepPage(keys[part].copy(), values[part].copy(), len(keys[part])))
            self._firsts.append(int(keys[begin]))
        for index, page in enumerate(self._pages):
            page.live = present.range_cardinality(self._firsts[index], self._after(index))
        return self

    def _page_for(self, first: int) -> _StepPage:
        """The page for the next row, whose key is `first`; it has room."""
        if not self._pages or self._pages[-1].used == PAGE_ROWS:
            keys = np.zeros(_FIRST_PAGE_ROWS, np.int64)
            self._pages.append(_StepPage(keys, np.zeros(_FIRST_PAGE_ROWS, self._value), 0))
            self._firsts.append(first)
        return self._pages[-1]

    def _page_index(self, key: int) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def _after(self, index: int) -> int:
        """The first key that is past a page."""
        return self._firsts[index + 1] if index + 1 < len(self._firsts) else 1 << 63


def _fewest(
    pages: list[tuple[int, int, Int64s, NDArray[Any]]], present: BitMap64
) -> Iterator[tuple[Int64s, NDArray[Any]]]:
    """Yields the rows that present keys need, page by page, given with first and last keys."""
    before: NDArray[Any] | None = None
    for first, last, page_keys, page_values in pages:
        held = bitmaps.array(bitmaps.between(present, first, last))
        rows = np.searchsorted(page_keys, held, "right") - 1
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        keys, values = held[starts], page_values[rows[starts]]
        changes = np.ones(len(keys), np.bool_)
        changes[1:] = values[1:] != values[:-1]
        if before is not None and len(values):
            changes[0] = values[0] != before
        before = values[-1] if len(values) else before
        yield keys[changes], values[changes]
