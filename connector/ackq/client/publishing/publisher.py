"""Publishes messages with confirms: checks each message and hands it to the stream.

Every publish that was taken is answered exactly once (P3); see also P2, P9, P10, P12, P14.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime

import pyarrow as pa

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.connection.security import Security
from ackq.client.futures import LightFuture
from ackq.client.publishing.base import Defaults, PublisherBase
from ackq.client.publishing.confirm_state import ConfirmState, PublishSettings
from ackq.client.publishing.confirm_stream import ConfirmStream
from ackq.client.publishing.confirmations import Confirmation
from ackq.client.publishing.notifications import OnBlocked, OnReturn
from ackq.client.publishing.receipts import BatchReceipt, Receipt
from ackq.client.publishing.unconfirmed import Destination, PublishFrame
from ackq.errors import AckqError
from ackq.wire import block

# What a message has that is a body alone.
_NO_TEXTS = (None,) * len(encoding.TEXTS)
_NOTHING = (None,) * 5
# A batch up to this is copied into a frame with others: that costs less than a frame of its own.
_SMALL_BYTES = 64 * limits.KIB
_FEW_ROWS = 1_000


class Publisher(PublisherBase[ConfirmStream]):
    """Publishes to one broker, from any number of threads. Connects at the first publish.

    Every publish is answered exactly once (P3): its future gets a result when the broker has taken
    responsibility, or an error. After a reconnect the unanswered ones are sent again under the
    same numbers, which the broker de-duplicates (P10). Futures' callbacks, `on_return` and
    `on_blocked` run on the publisher's thread: they may publish, and must not block or call `flush`
    or `close`. A fork cannot use it: make a publisher in each process (P10).

    Each message has a future; leaving the block waits for all of them, and raises the first
    failure:

        with Publisher("127.0.0.1:5775", routing_key="orders", mandatory=True) as out:
            first = out.publish(b"a")
            out.publish("b", message_id="42", headers={"tenant": "x"})
            print(first.result().number)  # waits for the confirm: 1

    Arrow batches have one future each:

        with Publisher("127.0.0.1:5775", exchange="events") as out:
            batch = pyarrow.record_batch({"body": ["a", "b"], "routing_key": ["eu.1", "us.2"]})
            print(out.publish_batch(batch).result())  # 2

    Args:
        endpoint: `host:port`.
        exchange: Where messages go that name none; empty: the default exchange, where the routing
            key names the queue.
        routing_key: For messages that have none.
        mandatory: Return messages that no queue wants (P7); without it they are confirmed and
            dropped, so a wrong name goes unnoticed.
        persistent: Default of a message: survives a broker restart (P12).
        window_messages: Most unconfirmed messages; then `publish` waits (P14).
        window_bytes: Most unconfirmed payload bytes; then `publish` waits (P14).
        linger_ms: How long a message waits for others to share its frame. While publishes are
            unanswered it waits for their answers anyway, 20 ms at most.
        publish_ack_timeout_ms: Probe a publish that is unanswered for this time on a live stream
            (P10).
        retry_total_ms: Fail after this time without a broker while something is unconfirmed.
        on_return: Called with a `Returned` before those messages are confirmed. Without it `flush`
            and the future of a batch raise for them.
        on_blocked: Called with the reason when the broker takes no publishes, with None when it
            does again (P14).
        label: Shown to operators; empty: host and process id.
        security: Transport security.

    Raises:
        InvalidArgumentError: An argument is out of its range.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        exchange: str = "",
        routing_key: str = "",
        mandatory: bool = False,
        persistent: bool = True,
        window_messages: int = limits.PUBLISH_WINDOW_MESSAGES,
        window_bytes: int = limits.PUBLISH_WINDOW_BYTES,
        linger_ms: float = limits.PUBLISH_LINGER_MS,
        publish_ack_timeout_ms: float = limits.PUBLISH_ACK_TIMEOUT_MS,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        on_return: OnReturn | None = None,
        on_blocked: OnBlocked | None = None,
        label: str = "",
        security: Security | None = None,
    ) -> None:
        settings = PublishSettings(
            persistent=persistent,
            window_messages=window_messages,
            window_bytes=window_bytes,
            linger_s=linger_ms / 1000,
            ack_timeout_s=publish_ack_timeout_ms / 1000,
            routing_key=routing_key,
        )
        stream = ConfirmStream(
            endpoint,
            security,
            ConfirmState(settings),
            label=label,
            retry_total_ms=retry_total_ms,
            on_return=on_return,
            on_blocked=on_blocked,
        )
        defaults = Defaults(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, persistent=persistent
        )
        super().__init__(stream, defaults, (window_messages, window_bytes))
        self._returns_fail = on_return is None

    @property
    def unconfirmed(self) -> int:
        """Messages that are published and not answered."""
        return self._stream.pending

    def publish(
        self,
        body: bytes | str,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        published_at: datetime | None = None,
        persistent: bool | None = None,
        mandatory: bool | None = None,
        ttl_ms: int | None = None,
        ack_immediately: bool = False,
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
            headers: For the application.
            published_at: With a time zone; None: the broker's clock at receipt.
            persistent: Instead of the publisher's (P12).
            mandatory: Instead of the publisher's (P7).
            ttl_ms: Milliseconds from the broker's receipt until the message expires (Q3).
            ack_immediately: Ask for the answer as soon as the message is handled (P11); it does
                not wait for others to share its frame either, unless two are unanswered.

        Returns:
            A future with a `Confirmation`; or with NackError (in no queue; publish it again if you
            like), ExchangeNotFoundError (likewise), BrokerUnavailableError (it was never sent) or
            OutcomeUnknownError (look before you publish it again). It cannot be cancelled.

        Raises:
            InvalidArgumentError: An argument of a wrong type, or over its limit.
            MessageTooLargeError: The message is over the size limit.
            ClosedError: The publisher is closed, or ended because of an error.
        """
        texts = (message_id, correlation_id, reply_to, content_type)
        own = (routing_key, headers, published_at, persistent, ttl_ms)
        most = self._stream.max_message_bytes
        message: encoding.Message
        if type(body) is bytes and texts == _NO_TEXTS and own == _NOTHING:
            message, size = body, self._defaults.body_size(body, most)
        else:
            message, size = self._defaults.row(
                body,
                routing_key,
                texts,
                headers,
                published_at,
                persistent=persistent,
                ttl_ms=ttl_ms,
                message_bytes=most,
            )
        destination = self._defaults.destination(
            exchange, mandatory=mandatory, ack_immediately=ack_immediately
        )
        return self._stream.publish(destination, message, size)

    def publish_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
    ) -> Future[int]:
        """Publishes the rows of an Arrow batch in order, in frames of about 1 MiB or less.

        Waits while the window is full.

        Args:
            batch: Columns of `ackq.wire.columns.PUBLISHABLE`, `body` among them; a body of strings
                becomes binary.
            exchange: Instead of the publisher's.
            routing_key: For rows without one, instead of the publisher's.

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
        destination = self._defaults.destination(exchange)
        key, parts = self._defaults.parts(batch, routing_key, self._bounds)
        future: Future[int] = LightFuture()
        if not batch.num_rows:
            future.set_result(0)
            return future
        receipt = BatchReceipt(future, batch.num_rows, returns_fail=self._returns_fail)
        for rows in parts:
            try:
                self._publish_part(destination, rows, key, receipt)
            except AckqError as error:
                receipt.give_up(error)
                raise
        return future

    def _publish_part(
        self, destination: Destination, rows: pa.RecordBatch, routing_key: str, receipt: Receipt
    ) -> None:
        """Publishes rows in a frame, which small ones share with others."""
        size = block.payload_bytes(rows)
        if size <= _SMALL_BYTES and rows.num_rows <= _FEW_ROWS:
            self._stream.publish_rows(destination, rows, routing_key, size, receipt)
            return
        content = self._defaults.encode(rows, routing_key)
        self._stream.publish_frame(
            PublishFrame(destination, content, rows.num_rows, len(content), receipt)
        )

    def flush(self, timeout_s: float | None = None) -> None:
        """Waits until every publish so far is answered and its future resolved.

        Args:
            timeout_s: Maximum wait in seconds; 0 returns at once, None waits without limit.

        Raises:
            AckqError: The first failure since the last flush: a nack, an unknown outcome, or,
                without `on_return`, a returned message.
            BrokerUnavailableError: Not everything was answered within `timeout_s`.
        """
        self._stream.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flushes, and ends the stream and its threads.

        Raises what `flush` raises, but is closed then all the same.
        """
        self._finalizer.detach()
        self._stream.close(timeout_s)

    def _leave(self, *, raised: bool) -> None:
        """Closes. Left by an exception, it does not wait: what is unanswered fails."""
        if raised:
            self._finalizer.detach()
            self._stream.abandon()
            self._stream.join()
        else:
            self.close()

    @staticmethod
    def _warn_unclosed(pending: int) -> None:
        warnings.warn(
            f"A publisher was dropped with {pending} unconfirmed messages, which may be lost; "
            "close it or use `with`.",
            RuntimeWarning,  # shown by default, as a ResourceWarning is not
            stacklevel=3,
        )
