"""Publishes messages in transactions, each of which becomes visible as a whole or not at all (P13).

Checks the arguments and hands the messages to the stream; see also P1, P7, P12, P14.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

import pyarrow as pa

from ackq import limits
from ackq.client.connection.broker import Broker
from ackq.client.connection.security import Security
from ackq.client.publishing.base import Defaults, MessageArguments, PublisherBase, WithBlock, target
from ackq.client.publishing.notifications import OnBlocked, OnReturn
from ackq.client.publishing.transaction_state import Committed, TransactionState
from ackq.client.publishing.transaction_stream import TransactionStream
from ackq.errors import PreconditionFailedError


class TransactionalPublisher(PublisherBase[TransactionStream], WithBlock):
    """Publishes to one broker in transactions, one after the other. Connects at the first publish.

    The messages published since the last commit or rollback form a transaction. None of them is
    visible before `commit`, which returns when all of them are on disk (P13). Use a publisher from
    one thread at a time; `on_return` and `on_blocked` run on the publisher's own thread, and must
    not block or call `commit`. A fork cannot use it.

    A commit waits for the disk, so many small transactions are slow: a `Publisher`, whose confirms
    stream, gives the same durability at a hundred times the rate. A publisher never changes its
    mode, so these are two classes (P1).

    The block commits at its end and rolls back when it is left by an exception:

        >>> with TransactionalPublisher(endpoint, routing_key="orders") as out:
        ...     with out.transaction():
        ...         first = out.publish(b"debit")
        ...         second = out.publish(b"credit")
        ...         print(out.uncommitted)
        2

    The same in calls:

        >>> with TransactionalPublisher(endpoint, routing_key="orders") as out:
        ...     first = out.publish(b"debit")
        ...     out.rollback()
        ...     second = out.publish(b"credit")
        ...     print(out.commit().messages)
        1

    Messages are sent when they fill a frame, or with the commit. A disconnect after that and before
    the commit was sent rolls back: `publish` and `commit` raise TransactionRolledBackError, and the
    transaction can be run again. After a later disconnect the commit is repeated, and the broker
    answers it from its record, with the returns (P7).

    Args:
        endpoint: `host:port`, or a `Broker`, which also has the security and the limit of retries.
        exchange: As in Publisher, like the arguments that are not listed here.
        mandatory: Return unroutable messages (P7), before their commit returns. With False they are
            dropped.
        window_messages: Maximum number of messages not sent yet; then `publish` waits (P14).
        window_bytes: Maximum number of payload bytes not sent yet; then `publish` waits (P14).
        on_return: Called with a `Returned` before the commit returns. Without it a commit with
            returned messages raises UnroutableError, although it has taken effect. With it,
            mandatory messages stay in memory until the commit returns; in the returns of a repeated
            commit `published_at` is null for messages that were published without it.

    Raises:
        InvalidArgumentError: An argument is out of its range.
    """

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = True,
        persistent: bool = True,
        window_messages: int = limits.PUBLISH_WINDOW_MESSAGES,
        window_bytes: int = limits.PUBLISH_WINDOW_BYTES,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        on_return: OnReturn | None = None,
        on_blocked: OnBlocked | None = None,
        label: str = "",
        security: Security | None = None,
    ) -> None:
        stream = TransactionStream(
            Broker.of(endpoint, security, retry_total_ms),
            TransactionState(
                persistent=persistent,
                window_messages=window_messages,
                window_bytes=window_bytes,
                keep_mandatory=on_return is not None,
                routing_key=routing_key,
            ),
            label=label,
            on_return=on_return,
            on_blocked=on_blocked,
        )
        defaults = Defaults(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, persistent=persistent
        )
        super().__init__(stream, defaults, (window_messages, window_bytes))

    @property
    def uncommitted(self) -> int:
        """Number of messages published since the last commit or rollback."""
        return self._stream.pending

    def publish(self, body: bytes | str, **message: Unpack[MessageArguments]) -> int:
        """Adds a message to the transaction; waits while the window is full.

        The arguments are those of `Publisher.publish`. A message that the broker cannot take (a
        full queue, a missing exchange) makes it refuse the commit.

        Returns:
            The message's number, as `Returned` names it (P7).

        Raises:
            InvalidArgumentError: An argument of a wrong type, or over its limit; the message is not
                part of the transaction, which goes on.
            MessageTooLargeError: Likewise, the message is over the size limit.
            TransactionRolledBackError: The stream was disconnected; roll back and publish all
                messages again.
            PreconditionFailedError: The outcome of a commit is not known yet.
            ClosedError: The publisher is closed, or ended because of an error.
        """
        prepared = self._defaults.prepare(body, self._stream.max_message_bytes, message)
        return self._stream.publish(*prepared)

    def publish_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        queue: str | None = None,
    ) -> int:
        """Adds the rows of an Arrow batch, in order; waits while the window is full.

        The arguments are those of `Publisher.publish_batch`.

        Returns:
            The number of rows.

        Raises:
            SchemaError: A column is missing, unknown or of the wrong type; nothing was added.
            AckqError: As `publish`; with one of its last three errors, some rows of the batch may
                have been added.
        """
        exchange, routing_key = target(queue, exchange, routing_key, batch.schema.names)
        destination = self._defaults.destination(exchange)
        key, parts = self._defaults.parts(batch, routing_key, self._bounds)
        for rows in parts:
            self._stream.publish_frame(destination, self._defaults.encode(rows, key), rows.num_rows)
        return int(batch.num_rows)

    def commit(self, timeout_s: float | None = None) -> Committed:
        """Makes the transaction visible; returns when it is on disk. An empty one is a success.

        Args:
            timeout_s: Maximum wait in seconds; 0 does not wait, None waits without limit.

        Returns:
            The numbers of committed and returned messages.

        Raises:
            TransactionRolledBackError: Nothing of it is visible; it can be published again.
            NackError, ExchangeNotFoundError, InvalidArgumentError: The broker refused a message, so
                nothing of it is visible either.
            OutcomeUnknownError: No answer within `timeout_s`, and the commit is in flight: call
                `commit` again. Or the publisher ended: check the queue before you publish again.
            UnroutableError: The transaction is committed, except for unroutable messages, and there
                is no `on_return`.
            BrokerUnavailableError: No broker was reached; nothing was sent.
            ClosedError: The publisher is closed, or ended because of an error.
        """
        return self._stream.commit(timeout_s)

    def rollback(self) -> None:
        """Drops the transaction; an empty one is a success. Does not wait.

        The broker drops the transaction's messages before it handles any later publish.

        Raises:
            PreconditionFailedError: Its commit is under way.
        """
        self._stream.roll_back()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs a `with` block as a transaction: commits at its end, rolls back at an exception.

        Raises:
            PreconditionFailedError: Messages were published before the block, and not committed.
            AckqError: As `commit`.
        """
        if self.uncommitted:
            raise PreconditionFailedError(
                f"{self.uncommitted} messages were published before the transaction's block and are"
                " not committed; commit them or roll them back first. After a commit that timed"
                " out, call commit() again."
            )
        try:
            yield
        except BaseException:
            if not self._stream.committing:
                self.rollback()
            raise
        self.commit()

    def close(self) -> None:
        """Ends the stream and its threads.

        Uncommitted messages are rolled back, with a RuntimeWarning, because the commit may have
        been forgotten.
        """
        self._finalizer.detach()
        _warn(self._stream.close(), "closed")

    def _leave(self, *, raised: bool) -> None:
        """Closes the publisher; after an exception it rolls back without a warning."""
        self._finalizer.detach()
        dropped = self._stream.close()
        if not raised:
            _warn(dropped, "closed")

    @staticmethod
    def _warn_unclosed(pending: int) -> None:
        _warn(pending, "dropped")


def _warn(dropped: int, how: str) -> None:
    if dropped:
        warnings.warn(
            f"A transactional publisher was {how} with {dropped} uncommitted messages, which are "
            "rolled back; commit them, or roll them back yourself.",
            RuntimeWarning,  # shown by default, as a ResourceWarning is not
            stacklevel=3,
        )
