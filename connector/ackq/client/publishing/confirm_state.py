"""State machine of a publisher in confirm mode; no I/O, no clock, no lock (its stream has those).

Invariant: a frame goes on the wire only after `PublishOpened` and never while the broker is blocked
(P14); admitted, unanswered messages never exceed the window, except that one message is always
admitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import pyarrow as pa

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Wait
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.drafts import ConfirmedBatches, ConfirmedDraft, ConfirmedMessages
from ackq.client.publishing.receipts import Receipt
from ackq.client.publishing.requests import Action, Probe, SendRows
from ackq.client.publishing.state import PublishState, Window
from ackq.client.publishing.unconfirmed import Answered, Destination, PublishFrame, Unconfirmed
from ackq.client.ranges import Range
from ackq.errors import InvalidArgumentError, UnroutableError

# With frames in flight a draft waits for their answers, which clock the next frame, but at most
# this long: an answer that the broker delays (P11: up to 1 s) must not hold messages back.
_GATHER_S = limits.PUBLISH_GATHER_MS / 1000
# A message with `ack_immediately` waits only while this many frames are in flight. Without a bound,
# one frame per message, faster than the broker reads, fills the transport, where all of them wait.
_URGENT_FRAMES = 2


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """Settings of a publisher in confirm mode.

    Attributes:
        persistent: Default delivery mode of messages (P12).
        window_messages: Maximum number of unanswered messages (P14).
        window_bytes: Maximum number of unanswered payload bytes (P14).
        linger_s: How long a message waits for others to share its frame while none is in flight.
        ack_timeout_s: Probe a publish that is unanswered for longer on a live stream (P10).
        routing_key: For messages that are only a body.
    """

    persistent: bool
    window_messages: int
    window_bytes: int
    linger_s: float
    ack_timeout_s: float
    routing_key: str = ""

    def __post_init__(self) -> None:
        # The errors name the publisher's arguments.
        if self.ack_timeout_s <= 0:
            raise InvalidArgumentError(
                "'publish_ack_timeout_ms' must be positive.", argument="publish_ack_timeout_ms"
            )
        if self.linger_s < 0:
            raise InvalidArgumentError("'linger_ms' must not be negative.", argument="linger_ms")


class ConfirmState(PublishState):
    """The state of one publisher: window, draft, unconfirmed frames, returns, and its stream."""

    def __init__(self, settings: PublishSettings) -> None:
        super().__init__(Window(settings.window_messages, settings.window_bytes))
        self.settings = settings
        self.unconfirmed = Unconfirmed()
        self.returns: dict[int, UnroutableError] = {}
        self._reported: set[int] = set()  # returns that the application has, without a confirm yet
        self._draft: ConfirmedDraft | None = None
        self._probe_at: float | None = None

    # --- the application's side ---

    def append(
        self,
        destination: Destination,
        message: encoding.Message,
        payload_bytes: int,
        future: ConfirmationFuture,
        now: float,
    ) -> bool:
        """Adds a message; returns whether to wake the sender (about twice per frame)."""
        self.window.take(1, payload_bytes)
        draft = self._draft
        if isinstance(draft, ConfirmedMessages) and draft.fits(destination, payload_bytes):
            draft.expect(message, payload_bytes, future)
            return self._close_full()
        new = ConfirmedMessages(destination, self.settings.routing_key, now)
        new.expect(message, payload_bytes, future)
        return self._begin(new)

    def append_batch(
        self,
        destination: Destination,
        rows: pa.RecordBatch,
        routing_key: str,
        payload_bytes: int,
        receipt: Receipt,
        now: float,
    ) -> bool:
        """Adds a small batch; returns whether to wake the sender, as `append`."""
        self.window.take(rows.num_rows, payload_bytes)
        draft = self._draft
        if (
            isinstance(draft, ConfirmedBatches)
            and draft.fits(destination, payload_bytes)
            and draft.alike(rows, routing_key)
        ):
            draft.add(rows, payload_bytes, receipt)
            return self._close_full()
        new = ConfirmedBatches(destination, rows.schema, routing_key, now)
        new.add(rows, payload_bytes, receipt)
        return self._begin(new)

    def append_frame(self, frame: PublishFrame) -> None:
        """Adds a ready frame after the earlier messages."""
        self.close_draft()
        self.window.take(frame.rows, frame.payload_bytes)
        self.unconfirmed.add(frame)

    def close_draft(self) -> None:
        """Queues the draft, if any, as a frame to be sent."""
        if self._draft is not None:
            self.unconfirmed.add(self._draft.frame(persistent=self.settings.persistent))
            self._draft = None

    def _begin(self, draft: ConfirmedDraft) -> bool:
        """Starts a new draft, after queueing the previous one; True: the sender must be woken."""
        self.close_draft()
        self._draft = draft
        self._close_full()
        return True

    def _close_full(self) -> bool:
        """Queues the draft if it is full; returns whether it was."""
        if self._draft is None or not self._draft.full:
            return False
        self.close_draft()
        return True

    @property
    def idle(self) -> bool:
        """Whether every message is answered."""
        return self._draft is None and not self.unconfirmed

    @property
    def has_work(self) -> bool:
        """Whether an answer may have given the sender something to do."""
        return self._draft is not None or self.finishing

    @property
    def pending(self) -> int:
        """Number of unconfirmed messages."""
        return self.window.messages

    @property
    def lowest_unanswered(self) -> int:
        """The lowest unconfirmed number, or the next one (P10)."""
        return self.unconfirmed.lowest_unanswered

    @property
    def next_number(self) -> int:
        """The lowest unused publish number (P10)."""
        return self.unconfirmed.next_number

    @property
    def window_messages(self) -> int:
        """Maximum number of unconfirmed messages (P11)."""
        return self.settings.window_messages

    # --- the sender's side ---

    def next_action(self, now: float) -> Action:
        """The next frame or probe, or how long to wait for one."""
        if self.done:
            return self.last_action()
        if not self.opened or self.blocked is not None:
            return Wait(None)
        if self._draft is not None and not self.unconfirmed.has_more_to_send:
            due_at = self._draft_due_at(self._draft)
            if now >= due_at:
                self.close_draft()
        part = self.unconfirmed.next_part(now)
        if part is not None:
            return SendRows(part, self.unconfirmed.lowest_unanswered)
        return self._probe(now) or Wait(self._wake_at())

    def _draft_due_at(self, draft: ConfirmedDraft) -> float:
        urgent = draft.destination.ack_immediately and self.unconfirmed.in_flight < _URGENT_FRAMES
        if urgent or self.finishing:
            return draft.started_at
        least_s = _GATHER_S if self.unconfirmed.in_flight else 0.0
        return draft.started_at + max(self.settings.linger_s, least_s)

    def _probe(self, now: float) -> Probe | None:
        """A probe for publishes unanswered for longer than the timeout, if any (P10).

        There is one timer per publisher, not per frame, so the cost is per timeout.
        """
        if not self.unconfirmed.in_flight:
            self._probe_at = None
            return None
        timeout_s = self.settings.ack_timeout_s
        if self._probe_at is None:
            self._probe_at = now + timeout_s
        if now < self._probe_at:
            return None
        numbers = self.unconfirmed.overdue(now - timeout_s)
        if numbers is None:
            self._probe_at = (self.unconfirmed.oldest_sent_at() or now) + timeout_s
            return None
        self._probe_at = now + timeout_s
        return Probe(numbers, self.unconfirmed.lowest_unanswered)

    def _wake_at(self) -> float | None:
        times = [] if self._probe_at is None else [self._probe_at]
        if self._draft is not None:
            times.append(self._draft_due_at(self._draft))
        return min(times, default=None)

    # --- answers and disconnects ---

    def on_confirm(self, first: int, last: int, *, multiple: bool) -> list[Answered]:
        """Confirms `first` to `last`; if `multiple`, every unanswered number up to `last` (P2)."""
        return self._release(self.unconfirmed.answer(1 if multiple else first, last))

    def on_nack(self, first: int, last: int) -> list[Answered]:
        """Ends the publishes `first` to `last` with a nack (P8)."""
        return self._release(self.unconfirmed.answer(first, last))

    def on_return(self, numbers: Iterable[int], reason: UnroutableError) -> list[int]:
        """Keeps the reason of a return until its confirm (P7).

        A disconnect between return and confirm makes the broker route the message again: it is
        returned once more, or placed.

        Returns:
            The numbers whose return the application has not been given before (P3).
        """
        unanswered = self.unconfirmed.unanswered_among(numbers)
        self.returns.update(dict.fromkeys(unanswered, reason))
        news = [number for number in unanswered if number not in self._reported]
        self._reported.update(news)
        return news

    def on_unblocked(self) -> None:
        """Lets frames be sent again (P14); the blocked time does not count as overdue."""
        super().on_unblocked()
        self._probe_at = None

    def on_probed(self, missing: Iterable[Range]) -> None:
        """Queues publishes again that the broker never received (P10)."""
        self.unconfirmed.resend(missing)

    def on_disconnect(self) -> None:
        """Queues the unconfirmed frames again, for the next stream."""
        super().on_disconnect()
        self._probe_at = None
        self.returns.clear()  # a later confirm without a return says that the message was placed
        self.unconfirmed.on_disconnect()

    def drain(self) -> list[Answered]:
        """Removes and returns all unanswered rows; nothing is left to send."""
        self.close_draft()
        return self._release(self.unconfirmed.drain())

    def take_returns(self, numbers: Range) -> dict[int, UnroutableError]:
        """Removes and returns the return reasons of numbers that were just confirmed."""
        if not self._reported:
            return {}
        first, last = numbers
        self._reported.difference_update(_inside(self._reported, first, last))
        return {number: self.returns.pop(number) for number in _inside(self.returns, first, last)}

    def _release(self, answered: list[Answered]) -> list[Answered]:
        for frame, numbers, frame_done in answered:
            self.window.give_back(
                numbers.last - numbers.first + 1, frame.payload_bytes if frame_done else 0
            )
        return answered


def _inside(numbers: Collection[int], first: int, last: int) -> list[int]:
    """The numbers from `first` to `last`; costs what the smaller of the two costs."""
    if len(numbers) < last - first:
        return [each for each in numbers if first <= each <= last]
    return [each for each in range(first, last + 1) if each in numbers]
