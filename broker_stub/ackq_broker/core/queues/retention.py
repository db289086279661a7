"""Retention by a queue (S13): accepted messages of channels stay, and can be rewound (S14)."""

from __future__ import annotations

from collections.abc import Iterator

from ackq.errors import PreconditionFailedError
from ackq_broker.core import commands, records
from ackq_broker.core.checks import queue_named, utc
from ackq_broker.core.commands import Decision
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import State


def rewind(state: State, command: commands.RewindQueue, now_us: int) -> Decision:
    """S14: makes accepted messages of channels ready again; with `dry_run` only counts them."""
    queue = queue_named(state, command.queue)
    if not queue.retained:
        raise _refused(
            queue,
            "it retains nothing. Declare such a queue with retain_ms (`ackq queue declare "
            "--retain`); what Spark queries accept is retained by their option retain",
        )
    if 0 < command.from_us < queue.retained.from_us:
        since = utc(queue.retained.from_us)
        raise _refused(queue, f"what was accepted before {since} is no longer retained")
    positions = queue.retained.since(command.from_us)
    reply = commands.RewoundQueue(len(positions))
    if command.dry_run or not positions:
        return Decision(reply=reply)
    return Decision((records.QueueRewound(queue.queue_id, positions, now_us),), reply)


def lapsed(state: State, now_us: int) -> tuple[tuple[int, int], ...]:
    """Ids of the queues with messages past their retention, with this instant."""
    due = (queue.queue_id for queue in state.queues.values() if queue.retained.is_due(now_us))
    return tuple((queue_id, now_us) for queue_id in due)


def oldest(state: State) -> Iterator[Iterator[tuple[int, str, int, int, int]]]:
    """The groups that each queue retains, oldest first.

    A group is (instant of acceptance, "", queue id, instant of its end, payload bytes).
    """
    for queue in state.queues.values():
        if queue.retained:
            yield _groups(queue)


def _groups(queue: Queue) -> Iterator[tuple[int, str, int, int, int]]:
    for at_us, until_us, positions in queue.retained.groups():
        yield at_us, "", queue.queue_id, until_us, queue.placements.size(positions)


def _refused(queue: Queue, why: str) -> PreconditionFailedError:
    return PreconditionFailedError(
        f"The queue '{queue.name}' was not rewound: {why}.", queue=queue.name
    )
