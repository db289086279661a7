"""Applies what a broker says on a channel, and tells the application what became of settlements.

Invariant: a settlement is told once (C15), on the receiving thread and without the lock, so that
its callbacks may settle and publish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from copy import copy

from ackq.client.connection import errors
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.state import ChannelFlow
from ackq.client.consuming.unsettled import Entry
from ackq.errors import AckqError, ClosedError, InternalError, OutcomeUnknownError
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame

Answer = frame.Frame[pb.ConsumeHeader]


class Answers:
    """The receiving side of a channel.

    Args:
        turn: The channel's lock, notified when the sender has something new to see.
        flow: The channel's state, touched under the lock only.
        rings: Called, under the lock, when the channel opened or answered everything.

    Attributes:
        telling: Settlements are answered of which the application is being told.
    """

    def __init__(
        self, turn: threading.Condition, flow: ChannelFlow, rings: set[Callable[[], None]]
    ) -> None:
        self.telling = False
        self._turn = turn
        self._flow = flow
        self._rings = rings
        self._handlers: dict[str, Callable[[Answer], None]] = {
            "delivery": self._delivery,
            "settled": self._settled,
            "get_empty": self._get_empty,
            "cancelled": self._cancelled,
        }

    def take(self, answer: Answer) -> bool:
        """Applies an answer. False: the broker does not know the channel any more (C11).

        Raises:
            MalformedBlockError: A frame of messages is none.
            InternalError: Messages came that nobody asked for.
        """
        kind = answer.header.WhichOneof("kind") or ""
        if kind == "opened":
            return self._opened(answer)
        with self._turn:
            self._flow.on_heard(time.monotonic())
        # A broker of a later version may say more; what it says then is not needed by this one.
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(answer)
        return True

    def _opened(self, answer: Answer) -> bool:
        with self._turn:
            known = self._flow.on_opened(answer.header.opened, time.monotonic())
            self._ring()
        return known

    def _delivery(self, answer: Answer) -> None:
        delivery = answer.header.delivery
        content = Content(delivery.runs, answer.block)
        with self._turn:
            inbox = self._flow.on_delivery(delivery, content, time.monotonic())
            if inbox is not None:
                inbox.ring()
            self._wake_sender()

    def _settled(self, answer: Answer) -> None:
        with self._turn:
            done = self._flow.on_settled(answer.header.settled)
            self.telling = True
            self._wake_sender()
        for entry in done:
            _tell(entry)
        with self._turn:
            self.telling = False
            if self._flow.settling.idle:
                self._ring()

    def _get_empty(self, answer: Answer) -> None:
        with self._turn:
            pull = self._flow.on_get_empty(answer.header.get_empty.number)
            if pull is not None:
                pull.ring()

    def _cancelled(self, answer: Answer) -> None:
        cancelled = answer.header.cancelled
        reason = errors.from_detail(cancelled.reason)
        with self._turn:
            consumer = self._flow.on_cancelled(cancelled.consumer, reason)
            if consumer is not None:
                consumer.ring()

    def _wake_sender(self) -> None:
        if self._flow.wakes_sender():
            self._turn.notify_all()

    def _ring(self) -> None:
        for ring in tuple(self._rings):
            ring()
        self._turn.notify_all()


def tell_failed(entries: Iterable[Entry], error: AckqError) -> None:
    """The channel has ended without an answer to these settlements.

    What was never sent has not happened. Of the rest nobody knows when the broker fell silent; when
    it ended the channel itself, it did so before them.
    """
    unknown = isinstance(error, ClosedError | InternalError) or errors.is_transient(error)
    for entry in entries:
        if entry.future is not None:
            entry.future.fail(_unknown(error) if entry.sent and unknown else copy(error))


def _tell(entry: Entry) -> None:
    if entry.future is None:
        return
    if not entry.mismatched:
        entry.future.succeed(entry.messages)
        return
    entry.future.fail(
        OutcomeUnknownError(
            "The broker settled another number of messages than it was asked for. Check that "
            "client and broker are of one version.",
            messages=entry.messages,
        )
    )


def _unknown(error: AckqError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether this settlement took effect is unknown: {error.message} Its messages are "
        "delivered again unless it did.",
        **{**error.fields, "cause": error.code},
    )
