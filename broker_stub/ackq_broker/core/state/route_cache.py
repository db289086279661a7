"""Cache of the routes of recently matched topic keys, shared by all exchanges (I6).

Keys with the same groups share one tuple of them, so that many keys are grouped by its identity.

Invariant: at most `limits.ROUTE_CACHE_BYTES` are kept. Entries in use stay: of two generations the
older one is dropped when the younger one is full, and an entry found in the older one becomes young
again.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from itertools import repeat
from operator import is_
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ackq import limits

# The ids of the queues that a routing key goes to, by binding key; a queue may be in several.
Groups = tuple[Collection[int], ...]
# A generation of an exchange's bindings, and a routing key.
Key = tuple[int, str]
# The entries of each generation, by routing key.
_Entries = dict[int, dict[str, Groups | None]]

# Bytes of an entry besides its key's text and its groups: the tuple of groups, and its share of the
# tables (120 to 130 of 20,000 to 43,000 entries); of a group: two pointers, and a number (49); and
# of a generation's own table.
_ENTRY_BYTES: Final = 180
_GROUP_BYTES: Final = 50
_TABLE_BYTES: Final = 350


class Grouped(NamedTuple):
    """Routing keys by their groups: `codes` has the index of each key's groups in `groups`.

    Groups are None for keys that have none or are not known; `firsts` is one key of each index.
    """

    groups: list[Groups | None]
    firsts: list[int]
    codes: NDArray[np.int64]


def grouped(known: list[Groups | None]) -> Grouped:
    """Groups keys, at least one, by the identity of their groups."""
    if all(map(is_, known, repeat(known[0]))):
        return Grouped(known[:1], [0], np.zeros(len(known), np.int64))
    ids = np.fromiter(map(id, known), np.int64, len(known))
    _, firsts, codes = np.unique(ids, return_index=True, return_inverse=True)
    return Grouped([known[first] for first in firsts], firsts.tolist(), codes)


class RouteCache:
    """Groups by exchange and routing key; None for a key that takes too much work to match."""

    __slots__ = ("_last", "_old", "_same", "_young", "_young_bytes", "generation")

    def __init__(self) -> None:
        # Of any exchange's bindings: a changed exchange takes the next one, which has no entries.
        self.generation = 0
        self._young: _Entries = {}
        self._old: _Entries = {}
        # The groups of young entries, by their identities.
        self._same: dict[tuple[int, ...], Groups] = {}
        self._young_bytes = 0
        # The last call of `grouped` since an entry was added, and its result.
        self._last: tuple[int, Sequence[str], Grouped] | None = None

    def next_generation(self) -> int:
        """Returns a generation that no entry has."""
        self.generation += 1
        return self.generation

    def __contains__(self, key: Key) -> bool:
        generation, text = key
        return any(text in entries.get(generation, ()) for entries in (self._young, self._old))

    def find(self, key: Key) -> Groups | None:
        """The groups of a key that is in the cache."""
        generation, text = key
        young = self._young.get(generation, {})
        return young[text] if text in young else self._renewed(key, self._old[generation][text])

    def grouped(self, generation: int, keys: Sequence[str]) -> Grouped:
        """The keys of a generation by their groups.

        A block's keys are grouped before its decision and in it: the second time costs nothing.
        """
        if self._last is None or self._last[0] != generation or self._last[1] is not keys:
            result = grouped(self._known(generation, keys))
            self._last = (generation, keys, result)
        return self._last[2]

    def _known(self, generation: int, keys: Sequence[str]) -> list[Groups | None]:
        """The groups of each key; None for a key without an entry or groups."""
        found = list(map(self._young.get(generation, {}).get, keys))
        older = self._old.get(generation)
        if older:
            for index, (key, groups) in enumerate(zip(keys, found, strict=True)):
                if groups is None and key in older:
                    # Not by `find`: an earlier key may have filled the young generation, which
                    # replaces `_old`, but not `older`.
                    found[index] = self._renewed((generation, key), older[key])
        return found

    def _renewed(self, key: Key, groups: Groups | None) -> Groups | None:
        """Makes an old entry young, unless an earlier row of its block has; returns its groups."""
        generation, text = key
        if text not in self._young.get(generation, ()):
            self.add(key, groups)
        return self._young[generation][text]

    def add(self, key: Key, groups: Groups | None) -> None:
        """Adds an entry to the young generation, for a key that is not in it."""
        generation, text = key
        size = _ENTRY_BYTES + sys.getsizeof(text) + _GROUP_BYTES * len(groups or ())
        size += 0 if generation in self._young else _TABLE_BYTES
        if self._young_bytes + size > limits.ROUTE_CACHE_BYTES // 2:
            self._old, self._young, self._young_bytes = self._young, {}, 0
            self._same = {}
        if groups is not None:
            groups = self._same.setdefault(tuple(map(id, groups)), groups)
        self._young.setdefault(generation, {})[text] = groups
        self._young_bytes += size
        self._last = None
