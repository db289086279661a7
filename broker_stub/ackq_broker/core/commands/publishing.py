"""Commands of publishers (P)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from ackq.errors import AckqError
    from ackq_broker.core.commands.decision import Route


@dataclass(frozen=True, slots=True)
class OpenPublisher:
    """Reply: None. Makes the de-duplication state, or refuses a `resume` of a forgotten id.

    (PublisherForgottenError).
    """

    publisher_id: bytes
    resume: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class ClosePublisherStream:
    """Reply: None. The publisher's last stream ended: its state is dropped 7 days from now.

    (P10).
    """

    publisher_id: bytes


@dataclass(frozen=True, slots=True)
class Publish:
    """Publishes the rows of one block. Reply: `Published`.

    Errors: ExchangeNotFoundError, PublisherForgottenError.

    Attributes:
        numbers: The publish number of each row, ascending in row order; cardinality equals `rows`.
        lowest_unanswered: Accepted numbers below it are forgotten.
        routes: The block's distinct routing keys; they cover every row exactly once.
        persistent: Delivery mode of all rows (the service splits a mixed frame into two commands).
    """

    publisher_id: bytes
    numbers: BitMap64
    lowest_unanswered: int
    exchange: str
    mandatory: bool
    routes: tuple[Route, ...]
    rows: int
    payload_bytes: int
    persistent: bool


class Nack(NamedTuple):
    """Numbers refused together, and why."""

    numbers: BitMap64
    reason: AckqError


class Published(NamedTuple):
    """Reply to `Publish`; confirmed and nacked together are `numbers` (P3).

    `block_id` is the id under which the service hands the block to the journal (None: no row was
    placed, drop it); `durable` says whether to the journal or to the transient store. `returned` is
    the part of `confirmed` that no queue wanted and that was mandatory: its return goes first (P7).
    """

    confirmed: BitMap64
    returned: BitMap64
    nacks: tuple[Nack, ...] = ()
    block_id: int | None = None
    durable: bool = True
