"""Publishes messages with confirms: checks each message and hands it to the stream.

Every accepted publish is answered exactly once (P3); see also P2, P9, P10, P12, P14.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Unpack

import pyarrow as pa

from ackq.client.publishing.base import MessageArguments, WithBlock
from ackq.client.publishing.confirmations import Confirmation
from ackq.client.publishing.confirming import ConfirmingPublisher
from ackq.errors import AckqError


class Publisher(ConfirmingPublisher, WithBlock):
    """Publishes to one broker, from any number of threads. Connects at the first publish.

    Every publish is answered exactly once (P3): its future gets a result when the broker has taken
    responsibility, or an error. After a reconnect the unanswered ones are sent again under the
    same numbers, which the broker de-duplicates (P10). Futures' callbacks, `on_return` and
    `on_blocked` run on the publisher's thread: they may publish, and must not block or call `flush`
    or `close`. A fork cannot use it: make a publisher in each process (P10).

    A publisher that is no longer referenced goes on until its publishes are answered, so this gets
    its confirm, at the cost of a connection per message:

        Publisher("127.0.0.1:5775", routing_key="orders").publish(b"a").result()

    Each message has a future; leaving the block waits for all of them, and raises the first
    failure:

        with Publisher("127.0.0.1:5775", routing_key="orders") as out:
            first = out.publish(b"a")
            out.publish("b", message_id="42", headers={"tenant": "x"})
            print(first.result().number)  # waits for the confirm: 1

    Arrow batches have one future each:

        with Publisher("127.0.0.1:5775", exchange="events") as out:
            batch = pyarrow.record_batch({"body": ["a", "b"], "routing_key": ["eu.1", "us.2"]})
            print(out.publish_batch(batch).result())  # 2

    For its arguments see `ConfirmingPublisher`.

    Raises:
        InvalidArgumentError: An argument is out of its range.
    """

    def publish(
        self,
        body: bytes | str,
        *,
        ack_immediately: bool = False,
        **message: Unpack[MessageArguments],
    ) -> Future[Confirmation]:
        """Publishes one message; waits while the window is full.

        Args:
            body: Bytes, or a string that goes as UTF-8.
            exchange: Instead of the publisher's.
            routing_key: Instead of the publisher's.
            message_id: For the application.
            correlation_id: For the application.
            reply_to: For the application.
            content_type: For the application.
            headers: For the application; a value may be None.
            published_at: With a time zone; None: the broker's clock at receipt.
            persistent: Instead of the publisher's (P12).
            mandatory: Instead of the publisher's (P7).
            ttl_ms: Milliseconds from the broker's receipt until the message expires (Q3).
            ack_immediately: Ask for the answer as soon as the message is handled (P11); it does
                not wait for others to share its frame either, unless two are unanswered.
            queue: Publish to this queue, through the default exchange; not with `exchange` or
                `routing_key`.

        Returns:
            A future with a `Confirmation`; or with UnroutableError (routed to no queue), NackError
            (in no queue; you may publish it again), ExchangeNotFoundError (likewise),
            BrokerUnavailableError (it was never sent) or OutcomeUnknownError (check the queue
            before you publish it again). It cannot be cancelled.

        Raises:
            InvalidArgumentError: An argument of a wrong type, or over its limit.
            MessageTooLargeError: The message is over the size limit.
            ClosedError: The publisher is closed, or ended because of an error.
        """
        most = self._stream.max_message_bytes
        prepared = self._defaults.prepare(body, most, message, ack_immediately=ack_immediately)
        return self._stream.publish(*prepared)

    def publish_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        queue: str | None = None,
    ) -> Future[int]:
        """Publishes the rows of an Arrow batch in order, in frames of about 2 MiB or less.

        Waits while the window is full.

        Args:
            batch: Columns of `ackq.wire.columns.PUBLISHABLE`, `body` among them; a body of strings
                becomes binary.
            exchange: Instead of the publisher's.
            routing_key: For rows without one, instead of the publisher's.
            queue: Publish all rows to this queue, through the default exchange; not with `exchange`
                or `routing_key`, nor with a column `routing_key`.

        Returns:
            A future with the number of rows once all are confirmed, or the first failure once all
            are answered; without `on_return`, a returned row is a failure.

        Raises:
            SchemaError: A column is missing, unknown or of the wrong type; nothing was published.
            MessageTooLargeError: A row is over the size limit; nothing was published.
            InvalidArgumentError: A name is of a wrong type or over its limit; nothing was
                published.
            ClosedError: The publisher is closed, or it ended meanwhile: then the first rows may
                have been published.
        """
        prepared = self._prepare_batch(batch, exchange, routing_key, queue)
        for rows in prepared.parts:
            try:
                self._stream.publish_part(prepared.part(rows))
            except AckqError as error:
                prepared.receipt.give_up(error)
                raise
        return prepared.future

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until every publish so far is answered and its future resolved.

        Args:
            timeout_s: Maximum wait in seconds; 0 does not wait, None waits without limit.

        Raises:
            AckqError: The first failure since the last flush: a nack, an unknown outcome, or,
                without `on_return`, a returned message.
            BrokerUnavailableError: Not everything was answered within `timeout_s`.
        """
        self._stream.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes the publisher, and ends its stream and threads.

        Raises what `flush` raises; the publisher is closed nevertheless.
        """
        self._finalizer.detach()
        self._stream.close(timeout_s)

    def _leave(self, *, raised: bool) -> None:
        """Closes the publisher; after an exception without waiting: unanswered publishes fail."""
        if raised:
            self._finalizer.detach()
            self._stream.abandon()
            self._stream.join()
        else:
            self.close()
