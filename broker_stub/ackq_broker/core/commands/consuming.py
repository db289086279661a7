"""Commands of channels (C): deliver, settle, close, redrive.

Prefetch, consumers and windows are volatile and live in the service; the core has channels and
tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap64

from ackq.outcomes import Outcome
from ackq_broker.core.commands.decision import Command
from ackq_broker.core.commands.views import Piece


@dataclass(frozen=True, slots=True)
class Deliver(Command):
    """Gives a channel the lowest ready messages of a queue. Reply: `Delivery`.

    Errors: QueueNotFoundError.

    Attributes:
        channel_id: Known from its first delivery until `CloseChannel`, or the end of the process.
        max_messages: At least 1.
        max_bytes: 0 for no bound; at least one message is delivered, of any size.
        no_ack: The messages are accepted in the same record (C10, NONE), and get tags nevertheless.
            Their blocks can be read until the service calls `Core.unpin` with the pieces.
        identified: Whether the pieces have the identity of their rows (L23).
    """

    channel_id: bytes
    queue: str
    max_messages: int
    max_bytes: int = 0
    no_ack: bool = False
    identified: bool = False


class Demand(NamedTuple):
    """Messages that a queue's consumers have room for; `without_acks`: consumers without acks only.

    Messages that consumers take without acks leave the queue at once (C10).
    """

    messages: int = 0
    without_acks: int = 0


class Delivery(NamedTuple):
    """Reply to `Deliver`: tags from `first_tag` on, in order of the pieces; 0 messages: none ready.

    The runs of the pieces carry tags and delivery counts.
    """

    first_tag: int
    messages: int
    payload_bytes: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Settle(Command):
    """Settles outstanding tags of a channel with one outcome (C4). Reply: `Settlement`.

    Errors: UnknownDeliveryTagError, which names the lowest tag that is not outstanding (C2); then
    nothing is changed.

    Attributes:
        tags: The tags.
        up_to: Also every outstanding tag up to and including this one (C3), which must be
            outstanding; 0 for none.
        reason: Why, for REJECTED and FAILED; it becomes the reason of its dead letters.
        delay_ms: Redelivery delay of requeued messages, instead of the queue's (C14).
    """

    channel_id: bytes
    outcome: Outcome
    tags: BitMap64 = field(default_factory=BitMap64)
    up_to: int = 0
    reason: str = ""
    delay_ms: int = 0


class Settlement(NamedTuple):
    """Reply to `Settle`: number of messages settled, dead-lettered and dropped."""

    messages: int
    dead_lettered: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class CloseChannel(Command):
    """Requeues the unacked messages of a channel (C12). Reply: int, messages; 0 when unknown."""

    channel_id: bytes


@dataclass(frozen=True, slots=True)
class Redrive(Command):
    """Moves ready dead letters back to their original queues (Q6). Reply: `Redriven`.

    Errors: QueueNotFoundError, InvalidArgumentError (an unknown cause, or `to_queue` is `queue`).

    Attributes:
        first, last: Positions in the dead-letter queue; 0 means its head, its tail.
        max_messages: The most messages to move, lowest first; 0 for no bound but that of a record.
        cause: Only dead letters with this cause, a value of `dead_letters.Cause`; "" for any.
        reason: Only dead letters with this reason; "" for any.
        to_queue: The queue to move them to instead; "" for the original queue of each.
    """

    queue: str
    first: int = 0
    last: int = 0
    max_messages: int = 0
    cause: str = ""
    reason: str = ""
    to_queue: str = ""


class Redriven(NamedTuple):
    """Reply to `Redrive`.

    Attributes:
        messages: How many were moved.
        left: Ready messages of the range, cause and reason that stay: they are beyond the bounds,
            were never a dead letter, or came from a queue that does not exist (neither its id nor
            its name) or has no room.
        more: The bound of a record was reached; the same call moves more.
        last: The last position of the range.
    """

    messages: int
    left: int
    more: bool = False
    last: int = 0
