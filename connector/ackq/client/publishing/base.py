"""Base of the publishers of both modes: defaults, checks of messages and batches, closing."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, NamedTuple, Self, TypedDict, TypeVar

import pyarrow as pa

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.publishing.stream import PublishStream
from ackq.client.publishing.unconfirmed import Destination
from ackq.errors import InvalidArgumentError

_NO_TEXTS = (None,) * len(encoding.TEXTS)
# The optional arguments of a message that is only a body.
_BODY_ALONE = (None,) * 9
S = TypeVar("S", bound=PublishStream[Any])


Prepared = tuple[Destination, encoding.Message, int]


class MessageArguments(TypedDict, total=False):
    """Optional arguments of a message, besides its body; see `Publisher.publish`."""

    exchange: str | None
    routing_key: str | None
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str | None
    headers: Mapping[str, str | None] | None
    published_at: datetime | None
    persistent: bool | None
    mandatory: bool | None
    ttl_ms: int | None
    queue: str | None


class Bounds(NamedTuple):
    """Limits of a batch's frames (rows and bytes) and of one message (bytes)."""

    frame_rows: int
    frame_bytes: int
    message_bytes: int


def target(
    queue: str | None, exchange: str | None, routing_key: str | None, columns: Sequence[str] = ()
) -> tuple[str | None, str | None]:
    """The exchange and routing key of a publish; a queue name stands for both.

    Raises:
        InvalidArgumentError: A queue is named together with an exchange or routing key (also as one
            of the batch's `columns`), or no queue can have that name.
    """
    if queue is None:
        return exchange, routing_key
    if exchange is not None or routing_key is not None or "routing_key" in columns:
        raise InvalidArgumentError(
            "'queue' was given with 'exchange' or 'routing_key' (an argument or a column): a queue"
            " is the whole target. Give 'queue' alone, or the other two.",
            argument="queue",
        )
    encoding.check_queue(queue)
    return "", queue


class Defaults:
    """Default exchange, routing key and flags of a publisher, named as its arguments.

    Raises:
        InvalidArgumentError: An argument is of a wrong type or over its limit.
    """

    def __init__(
        self, *, exchange: str, routing_key: str, mandatory: bool, persistent: bool
    ) -> None:
        encoding.check_exchange(exchange)
        encoding.check_routing_key(routing_key)
        encoding.check_flag("mandatory", mandatory)
        encoding.check_flag("persistent", persistent)
        self._destination = Destination(exchange, mandatory)
        self._routing_key = routing_key
        self._key_bytes = encoding.text_bytes("routing_key", routing_key)
        self.persistent = persistent

    def destination(
        self, exchange: str | None, *, mandatory: bool | None = None, ack_immediately: bool = False
    ) -> Destination:
        """The exchange and flags of a message, defaults applied; raises InvalidArgumentError."""
        usual = self._destination
        if exchange is None and mandatory is None and ack_immediately is False:
            return usual
        if exchange is not None:
            encoding.check_exchange(exchange)
        encoding.check_flag("mandatory", mandatory)
        encoding.check_flag("ack_immediately", ack_immediately)
        return Destination(
            usual.exchange if exchange is None else exchange,
            usual.mandatory if mandatory is None else mandatory,
            ack_immediately,
        )

    def prepare(
        self,
        body: bytes | str,
        message_bytes: int,
        message: MessageArguments,
        *,
        ack_immediately: bool = False,
    ) -> Prepared:
        """A checked message with its destination and size, which `message_bytes` limits.

        Raises:
            InvalidArgumentError: An argument of a wrong type, or over its limit.
            MessageTooLargeError: The message is over the limit.
        """
        if message or ack_immediately is not False or type(body) is not bytes:
            return self._prepare(body, message_bytes, ack_immediately, **message)
        size = len(body) + self._key_bytes
        encoding.check_message_size(size, message_bytes)
        return self._destination, body, size

    def _prepare(
        self,
        body: bytes | str,
        message_bytes: int,
        ack_immediately: bool,  # noqa: FBT001 - no name in a transaction
        /,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str | None] | None = None,
        published_at: datetime | None = None,
        persistent: bool | None = None,
        mandatory: bool | None = None,
        ttl_ms: int | None = None,
        queue: str | None = None,
    ) -> Prepared:
        """Checks a message that has more than a body in bytes; see `prepare`."""
        exchange, routing_key = target(queue, exchange, routing_key)
        texts = (message_id, correlation_id, reply_to, content_type)
        message: encoding.Message
        others = (*texts, routing_key, headers, published_at, persistent, ttl_ms)
        if type(body) is bytes and others == _BODY_ALONE:
            message, size = body, len(body) + self._key_bytes
        else:
            message, size = self._row(
                body, routing_key, texts, headers, published_at, persistent, ttl_ms
            )
        encoding.check_message_size(size, message_bytes)
        destination = self.destination(
            exchange, mandatory=mandatory, ack_immediately=ack_immediately
        )
        return destination, message, size

    def _row(
        self,
        body: bytes | str,
        routing_key: str | None,
        texts: tuple[str | None, str | None, str | None, str | None],
        headers: Mapping[str, str | None] | None,
        published_at: datetime | None,
        persistent: bool | None,  # noqa: FBT001 - called with each message, so by position
        ttl_ms: int | None,
    ) -> tuple[encoding.Row, int]:
        """A checked message with more than a body, and its size in bytes."""
        body = encoding.body_bytes(body)
        key = self._routing_key if routing_key is None else routing_key
        size = len(body) + encoding.check_routing_key(key)
        if texts != _NO_TEXTS:
            for name, value in zip(encoding.TEXTS, texts, strict=True):
                if value is not None:
                    size += encoding.text_bytes(name, value)
        pairs = None
        if headers:
            pairs, header_bytes = encoding.header_pairs(headers)
            size += header_bytes
        if published_at is not None:
            encoding.check_published_at(published_at)
        encoding.check_flag("persistent", persistent)
        if ttl_ms is not None:
            encoding.check_ttl(ttl_ms)
        return encoding.Row(body, key, *texts, pairs, published_at, persistent, ttl_ms), size

    def parts(
        self, batch: pa.RecordBatch | pa.Table, routing_key: str | None, bounds: Bounds
    ) -> tuple[str, list[pa.RecordBatch]]:
        """The routing key of a batch, and its rows cut into frames; checks all of them.

        Raises:
            SchemaError: A column is missing, unknown or of the wrong type.
            MessageTooLargeError: A row is over the size limit.
            InvalidArgumentError: A name is of a wrong type or over its limit.
        """
        key = self._routing_key
        if routing_key is not None:
            encoding.check_routing_key(routing_key)
            key = routing_key
        chunks = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        ready = [encoding.publishable(chunk, routing_key=key) for chunk in chunks]
        return key, [
            part
            for chunk in ready
            for part in encoding.cut(
                chunk,
                target_bytes=min(limits.FRAME_TARGET_BYTES, bounds.frame_bytes),
                target_rows=min(limits.FRAME_TARGET_ROWS, bounds.frame_rows),
                max_message_bytes=bounds.message_bytes,
            )
        ]

    def encode(self, rows: pa.RecordBatch, routing_key: str) -> bytes:
        """Encodes the rows of one frame as a block."""
        return encoding.encode_batch(rows, routing_key=routing_key, persistent=self.persistent)


class PublisherBase(ABC, Generic[S]):
    """A publisher over a stream of its mode.

    Args:
        stream: Sends the messages; connects at the first publish.
        defaults: Values for messages that set none.
        window: Messages and bytes that `publish` accepts before it waits (P14).
    """

    def __init__(self, stream: S, defaults: Defaults, window: tuple[int, int]) -> None:
        self._stream = stream
        self._defaults = defaults
        self._window = window
        self._finalizer = weakref.finalize(self, _finalize_unclosed, stream, self._warn_unclosed)

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers at the moment; None when it does not (P14)."""
        return self._stream.blocked

    @staticmethod
    @abstractmethod
    def _warn_unclosed(pending: int) -> None:
        """Warns that a publisher with pending messages was garbage-collected."""

    @property
    def _bounds(self) -> Bounds:
        # A frame is admitted whole, so a batch is sliced to the window as well (P14).
        return Bounds(*self._window, self._stream.max_message_bytes)


class WithBlock(ABC):
    """A publisher that a `with` block closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._leave(raised=kind is not None)

    @abstractmethod
    def _leave(self, *, raised: bool) -> None:
        """Closes the publisher after its `with` block; `raised`: an exception left the block."""


def _finalize_unclosed(stream: PublishStream[Any], warn: Callable[[int], None]) -> None:
    """Ends a publisher that was garbage-collected without being closed.

    Its threads must not outlive it, nor delay the interpreter's exit.
    """
    if stream.inherited:
        return
    pending = stream.dropped
    stream.abandon()
    if pending:
        warn(pending)
