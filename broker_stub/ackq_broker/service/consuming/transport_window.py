"""The transport window of a channel: what was delivered and has no transport ack yet (C11).

Invariant: deliveries are kept in tag order, and each until the client has acknowledged its last tag
or the channel ends: pieces, not bytes, so that a client that is slow costs no memory for bodies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq_broker.core.commands import Piece


@dataclass(frozen=True, eq=False, slots=True)
class Parcel:
    """What one decision delivered: about a frame.

    Attributes:
        consumer: Its name; empty for a pull.
        get_number: The pull it answers; 0 for a consumer.
        first_tag: Of `messages` consecutive tags.
        no_ack: Its blocks are pinned until it has its transport ack.
        answers: How many answers the channel had given before it was put on a stream first.
    """

    consumer: str
    get_number: int
    first_tag: int
    messages: int
    payload_bytes: int
    pieces: tuple[Piece, ...]
    no_ack: bool
    answers: int = 0

    @property
    def last_tag(self) -> int:
        """The last of its tags."""
        return self.first_tag + self.messages - 1


class TransportWindow:
    """Pure bookkeeping; times are seconds of a monotonic clock that the caller reads.

    Attributes:
        messages: The bound on messages without a transport ack.
        acked_tag: Everything up to here arrived.
    """

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.acked_tag = 0
        self._last_tag = 0
        # Up to here parcels were sent on the present stream.
        self._sent_tag = 0
        self._parcels: deque[Parcel] = deque()
        self._waiting_since_s = 0.0
        self._patience_ms = limits.RETRANSMIT_MS

    @property
    def room(self) -> int:
        """How many more messages may be delivered."""
        return max(0, self.messages - (self._last_tag - self.acked_tag))

    @property
    def parcels(self) -> tuple[Parcel, ...]:
        """Everything without a transport ack, oldest first."""
        return tuple(self._parcels)

    def add(self, parcel: Parcel) -> None:
        """A parcel was delivered; it is sent when its record is on disk."""
        assert parcel.first_tag == self._last_tag + 1
        self._last_tag = parcel.last_tag
        self._parcels.append(parcel)

    def sent(self, parcel: Parcel, now_s: float) -> None:
        """A parcel went out, for the first time or again."""
        if self._sent_tag <= self.acked_tag:
            self._waiting_since_s = now_s
        self._sent_tag = max(self._sent_tag, parcel.last_tag)

    def ack(self, tag: int, now_s: float) -> list[Parcel]:
        """Everything up to a tag arrived; gives the parcels that are through with it.

        Raises:
            InvalidArgumentError: No such tag was delivered.
        """
        if tag > self._last_tag:
            raise InvalidArgumentError(
                f"A transport ack names tag {tag}, and the last that this channel gave is"
                f" {self._last_tag}.",
                delivery_tag=tag,
                last_tag=self._last_tag,
            )
        if tag <= self.acked_tag:
            return []
        self.acked_tag = tag
        self._waiting_since_s = now_s
        self._patience_ms = limits.RETRANSMIT_MS
        arrived = []
        while self._parcels and self._parcels[0].last_tag <= tag:
            arrived.append(self._parcels.popleft())
        return arrived

    def cut(self) -> None:
        """The stream ended: what was sent on it may not have arrived."""
        self._sent_tag = self.acked_tag
        self._patience_ms = limits.RETRANSMIT_MS

    @property
    def due_s(self) -> float | None:
        """When the oldest parcel is to be sent again; None while nothing waits for an ack."""
        if self._sent_tag <= self.acked_tag:
            return None
        return self._waiting_since_s + self._patience_ms / 1000

    def overdue(self, now_s: float) -> Parcel | None:
        """The oldest parcel, if it is to be sent again now; the next one waits twice as long."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return None
        self._waiting_since_s = now_s
        self._patience_ms = min(2 * self._patience_ms, limits.RETRANSMIT_MAX_MS)
        return self._parcels[0]

    def drain(self) -> Iterable[Parcel]:
        """Gives up what is left, when the channel ends."""
        left, self._parcels = self._parcels, deque()
        self._sent_tag = self.acked_tag
        return left
