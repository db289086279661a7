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
from typing import Final

from ackq import limits

# The ids of the queues that a routing key goes to, by binding key; a queue may be in several.
Groups = tuple[Collection[int], ...]
# A generation of an exchange's bindings, and a routing key.
Key = tuple[int, str]

# Bytes of an entry besides its key's text and its groups: the tuples, and its share of the tables
# (180 to 190 of 20,000 to 43,000 entries); and of a group: two pointers, and a number (49).
_ENTRY_BYTES: Final = 250
_GROUP_BYTES: Final = 50


class RouteCache:
    """Groups by exchange and routing key; None for a key that takes too much work to match."""

    __slots__ = ("_old", "_same", "_young", "_young_bytes", "generation")

    def __init__(self) -> None:
        # Of any exchange's bindings: a changed exchange takes the next one, which has no entries.
        self.generation = 0
        self._young: dict[Key, Groups | None] = {}
        self._old: dict[Key, Groups | None] = {}
        # The groups of young entries, by their identities.
        self._same: dict[tuple[int, ...], Groups] = {}
        self._young_bytes = 0

    def next_generation(self) -> int:
        """Returns a generation that no entry has."""
        self.generation += 1
        return self.generation

    def __contains__(self, key: Key) -> bool:
        return key in self._young or key in self._old

    def find(self, key: Key) -> Groups | None:
        """The groups of a key that is in the cache."""
        if key not in self._young:
            self.add(key, self._old[key])
        return self._young[key]

    def known(self, generation: int, keys: Sequence[str]) -> list[Groups | None]:
        """The groups of each key of a generation; None for a key without an entry or groups."""
        found = list(map(self._young.get, zip(repeat(generation), keys)))
        if self._old and None in found:
            for index, key in enumerate(keys):
                if found[index] is None and (generation, key) in self._old:
                    found[index] = self.find((generation, key))
        return found

    def add(self, key: Key, groups: Groups | None) -> None:
        """Adds an entry to the young generation, for a key that is not in it."""
        size = _ENTRY_BYTES + sys.getsizeof(key[1]) + _GROUP_BYTES * len(groups or ())
        if self._young_bytes + size > limits.ROUTE_CACHE_BYTES // 2:
            self._old, self._young, self._young_bytes = self._young, {}, 0
            self._same = {}
        if groups is not None:
            groups = self._same.setdefault(tuple(map(id, groups)), groups)
        self._young[key] = groups
        self._young_bytes += size
