"""Commands of publishers (P)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from pyroaring import BitMap, BitMap64

from ackq.errors import AckqError
from ackq_broker.core.columns.bitmaps import Int64s
from ackq_broker.core.commands.decision import Command, Routes
from ackq_broker.core.fields import Expiry, Unroutable


@dataclass(frozen=True, slots=True)
class OpenPublisher(Command):
    """Opens a publisher; a transaction left uncommitted by an older stream is dropped.

    Reply: int, the lowest publish number of which the broker has no record (P10).

    Errors: PublisherForgottenError (a `resume` of an id that is not known), WrongModeError (it was
    opened in the other mode before: P1), PermissionDeniedError (it is another user's), FencedError
    (another process has published under its id), LimitError.

    Attributes:
        user: The user that opens it (A10); empty where there are no users.
        lowest_unanswered: The client's lowest unanswered number; `next_number`: its lowest unused
            number; 0: it does not report it.
        attempt: Names this opening; `attempts_before`: earlier attempts of the same client.
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
    """Ends the publisher's last stream: its state is dropped 7 days from now (P10).

    Reply: None. An uncommitted transaction is dropped at once (P13).

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
        in_progress: The numbers that are repeated while their confirm is pending: neither handled
            again nor in the reply (P10).
        lowest_unanswered: Accepted numbers below it are forgotten.
        routes: The block's routing keys.
        expiries: Expiry of the rows that came with a TTL; the core adds the queue's own TTL (Q3).
        persistent: Whether any row is to survive a restart; `transient`: rows that are not to,
            though others are (P12).
        sizes: Payload bytes of each row; None when all are equal (Q3).
    """

    publisher_id: bytes
    numbers: BitMap64
    lowest_unanswered: int
    exchange: str
    mandatory: bool
    routes: Routes
    rows: int
    payload_bytes: int
    persistent: bool
    expiries: tuple[Expiry, ...] = ()
    in_progress: BitMap64 = field(default_factory=BitMap64)
    transient: BitMap | None = None
    sizes: Int64s | None = None


@dataclass(frozen=True, slots=True)
class PublishTogether(Command):
    """Publishes one block that has one persistent row of each of several publishers (P4).

    Reply: whether it was decided. It is not where the rows might get different answers: one is not
    new, or is refused, or need not be on disk. Each is to be published by itself then.

    The fields are as in `Publish`, the first three by row; a publisher has one row at most.
    """

    publisher_ids: tuple[bytes, ...]
    numbers: tuple[int, ...]
    lowest_unanswered: tuple[int, ...]
    exchange: str
    routes: Routes
    payload_bytes: int
    sizes: Int64s | None = None


class Nack(NamedTuple):
    """Publish numbers that were refused together, and the reason."""

    numbers: BitMap64
    reason: AckqError


class Published(NamedTuple):
    """Reply to `Publish`; confirmed and nacked together are `numbers` except `in_progress` (P3).

    `block_id` is the id under which the service passes the block to the journal (None: no row was
    placed, drop it); `durable` says whether it goes to the journal or to the transient store.
    `returned` is the part of `confirmed` that was mandatory and matched no queue: its return is
    sent first (P7). `sooner`, if any, is the transient part of a durable block's `confirmed`, with
    the sequence that it waits for instead (P5).
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
    routes: Routes
    rows: int
    payload_bytes: int
    persistent: bool
    expiries: tuple[Expiry, ...] = ()
    transient: BitMap | None = None
    sizes: Int64s | None = None


class TransactedBlock(NamedTuple):
    """Reply to `TransactionBlock`.

    `returned` are the mandatory rows that matched no queue: their return is sent before the
    commit's answer (P7). `block_id` and `durable` as in `Published`.
    """

    returned: BitMap
    block_id: int | None
    durable: bool


@dataclass(frozen=True, slots=True)
class CommitTransaction(Command):
    """Makes a transaction visible (P13). Reply: `CommittedTransaction`.

    The commit of a transaction without publishes writes nothing, and ends no other transaction.

    Errors: TransactionRolledBackError (it is not open, or has another number of messages, and is
    not the one committed last: nothing of it is visible), WrongModeError, PublisherForgottenError.
    """

    publisher_id: bytes
    transaction_id: bytes
    messages: int


class CommittedTransaction(NamedTuple):
    """Reply to `CommitTransaction`; `repeated` when it was committed before.

    `returned` are the mandatory messages that matched no queue (P7).
    """

    messages: int
    repeated: bool
    returned: tuple[Unroutable, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackTransaction(Command):
    """Drops the publisher's uncommitted transaction (P13). Reply: int, messages dropped.

    Errors: WrongModeError, PublisherForgottenError.
    """

    publisher_id: bytes
