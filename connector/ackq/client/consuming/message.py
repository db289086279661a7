"""A delivered message, whose values are decoded when they are first read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from ackq.client.blocks.small_arrays import integers
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.settlement import Settlement
from ackq.client.outcomes import disposition
from ackq.client.ranges import Range
from ackq.errors import SchemaError
from ackq.outcomes import ACCEPT, Disposition, Outcome

# As a Python number it would import pandas (`small_arrays`): 0.3 s at the first settlement.
_ZERO: Final = integers([0], pa.int64())[0]


class Settles(Protocol):
    """Settles messages of one consumer, or of the pulls of one channel."""

    def settle_one(self, tag: int, disposition: Disposition) -> Settlement:
        """Settles one unacked message; see `Message.accept`."""
        ...

    def settle_up_to(self, tag: int) -> Settlement:
        """Accepts all unacked messages up to a tag; see `ChannelBase.acknowledge`."""
        ...

    def belongs_to(self, channel: object) -> bool:
        """Whether `channel` is the stream on which the messages arrived."""
        ...


class Message:
    """A delivered message. Any thread may settle it.

    Attributes:
        delivery_tag: Its number on its channel (C1).
    """

    __slots__ = ("_content", "_row", "delivery_tag", "settler")

    def __init__(self, content: Content, row: int, delivery_tag: int, settler: Settles) -> None:
        self._content = content
        self._row = row
        self.delivery_tag = delivery_tag
        self.settler = settler

    def __repr__(self) -> str:
        return (
            f"Message(delivery_tag={self.delivery_tag}, queue={self.queue!r}, "
            f"delivery_count={self.delivery_count}, {len(self.body)} bytes)"
        )

    @property
    def body(self) -> bytes:
        """The body; empty for a message that was published without one."""
        return self._content.value("body", self._row) or b""

    @property
    def routing_key(self) -> str:
        """The routing key with which the message was published."""
        return cast("str", self._content.value("routing_key", self._row))

    @property
    def message_id(self) -> str | None:
        """The message id, an application property; None if absent."""
        return cast("str | None", self._content.value("message_id", self._row))

    @property
    def correlation_id(self) -> str | None:
        """The correlation id, an application property; None if absent."""
        return cast("str | None", self._content.value("correlation_id", self._row))

    @property
    def reply_to(self) -> str | None:
        """The reply address, an application property; None if absent."""
        return cast("str | None", self._content.value("reply_to", self._row))

    @property
    def content_type(self) -> str | None:
        """The content type, an application property; None if absent."""
        return cast("str | None", self._content.value("content_type", self._row))

    @property
    def headers(self) -> dict[str, str | None]:
        """The application headers; headers of a dead letter name its origin (C13).

        A value may be None, as a write of Spark can make it.
        """
        return dict(self._content.value("headers", self._row))

    @property
    def published_at(self) -> datetime:
        """When the message was published."""
        return cast("datetime", self._content.value("published_at", self._row))

    @property
    def expires_at(self) -> datetime | None:
        """When the message expires; None means never."""
        return cast("datetime | None", self._content.value("expires_at", self._row))

    @property
    def persistent(self) -> bool:
        """Whether the message survives a broker restart (P12)."""
        return cast("bool", self._content.value("persistent", self._row))

    @property
    def queue(self) -> str:
        """Name of the queue from which the message was delivered."""
        return cast("str", self._content.value("queue", self._row))

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before, to any receiver (C7)."""
        return cast("bool", self._content.value("redelivered", self._row))

    @property
    def delivery_count(self) -> int:
        """Number of delivery attempts, this one included (C7)."""
        return cast("int", self._content.value("delivery_count", self._row))

    def accept(self) -> Settlement:
        """Removes the message from its queue (C4).

        Returns:
            A future with 1 once the settlement took effect (C15).

        Raises:
            UnknownDeliveryTagError: The message was settled before; the channel is closed (C2).
            PreconditionFailedError: The consumer's mode settles automatically.
            ClosedError: The channel is closed, and the message is redelivered.
        """
        return self.settler.settle_one(self.delivery_tag, ACCEPT)

    def release(self, delay_ms: int = 0) -> Settlement:
        """Requeues the message, not counted, after a delay (C4); raises like `reject`."""
        return self._settle(disposition(Outcome.RELEASED, delay_ms=delay_ms))

    def reject(self, reason: str = "") -> Settlement:
        """Moves the message to the dead-letter queue; without one it is dropped (C4). See `accept`.

        Raises:
            OutcomeNotSupportedError: The consumer did not declare the outcome (C5); the message
                can still be settled with a declared one.
            InvalidArgumentError: An argument is out of its range.
        """
        return self._settle(disposition(Outcome.REJECTED, reason))

    def fail(self, reason: str = "", delay_ms: int = 0) -> Settlement:
        """Requeues the message, counted against the queue's delivery limit (C4, C13).

        Raises like `reject`.

        Args:
            reason: Stored in the dead letter at the limit, as header `ackq-dead-reason`.
            delay_ms: Redelivery delay; 0 takes the queue's delay (C14).
        """
        return self._settle(disposition(Outcome.FAILED, reason, delay_ms))

    def _settle(self, chosen: Disposition) -> Settlement:
        return self.settler.settle_one(self.delivery_tag, chosen)


def tag_runs(batch: pa.RecordBatch | pa.Table) -> list[Range]:
    """The delivery tags of a batch, in its order, as runs; raises SchemaError without the column.

    The cost for an unchanged received batch does not depend on its size.
    """
    if "delivery_tag" not in batch.schema.names:
        raise SchemaError(
            "The batch has no column 'delivery_tag'; receive it with that column to settle it.",
            column="delivery_tag",
        )
    tags = batch.column("delivery_tag")
    if tags.null_count or not pa.types.is_integer(tags.type):
        raise SchemaError(
            f"The column 'delivery_tag' is {tags.type} with {tags.null_count} nulls; it must hold "
            "the tags that were received.",
            column="delivery_tag",
        )
    if not len(tags):
        return []
    first, last = tags[0].as_py(), tags[-1].as_py()
    # Ascending integers have no gaps if their span equals their number.
    if (
        last - first == len(tags) - 1
        and pc.all(pc.greater(pc.pairwise_diff(_whole(tags)), _ZERO)).as_py()
    ):
        return [Range(first, last)]
    return _runs(tags.to_pylist())


def _whole(tags: pa.Array | pa.ChunkedArray) -> pa.Array:
    return tags.combine_chunks() if isinstance(tags, pa.ChunkedArray) else tags


def _runs(tags: Iterable[int]) -> list[Range]:
    runs: list[Range] = []
    for tag in tags:
        if runs and runs[-1].last + 1 == tag:
            runs[-1] = Range(runs[-1].first, tag)
        else:
            runs.append(Range(tag, tag))
    return runs
