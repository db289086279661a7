"""Queues and exchanges: counts, names and bindings, and the next due instant (Q5, M5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final

from pyroaring import BitMap64

from ackq import limits
from ackq_broker.core.checks import check_length, queue_named
from ackq_broker.core.commands import DeadLetterGroup, ExchangeInfo, QueueInfo, QueueUse
from ackq_broker.core.queues import timers
from ackq_broker.core.sessions.queues import name_pattern
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.signals import Totals
from ackq_broker.core.state.state import State

# Bindings that are listed in one step.
_BINDINGS: Final = 2_000


def list_queues(state: State, name: str = "") -> list[QueueInfo]:
    """The queues ordered by name, or one of them; raises QueueNotFoundError."""
    if name:
        return [_queue_info(queue_named(state, name))]
    return queue_infos(state, sorted(state.queue_ids))


def queue_infos(state: State, names: Sequence[str]) -> list[QueueInfo]:
    """The queues with the given names, in that order; names without a queue are left out."""
    ids = map(state.queue_ids.get, names)
    return [_queue_info(state.queues[queue_id]) for queue_id in ids if queue_id is not None]


def queue_ids(state: State) -> dict[str, int]:
    """The ids of the queues by name."""
    return state.queue_ids.copy()


def matching_names(
    state: State, pattern: str = "", after: str = "", *, not_empty: bool = False, limit: int = 0
) -> list[str]:
    """Q5: ascending names of queues that match a pattern ("": all) and come after `after`.

    A `limit` of 0 means no bound. Raises InvalidArgumentError for a pattern that is too long.
    """
    check_length("The pattern of queue names", pattern, limits.MAX_NAME_BYTES)
    matches = name_pattern(pattern).match if pattern else bool
    found = sorted(name for name in state.queue_ids if name > after and matches(name))
    if not_empty:
        filled = (name for name in found if state.queues[state.queue_ids[name]].holds_messages)
        return list(islice(filled, limit or None))
    return found[: limit or None]


def ready(state: State, name: str) -> int:
    """Number of ready messages of a queue; raises QueueNotFoundError."""
    return len(queue_named(state, name).ready)


def queue_use(state: State, name: str, most: int) -> QueueUse:
    """Bindings, batches and source queues of a queue, up to `most` of each; QueueNotFoundError."""
    queue = queue_named(state, name)
    sources = [state.queues[queue_id].name for queue_id in islice(queue.sources, most)]
    return QueueUse(
        bindings=tuple(nsmallest(most, queue.bindings)),
        batches=tuple(islice(queue.staged_by.items(), most)),
        sources=tuple(sorted(sources)),
        binding_count=len(queue.bindings),
        batch_count=len(queue.staged_by),
        source_count=len(queue.sources),
    )


def dead_letters(state: State, name: str) -> Iterator[DeadLetterGroup]:
    """The dead letters of a queue, grouped by origin queue, cause and reason, in no order.

    Dead letters that a query may read again are counted, too. The state may change between two
    groups: origins removed meanwhile are left out. Raises QueueNotFoundError, at once.
    """
    tallies = queue_named(state, name).origins.tallies()
    return (DeadLetterGroup(o.queue, o.cause, o.reason, messages) for o, messages in tallies)


def departed_totals(state: State) -> Totals:
    """Correction of the running totals for deleted queues; may be negative.

    Added to the counts of the present queues it gives the counts since the process began, which
    only grow.
    """
    totals = state.signals.departed.copy()
    for queue in state.queues.values():
        if queue.deleted:
            totals.update(queue.totals())
    totals.subtract(state.signals.before)
    return totals


def next_due_us(state: State) -> int:
    """When the next message expires or becomes ready, or a queue may expire; 0 for never.

    `commands.Tick` is to be decided then. Possibly nothing is due after all.
    """
    return timers.next_due_us(state)


def list_exchanges(state: State) -> Iterator[ExchangeInfo | None]:
    """The exchanges ordered by name, without the default one, which has no bindings of its own.

    The state may change between two steps; None is a step in the middle of many bindings.
    """
    for name in sorted(state.exchanges):
        if (exchange := state.exchanges.get(name)) is None:
            continue  # it was deleted meanwhile
        bound = [(each, key) for key, queues in exchange.bindings.items() for each in queues]
        found: list[tuple[str, str]] = []
        for first in range(0, len(bound), _BINDINGS):
            part = bound[first : first + _BINDINGS]
            found += [(state.queues[each].name, key) for each, key in part if each in state.queues]
            yield None
        yield ExchangeInfo(name, exchange.kind, exchange.durable, tuple(found))


def exchange_kind(state: State, exchange: str) -> str:
    """`direct`, as the default exchange, `fanout` or `topic`; `direct` for a missing exchange."""
    return state.exchanges[exchange].kind if exchange in state.exchanges else "direct"


def _queue_info(queue: Queue) -> QueueInfo:
    retained = queue.retained.since() if queue.retained else BitMap64()
    return QueueInfo(
        queue=queue.name,
        queue_id=queue.queue_id,
        properties=queue.properties,
        ready=len(queue.ready),
        unacked=len(queue.unacked),
        staged=queue.staged,
        payload_bytes=queue.payload_bytes,
        oldest_us=queue.oldest_us(),
        sessions=tuple(sorted(queue.sessions)),
        published=queue.published,
        accepted=queue.accepted,
        delayed=len(queue.delayed),
        expired=queue.expired,
        dead_lettered=queue.dead_lettered,
        dropped=queue.dropped,
        consumers=queue.consumers,
        delivered=queue.delivered,
        redelivered=queue.redelivered,
        dead_letters=tuple(sorted(queue.dead_letters.items())),
        dead_letters_held=len(queue.origins.positions() - queue.kept),
        retained=len(retained),
        retained_payload_bytes=queue.placements.size(retained) if retained else 0,
        retained_since_us=next((at_us for at_us, *_ in queue.retained.groups()), 0),
    )
