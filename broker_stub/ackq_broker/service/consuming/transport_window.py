"""The transport window of a channel: its deliveries without a transport ack (C11).

Invariant: deliveries are kept in tag order, each until the client has acknowledged its last tag or
the channel ends. They hold pieces, not bytes, so that a slow client costs no memory for bodies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq_broker.core.commands import Piece


@dataclass(frozen=True, eq=False, slots=True)
class PendingDelivery:
    """The messages of one delivery decision (about a frame), until their transport ack.

    Attributes:
        consumer: The consumer's name; empty for a pull.
        get_number: The number of the pull it answers; 0 for a consumer.
        first_tag: The first of `messages` consecutive tags.
        no_ack: Whether its blocks are pinned until its transport ack.
        answers_before: Number of answers that the channel had given when the delivery was first
            queued on a stream.
    """

    consumer: str
    get_number: int
    first_tag: int
    messages: int
    payload_bytes: int
    pieces: tuple[Piece, ...]
    no_ack: bool
    answers_before: int = 0

    @property
    def last_tag(self) -> int:
        """The delivery's last tag."""
        return self.first_tag + self.messages - 1


class TransportWindow:
    """The deliveries between their decision and their transport ack; does no I/O.

    Times are seconds of a monotonic clock that the caller reads.

    Attributes:
        messages: Maximum number of messages without a transport ack.
        acked_tag: The last tag with a transport ack.
    """

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.acked_tag = 0
        self._last_tag = 0
        # The last tag sent on the present stream.
        self._sent_tag = 0
        self._deliveries: deque[PendingDelivery] = deque()
        self._waiting_since_s = 0.0
        self._retransmit_ms = limits.RETRANSMIT_MS

    @property
    def room(self) -> int:
        """The number of messages that may still be delivered."""
        return max(0, self.messages - (self._last_tag - self.acked_tag))

    @property
    def deliveries(self) -> tuple[PendingDelivery, ...]:
        """The deliveries without a transport ack, oldest first."""
        return tuple(self._deliveries)

    def add(self, delivery: PendingDelivery) -> None:
        """Adds a decided delivery, which is sent once its record is on disk."""
        assert delivery.first_tag == self._last_tag + 1
        self._last_tag = delivery.last_tag
        self._deliveries.append(delivery)

    def sent(self, delivery: PendingDelivery, now_s: float) -> None:
        """Records that a delivery was sent (again); no effect if the window is empty.

        A closing channel drains its deliveries while the stream may still be writing the last one.
        """
        if not self._deliveries:
            return
        if self._sent_tag <= self.acked_tag:
            self._waiting_since_s = now_s
        self._sent_tag = max(self._sent_tag, delivery.last_tag)

    def ack(self, tag: int, now_s: float) -> list[PendingDelivery]:
        """Acknowledges all tags up to `tag`; returns the deliveries that this completes.

        Raises:
            InvalidArgumentError: No such tag was delivered.
        """
        if tag > self._last_tag:
            raise InvalidArgumentError(
                f"A transport ack names tag {tag}, but the last tag that this channel gave is "
                f"{self._last_tag}.",
                delivery_tag=tag,
                last_tag=self._last_tag,
            )
        if tag <= self.acked_tag:
            return []
        self.acked_tag = tag
        self._waiting_since_s = now_s
        self._retransmit_ms = limits.RETRANSMIT_MS
        arrived = []
        while self._deliveries and self._deliveries[0].last_tag <= tag:
            arrived.append(self._deliveries.popleft())
        return arrived

    def disconnect(self) -> None:
        """Counts all unacknowledged deliveries as unsent: the ended stream may have lost them."""
        self._sent_tag = self.acked_tag
        self._retransmit_ms = limits.RETRANSMIT_MS

    @property
    def due_s(self) -> float | None:
        """When to send the oldest delivery again; None while no sent delivery awaits an ack."""
        if self._sent_tag <= self.acked_tag:
            return None
        return self._waiting_since_s + self._retransmit_ms / 1000

    def overdue(self, now_s: float) -> PendingDelivery | None:
        """The oldest delivery if it must be sent again now; doubles the wait until the next."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return None
        self._waiting_since_s = now_s
        self._retransmit_ms = min(2 * self._retransmit_ms, limits.RETRANSMIT_MAX_MS)
        return self._deliveries[0]

    def drain(self) -> Iterable[PendingDelivery]:
        """Removes and returns all deliveries when the channel ends."""
        left, self._deliveries = self._deliveries, deque()
        self._sent_tag = self.acked_tag
        return left
