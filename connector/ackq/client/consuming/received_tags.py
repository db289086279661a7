"""Delivery tags that have arrived: detects duplicates and times transport acks (C11).

Invariant: a tag is new once, however often the broker sends it; a transport ack names a tag only
when it and every tag before it arrived. No clock: the caller passes times, in seconds.
"""

from __future__ import annotations

from ackq.client.ranges import Range, Ranges


class ReceivedTags:
    """The receiving side of a channel's transport window.

    Args:
        window_messages: Maximum number of messages the broker sends without a transport ack.
        ack_messages: Number of messages without a transport ack at which one is due.
        ack_delay_s: A transport ack is due this long after the first such message, in seconds.
        void: The tags up to this one belong to an earlier channel (C17).

    Attributes:
        highest: The highest tag that arrived, or `void`.
    """

    def __init__(
        self, window_messages: int, ack_messages: int, ack_delay_s: float, *, void: int = 0
    ) -> None:
        self._window_messages = window_messages
        self._ack_messages = ack_messages
        self._ack_delay_s = ack_delay_s
        self._void = self.highest = void
        self._missing = Ranges()  # tags below the highest that did not arrive
        self._acked = void  # highest tag acked on the present stream
        self._since: float | None = None  # when the first message without an ack arrived

    @property
    def lowest_missing(self) -> int | None:
        """The lowest tag that did not arrive although a higher one did; None if none is missing."""
        return self._missing.lowest if self._missing else None

    def add(self, first: int, last: int, now: float) -> list[Range]:
        """Adds the tags first..last; returns the tags that had not arrived before."""
        if self._since is None:
            self._since = now
        if first > self.highest:
            if first > self.highest + 1:
                self._missing.extend(self.highest + 1, first - 1)
            self.highest = last
            return [Range(first, last)]
        new = self._missing.remove(first, min(last, self.highest))
        if last > self.highest:
            new.append(Range(self.highest + 1, last))
            self.highest = last
        return new

    def ack_due(self, now: float, unread: int) -> int | None:
        """The tag of the transport ack that is due now, or None; see `wake_at`."""
        due_at = self.wake_at(unread)
        if due_at is None or now < due_at:
            return None
        self._acked = self._arrived
        self._since = None
        return self._acked

    def wake_at(self, unread: int) -> float | None:
        """When a transport ack is due, in seconds; 0 means now, None means none is due.

        No ack is due while more than a window of messages is unread. That is backpressure: it
        bounds the memory of a slow consumer without a prefetch.
        """
        unacked = self._arrived - self._acked
        if self._since is None or unread > self._window_messages or unacked <= 0:
            return None
        return 0 if unacked >= self._ack_messages else self._since + self._ack_delay_s

    def on_disconnect(self, now: float) -> None:
        """Handles a disconnect: the transport acks sent on the stream may be lost."""
        self._acked = self._void
        if self.highest > self._void:
            self._since = now

    @property
    def _arrived(self) -> int:
        return self._missing.lowest - 1 if self._missing else self.highest
