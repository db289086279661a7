"""Views of queues, sessions, links and publishers for the dashboard: plain values for JSON.

Invariant: they never include the token of a holder (S3), and names are as clients sent them: the
page shows them as text.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from ackq.diagnosis.link_state import sentences
from ackq.info import LinkInfo
from ackq.v1 import admin_pb2, links_pb2, sessions_pb2
from ackq.wire.answers import decoded
from ackq_broker.core.commands import QueueInfo, QueueUse
from ackq_broker.engine.clock import age_ms
from ackq_broker.http.queue_table import is_full
from ackq_broker.service.publishing.stream import PublisherInfo

_MOST_NAMES: Final = 20
_OF_A_SESSION: Final = (
    *("session", "queue_pattern", "live", "detached", "attaches", "epoch", "floor_tag", "end_tag"),
    *("holes", "settled", "query_id", "batch_id", "run_id", "session_timeout_ms"),
    *("retained_batches", "retained_payload_bytes", "retained_from_batch", "retained_age_ms"),
)
_MOST_HOLDINGS: Final = 100
_OF_A_HOLDING: Final = ("channel", "messages", "age_ms", "quiet_ms", "connected")
_OF_A_CONSUMER: Final = (
    *("consumer", "channel", "unacked", "prefetch", "no_ack", "has_room", "connected"),
)
_COUNTS: Final = (
    *("queue_id", "ready", "unacked", "delayed", "staged", "payload_bytes", "published"),
    *("accepted", "expired", "dead_lettered", "dropped", "consumers", "dead_letters_held"),
)


def queue_row(queue: QueueInfo, now_us: int) -> dict[str, Any]:
    """A queue as a row of the table of queues."""
    return {
        "queue": queue.queue,
        **{name: getattr(queue, name) for name in _COUNTS},
        "oldest_age_ms": age_ms(queue.oldest_us, now_us),
        "sessions": len(queue.sessions),
        "full": is_full(queue),
        "durable": queue.properties.durable,
        "dead_letter_queue": queue.properties.dead_letter_queue,
    }


def queue_detail(queue: QueueInfo, use: QueueUse, now_us: int) -> dict[str, Any]:
    """A queue with its properties and the references to it."""
    properties = queue.properties
    return {
        **queue_row(queue, now_us),
        "retained_payload_bytes": queue.retained_payload_bytes,
        "retained_age_ms": age_ms(queue.retained_since_us, now_us),
        "properties": {name: getattr(properties, name) for name in properties.__struct_fields__},
        "bindings": [{"exchange": exchange, "key": key} for exchange, key in use.bindings],
        "binding_count": use.binding_count,
        "batches": [
            {"writer": batch.writer, "batch_id": batch.batch_id, "rows": rows}
            for batch, rows in use.batches
        ],
        "batch_count": use.batch_count,
        "sources": use.sources,
        "source_count": use.source_count,
    }


def session_row(session: sessions_pb2.SessionInfo) -> dict[str, Any]:
    """A session with its lease, its holder and the query that reads it."""
    return {
        **{name: getattr(session, name) for name in _OF_A_SESSION},
        "queues": session.queues[:_MOST_NAMES],
        "queue_count": len(session.queues),
        "leased": 0 if session.detached else session.leased,
        "lease_age_ms": session.lease_age_ms if session.leased else 0,
        "holder": plain(session.holder) if session.HasField("holder") else None,
    }


def link_row(link: links_pb2.LinkInfo) -> dict[str, Any]:
    """A link with its holder, its last report, and sentences on what holds it up (L26)."""
    info = decoded(LinkInfo, link)
    return {**plain(link), "ack": info.ack, "held_up": sentences(info)}


def plain(message: Message) -> dict[str, Any]:
    """A protobuf message as values for JSON, without bytes (a holder's token) and unset fields."""
    return {
        field.name: plain(value) if isinstance(value, Message) else value
        for field in message.DESCRIPTOR.fields
        if field.type != field.TYPE_BYTES
        and (not field.has_presence or message.HasField(field.name))
        for value in (getattr(message, field.name),)
    }


def holdings(held: admin_pb2.ListHoldingsResponse) -> dict[str, Any]:
    """The holders of a queue's messages, the longest first, and its consumers on channels."""
    on_channels = [each for each in held.holdings if not each.session]
    return {
        "held": {each.session: each.messages for each in held.holdings if each.session},
        "channels": [
            {name: getattr(each, name) for name in _OF_A_HOLDING}
            for each in on_channels[:_MOST_HOLDINGS]
        ],
        "channel_count": len(on_channels),
        "channel_consumers": [
            {name: getattr(each, name) for name in _OF_A_CONSUMER}
            for each in held.consumers[:_MOST_HOLDINGS]
        ],
        "next_ready_ms": held.next_ready_ms,
        "next_expiry_ms": held.next_expiry_ms,
    }


def publisher_row(publisher: PublisherInfo, now_us: int) -> dict[str, Any]:
    """A publisher that has a stream, with the age of the stream."""
    return {**publisher._asdict(), "age_ms": age_ms(publisher.since_us, now_us)}
