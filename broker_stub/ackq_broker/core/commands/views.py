"""What can be seen without a command: pieces of a fetch or browse, and what operators are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ackq_broker.core.commands.sessions import HolderInfo
from ackq_broker.core.commands.topology import QueueProperties

if TYPE_CHECKING:
    import numpy as np


class Run(NamedTuple):
    """Consecutive rows of a piece.

    Tags (or positions) from `first_tag`, all delivered `delivery_count` times.
    """

    first_tag: int
    rows: int
    delivery_count: int
    leased: bool = True


class Piece(NamedTuple):
    """Rows of one block that belong to a fetch or browse, in tag (position) order.

    `rows` is a `(first, count)` pair when consecutive, else an array of row indices (uint32).
    """

    block_id: int
    queue: str
    rows: tuple[int, int] | np.ndarray[Any, np.dtype[np.uint32]]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class FetchLabel:
    """Which query reads: kept for operators, not journalled."""

    query_id: str = ""
    batch_id: int = 0
    label: str = ""


class BrowseChunk(NamedTuple):
    """A piece of a queue for a parallel browse."""

    first_position: int
    last_position: int
    messages: int
    payload_bytes: int


class QueueInfo(NamedTuple):
    """A queue as an operator sees it."""

    queue: str
    queue_id: int
    properties: QueueProperties
    ready: int
    unacked: int
    staged: int
    payload_bytes: int
    oldest_us: int
    sessions: tuple[str, ...]
    published: int
    accepted: int


class ExchangeInfo(NamedTuple):
    """An exchange with its bindings as (queue, binding key) pairs."""

    exchange: str
    kind: str
    durable: bool
    bindings: tuple[tuple[str, str], ...]


class SessionInfo(NamedTuple):
    """A session as an operator sees it; `since_us` is when its holder attached first."""

    session: str
    incarnation: str
    queues: tuple[str, ...]
    epoch: int
    floor_tag: int
    end_tag: int
    leased: int
    holes: int
    holder: HolderInfo | None
    since_us: int
    proven: bool
    leased_at_us: int
    fetch: FetchLabel
    attaches: int
