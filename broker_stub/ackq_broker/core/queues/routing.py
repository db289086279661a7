"""Routing of the rows of a block to queues: each routing key is looked up once (Q2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyroaring import BitMap

from ackq_broker.core.commands import Route
from ackq_broker.core.state.exchange import Targets
from ackq_broker.core.state.state import State


class Routed(NamedTuple):
    """Where the rows of a block go.

    Attributes:
        rows: The rows for each queue id; a row may be in several.
        unroutable: Rows that no queue wants.
        transient: Rows that only non-durable queues want (P5).
        durable: Rows whose bytes are kept: a durable queue wants them, or may as dead letters (Q7).
        unroutable_key: One key that no queue wants, for the message.
    """

    rows: dict[int, BitMap]
    unroutable: BitMap
    transient: BitMap
    durable: BitMap
    unroutable_key: str


def targets_of(state: State, exchange: str) -> Callable[[str], Targets] | None:
    """How to find the queues for a key; None without such an exchange. "" is the default one."""
    if exchange:
        found = state.exchanges.get(exchange)
        return found.targets if found else None

    def by_name(routing_key: str) -> Targets:
        queue_id = state.queue_ids.get(routing_key)
        return () if queue_id is None else (queue_id,)

    return by_name


def route(
    state: State,
    targets: Callable[[str], Targets],
    routes: tuple[Route, ...],
    wanted: BitMap,
) -> Routed:
    """Routes the `wanted` rows of a block."""
    by_targets: dict[Targets, list[BitMap]] = {}
    unroutable_key = ""
    for key, rows in routes:
        selected = wanted if rows is None else rows & wanted
        if not selected:
            continue
        queue_ids = targets(key)
        by_targets.setdefault(queue_ids, []).append(selected)
        if not queue_ids:
            unroutable_key = key
    by_queue: dict[int, list[BitMap]] = {}
    transient: list[BitMap] = []
    durable: list[BitMap] = []
    unroutable = _union(by_targets.pop((), []))
    for queue_ids, parts in sorted(by_targets.items()):
        rows = _union(parts)
        for queue_id in queue_ids:
            by_queue.setdefault(queue_id, []).append(rows)
        properties = [state.queues[queue_id].properties for queue_id in queue_ids]
        if not any(each.durable for each in properties):
            transient.append(rows)
        if any(each.durable or each.dead_letter_queue for each in properties):
            durable.append(rows)
    rows_of = {queue_id: _union(parts) for queue_id, parts in sorted(by_queue.items())}
    return Routed(rows_of, unroutable, _union(transient), _union(durable), unroutable_key)


def _union(parts: list[BitMap]) -> BitMap:
    if len(parts) == 1:
        return parts[0]
    return BitMap.union(*parts) if parts else BitMap()
