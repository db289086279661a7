"""Images of the items of the state, as a snapshot stores them, each taken at once.

Short values are encoded, long ones are shared or copied: an item may change once its image is
taken. The fields are those of the structs in `load`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import chain
from typing import Any, Final

from msgspec.structs import replace

from ackq_broker.core.columns.pieces import Encoded, Listed, encoded
from ackq_broker.core.state.channel import ChannelTags, UnackedRun
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.link import Link
from ackq_broker.core.state.origins import Origins
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import Lease, Publisher, Session, Stage, State, Writer

# A list of more items than these is captured, and encoded item by item.
_MANY: Final = 64
_MANY_MESSAGES: Final = 1_000
_SORT_KEYS: Final = 1_000


def head_image(state: State) -> dict[str, Any]:
    """The fields of a snapshot that are not tables; the images of the tables are merged into it."""
    return {
        "sequence": state.sequence,
        "history_id": state.history_id,
        "topology_sequence": state.topology_sequence,
        "next_queue_id": state.next_queue_id,
        "next_block_id": state.next_block_id,
        "queues": (),
        "exchanges": (),
        "publishers": (),
        "writers": (),
        "stages": (),
        "sessions": (),
        "ended": tuple(state.ended.items()),
        "channels": (),
        "links": (),
        "histories": state.histories,
        "admitted_history": state.admitted_history,
        "sizes": state.blocks.sizes.dump(),
        "queries": tuple(query for own in state.queries.values() for query in own.values()),
        "forgotten": Listed(len(state.forgotten), map(encoded, state.forgotten.copy().items())),
    }


def queue_image(_queue_id: int, queue: Queue) -> object:
    """A queue, as bytes unless it has many messages."""
    columns = _columns(queue)
    return encoded(columns) if queue.placements.live < _MANY_MESSAGES else columns


def _columns(queue: Queue) -> dict[str, Any]:
    """A queue's columns as of now, shared or copied; fields of `_QueueImage`."""
    runs, scattered = queue.placements.dump()
    return {
        "queue_id": queue.queue_id,
        "name": queue.name,
        "properties": queue.properties,
        "deleted": queue.deleted,
        "next_position": queue.next_position,
        "ready": queue.ready.copy(),
        "unacked": queue.unacked.copy(),
        "kept": queue.kept.copy(),
        "runs": runs,
        "scattered": scattered,
        "deliveries": queue.deliveries.dump(),
        "published": queue.published,
        "accepted": queue.accepted,
        "requeued_log": queue.requeued.dump(),
        "delayed": queue.delayed.copy(),
        "failures": queue.failures.dump(),
        "expiries": queue.expiries.dump(queue.present),
        "late": queue.late.copy(),
        "passing": queue.transient_rows.copy(),
        "delays": queue.delays.dump(queue.delayed),
        "origins": _origins_image(queue.origins),
        "expired": queue.expired,
        "dead_lettered": queue.dead_lettered,
        "dropped": queue.dropped,
        "replays": queue.replays.dump(),
        "rewound": queue.rewound.dump(),
        "retained": queue.retained.dump(),
        "retained_from_us": queue.retained.from_us,
        "retained_last_bytes": queue.retained.last_bytes,
        "rejected": queue.rejected.copy(),
        "watched": queue.watched.copy(),
        "departed": tuple((why, gone.copy()) for why, gone in sorted(queue.departed.items())),
    }


def _origins_image(origins: Origins) -> dict[str, Any]:
    next_id, deaths, positions, steps = origins.dump()
    return {
        "next_id": next_id,
        "deaths": deaths,
        "positions": positions,
        "keys": steps.keys,
        "values": steps.values,
    }


def channel_image(channel_id: bytes, channel: ChannelTags) -> dict[str, Any]:
    """A channel's columns as of now, shared or copied; fields of `_ChannelImage`."""
    holds = tuple(_hold_image(queue_id, run) for queue_id, run in sorted(channel.unacked.items()))
    return {"channel_id": channel_id, "next_tag": channel.next_tag, "holds": holds}


def _hold_image(queue_id: int, run: UnackedRun) -> dict[str, Any]:
    keys, shifts = run.dump_shifts()
    return {"queue_id": queue_id, "tags": run.tags.copy(), "shift_keys": keys, "shifts": shifts}


def link_image(_name: str, link: Link) -> object:
    """A link's columns as of now, shared or copied; fields of `_LinkImage`."""
    keys, checks = link.entries.dump()
    columns = {
        "name": link.name,
        "incarnation": link.incarnation,
        "holder": link.holder,
        "source": link.source,
        "user": link.user,
        "epoch": link.epoch,
        "queue_id": link.queue_id,
        "ack": link.ack.value,
        "drop_ambiguous": link.drop_ambiguous,
        "reject_there": link.reject_there,
        "rejected": link.rejected.copy(),
        "paused": link.paused,
        "opened_us": link.opened_us,
        "history": link.history,
        "subscription": link.subscription,
        "subscribed": link.subscribed,
        "subscribed_us": link.subscribed_us,
        "fresh_from": link.fresh_from,
        "next_number": link.next_number,
        "lowest_unanswered": link.lowest_unanswered,
        "deliveries": link.deliveries.astype("<i8").tobytes(),
        "positions": link.entries.positions.copy(),
        "keys": keys,
        "checks": checks,
        "content": link.content.copy(),
        "bound": link.bound.copy(),
        "waiting": link.waiting.copy(),
        "batches": tuple(link.batches),
        "proved": link.proved,
        "fresh_proven": link.fresh_proven,
        "redelivered": link.redelivered.copy(),
        "loose": tuple(sorted(link.loose.items())),
        "doubt": link.doubt.copy(),
        "graces": tuple(sorted(link.graces.items())),
        "counts": link.counts,
    }
    return encoded(columns) if len(link.entries) < _MANY_MESSAGES else columns


def exchange_image(_name: str, exchange: Exchange) -> object:
    """An exchange with its bindings, as bytes unless it has many keys."""
    keys, queue_ids = list(exchange.bindings), list(map(tuple, exchange.bindings.values()))
    image = {"name": exchange.name, "kind": exchange.kind, "durable": exchange.durable}
    if len(keys) < _MANY:
        bindings = sorted(zip(keys, queue_ids, strict=True))
        return encoded(image | {"bindings": [(key, sorted(ids)) for key, ids in bindings]})
    return image | {"bindings": Listed(len(keys), _in_order(keys, queue_ids))}


def _in_order(keys: list[str], queue_ids: list[tuple[int, ...]]) -> Iterator[Encoded]:
    """Yields bindings by key; sorting all at once would take as long as encoding them."""
    chunks = []
    for begin in range(0, len(keys), _SORT_KEYS):
        part = slice(begin, begin + _SORT_KEYS)
        chunks.append(sorted(zip(keys[part], queue_ids[part], strict=True)))
        yield Encoded(b"")
    for key, ids in merge(*chunks):
        yield encoded((key, sorted(ids)))


def publisher_image(_publisher_id: bytes, publisher: Publisher) -> object:
    """A publisher, as bytes unless its transaction has many blocks."""
    transaction = publisher.transaction
    if transaction is None or len(transaction.blocks) < _MANY:
        return encoded(publisher)
    held = replace(
        transaction,
        blocks=transaction.blocks.copy(),
        returned={name: numbers.copy() for name, numbers in transaction.returned.items()},
    )
    numbers = {"accepted": publisher.accepted.copy(), "transient": publisher.transient.copy()}
    return replace(publisher, transaction=held, **numbers)


def writer_image(_name: str, writer: Writer) -> object:
    """A writer, as bytes."""
    return encoded(writer)


def stage_image(_stage_id: bytes, stage: Stage) -> object:
    """A stage, as bytes unless it has many blocks."""
    if len(stage.blocks) < _MANY:
        return encoded(stage)
    return replace(stage, blocks=stage.blocks.copy())


def session_image(_name: str, session: Session) -> object:
    """A session, as bytes unless it has outcomes, or retains many leases."""
    settled = any(lease.stages or lease.outcomes for lease in session.leases())
    if not settled and len(session.kept) < _MANY:
        return encoded(session)
    last = [_lease_image(lease) for lease in session.kept[-1:]]
    kept = Listed(len(session.kept), chain(map(encoded, session.kept[:-1]), last))
    return replace(session, lease=_lease_image(session.lease), kept=kept)


def _lease_image(lease: Lease | None) -> Lease | None:
    """A copy of a lease; its bitmaps are shared, as they are replaced when they change."""
    if lease is None:
        return None
    said = lease.outcomes
    return replace(
        lease,
        reasons=lease.reasons.copy(),
        stages=lease.stages.copy(),
        outcomes=said and replace(said, stages=said.stages.copy()),
    )
