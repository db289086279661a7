"""Drafts: published messages that are not in a frame yet.

Invariant: a draft collects the messages that arrive while the sender is busy, and one frame carries
all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.receipts import BatchesReceipt, MessageReceipt, Receipt
from ackq.client.publishing.unconfirmed import Destination, PublishFrame


class Draft(ABC):
    """Messages that become one frame.

    Attributes:
        destination: Exchange and flags of all messages.
        payload_bytes: Its share of the window (P14).
    """

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.payload_bytes = 0

    @abstractmethod
    def __len__(self) -> int:
        """Number of messages in the draft."""

    @abstractmethod
    def content(self, *, persistent: bool) -> Callable[[], bytes]:
        """A function that encodes the block; the sending thread calls it."""

    @property
    def full(self) -> bool:
        """Whether the draft has reached the target size of a frame."""
        return (
            len(self) >= limits.FRAME_TARGET_ROWS or self.payload_bytes >= limits.FRAME_TARGET_BYTES
        )

    def fits(self, destination: Destination, payload_bytes: int) -> bool:
        """Whether messages may join the draft: same destination, and room for their bytes."""
        return (
            destination == self.destination
            and self.payload_bytes + payload_bytes <= limits.FRAME_TARGET_BYTES
        )


class MessageDraft(Draft):
    """A draft of single messages; `routing_key` is for messages that are only a body."""

    def __init__(self, destination: Destination, routing_key: str = "") -> None:
        super().__init__(destination)
        self._routing_key = routing_key
        self._messages: list[encoding.Message] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: encoding.Message, payload_bytes: int) -> None:
        """Appends a message."""
        self._messages.append(message)
        self.payload_bytes += payload_bytes

    def content(self, *, persistent: bool) -> Callable[[], bytes]:
        """As `Draft.content`."""
        return partial(
            encoding.encode_messages,
            self._messages,
            routing_key=self._routing_key,
            persistent=persistent,
        )


class ConfirmedDraft(Draft):
    """A draft in confirm mode, with the receipt of its frame and the time when it began."""

    started_at: float

    @abstractmethod
    def receipt(self) -> Receipt:
        """The receipt that takes the results of the frame's rows."""

    def frame(self, *, persistent: bool) -> PublishFrame:
        """The draft as a frame."""
        content = self.content(persistent=persistent)
        return PublishFrame(
            self.destination, content, len(self), self.payload_bytes, self.receipt()
        )


class ConfirmedMessages(MessageDraft, ConfirmedDraft):
    """A draft of single messages, each with a future."""

    def __init__(self, destination: Destination, routing_key: str, started_at: float) -> None:
        super().__init__(destination, routing_key)
        self.started_at = started_at
        self._futures: list[ConfirmationFuture] = []

    def expect(
        self, message: encoding.Message, payload_bytes: int, future: ConfirmationFuture
    ) -> None:
        """Adds a message and the future that its answer resolves."""
        self._messages.append(message)
        self._futures.append(future)
        self.payload_bytes += payload_bytes

    def receipt(self) -> Receipt:
        """A receipt that has one future per row."""
        return MessageReceipt(self._futures)


class ConfirmedBatches(ConfirmedDraft):
    """A draft of small Arrow batches that have one schema and one default routing key."""

    def __init__(
        self, destination: Destination, schema: pa.Schema, routing_key: str, started_at: float
    ) -> None:
        super().__init__(destination)
        self.started_at = started_at
        self._schema = schema
        self._routing_key = routing_key
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._receipt = BatchesReceipt()

    def __len__(self) -> int:
        return self._rows

    def alike(self, rows: pa.RecordBatch, routing_key: str) -> bool:
        """Whether `rows` can share a block with the batches of the draft."""
        return routing_key == self._routing_key and rows.schema.equals(self._schema)

    def add(self, rows: pa.RecordBatch, payload_bytes: int, receipt: Receipt) -> None:
        """Appends a batch."""
        self._batches.append(rows)
        self._rows += rows.num_rows
        self.payload_bytes += payload_bytes
        self._receipt.add(rows.num_rows, receipt)

    def content(self, *, persistent: bool) -> Callable[[], bytes]:
        """As `Draft.content`."""
        return partial(
            encoding.encode_batches,
            self._batches,
            routing_key=self._routing_key,
            persistent=persistent,
        )

    def receipt(self) -> Receipt:
        """A receipt that combines the receipts of the batches."""
        return self._receipt
