"""What the publishers of both modes share: defaults, frames of a batch, and how they end."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from ackq.client.publishing.defaults import Bounds, Defaults
from ackq.client.publishing.stream import PublishStream
from ackq.client.publishing.unconfirmed import Destination

S = TypeVar("S", bound=PublishStream[Any])


class PublisherBase(ABC, Generic[S]):
    """A publisher over a stream of its mode.

    Args:
        stream: Sends the messages; it connects at the first.
        defaults: For messages without values of their own.
        window: Messages and bytes that `publish` takes before it waits (P14).
    """

    def __init__(self, stream: S, defaults: Defaults, window: tuple[int, int]) -> None:
        self._stream = stream
        self._defaults = defaults
        self._window = window
        self._finalizer = weakref.finalize(self, _finalize_unclosed, stream, self._warn_unclosed)

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes at the moment; None: it does (P14)."""
        return self._stream.blocked

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave(raised=kind is not None)

    @abstractmethod
    def _leave(self, *, raised: bool) -> None:
        """Ends a `with` block, which was left by an exception when `raised`."""

    @staticmethod
    @abstractmethod
    def _warn_unclosed(pending: int) -> None:
        """Warns that a publisher with messages was collected."""

    def _frames(
        self, batch: pa.RecordBatch | pa.Table, exchange: str | None, routing_key: str | None
    ) -> tuple[Destination, Iterator[tuple[bytes, int]]]:
        """The destination of a batch and its blocks with their rows; everything is checked."""
        # A frame is admitted whole, so a batch is sliced to the window as well (P14).
        bounds = Bounds(*self._window, self._stream.max_message_bytes)
        frames = self._defaults.frames(batch, routing_key, bounds)
        return self._defaults.destination(exchange), frames


def _finalize_unclosed(stream: PublishStream[Any], warn: Callable[[int], None]) -> None:
    """Ends a publisher that was collected without a close.

    Its threads must not outlive it, nor hold up the interpreter's exit.
    """
    if stream.inherited:
        return
    pending = stream.pending
    stream.abandon()
    if pending:
        warn(pending)
