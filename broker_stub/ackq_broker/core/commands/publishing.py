"""Commands of publishers (P)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap, BitMap64

from ackq.errors import AckqError
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands.decision import Command, Route
from ackq_broker.core.records import Expiry, Unroutable


@dataclass(frozen=True, slots=True)
class OpenPublisher(Command):
    """Makes the publisher's state; what an older stream had not committed is dropped.

    Reply: int, the lowest number that the broker knows of no publish (P10).

    Errors: PublisherForgottenError (a `resume` of an id that is not known), WrongModeError (it was
    opened in the other mode before: P1), PermissionDeniedError (it is another user's), FencedError
    (another process has published under its id), LimitError.

    Attributes:
        user: Who opens it (A10); empty where there are no users.
        lowest_unanswered: Of the client; `next_number`: the lowest that it has given to no publish;
            0: it does not say.
        attempt: Names this opening; `attempts_before`: those of the same client.
    """

    publisher_id: bytes
    resume: bool = False
    label: str = ""
    transactional: bool = False
    user: str = ""
    lowest_unanswered: int = 1
    next_number: int = 0
    attempt: bytes = b""
    attempts_before: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ClosePublisherStream(Command):
    """Reply: None. The publisher's last stream ended: its state is dropped 7 days from now (P10).

    What it had not committed is dropped at once (P13).

    Attributes:
        finished: The client has all answers and will not come back: the state is dropped at once.
    """

    publisher_id: bytes
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Publish(Command):
    """Publishes the rows of one block. Reply: `Published`.

    Errors: ExchangeNotFoundError, PublisherForgottenError, WrongModeError.

    Attributes:
        numbers: The publish number of each row, ascending in row order; cardinality equals `rows`.
        in_progress: Those of the numbers that are repeated while their confirm is pending: neither
            handled again nor in the reply (P10).
        lowest_unanswered: Accepted numbers below it are forgotten.
        routes: The block's distinct routing keys; they cover every row exactly once.
        expiries: When rows expire that came with a TTL; the queue's own is added by the core (Q3).
        persistent: Whether any row is to survive a restart; `transient`: rows that are not, though
            others are (P12).
        sizes: Payload bytes of each row; None when all are alike (Q3).
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
    expiries: tuple[Expiry, ...] = ()
    in_progress: BitMap64 = field(default_factory=BitMap64)
    transient: BitMap | None = None
    sizes: Int64s | None = None


class Nack(NamedTuple):
    """Numbers refused together, and why."""

    numbers: BitMap64
    reason: AckqError


class Published(NamedTuple):
    """Reply to `Publish`; confirmed and nacked together are `numbers` but `in_progress` (P3).

    `block_id` is the id under which the service hands the block to the journal (None: no row was
    placed, drop it); `durable` says whether to the journal or to the transient store. `returned` is
    the part of `confirmed` that no queue wanted and that was mandatory: its return goes first (P7).
    `sooner`, if any, is the transient part of a durable block's `confirmed`, with the sequence that
    it waits for instead (P5).
    """

    confirmed: BitMap64
    returned: BitMap64
    nacks: tuple[Nack, ...] = ()
    block_id: int | None = None
    durable: bool = True
    sooner: tuple[BitMap64, int] | None = None


@dataclass(frozen=True, slots=True)
class TransactionBlock(Command):
    """Adds the rows of a block to a transaction, which its first block begins (P13).

    Reply: `TransactedBlock`. On an error nothing of the block is kept.

    Errors: ExchangeNotFoundError, QueueFullError, LimitError, InvalidArgumentError (another
    transaction of the publisher is open), WrongModeError, PublisherForgottenError.

    Attributes:
        numbers: As in `Publish`, like the fields after `mandatory`.
    """

    publisher_id: bytes
    transaction_id: bytes
    numbers: BitMap64
    exchange: str
    mandatory: bool
    routes: tuple[Route, ...]
    rows: int
    payload_bytes: int
    persistent: bool
    expiries: tuple[Expiry, ...] = ()
    transient: BitMap | None = None
    sizes: Int64s | None = None


class TransactedBlock(NamedTuple):
    """Reply to `TransactionBlock`.

    `returned` are the rows that no queue wanted and that were mandatory: their return goes before
    the commit's answer (P7). `block_id` and `durable` as in `Published`.
    """

    returned: BitMap
    block_id: int | None
    durable: bool


@dataclass(frozen=True, slots=True)
class CommitTransaction(Command):
    """Makes a transaction visible (P13). Reply: `CommittedTransaction`.

    The commit of a transaction without publishes writes nothing, and ends no other.

    Errors: TransactionRolledBackError (it is not open, or not with as many messages, and it is not
    the one committed last: nothing of it is visible), WrongModeError, PublisherForgottenError.
    """

    publisher_id: bytes
    transaction_id: bytes
    messages: int


class CommittedTransaction(NamedTuple):
    """Reply to `CommitTransaction`; `repeated` when it was committed before.

    `returned` are the messages that no queue wanted and that were mandatory (P7).
    """

    messages: int
    repeated: bool
    returned: tuple[Unroutable, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackTransaction(Command):
    """Drops what the publisher has not committed (P13). Reply: int, messages dropped.

    Errors: WrongModeError, PublisherForgottenError.
    """

    publisher_id: bytes
