"""Restores the state from the bytes of a snapshot.

    +----------+----------------+-------------------+
    | b"ackqST"| version u16 LE | msgpack of _Image |
    +----------+----------------+-------------------+

Fields are appended, with defaults. A reader refuses an unknown field, whatever the version: the
state must not lose data that only a newer version understands. Version 1 was written by software
that skips unknown fields, and is read as version 2. The order of items has no meaning.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from pyroaring import BitMap, BitMap64

from ackq import limits
from ackq.errors import UnsupportedError
from ackq_broker.core.columns.bitmaps import decode_hook
from ackq_broker.core.columns.deadlines import Deadlines
from ackq_broker.core.columns.origin_keys import OriginKeys
from ackq_broker.core.columns.position_counts import Counts
from ackq_broker.core.columns.requeued import Requeued
from ackq_broker.core.commands import BatchKey, LinkAck
from ackq_broker.core.fields import Holder, QueueProperties
from ackq_broker.core.publishing import writer_batches
from ackq_broker.core.queues import topology
from ackq_broker.core.sessions import readers
from ackq_broker.core.state.block_sizes import BlockSizes
from ackq_broker.core.state.channel import ChannelTags, UnackedRun
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.link import Batch, Link, LinkCounts, joined
from ackq_broker.core.state.origins import DeadLetterOrigin, Origins
from ackq_broker.core.state.placements import Placements
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.route_cache import RouteCache
from ackq_broker.core.state.signals import Signals
from ackq_broker.core.state.state import (
    Ended,
    History,
    Publisher,
    QueryBatch,
    Session,
    Stage,
    StagedRows,
    State,
    Writer,
)

MAGIC: Final = b"ackqST"
VERSION: Final = 2
_READABLE: Final = (1, 2)


class _OriginsImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    next_id: int = 1
    deaths: tuple[tuple[int, int, DeadLetterOrigin], ...] = ()
    positions: BitMap64 = msgspec.field(default_factory=BitMap64)
    keys: bytes = b""
    values: bytes = b""


class _QueueImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue_id: int
    name: str
    properties: QueueProperties
    deleted: bool
    next_position: int
    ready: BitMap64
    unacked: BitMap64
    kept: BitMap64
    runs: bytes
    scattered: tuple[tuple[int, BitMap], ...]
    deliveries: tuple[tuple[int, BitMap64], ...]
    published: int
    accepted: int
    requeued_log: bytes = b""
    delayed: BitMap64 = msgspec.field(default_factory=BitMap64)
    failures: tuple[tuple[int, BitMap64], ...] = ()
    expiries: tuple[tuple[int, BitMap64], ...] = ()
    late: BitMap64 = msgspec.field(default_factory=BitMap64)
    delays: tuple[tuple[int, BitMap64], ...] = ()
    origins: _OriginsImage = msgspec.field(default_factory=_OriginsImage)
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    passing: BitMap64 = msgspec.field(default_factory=BitMap64)
    replays: tuple[tuple[int, BitMap64], ...] = ()
    watched: BitMap64 = msgspec.field(default_factory=BitMap64)
    departed: tuple[tuple[str, BitMap64], ...] = ()
    rewound: tuple[tuple[int, BitMap64], ...] = ()
    retained: tuple[tuple[int, BitMap64], ...] = ()
    retained_from_us: int = 0
    retained_last_bytes: int = 0
    rejected: BitMap64 = msgspec.field(default_factory=BitMap64)
    # Only in the first snapshots; replaced by `requeued_log`.
    requeued: Any = None


class _HoldImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queue_id: int
    tags: BitMap64
    shift_keys: bytes
    shifts: bytes


class _ChannelImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    channel_id: bytes
    next_tag: int
    holds: tuple[_HoldImage, ...]


class _ExchangeImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str
    durable: bool
    bindings: tuple[tuple[str, tuple[int, ...]], ...]


class _LinkImage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    incarnation: str
    holder: Holder
    source: str
    epoch: int
    queue_id: int
    ack: str
    drop_ambiguous: bool
    paused: bool
    opened_us: int
    history: int
    subscription: int
    subscribed: bool
    fresh_from: int
    next_number: int
    lowest_unanswered: int
    deliveries: bytes
    positions: BitMap64
    keys: bytes
    checks: bytes
    content: BitMap64
    bound: BitMap64
    waiting: BitMap64
    batches: tuple[Batch, ...]
    proved: int
    fresh_proven: bool
    redelivered: BitMap64
    loose: tuple[tuple[int, BitMap64], ...]
    doubt: BitMap64
    graces: tuple[tuple[int, BitMap64], ...]
    counts: LinkCounts
    reject_there: bool = False
    rejected: BitMap64 = msgspec.field(default_factory=BitMap64)
    subscribed_us: int = 0
    user: str = ""


class _Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sequence: int
    history_id: str
    topology_sequence: int
    next_queue_id: int
    next_block_id: int
    queues: list[_QueueImage]
    exchanges: list[_ExchangeImage]
    publishers: list[Publisher]
    writers: list[Writer]
    stages: list[Stage]
    sessions: list[Session]
    ended: list[tuple[str, Ended]]
    channels: tuple[_ChannelImage, ...] = ()
    histories: tuple[History, ...] = ()
    admitted_history: int = 0
    sizes: tuple[tuple[int, bytes], ...] = ()
    queries: tuple[QueryBatch, ...] = ()
    forgotten: tuple[tuple[bytes, int], ...] = ()
    links: tuple[_LinkImage, ...] = ()


# Fields that are equal in a link and its image.
_LINK_FIELDS: Final = (
    *("epoch", "queue_id", "drop_ambiguous", "paused", "opened_us", "history", "subscription"),
    *("subscribed", "fresh_from", "next_number", "lowest_unanswered", "content", "bound"),
    *("subscribed_us", "waiting", "proved", "fresh_proven", "redelivered", "doubt", "counts"),
    *("reject_there", "rejected", "user"),
)

_DECODER: Final[msgspec.msgpack.Decoder[_Image]] = msgspec.msgpack.Decoder(
    _Image, dec_hook=decode_hook
)


def load(data: bytes) -> State:
    """Restores the state from bytes.

    Raises:
        UnsupportedError: The bytes were written by a newer version of this software, or are no
            snapshot.
    """
    body = len(MAGIC) + 2
    version = int.from_bytes(data[len(MAGIC) : body], "little")
    if data[: len(MAGIC)] != MAGIC or version not in _READABLE:
        found = f"version {version}" if data[: len(MAGIC)] == MAGIC else "no state at all"
        raise UnsupportedError(
            f"The snapshot holds {found}; this broker reads version {VERSION}. Start the version "
            "of ackq-broker that wrote it, or a newer one.",
            version=version,
        )
    try:
        image = _DECODER.decode(memoryview(data)[body:])
    except msgspec.ValidationError as error:
        raise UnsupportedError(
            f"The snapshot was written by a newer version ({error}), and this broker would lose "
            "the fields that it does not know. Start the version of ackq-broker that wrote it, or "
            "a newer one."
        ) from error
    state = State(
        sequence=image.sequence,
        histories=image.histories or _first_history(image),
        admitted_history=image.admitted_history,
        topology_sequence=image.topology_sequence,
        next_queue_id=image.next_queue_id,
        next_block_id=image.next_block_id,
        publishers={publisher.publisher_id: publisher for publisher in image.publishers},
        writers={writer.writer: writer for writer in image.writers},
        stages={stage.stage_id: stage for stage in image.stages},
        forgotten=dict(image.forgotten),
        sessions={session.name: session for session in image.sessions},
        ended=dict(image.ended),
        channels={channel.channel_id: _channel(channel) for channel in image.channels},
        links={link.name: _link(link) for link in image.links},
    )
    state.exchanges = {each.name: _exchange(each, state.route_cache) for each in image.exchanges}
    state.blocks.sizes = BlockSizes(image.sizes)
    for query in image.queries:
        state.queries.setdefault(query.user, {})[query.query_id] = query
    for queue_image in sorted(image.queues, key=lambda each: each.queue_id):
        _add_queue(state, _queue(queue_image, state))
    _index(state)
    return state


def _first_history(image: _Image) -> tuple[History, ...]:
    """The history of a snapshot that has only one."""
    return (History(image.history_id, 0),) if image.history_id else ()


def _queue(image: _QueueImage, state: State) -> Queue:
    sizes = state.blocks.sizes
    queue = Queue(image.queue_id, image.name, image.properties, state.signals, sizes)
    queue.deleted = image.deleted
    queue.next_position = image.next_position
    queue.ready = image.ready
    queue.unacked = image.unacked
    queue.kept = image.kept
    queue.placements = Placements.load(image.runs, image.scattered, sizes)
    queue.kept_bytes = queue.placements.size(queue.kept)
    queue.deliveries = Counts.load(image.deliveries)
    queue.requeued = Requeued.load(image.requeued_log)
    queue.delayed = image.delayed
    queue.failures = Counts.load(image.failures)
    queue.expiries = Deadlines.load(image.expiries)
    queue.late = image.late
    queue.transient_rows = image.passing
    queue.delays = Deadlines.load(image.delays)
    queue.origins = _origins(image.origins, state.signals)
    queue.expired = image.expired
    queue.dead_lettered = image.dead_lettered
    queue.dropped = image.dropped
    queue.replays = Counts.load(image.replays)
    queue.rewound = Counts.load(image.rewound)
    queue.retained.load(image.retained)
    queue.retained.from_us = image.retained_from_us
    queue.retained.last_bytes = image.retained_last_bytes
    queue.rejected = image.rejected
    queue.watched = image.watched
    queue.departed = dict(image.departed)
    queue.published = image.published
    queue.accepted = image.accepted
    return queue


def _origins(image: _OriginsImage, signals: Signals) -> Origins:
    columns = (image.positions, image.keys, image.values)
    return Origins.load(signals, image.next_id, image.deaths, *columns)


def _channel(image: _ChannelImage) -> ChannelTags:
    channel = ChannelTags(image.next_tag)
    for run in image.holds:
        channel.unacked[run.queue_id] = UnackedRun.load(run.tags, run.shift_keys, run.shifts)
    return channel


def _link(image: _LinkImage) -> Link:
    link = Link(image.name, image.incarnation, image.holder, image.source)
    for name in _LINK_FIELDS:
        setattr(link, name, getattr(image, name))
    link.ack = LinkAck(image.ack)
    link.deliveries = np.frombuffer(image.deliveries, "<i8").astype(np.int64).reshape(3, -1)
    link.entries = OriginKeys.load(image.positions, image.keys, image.checks)
    link.batches = list(image.batches)
    link.permits = joined(link.batches).positions
    link.loose = dict(image.loose)
    link.graces = dict(image.graces)
    return link


def _exchange(image: _ExchangeImage, cache: RouteCache) -> Exchange:
    exchange = Exchange(image.name, image.kind, durable=image.durable, cache=cache)
    for key, queue_ids in image.bindings:
        for queue_id in queue_ids:
            exchange.bind(key, queue_id)
    return exchange


def _add_queue(state: State, queue: Queue) -> None:
    topology.add_queue(state, queue)
    for block_id in queue.placements.block_ids():
        state.blocks.add(block_id)
    due_us = queue.next_due_us()
    if due_us:
        state.signals.note(queue.queue_id, due_us)


def _index(state: State) -> None:
    """Builds the derived data: indexes, reservations and block references."""
    for exchange in state.exchanges.values():
        _index_bindings(state, exchange)
    for session in state.sessions.values():
        _index_session(state, session)
    for link in state.links.values():
        state.queues[link.queue_id].links.add(link.name)
    for stage in sorted(state.stages.values(), key=lambda stage: stage.touched_us):
        state.stages_of.setdefault(stage.writer, set()).add(stage.stage_id)
        _index_staged(state, stage.blocks, stage.batch)
    for publisher in state.publishers.values():
        state.publishers_of[publisher.user] += 1
        if publisher.transaction is not None:
            _index_staged(state, publisher.transaction.blocks)


def _index_session(state: State, session: Session) -> None:
    if session.only_kept is not None:
        session.kept, session.only_kept = [session.only_kept], None
    for lease in session.kept:
        lease.batch_id = min(lease.batch_id, limits.LARGEST_NUMBER)
    for lease in session.kept[:-1]:
        lease.pack()
    state.incarnations[session.incarnation] = session.name
    for queue_id in session.queue_ids:
        state.queues[queue_id].sessions.add(session.name)
    readers.index(state, session)
    for lease in session.leases():
        state.outcome_stages.update(dict.fromkeys(lease.stages, session.name))


def _index_staged(state: State, blocks: list[StagedRows], batch: BatchKey | None = None) -> None:
    for block in blocks:
        state.blocks.add(block.block_id)
        writer_batches.reserve(state, block.parts, 1, batch)


def _index_bindings(state: State, exchange: Exchange) -> None:
    for key, queue_ids in exchange.bindings.items():
        state.bindings += len(queue_ids)
        for queue_id in queue_ids:
            state.queues[queue_id].bindings.add((exchange.name, key))
