"""The state as bytes and back: equal states give equal bytes.

    +----------+----------------+-------------------+
    | b"ackqST"| version u16 LE | msgpack of _Image |
    +----------+----------------+-------------------+

A version changes when an older reader would misread; fields are appended with defaults otherwise.
"""

from __future__ import annotations

from typing import Final

import msgspec
from pyroaring import BitMap, BitMap64

from ackq.errors import UnsupportedError
from ackq_broker.core.columns.bitmaps import canonical_hook, decode_hook
from ackq_broker.core.columns.deadlines import Deadlines
from ackq_broker.core.columns.position_counts import Counts
from ackq_broker.core.columns.requeued import Requeued
from ackq_broker.core.columns.step_function import Dumped
from ackq_broker.core.publishing import writer_batches
from ackq_broker.core.queues import topology
from ackq_broker.core.record_fields import QueueProperties
from ackq_broker.core.sessions import readers
from ackq_broker.core.state.block_sizes import BlockSizes
from ackq_broker.core.state.channel import ChannelTags, UnackedRun
from ackq_broker.core.state.exchange import Exchange
from ackq_broker.core.state.origins import DeadLetterOrigin, Origins
from ackq_broker.core.state.placements import Placements
from ackq_broker.core.state.queue import Queue
from ackq_broker.core.state.state import (
    Ended,
    History,
    Publisher,
    Session,
    Stage,
    StagedRows,
    State,
    Writer,
)

MAGIC: Final = b"ackqST"
VERSION: Final = 1


class _OriginsImage(msgspec.Struct, frozen=True):
    next_id: int = 1
    deaths: tuple[tuple[int, int, DeadLetterOrigin], ...] = ()
    positions: BitMap64 = msgspec.field(default_factory=BitMap64)
    keys: bytes = b""
    values: bytes = b""


class _QueueImage(msgspec.Struct, frozen=True):
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


class _HoldImage(msgspec.Struct, frozen=True):
    queue_id: int
    tags: BitMap64
    shift_keys: bytes
    shifts: bytes


class _ChannelImage(msgspec.Struct, frozen=True):
    channel_id: bytes
    next_tag: int
    holds: tuple[_HoldImage, ...]


class _ExchangeImage(msgspec.Struct, frozen=True):
    name: str
    kind: str
    durable: bool
    bindings: tuple[tuple[str, tuple[int, ...]], ...]


class _Image(msgspec.Struct, frozen=True):
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


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=canonical_hook)
_DECODER: Final[msgspec.msgpack.Decoder[_Image]] = msgspec.msgpack.Decoder(
    _Image, dec_hook=decode_hook
)


def dump(state: State) -> bytes:
    """The state as bytes."""
    image = _Image(
        sequence=state.sequence,
        history_id=state.history_id,
        topology_sequence=state.topology_sequence,
        next_queue_id=state.next_queue_id,
        next_block_id=state.next_block_id,
        queues=[_queue_image(queue) for _, queue in sorted(state.queues.items())],
        exchanges=[_exchange_image(exchange) for _, exchange in sorted(state.exchanges.items())],
        publishers=[publisher for _, publisher in sorted(state.publishers.items())],
        writers=[writer for _, writer in sorted(state.writers.items())],
        stages=[stage for _, stage in sorted(state.stages.items())],
        sessions=[session for _, session in sorted(state.sessions.items())],
        ended=list(state.ended.items()),
        channels=tuple(_channel_image(*entry) for entry in sorted(state.channels.items())),
        histories=state.histories,
        admitted_history=state.admitted_history,
        sizes=state.blocks.sizes.dump(),
    )
    return MAGIC + VERSION.to_bytes(2, "little") + _ENCODER.encode(image)


def load(data: bytes) -> State:
    """The state from bytes.

    Raises:
        UnsupportedError: It was written by a newer version of this software, or is no snapshot.
    """
    body = len(MAGIC) + 2
    version = int.from_bytes(data[len(MAGIC) : body], "little")
    if data[: len(MAGIC)] != MAGIC or version != VERSION:
        found = f"version {version}" if data[: len(MAGIC)] == MAGIC else "no state at all"
        raise UnsupportedError(
            f"The snapshot holds {found}; this broker reads version {VERSION}. Start the version "
            "of ackq-broker that wrote it, or a newer one.",
            version=version,
        )
    image = _DECODER.decode(data[body:])
    state = State(
        sequence=image.sequence,
        histories=image.histories or _first_history(image),
        admitted_history=image.admitted_history,
        topology_sequence=image.topology_sequence,
        next_queue_id=image.next_queue_id,
        next_block_id=image.next_block_id,
        exchanges={exchange.name: _exchange(exchange) for exchange in image.exchanges},
        publishers={publisher.publisher_id: publisher for publisher in image.publishers},
        writers={writer.writer: writer for writer in image.writers},
        stages={stage.stage_id: stage for stage in image.stages},
        sessions={session.name: session for session in image.sessions},
        ended=dict(image.ended),
        channels={channel.channel_id: _channel(channel) for channel in image.channels},
    )
    state.blocks.sizes = BlockSizes(image.sizes)
    for queue_image in image.queues:
        _add_queue(state, _queue(queue_image, state))
    _index(state)
    return state


def _first_history(image: _Image) -> tuple[History, ...]:
    """The history of a snapshot that holds one only."""
    return (History(image.history_id, 0),) if image.history_id else ()


def _queue_image(queue: Queue) -> _QueueImage:
    runs, scattered = queue.placements.dump()
    return _QueueImage(
        queue_id=queue.queue_id,
        name=queue.name,
        properties=queue.properties,
        deleted=queue.deleted,
        next_position=queue.next_position,
        ready=queue.ready,
        unacked=queue.unacked,
        kept=queue.kept,
        runs=runs,
        scattered=scattered,
        deliveries=queue.deliveries.dump(),
        published=queue.published,
        accepted=queue.accepted,
        requeued_log=queue.requeued.dump(),
        delayed=queue.delayed,
        failures=queue.failures.dump(),
        expiries=queue.expiries.dump(queue.present),
        late=queue.late,
        passing=queue.transient_rows,
        delays=queue.delays.dump(queue.delayed),
        origins=_origins_image(queue.origins),
        expired=queue.expired,
        dead_lettered=queue.dead_lettered,
        dropped=queue.dropped,
        replays=queue.replays.dump(),
        watched=queue.watched,
        departed=tuple(sorted(queue.departed.items())),
    )


def _queue(image: _QueueImage, state: State) -> Queue:
    sizes = state.blocks.sizes
    queue = Queue(image.queue_id, image.name, image.properties, state.signals, sizes)
    queue.deleted = image.deleted
    queue.next_position = image.next_position
    queue.ready = image.ready
    queue.unacked = image.unacked
    queue.kept = image.kept
    queue.placements = Placements.load(image.runs, image.scattered, sizes)
    queue.deliveries = Counts.load(image.deliveries)
    queue.requeued = Requeued.load(image.requeued_log)
    queue.delayed = image.delayed
    queue.failures = Counts.load(image.failures)
    queue.expiries = Deadlines.load(image.expiries)
    queue.late = image.late
    queue.transient_rows = image.passing
    queue.delays = Deadlines.load(image.delays)
    queue.origins = _origins(image.origins)
    queue.expired = image.expired
    queue.dead_lettered = image.dead_lettered
    queue.dropped = image.dropped
    queue.replays = Counts.load(image.replays)
    queue.watched = image.watched
    queue.departed = dict(image.departed)
    queue.published = image.published
    queue.accepted = image.accepted
    return queue


def _origins_image(origins: Origins) -> _OriginsImage:
    next_id, deaths, positions, steps = origins.dump()
    return _OriginsImage(next_id, deaths, positions, steps.keys, steps.values)


def _origins(image: _OriginsImage) -> Origins:
    steps = Dumped(image.keys, image.values)
    return Origins.load(image.next_id, image.deaths, image.positions, steps)


def _channel_image(channel_id: bytes, channel: ChannelTags) -> _ChannelImage:
    holds = tuple(
        _HoldImage(queue_id, run.tags, *run.dump_shifts())
        for queue_id, run in sorted(channel.unacked.items())
    )
    return _ChannelImage(channel_id, channel.next_tag, holds)


def _channel(image: _ChannelImage) -> ChannelTags:
    channel = ChannelTags(image.next_tag)
    for run in image.holds:
        shifts = Dumped(run.shift_keys, run.shifts)
        channel.unacked[run.queue_id] = UnackedRun.load(run.tags, shifts)
    return channel


def _exchange_image(exchange: Exchange) -> _ExchangeImage:
    bindings = ((key, tuple(sorted(ids))) for key, ids in sorted(exchange.bindings.items()))
    return _ExchangeImage(exchange.name, exchange.kind, exchange.durable, tuple(bindings))


def _exchange(image: _ExchangeImage) -> Exchange:
    exchange = Exchange(image.name, image.kind, durable=image.durable)
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
    """Makes what follows from the rest: indexes, reservations and block references."""
    for exchange in state.exchanges.values():
        _index_bindings(state, exchange)
    for session in state.sessions.values():
        state.incarnations[session.incarnation] = session.name
        for queue_id in session.queue_ids:
            state.queues[queue_id].sessions.add(session.name)
        readers.index(state, session)
        for lease in session.leases():
            state.outcome_stages.update(dict.fromkeys(lease.stages, session.name))
    for stage in state.stages.values():
        state.stages_of.setdefault(stage.writer, set()).add(stage.stage_id)
        _index_staged(state, stage.blocks)
    for publisher in state.publishers.values():
        if publisher.transaction is not None:
            _index_staged(state, publisher.transaction.blocks)


def _index_staged(state: State, blocks: list[StagedRows]) -> None:
    for block in blocks:
        state.blocks.add(block.block_id)
        writer_batches.reserve(state, block.parts, 1)


def _index_bindings(state: State, exchange: Exchange) -> None:
    for key, queue_ids in exchange.bindings.items():
        state.bindings += len(queue_ids)
        for queue_id in queue_ids:
            state.queues[queue_id].bindings.add((exchange.name, key))
