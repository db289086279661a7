"""Which delivery tags have arrived, and when to say so: transport acks and duplicates (C11).

Invariant: a tag is news once, whatever the broker sends again; a transport ack names a tag only
when it and every one before it arrived. No clock: times are seconds that the caller reads.
"""

from __future__ import annotations

from ackq.client.ranges import Range, Ranges


class ReceivedTags:
    """The receiving side of a channel's transport window.

    Args:
        window_messages: What the broker sends without a transport ack, at most.
        ack_messages: An ack is due when so many messages have none.
        ack_delay_s: ... or so long after the first of them.
    """

    def __init__(self, window_messages: int, ack_messages: int, ack_delay_s: float) -> None:
        self._window_messages = window_messages
        self._ack_messages = ack_messages
        self._ack_delay_s = ack_delay_s
        self._highest = 0
        self._missing = Ranges()  # below the highest, not arrived
        self._acked = 0  # as far as the present stream was told
        self._since: float | None = None  # when the first message without an ack arrived

    @property
    def lowest_missing(self) -> int | None:
        """The lowest tag that did not arrive although a higher one has; None: there is none."""
        return self._missing.lowest if self._missing else None

    def take(self, first: int, last: int, now: float) -> list[Range]:
        """Tags arrived; answers those of them that are news."""
        if self._since is None:
            self._since = now
        if first > self._highest:
            if first > self._highest + 1:
                self._missing.extend(self._highest + 1, first - 1)
            self._highest = last
            return [Range(first, last)]
        news = self._missing.remove(first, min(last, self._highest))
        if last > self._highest:
            news.append(Range(self._highest + 1, last))
            self._highest = last
        return news

    def ack_due(self, now: float, unread: int) -> int | None:
        """The tag of a transport ack that is to be sent now; see `wake_at`."""
        due_at = self.wake_at(unread)
        if due_at is None or now < due_at:
            return None
        self._acked = self._arrived
        self._since = None
        return self._acked

    def wake_at(self, unread: int) -> float | None:
        """When a transport ack is due; 0: now; None: no time is set.

        None is due while more than a window of messages waits for the application: that holds the
        broker back, so the memory of a slow consumer without a prefetch has a bound.
        """
        untold = self._arrived - self._acked
        if self._since is None or unread > self._window_messages or untold <= 0:
            return None
        return 0 if untold >= self._ack_messages else self._since + self._ack_delay_s

    def on_disconnected(self, now: float) -> None:
        """The stream is gone; the acks that went on it may not have arrived."""
        self._acked = 0
        if self._highest:
            self._since = now

    @property
    def _arrived(self) -> int:
        return self._missing.lowest - 1 if self._missing else self._highest
