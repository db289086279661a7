"""Base of `Publisher` and `AsyncPublisher`: arguments, checks, and how batches are split.

Every accepted publish is answered exactly once (P3); see also P2, P7, P9, P10, P12, P14.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from ackq import limits
from ackq.client.connection.broker import Broker
from ackq.client.connection.security import Security
from ackq.client.futures import LightFuture
from ackq.client.publishing.base import Defaults, PublisherBase, target
from ackq.client.publishing.confirm_state import ConfirmState, PublishSettings
from ackq.client.publishing.confirm_stream import ConfirmStream, SmallBatch
from ackq.client.publishing.notifications import OnBlocked, OnReturn
from ackq.client.publishing.receipts import BatchReceipt
from ackq.client.publishing.unconfirmed import Destination, PublishFrame
from ackq.wire import block

# A batch up to this size is copied into a shared frame, which costs less than a separate frame. A
# frame takes about 1 ms of the broker and 0.4 of the client, copying 100 KiB a tenth of that:
# batches of 100 rows of 1 KiB went from 74,000 to 484,000 rows/s, measured with 2 cores.
_SMALL_BYTES = 512 * limits.KIB
_FEW_ROWS = 5_000

T = TypeVar("T")


class PreparedBatch:
    """A checked Arrow batch, split into parts that are sent in order.

    Attributes:
        future: Resolves to the number of rows once all are confirmed.
        receipt: Resolves the future.
    """

    def __init__(
        self, defaults: Defaults, destination: Destination, key: str, parts: list[pa.RecordBatch]
    ) -> None:
        rows = sum(part.num_rows for part in parts)
        self.future: LightFuture[int] = LightFuture()
        self.receipt = BatchReceipt(self.future, rows)
        self._defaults = defaults
        self._destination = destination
        self._key = key
        self.parts = parts
        if not rows:
            self.future.set_result(0)

    def part(self, rows: pa.RecordBatch) -> SmallBatch | PublishFrame:
        """Converts a part to its sendable form: a small batch to share a frame, or a frame."""
        size = block.payload_bytes(rows)
        if size <= _SMALL_BYTES and rows.num_rows <= _FEW_ROWS:
            return SmallBatch(self._destination, rows, self._key, rows.num_rows, size, self.receipt)
        content = self._defaults.encode(rows, self._key)
        return PublishFrame(self._destination, content, rows.num_rows, len(content), self.receipt)


class ConfirmingPublisher(PublisherBase[ConfirmStream]):
    """A publisher in confirm mode; connects at the first publish.

    Args:
        endpoint: `host:port`, or a `Broker`, which also has the security and the limit of retries.
        exchange: For messages that name none; empty: the default exchange, where the routing key
            names the queue.
        routing_key: For messages that have none.
        mandatory: Return unroutable messages (P7). With False they are confirmed and dropped, so a
            wrong name goes unnoticed: for exchanges that need not have a queue.
        persistent: Default delivery mode: messages survive a broker restart (P12).
        window_messages: Maximum number of unconfirmed messages; then `publish` waits (P14).
        window_bytes: Maximum number of unconfirmed payload bytes; then `publish` waits (P14).
        linger_ms: How long a message waits for others to share its frame. While publishes are
            unanswered it waits for their answers anyway, 20 ms at most.
        publish_ack_timeout_ms: Probe a publish that is unanswered for this time on a live stream
            (P10).
        retry_total_ms: Fail after this time without a broker while a publish is unconfirmed.
        on_return: Called with a `Returned` before its messages are confirmed. Without it their
            futures, and `flush`, fail with UnroutableError.
        on_blocked: Called with the reason when the broker stops taking publishes, and with None
            when it resumes (P14).
        label: Shown to operators; empty: host and process id.
        security: Transport security.

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
        linger_ms: float = limits.PUBLISH_LINGER_MS,
        publish_ack_timeout_ms: float = limits.PUBLISH_ACK_TIMEOUT_MS,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        on_return: OnReturn | None = None,
        on_blocked: OnBlocked | None = None,
        label: str = "",
        security: Security | None = None,
    ) -> None:
        on_return = self._heard(on_return, "on_return")
        on_blocked = self._heard(on_blocked, "on_blocked")
        settings = PublishSettings(
            persistent=persistent,
            window_messages=window_messages,
            window_bytes=window_bytes,
            linger_s=linger_ms / 1000,
            ack_timeout_s=publish_ack_timeout_ms / 1000,
            routing_key=routing_key,
        )
        stream = ConfirmStream(
            Broker.of(endpoint, security, retry_total_ms),
            ConfirmState(settings),
            label=label,
            on_return=on_return,
            on_blocked=on_blocked,
        )
        defaults = Defaults(
            exchange=exchange, routing_key=routing_key, mandatory=mandatory, persistent=persistent
        )
        super().__init__(stream, defaults, (window_messages, window_bytes))
        stream.owner = weakref.ref(self)

    def _heard(
        self,
        callback: Callable[[T], None] | None,
        name: str,  # noqa: ARG002 - for a subclass that refuses some
    ) -> Callable[[T], None] | None:
        """Adapts an application's callback to being called on the publisher's thread."""
        return callback

    @property
    def unconfirmed(self) -> int:
        """Number of messages that are published and not yet answered."""
        return self._stream.pending

    def _prepare_batch(
        self,
        batch: pa.RecordBatch | pa.Table,
        exchange: str | None,
        routing_key: str | None,
        queue: str | None,
    ) -> PreparedBatch:
        """Checks a batch and splits it into parts; raises as `Publisher.publish_batch`."""
        exchange, routing_key = target(queue, exchange, routing_key, batch.schema.names)
        destination = self._defaults.destination(exchange)
        key, parts = self._defaults.parts(batch, routing_key, self._bounds)
        return PreparedBatch(self._defaults, destination, key, parts)

    @staticmethod
    def _warn_unclosed(pending: int) -> None:
        warnings.warn(
            f"A publisher was dropped with {pending} unconfirmed messages, which may be lost; "
            "close it or use `with`.",
            RuntimeWarning,  # shown by default, as a ResourceWarning is not
            stacklevel=3,
        )
