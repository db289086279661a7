"""Negative outcomes of unacked messages (C4, C13, C14), of a channel and of a session alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from pyroaring import BitMap64

from ackq.outcomes import Disposition, Outcome
from ackq_broker.core.checks import BUILT_IN_DEAD
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.columns.deadlines import rounded
from ackq_broker.core.fields import Delay
from ackq_broker.core.queues.dead_letters import Cause, RemovalPlan
from ackq_broker.core.queues.rejections import dead_letter_queue
from ackq_broker.core.queues.topology import requeue
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State

# The longest redelivery delay where a queue sets a first delay and no longest one.
DEFAULT_DELAY_MAX_MS: Final = 300_000
# First redelivery delay of messages that a query requeued, where their queue sets no delay.
_DEFAULT_DELAY_MS: Final = 1_000
# More doublings than this exceed every longest delay.
_MOST_DOUBLINGS: Final = 42


def plan_outcome(
    state: State,
    plan: RemovalPlan,
    queue: Queue,
    positions: BitMap64,
    disposition: Disposition,
    *,
    discard: bool = True,
) -> BitMap64:
    """Plans to remove messages rejected or over the delivery limit; returns the requeued ones.

    Without `discard` a rejected message goes to the built-in queue where its queue has no
    dead-letter queue: it had one when a query staged the outcome (L28).
    """
    outcome, reason, _ = disposition
    if outcome is Outcome.REJECTED:
        otherwise = "" if discard else BUILT_IN_DEAD
        plan.dead_letter(queue, positions, Cause.REJECTED, reason, otherwise=otherwise)
        return BitMap64()
    limit = queue.properties.delivery_limit
    removable = queue.properties.drop_on_limit or dead_letter_queue(state, queue)
    if outcome is Outcome.FAILED and limit and removable:
        failures = queue.failures.at(positions) + 1
        over = bitmaps.of(bitmaps.array(positions)[failures > limit])
        plan.dead_letter(queue, over, Cause.DELIVERY_LIMIT, reason)
        return positions - over
    return positions


def delays(
    queue: Queue,
    positions: BitMap64,
    disposition: Disposition,
    now_us: int,
    *,
    from_query: bool = False,
) -> tuple[Delay, ...]:
    """C14: redelivery delays of requeued messages: the disposition's, else doubled each time.

    On a channel FAILED waits where the queue sets a delay, and RELEASED never does. `from_query`
    both wait, or each next batch would lease the same message again. FAILED doubles with the
    failures of a message, RELEASED with its requeues.
    """
    outcome, _, delay_ms = disposition
    first_ms = queue.properties.redelivery_delay_ms or (_DEFAULT_DELAY_MS if from_query else 0)
    if not positions or queue.deleted:
        return ()
    if delay_ms:
        waits_ms = np.array([delay_ms])
        groups = [positions]
    elif first_ms and (from_query or outcome is Outcome.FAILED):
        longest_ms = max(queue.properties.redelivery_delay_max_ms or DEFAULT_DELAY_MAX_MS, first_ms)
        times = queue.failures if outcome is Outcome.FAILED else queue.deliveries
        before = times.at(positions)
        counts = np.unique(before)
        doubled = first_ms * 2.0 ** np.minimum(counts, _MOST_DOUBLINGS)
        waits_ms = np.minimum(doubled, longest_ms).astype(np.int64)
        values = bitmaps.array(positions)
        groups = [bitmaps.of(values[before == count]) for count in counts]
    else:
        return ()
    untils = rounded(now_us + waits_ms * 1000, now_us).tolist()
    return tuple(
        Delay(queue.queue_id, group, until) for group, until in zip(groups, untils, strict=True)
    )


def apply_requeue(
    state: State, sequence: int, queue: Queue, positions: BitMap64, delayed: Iterable[Delay]
) -> None:
    """Requeues unacked messages: some with a delay, the others ready at once."""
    for delay in delayed:
        if delay.queue_id == queue.queue_id:
            queue.postpone(delay.positions, delay.until_us)
            positions = positions - delay.positions
    if positions:
        requeue(state, queue.queue_id, positions, sequence)
