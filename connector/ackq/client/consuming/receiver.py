"""Receives and settles messages for blocking and asynchronous consumers. Never waits.

Invariant: a message that was accepted for the application is delivered to it, even if the call
that requested it was interrupted (C10).
"""

from __future__ import annotations

import logging
from bisect import insort

import pyarrow as pa

from ackq.client.consuming.inbox import RowSlice
from ackq.client.consuming.message import Message
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.state import ChannelState, Pull, Subscription
from ackq.client.consuming.stream import DeliveryStream, Handover
from ackq.client.outcomes import (
    AFTER_CALLBACK,
    AT_RECEIVE,
    BEFORE_CALLBACK,
    AcknowledgeMode,
    When,
)
from ackq.client.ranges import Range
from ackq.errors import (
    AckqError,
    OutcomeNotSupportedError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StaleDeliveryTagError,
)
from ackq.outcomes import ACCEPT, Disposition, Outcome

_log = logging.getLogger(__name__)


class Settler:
    """Settles messages of one consumer, or of the pulls of one channel.

    Args:
        stream: The channel's stream.
        state: The channel's state; accessed under the stream's lock.
        mode: Acknowledge mode; only CLIENT lets the application settle its messages.
        outcomes: The declared outcomes (C5).
    """

    def __init__(
        self,
        stream: DeliveryStream,
        state: ChannelState,
        mode: AcknowledgeMode,
        outcomes: frozenset[Outcome],
    ) -> None:
        self.stream = stream
        self.mode = mode
        self.outcomes = outcomes
        self._state = state
        self._free = mode is AcknowledgeMode.CLIENT  # the application may accept without a check

    def settle(self, runs: list[Range], disposition: Disposition) -> Settlement:
        """Settles unacked messages; see `Message.accept`."""
        self.stream.refuse_fork()
        with self.stream.lock:
            self._check(runs[-1].last, disposition.outcome)
            return self.stream.settle(runs, disposition)

    def settle_one(self, tag: int, disposition: Disposition) -> Settlement:
        """Settles one unacked message; see `Message.accept`."""
        stream = self.stream
        stream.refuse_fork()
        future = Settlement()
        with stream.lock:
            if not self._free or disposition is not ACCEPT:
                self._check(tag, disposition.outcome)
            stream.settle_one(tag, disposition, future)
        return future

    def settle_up_to(self, tag: int) -> Settlement:
        """Accepts all unacked messages up to a tag; see `ChannelBase.acknowledge`."""
        self.stream.refuse_fork()
        with self.stream.lock:
            self._check(tag, Outcome.ACCEPTED)
            return self.stream.settle_up_to(tag, ACCEPT)

    def belongs_to(self, channel: object) -> bool:
        """Whether `channel` is the stream on which the messages arrived."""
        return channel is self.stream

    def has(self, tag: int) -> bool:
        """Whether a message is unacked: delivered and not settled; call it under the lock."""
        return tag in self._state.unsettled.unacked

    def _check(self, tag: int, outcome: Outcome) -> None:
        if tag <= self._state.unsettled.void:
            return  # a settlement of a void tag has no effect, whatever its outcome (C17)
        if self.mode is not AcknowledgeMode.CLIENT and not self.has(tag):
            raise PreconditionFailedError(
                f"Mode {self.mode.name} has settled message {tag} by itself. To settle messages "
                "yourself, consume in mode CLIENT.",
                delivery_tag=tag,
                mode=self.mode.value,
            )
        if outcome not in self.outcomes:
            raise OutcomeNotSupportedError(
                f"Required Settlement Outcome Not Supported: the consumer did not declare "
                f"'{outcome.value}'. Name it in `outcomes` when you start the consumer; message "
                f"{tag} is still to be settled.",
                delivery_tag=tag,
                outcome=outcome.value,
            )


class Receiver:
    """Takes the messages that have arrived for one consumer.

    Args:
        settler: The consumer's settler.
        state: The channel's state.
        inbox: The consumer's subscription.
        columns: Names of the columns of batches.

    Attributes:
        after_callback: When the mode accepts the message of a callback that returned.
    """

    def __init__(
        self,
        settler: Settler,
        state: ChannelState,
        inbox: Subscription,
        columns: tuple[str, ...],
    ) -> None:
        self.settler = settler
        self.inbox = inbox
        self._state = state
        self._columns = columns
        self._undelivered: list[Handover] = []  # in the order of their tags
        self._lean = AT_RECEIVE[settler.mode] is When.NOT
        self._lean_callback = BEFORE_CALLBACK[settler.mode] is When.NOT
        self.after_callback = AFTER_CALLBACK[settler.mode]

    @property
    def ended(self) -> bool:
        """Whether the application closed the consumer or its channel."""
        return self.inbox.closed or self.settler.stream.closing

    def next_message(self, *, callback: bool = False) -> Message | None:
        """The next message that needs no accept before delivery; None otherwise: use `poll`."""
        if self._undelivered or not (self._lean_callback if callback else self._lean):
            return None
        stream = self.settler.stream
        stream.refuse_fork()
        with stream.lock:
            taken = stream.take_one(self.inbox)
        return None if taken is None else Message(*taken, self.settler)

    def poll(self, limit: int) -> Handover | None:
        """The next messages, or None; raises why none will arrive. Not under the lock."""
        stream = self.settler.stream
        stream.refuse_fork()
        with stream.lock:
            if self._undelivered:
                return self._take_undelivered(limit)
            return stream.take(self.inbox, limit, AT_RECEIVE[self.settler.mode])

    def poll_for_callback(self) -> Handover | None:
        """The next message for the callback, or None; raises why none will arrive."""
        stream = self.settler.stream
        with stream.lock:
            return stream.take(self.inbox, 1, BEFORE_CALLBACK[self.settler.mode], visible=False)

    def return_undelivered(self, given: Handover) -> None:
        """Keeps messages for the next call after a call was interrupted before their delivery."""
        with self.settler.stream.lock:
            insort(self._undelivered, given, key=_first_tag)
            self.inbox.wake()  # another call may wait

    def deliverable(self, error: AckqError, *, callback: bool = False) -> bool:
        """Whether to deliver messages although their automatic accept failed.

        False: the caller asks for the next messages. In AUTO, messages whose accept has an unknown
        outcome are delivered: at least once. PRE is at most once: `receive` raises, and a consumer
        with a callback continues without them. Messages that were requeued because their channel
        was renewed are redelivered (C17). Otherwise raises the error.
        """
        if isinstance(error, StaleDeliveryTagError):
            return False
        if not isinstance(error, OutcomeUnknownError):
            raise error
        if self.settler.mode is not AcknowledgeMode.PRE:
            return True
        if not callback:
            raise error
        _log.warning(
            "A message of queue '%s' is not given to the callback of mode PRE: %s",
            self.inbox.request.queue,
            error,
        )
        return False

    def message(self, taken: RowSlice) -> Message:
        """A message for one taken row."""
        return Message(taken.content, taken.row, taken.runs[0].first, self.settler)

    def batch(self, taken: RowSlice) -> pa.RecordBatch:
        """The taken rows as an Arrow batch with the consumer's columns."""
        return taken.content.batch(self._columns, taken.row, taken.rows)

    def set_prefetch(self, messages: int) -> None:
        """Changes the consumer's bound on unacked messages; 0 means unlimited (C8)."""
        stream = self.settler.stream
        stream.refuse_fork()
        with stream.lock:
            stream.check()
            self._state.set_prefetch(self.inbox, messages)
            stream.nudge()

    def close(self) -> None:
        """Ends the consumer; its unread messages are requeued."""
        stream = self.settler.stream
        if stream.inherited:
            return
        with stream.lock:
            self._state.unsubscribe(self.inbox)
            self.inbox.wake()
            stream.nudge()

    def _take_undelivered(self, limit: int) -> Handover:
        kept = self._undelivered.pop(0)
        if kept.taken.rows <= limit:
            return kept
        head, tail = kept.taken.split(limit)
        self._undelivered.insert(0, Handover(tail, kept.accepted))
        return Handover(head, kept.accepted)


class PendingPull:
    """A pull that waits for its messages (C9)."""

    def __init__(self, settler: Settler, state: ChannelState, inbox: Pull) -> None:
        self._settler = settler
        self._state = state
        self.inbox = inbox

    def poll(self) -> list[Message] | None:
        """The messages once the pull is complete, None before; raises why the channel ended."""
        stream = self._settler.stream
        with stream.lock:
            if not self.inbox.complete:
                stream.check()
                return None
            messages: list[Message] = []
            while self.inbox.rows:
                got = self._state.take(self.inbox, 1)
                assert got is not None, "unread rows can be taken"
                messages.append(Message(got.content, got.row, got.runs[0].first, self._settler))
            stream.nudge()
        return messages

    def cancel(self) -> None:
        """Ends the pull; messages that still arrive for it are released."""
        with self._settler.stream.lock:
            self._state.cancel_pull(self.inbox)
            self._settler.stream.nudge()


def _first_tag(given: Handover) -> int:
    return given.taken.runs[0].first
