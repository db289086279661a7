"""Applies the broker's answers on a channel and resolves the futures of settlements.

Invariant: a settlement is resolved once (C15), on the receiving thread and outside the lock, so
that its callbacks may settle and publish.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ackq.client.condition import StreamCondition
from ackq.client.connection import errors
from ackq.client.consuming.inbox import Content
from ackq.client.consuming.settlement import PendingSettlement
from ackq.client.consuming.state import ChannelState
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame

Answer = frame.Frame[pb.ConsumeHeader]


class ChannelAnswers:
    """Applies the broker's answers to the state of one channel.

    Args:
        turn: The channel's lock, notified when the state has news for the sender.
        state: The channel's state, accessed under the lock only.
        wakers: Called, under the lock, when the channel opened or a settlement is answered.

    Attributes:
        resolving: The answered settlements whose futures are being resolved.
    """

    def __init__(
        self, turn: StreamCondition, state: ChannelState, wakers: set[Callable[[], None]]
    ) -> None:
        self.resolving: list[PendingSettlement] = []
        self._turn = turn
        self._state = state
        self._wakers = wakers
        self._handlers: dict[str, Callable[[Answer], None]] = {
            "delivery": self._delivery,
            "settled": self._settled,
            "get_empty": self._get_empty,
            "cancelled": self._cancelled,
        }

    def take(self, answer: Answer) -> bool:
        """Applies an answer; False if the broker no longer has the channel (C11).

        Raises:
            MalformedBlockError: A frame of messages is malformed.
            InternalError: Messages arrived for no known consumer or pull.
        """
        kind = answer.header.WhichOneof("kind") or ""
        if kind == "opened":
            return self._opened(answer)
        with self._turn.lock:
            self._state.on_frame(time.monotonic())
        # A broker of a later version may send other kinds of answers; this client ignores them.
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(answer)
        return True

    def _opened(self, answer: Answer) -> bool:
        with self._turn.lock:
            known = self._state.on_opened(answer.header.opened, time.monotonic())
            self._wake_waiting()
            self._turn.notify_all()
        return known

    def _delivery(self, answer: Answer) -> None:
        delivery = answer.header.delivery
        content = Content(delivery.runs, answer.block)
        with self._turn.lock:
            inbox = self._state.on_delivery(delivery, content, time.monotonic())
            if inbox is not None:
                inbox.wake()
            self._wake_sender()

    def _settled(self, answer: Answer) -> None:
        with self._turn.lock:
            done = self._state.on_settled(answer.header.settled)
            self.resolving = [] if done is None else [done]
            self._wake_sender()
        if done is not None:
            done.resolve()
        with self._turn.lock:
            self.resolving = []
            if done is not None:
                self._wake_waiting()
            if self._state.unsettled.idle:
                self._turn.notify_all()

    def _get_empty(self, answer: Answer) -> None:
        with self._turn.lock:
            pull = self._state.on_get_empty(answer.header.get_empty.number)
            if pull is not None:
                pull.wake()

    def _cancelled(self, answer: Answer) -> None:
        cancelled = answer.header.cancelled
        reason = errors.from_detail(cancelled.reason)
        with self._turn.lock:
            consumer = self._state.on_cancelled(cancelled.consumer, reason)
            if consumer is not None:
                consumer.wake()

    def _wake_sender(self) -> None:
        if self._state.wakes_sender():
            self._turn.notify_all()

    def _wake_waiting(self) -> None:
        for wake in tuple(self._wakers):
            wake()
