"""What commands ask with and records remember alike: both import it, and it imports neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyroaring import BitMap


class Expiry(NamedTuple):
    """When messages expire (Q3), by the broker's clock at ingest.

    `rows` are rows of the block, None means every row; a row is in one expiry of a command at most.
    """

    expires_us: int
    rows: BitMap | None = None


@dataclass(frozen=True, slots=True)
class QueueProperties:
    """As `ackq.v1.QueueProperties`; 0 and "" mean none.

    `overflow` is "reject-publish" or "drop-head".
    """

    durable: bool = True
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject-publish"
    message_ttl_ms: int = 0
    expires_ms: int = 0
    delivery_limit: int = 0
    dead_letter_queue: str = ""
    redelivery_delay_ms: int = 0
    redelivery_delay_max_ms: int = 0
    drop_on_limit: bool = False
