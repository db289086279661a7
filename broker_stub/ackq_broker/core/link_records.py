"""Records of links (L): part of `records`, whose rules of encoding they keep."""

from __future__ import annotations

import msgspec
from pyroaring import BitMap, BitMap64

from ackq_broker.core.record_fields import Holder, Record, RoutedRows


class LinkOpened(Record, frozen=True, tag="link_opened"):
    """A link is new, or has another holder, or other options.

    Another holder begins an epoch, and ends the subscription of the one before (L1). `ack` is a
    value of `commands.LinkAck`. A link that is nobody's belongs to the `user` from here on; empty
    where there are no users (A10).
    """

    link: str
    incarnation: str
    epoch: int
    holder: Holder
    source: str
    queue_id: int
    ack: str
    at_us: int
    drop_ambiguous: bool = False
    reject_there: bool = False
    user: str = ""


class LinkSubscribed(Record, frozen=True, tag="link_subscribed"):
    """A link begins its next subscription: the deliveries of the one before come again (L17)."""

    link: str
    at_us: int


class LinkStored(Record, frozen=True, tag="link_stored"):
    """Deliveries of a link were stored or matched, in their order (L5).

    Attributes:
        first_number: Of the first delivery; `rows` of them follow each other.
        proven: Of this subscription's acknowledgements, as the link said (L10).
        block_id: 0 when all rows were matched; then there are no parts.
        keys: Of the rows that are stored, 16 bytes each, little-endian; `checks`: 8 bytes each.
        content: Their positions, as far as their keys are of their content (L7).
        matched: The rows, counted from the first delivery, that were there; `positions`: where, 8
            bytes each, in their order. `matched_settled` of them were settled.
        permitted: The positions, stored or matched, that may be acknowledged at once (L9, L11);
            those whose entry is rejected are to be rejected.
        ambiguous: Positions in doubt that rows of the same content were stored beside: each stands
            for one that is counted, and is forgotten (L7).
        id_reused: Rows that were stored though their id was known (L4).
        redelivered: Positions of what was stored and says nothing of what is fresh (L10): it had
            been delivered before, or came soon after its subscription began.
        sizes: As in `Published`.
    """

    link: str
    first_number: int
    rows: int
    lowest_unanswered: int
    proven: int
    at_us: int
    block_id: int
    parts: tuple[RoutedRows, ...]
    keys: bytes
    checks: bytes
    content: BitMap64
    matched: BitMap
    positions: bytes
    permitted: BitMap64
    ambiguous: BitMap64 = msgspec.field(default_factory=BitMap64)
    matched_settled: int = 0
    id_reused: int = 0
    redelivered: BitMap64 = msgspec.field(default_factory=BitMap64)
    sizes: bytes = b""


class LinkPermitted(Record, frozen=True, tag="link_permitted"):
    """Deliveries of the present subscription may be acknowledged, or rejected (L10).

    Which of both is in the record that took the message from its queue (`RejectedThere`).

    With `together` what was permitted before and is not proven is proven with them, or not at all:
    it was told again, and in what order a link settles it is not known.
    """

    link: str
    positions: BitMap64
    proven: int
    at_us: int
    together: bool = False


class LinkPaused(Record, frozen=True, tag="link_paused"):
    """An operator paused a link, or lets it go on (L25)."""

    link: str
    paused: bool


class LinkRemoved(Record, frozen=True, tag="link_removed"):
    """An operator ended a link: nothing is known of its deliveries any more (L25)."""

    link: str
