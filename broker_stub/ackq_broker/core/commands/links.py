"""Commands of links (L): open, subscribe, store, permit, pause, remove.

An inbound link brings messages from a queue of a remote broker. Its *subscription* is its consumer
at the remote broker: when it is cut, all unacknowledged messages are redelivered on the next one.
The deliveries of a subscription are numbered from 1 in their order. An *entry* is a message of the
link that is in its local queue, or that was in it and whose remote acknowledgement is not proven
yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands.decision import Command
from ackq_broker.core.commands.sessions import HolderInfo

Uint64s = NDArray[np.uint64]


class LinkAck(StrEnum):
    """The event that a delivery's acknowledgement at the remote broker waits for (L9)."""

    SETTLED = "settled"  # the message is settled locally: accepted, dead-lettered, dropped
    STORED = "stored"  # the message is on the local broker's disk


@dataclass(frozen=True, slots=True)
class OpenLink(Command):
    """Opens a link for a process that runs it (L1). Reply: `OpenedLink`.

    The holder's token decides: the same token keeps its epoch and its subscription, another one
    begins an epoch and fences the previous holder.

    Errors: AlreadyHeldError (another holder is live), QueueNotFoundError, PreconditionFailedError
    (L13; or the link of this name has another source or queue), HistoryChangedError (L27),
    InvalidArgumentError (`reject_there` with `stored`), PermissionDeniedError (it is another
    user's), LimitError.

    Attributes:
        source: The remote queue, and after `, key ` the rule for origin keys, as text without
            credentials; it never changes for a link.
        drop_ambiguous: Whether a delivery whose acknowledgement is in doubt is matched with the
            message of that key, though only its content is known (L7, `onAmbiguous=drop`).
        reject_there: Whether messages rejected locally are rejected at the remote broker, instead
            of being dead-lettered locally (L28).
        incumbent_live: Whether the present holder counts as live; only the service can know.
        new_incarnation: 32 hex digits, for a link that is new.
        user: The user that opens it (A10); empty where there are no users.
    """

    link: str
    holder: HolderInfo
    source: str
    queue: str
    ack: LinkAck
    drop_ambiguous: bool = False
    reject_there: bool = False
    incumbent_live: bool = False
    new_incarnation: str = ""
    user: str = ""


class OpenedLink(NamedTuple):
    """Reply to `OpenLink`.

    Attributes:
        subscription: The link's present subscription, 0 for none; it goes on when the holder is the
            same.
        next_number: The number of its first delivery that is not stored.
        paused: Whether an operator paused the link (L25).
        runs: Its deliveries below `next_number` that are not proven, by number: with them a stream
            that has not seen them stored can resolve permits of their positions.
        stream: The number of this opening: commands of a stream that was opened earlier are refused
            (L1).
    """

    incarnation: str
    epoch: int
    subscription: int
    next_number: int
    paused: bool
    runs: tuple[LinkedRun, ...] = ()
    stream: int = 1


@dataclass(frozen=True, slots=True)
class SubscribeLink(Command):
    """Begins a subscription at the remote broker, in which unproven deliveries come again (L17).

    Reply: int, the subscription. Every entry is free to be matched; every acknowledgement of the
    previous subscription that is not proven is in doubt.

    Errors: FencedError, LinkNotFoundError.

    Attributes:
        stream: The number of the calling stream, from `OpenedLink`.
    """

    link: str
    epoch: int
    stream: int = 1


@dataclass(frozen=True, slots=True)
class StoreLinked(Command):
    """Stores or matches deliveries, in their order (L5, L6). Reply: `StoredLinked`.

    One record. Rows whose numbers were stored before are answered again, and not stored.

    Errors: FencedError, LinkNotFoundError, HistoryChangedError (L27), QueueFullError (nothing of it
    is kept), LimitError, InvalidArgumentError (a gap in the numbers; another subscription),
    ClosedError (`repeats_end`).

    Attributes:
        first_number: The number of the first row's delivery; the numbers of the rows are
            consecutive.
        lowest_unanswered: Deliveries below it were answered: their numbers are forgotten (L5).
        keys: uint64, shape (rows, 2): the origin keys (L2). A key of zeros is none: that row is
            stored.
        checks: uint64, shape (rows,): 64 bits of each row's fingerprint. Equal keys with other
            checks are different messages (L4).
        content: The rows whose key is of their content (L7); the keys of the others are identities.
        redelivered: The rows that the remote broker marked as delivered before.
        at_once: The rows that may be acknowledged when they are stored or matched, whatever the
            link waits for (L15).
        sizes: As in `Publish`. A TTL that a message has at the remote broker has no effect (L13).
        proven: How many acknowledgements of this subscription, in the order in which they were
            permitted, the remote broker is proven to have applied (L10).
        proven_number: The delivery number of the last proven acknowledgement; 0: none is proven.
        stream: As in `SubscribeLink`.
        repeats_end: Whether rows that repeat deliveries of the subscription end it (L6).
    """

    link: str
    epoch: int
    subscription: int
    first_number: int
    rows: int
    payload_bytes: int
    keys: Uint64s
    checks: Uint64s
    content: BitMap
    redelivered: BitMap
    at_once: BitMap = field(default_factory=BitMap)
    lowest_unanswered: int = 1
    proven: int = 0
    proven_number: int = 0
    sizes: Int64s | None = None
    stream: int = 1
    repeats_end: bool = False


class LinkedRun(NamedTuple):
    """Consecutive deliveries at consecutive positions of the link's queue.

    Attributes:
        matched: They matched entries (L6).
        permitted: They may be acknowledged at the remote broker now: they were settled before
            (L11), or ack is `stored` (L9).
        rejected: With `permitted`: they are to be rejected at the remote broker instead (L28).
    """

    first_number: int
    rows: int
    first_position: int
    matched: bool
    permitted: bool
    rejected: bool = False


class StoredLinked(NamedTuple):
    """Reply to `StoreLinked`; the runs cover its rows in order.

    `block_id` is the id under which the service passes the block to the journal; None: no row of it
    is stored, drop it.
    """

    runs: tuple[LinkedRun, ...]
    block_id: int | None


@dataclass(frozen=True, slots=True)
class PermitLinked(Command):
    """Permits acknowledgements at the remote broker (L9, L10). Reply: `PermittedLinked`.

    It permits deliveries of the present subscription whose message is settled, and that have no
    permit. With none, no record is written. The acknowledgement is sent when the record is on disk:
    so a delivery without a permit was never acknowledged.

    Errors: FencedError, LinkNotFoundError.

    Attributes:
        again: Report also the deliveries of this subscription that had a permit and are not proven:
            their answer may have been lost with a stream.
        proven: As in `StoreLinked`; `proven_number` as well.
        stream: As in `SubscribeLink`.
    """

    link: str
    epoch: int
    subscription: int
    again: bool = False
    proven: int = 0
    proven_number: int = 0
    stream: int = 1


class PermittedLinked(NamedTuple):
    """Reply to `PermitLinked`.

    Attributes:
        positions: In the order of their permits, in which `proven` counts; positions permitted
            before this decision come first. Within one decision the ones to be rejected come first,
            so that one acknowledgement may cover the following ones (L12), each ascending.
        held: Number of entries of the subscription that are not settled.
        rejected: The `positions` that are to be rejected at the remote broker.
    """

    positions: Uint64s
    held: int
    rejected: BitMap64


@dataclass(frozen=True, slots=True)
class PauseLink(Command):
    """An operator pauses or resumes a link (L25). Reply: bool, whether that changed it.

    Errors: LinkNotFoundError.
    """

    link: str
    paused: bool


@dataclass(frozen=True, slots=True)
class RemoveLink(Command):
    """An operator removes a link (L25). Reply: `RemovedLink`.

    Errors: LinkNotFoundError, InUseError (it is live; without `forget`: entries are held, or
    acknowledgements not proven, with their numbers).
    """

    link: str
    forget: bool = False
    incumbent_live: bool = False


class RemovedLink(NamedTuple):
    """Reply to `RemoveLink`: messages that the remote broker may redeliver, and so double."""

    held: int
    unproven: int


class LinkInfo(NamedTuple):
    """A link as an operator sees it (L26); counts since it was first opened.

    Attributes:
        held: Entries whose message is in the queue; `settled`: entries to be acknowledged;
            `unproven`: acknowledgements permitted and not proven; `tombstones`: all entries whose
            message has left the queue.
        in_doubt: The part of `unproven` that is from earlier subscriptions.
        rejected: The part of `permitted` that is to be rejected at the remote broker.
        oldest_held_us: When the oldest held entry was stored; 0 for none.
    """

    link: str
    incarnation: str
    epoch: int
    holder: HolderInfo | None
    source: str
    queue: str
    ack: LinkAck
    paused: bool
    opened_us: int
    subscription: int
    held: int
    settled: int
    unproven: int
    in_doubt: int
    tombstones: int
    oldest_held_us: int
    taken: int
    stored: int
    matched_held: int
    matched_settled: int
    ambiguous: int
    id_reused: int
    permitted: int
    proven: int
    rejected: int
    reject_there: bool = False
