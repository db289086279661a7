"""Routing of the rows of a block to queues: each routing key is looked up once (Q2).

Invariant: the work for a block is bounded, by keys, steps and queues, not by rows (I5, I6); rows
over a bound are refused and go nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from ackq import limits
from ackq.errors import LimitError
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.commands import Routes
from ackq_broker.core.state.route_cache import Grouped, Groups, grouped
from ackq_broker.core.state.state import State


class Router(Protocol):
    """Interface of an exchange, including the default one."""

    @property
    def keyed(self) -> bool:
        """Whether the routing key of a message matters."""

    def match(self, routing_key: str) -> int:
        """Matches a routing key, unless its match is known; returns the steps that it took."""

    def groups(self, routing_key: str) -> Groups:
        """The ids of the queues that a routing key leads to, by binding key; raises LimitError."""

    def grouped(self, routing_keys: Sequence[str]) -> Grouped:
        """The keys by the groups that are known for each, in one step; None if they are not."""


class _ByName:
    """The default exchange: a routing key is the name of a queue."""

    keyed = True

    def __init__(self, queue_ids: dict[str, int]) -> None:
        self._queue_ids = queue_ids

    def match(self, _: str) -> int:
        return 1

    def groups(self, routing_key: str) -> Groups:
        queue_id = self._queue_ids.get(routing_key)
        return () if queue_id is None else ((queue_id,),)

    def grouped(self, routing_keys: Sequence[str]) -> Grouped:
        found = map(self._queue_ids.get, routing_keys)
        return grouped([() if queue_id is None else ((queue_id,),) for queue_id in found])


class Refused(NamedTuple):
    """Rows of a block that cannot be routed, and why."""

    rows: BitMap
    reason: LimitError


class Routed(NamedTuple):
    """Result of routing a block: its rows by queue, and the rows that go nowhere.

    Attributes:
        rows: The rows for each queue id; a row may be in several.
        unroutable: Rows that go to no queue.
        transient: Rows that go to non-durable queues only (P5).
        durable: Rows whose bytes are kept: a durable queue gets them, or may as dead letters (Q7).
        unroutable_key: One key that leads to no queue, for the message.
        refused: Rows over a bound; in none of the above.
    """

    rows: dict[int, BitMap]
    unroutable: BitMap
    transient: BitMap
    durable: BitMap
    unroutable_key: str
    refused: tuple[Refused, ...] = ()


def router_of(state: State, exchange: str) -> Router | None:
    """The exchange of this name, the default one for ""; None without such an exchange."""
    return state.exchanges.get(exchange) if exchange else _ByName(state.queue_ids)


def match(router: Router, keys: Sequence[str], start: int, most_steps: int) -> int:
    """Matches routing keys from an index on, ahead of `route`, until over `most_steps`.

    Returns:
        The first index that is left; the number of keys if none is.
    """
    if None not in router.grouped(keys[start:]).groups:
        return len(keys)
    steps = 0
    for index, key in enumerate(islice(keys, start, None), start):
        if steps > most_steps:
            return index
        steps += router.match(key) - 1
    return len(keys)


def route(state: State, router: Router, routes: Routes, wanted: BitMap) -> Routed:
    """Routes the `wanted` rows of a block."""
    work = _Work(router)
    if not router.keyed:
        work.add("", wanted)
    elif routes.codes is None:
        work.add(routes.keys[0], wanted)
    elif wanted:
        work.add_keys(routes.keys, routes.codes, wanted)
    by_queue: dict[int, list[BitMap]] = {}
    lasting: list[BitMap] = []
    durable: list[BitMap] = []
    for group, parts in work.groups.values():
        rows = _union(parts)
        lasts = kept = False
        for queue_id in group:
            by_queue.setdefault(queue_id, []).append(rows)
            properties = state.queues[queue_id].properties
            lasts = lasts or properties.durable
            kept = kept or properties.durable or bool(properties.dead_letter_queue)
        if lasts:
            lasting.append(rows)
        if kept:
            durable.append(rows)
    unroutable = _union(work.unroutable)
    refused = tuple(Refused(_union(rows), reason) for reason, rows in work.refused.values())
    routed = wanted - unroutable - _union([each.rows for each in refused])
    rows_of = {queue_id: _union(parts) for queue_id, parts in sorted(by_queue.items())}
    return Routed(
        rows=rows_of,
        unroutable=unroutable,
        transient=routed - _union(lasting),
        durable=_union(durable),
        unroutable_key=work.unroutable_key,
        refused=refused,
    )


class _Work:
    """Matches the routing keys of a block, within the bounds of one block.

    Attributes:
        groups: Groups of queues with their rows, by the group's identity.
        unroutable: Rows of keys that lead to no queue; `unroutable_key` is one of the keys.
        refused: A refusal with its rows for each bound that is exceeded.
    """

    def __init__(self, router: Router) -> None:
        self.groups: dict[int, tuple[Collection[int], list[BitMap]]] = {}
        self.unroutable: list[BitMap] = []
        self.unroutable_key = ""
        self.refused: dict[object, tuple[LimitError, list[BitMap]]] = {}
        self._router = router
        self._steps = self._queues = 0

    def add_keys(self, keys: Sequence[str], codes: NDArray[Any], wanted: BitMap) -> None:
        """Adds the rows of several keys: once for all keys whose groups are the same object.

        A block that may exceed a bound is added key by key, so that only rows over it are refused.
        """
        rows = bitmaps.row_array(wanted)
        if len(rows) < len(codes):
            codes = codes[rows]
            used, codes = np.unique(codes, return_inverse=True)
            keys = [keys[number] for number in used.tolist()]
        found, firsts, merged = self._router.grouped(keys)
        groups = [each for each in found if each is not None]
        if len(groups) == len(found) and self._is_small(groups, np.bincount(merged).tolist()):
            parts = bitmaps.by_code(rows, merged[codes], len(groups)) if groups[1:] else [wanted]
            for groups_of, first, part in zip(groups, firsts, parts, strict=True):
                self._put(groups_of, keys[first], part)
        else:
            for key, part in zip(keys, bitmaps.by_code(rows, codes, len(keys)), strict=True):
                self.add(key, part)

    def _is_small(self, found: list[Groups], keys: list[int]) -> bool:
        """Whether groups, each found for a number of keys, are within the bounds of a block."""
        steps = sum((1 + len(groups)) * n for groups, n in zip(found, keys, strict=True))
        queues = sum(len(group) for groups in found for group in groups)
        return steps <= limits.MAX_BLOCK_STEPS and queues <= limits.MAX_BLOCK_QUEUES

    def add(self, key: str, rows: BitMap) -> None:
        """Adds the rows of one key."""
        try:
            groups = self._groups(key)
        except LimitError as refusal:
            self.refused.setdefault(refusal.fields["limit"], (refusal, []))[1].append(rows)
            return
        self._put(groups, key, rows)

    def _put(self, groups: Groups, key: str, rows: BitMap) -> None:
        for group in groups:
            self.groups.setdefault(id(group), (group, []))[1].append(rows)
        if not groups:
            self.unroutable.append(rows)
            self.unroutable_key = key

    def _groups(self, key: str) -> Groups:
        """The groups of a key; raises LimitError."""
        if self._steps > limits.MAX_BLOCK_STEPS:
            raise _over("steps to match", limits.MAX_BLOCK_STEPS)
        self._steps += self._router.match(key)
        groups = self._router.groups(key)
        self._steps += len(groups)
        queues = sum(len(group) for group in groups if id(group) not in self.groups)
        if self._queues + queues > limits.MAX_BLOCK_QUEUES:
            raise _over("target queues", limits.MAX_BLOCK_QUEUES)
        self._queues += queues
        return groups


def _over(what: str, limit: int) -> LimitError:
    return LimitError(
        f"The routing keys of one frame have more than {limit} {what}, the limit. Send smaller"
        " frames, or bind fewer queues.",
        limit=limit,
    )


def _union(parts: list[BitMap]) -> BitMap:
    if len(parts) == 1:
        return parts[0]
    return BitMap.union(*parts) if parts else BitMap()
