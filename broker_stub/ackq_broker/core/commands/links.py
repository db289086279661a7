"""Commands of links (L): open, subscribe, store, permit, pause, remove.

A link brings messages from a queue of another broker. Its *subscription* is its consumer there:
when it is cut, all that was unacknowledged is delivered again on the next one. The deliveries of a
subscription are numbered from 1 in their order. An *entry* is a message of the link that is in its
queue, or that was and whose acknowledgement there is not proven yet.
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
    """What a delivery's acknowledgement there waits for (L9)."""

    SETTLED = "settled"  # the message is settled here: accepted, dead-lettered, dropped
    STORED = "stored"  # it is on disk here


@dataclass(frozen=True, slots=True)
class OpenLink(Command):
    """A process runs a link (L1). Reply: `OpenedLink`.

    The holder's token decides: the same keeps its epoch and its subscription, another one begins
    an epoch and fences the one before.

    Errors: AlreadyHeldError (another holder is live), QueueNotFoundError, PreconditionFailedError
    (L13; or the link of this name has another source, queue or key), HistoryChangedError (L27),
    InvalidArgumentError (`reject_there` with `stored`), PermissionDeniedError (it is another
    user's), LimitError.

    Attributes:
        source: The other broker's queue, in words without credentials; the same for the life of
            the link.
        drop_ambiguous: A delivery whose acknowledgement is in doubt is taken for the message of
            that key, though only its content is known (L7, `onAmbiguous=drop`).
        reject_there: What is rejected here is rejected there, and no dead letter here (L28).
        incumbent_live: Whether the present holder counts as live; only the service can know.
        new_incarnation: 32 hex digits, for a link that is new.
        user: Who opens it (A10); empty where there are no users.
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
        subscription: The link's present one, 0 for none; it goes on when the holder is the same.
        next_number: The number of the first delivery of it that is not stored.
        paused: An operator paused the link (L25).
        runs: Its deliveries below `next_number` that are not proven, by number: what permits of
            their positions mean to a stream that has not seen them stored.
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
    """The link consumes anew there: what was delivered before is delivered again (L17).

    Reply: int, the subscription. Every entry is free to be matched; every acknowledgement of the
    subscription before that is not proven is in doubt.

    Errors: FencedError, LinkNotFoundError.

    Attributes:
        stream: Of whom it comes, as `OpenedLink` has it.
    """

    link: str
    epoch: int
    stream: int = 1


@dataclass(frozen=True, slots=True)
class StoreLinked(Command):
    """Stores or matches deliveries, in their order (L5, L6). Reply: `StoredLinked`.

    One record. Rows whose numbers were stored before are answered again, and not stored.

    Errors: FencedError, LinkNotFoundError, QueueNotFoundError, QueueFullError (nothing of it is
    kept), InvalidArgumentError (a gap in the numbers; another subscription).

    Attributes:
        first_number: The number of the first row's delivery; the others follow.
        lowest_unanswered: Deliveries below it were answered: their numbers are forgotten (L5).
        keys: uint64, shape (rows, 2): the origin keys (L2). A key of zeros is none: that row is
            stored.
        checks: uint64, shape (rows,): 64 bits of each row's fingerprint. Equal keys with other
            checks are different messages (L4).
        content: The rows whose key is of their content (L7); the others' is an identity.
        redelivered: The rows that the other broker says it had delivered before.
        at_once: The rows that may be acknowledged when they are stored or matched, whatever the
            link waits for (L15).
        sizes: As in `Publish`. A TTL that a message has there rules nothing here (L13).
        proven: How many acknowledgements of this subscription, in the order in which they were
            permitted, the other broker is proven to have applied (L10).
        proven_number: The number of the delivery that the last of these is for; 0: none is proven.
        stream: As in `SubscribeLink`.
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


class LinkedRun(NamedTuple):
    """Consecutive deliveries at consecutive positions of the link's queue.

    Attributes:
        matched: They were there before (L6).
        permitted: They may be acknowledged there now: they were settled before (L11), or ack is
            `stored` (L9).
        rejected: With `permitted`: they are to be rejected there instead (L28).
    """

    first_number: int
    rows: int
    first_position: int
    matched: bool
    permitted: bool
    rejected: bool = False


class StoredLinked(NamedTuple):
    """Reply to `StoreLinked`; the runs cover its rows in order.

    `block_id` is the id under which the service hands the block to the journal; None: no row of it
    is stored, drop it.
    """

    runs: tuple[LinkedRun, ...]
    block_id: int | None


@dataclass(frozen=True, slots=True)
class PermitLinked(Command):
    """Marks what may be acknowledged there now (L9, L10). Reply: `PermittedLinked`.

    Deliveries of the present subscription whose message is settled, and that have no permit. With
    none, no record is written. The acknowledgement leaves when the record is on disk: so what has
    no permit was never acknowledged.

    Errors: FencedError, LinkNotFoundError.

    Attributes:
        again: Also those of this subscription that had one and are not proven: their answer may
            have been lost with a stream.
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
        positions: In the order of their permits, which `proven` counts in, those permitted before
            this decision first. Of one decision those to be rejected come first, so that one
            acknowledgement may cover what is behind them (L12), each ascending.
        held: How many entries of the subscription are not settled.
        rejected: Those of `positions` that are to be rejected there.
    """

    positions: Uint64s
    held: int
    rejected: BitMap64


@dataclass(frozen=True, slots=True)
class PauseLink(Command):
    """An operator pauses a link, or lets it go on (L25). Reply: bool, whether that changed it.

    Errors: LinkNotFoundError.
    """

    link: str
    paused: bool


@dataclass(frozen=True, slots=True)
class RemoveLink(Command):
    """An operator ends a link (L25). Reply: `RemovedLink`.

    Errors: LinkNotFoundError, InUseError (it is live; without `forget`: entries are held, or
    acknowledgements not proven, with their numbers).
    """

    link: str
    forget: bool = False
    incumbent_live: bool = False


class RemovedLink(NamedTuple):
    """Reply to `RemoveLink`: what may be delivered again by the other broker, and double here."""

    held: int
    unproven: int


class LinkInfo(NamedTuple):
    """A link, for operators (L26); counts since it was opened first.

    Attributes:
        held: Entries whose message is in the queue; `settled`: those to be acknowledged;
            `unproven`: acknowledgements permitted and not proven; `tombstones`: all entries whose
            message is gone.
        in_doubt: Of `unproven`, those of earlier subscriptions.
        rejected: Of `permitted`, those that are to be rejected there.
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
