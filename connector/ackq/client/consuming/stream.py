"""The stream of a channel: deliveries, settlements, resumption and renewal (C11, C17).

Invariant: after `end` no thread is left, and every settlement has its result.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable
from copy import copy
from typing import Final, NamedTuple

import grpc

from ackq import limits
from ackq.client.connection import calls
from ackq.client.connection.attempts import Attempts
from ackq.client.connection.broker import Broker
from ackq.client.connection.duplex import DuplexStream
from ackq.client.consuming.answers import Answer, ChannelAnswers
from ackq.client.consuming.inbox import Content, Inbox, RowSlice
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.state import ChannelState
from ackq.client.outcomes import When
from ackq.client.ranges import Range
from ackq.errors import (
    AckqError,
    ClosedError,
    InternalError,
    PreconditionFailedError,
    StaleDeliveryTagError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import ACCEPT, Disposition
from ackq.v1 import consuming_pb2 as pb

_log = logging.getLogger(__name__)

# Interval of reconnect attempts right after a disconnect: the broker does not wait long (C11).
# Later the waits grow with the time since the disconnect.
_RESUME_EVERY_S: Final = limits.RETRY_INITIAL_MS / 1000
_RESUME_PART: Final = 0.1
# The broker may notice a disconnect only at the heartbeat timeout; its grace begins then.
_RESUMABLE_S: Final = (limits.HEARTBEAT_MS + limits.CHANNEL_RESUME_MS) / 1000


class Handover(NamedTuple):
    """Messages to deliver, and the accept that must be answered before the delivery, if any."""

    taken: RowSlice
    accepted: Settlement | None


class Reconnected(NamedTuple):
    """Report of a channel's renewal: its messages are redelivered, and their tags are void (C17).

    Attributes:
        cause: Why the broker's channel had ended.
        away_s: Seconds without a broker, counted from when the client noticed the disconnect.
        redelivered: Number of requeued messages that were delivered or in flight.
        unknown: Number of these messages whose settlement has an unknown outcome: each is
            redelivered unless its settlement took effect.
    """

    cause: str
    away_s: float
    redelivered: int
    unknown: int


OnReconnect = Callable[[Reconnected], object]


class DeliveryStream(DuplexStream[ChannelState, pb.ConsumeRequest, Answer]):
    """The stream between one consuming channel and its broker.

    Args:
        broker: The broker, and how long to wait for its answer to the first open.
        state: The channel's state; accessed under `lock` only.
        label: Name of the channel that operators see.
        reconnect_timeout_ms: The channel fails after this time without a broker once it was open;
            0: it fails when the broker no longer has the channel (C17).
        on_reconnect: Called when the channel was renewed.

    Attributes:
        wakers: Called, under the lock, when the channel opens or fails, and when a settlement is
            answered.
    """

    name = "channel"
    thread_name = "ackq-channel"
    renew = "open"

    def __init__(
        self,
        broker: Broker,
        state: ChannelState,
        *,
        label: str,
        reconnect_timeout_ms: int = 0,
        on_reconnect: OnReconnect | None = None,
    ) -> None:
        super().__init__(broker, state)
        self.wakers: set[Callable[[], None]] = set()
        self._label = label
        self._channel_id = secrets.token_bytes(16)  # C11: identifies the channel across streams
        self._attempts = Attempts()
        self._renews = reconnect_timeout_ms > 0
        self._reconnect_s = reconnect_timeout_ms / 1000 if self._renews else _RESUMABLE_S
        self._on_reconnect = on_reconnect
        self._disconnected_at: float | None = None  # when the last open stream ended
        self._without_effect: AckqError | None = None  # why a settlement had no effect
        self._closing = False  # the application has closed the channel
        self._failure: AckqError | None = None
        self._unreported = False  # whether the application has not yet seen the failure
        self._answers = ChannelAnswers(self._changed, state, self.wakers)

    # --- called by the application's threads, under the lock ---

    @property
    def closing(self) -> bool:
        """Whether the application has closed the channel."""
        return self._closing

    @property
    def idle(self) -> bool:
        """Whether every settlement is answered and its future has the result."""
        return self._state.unsettled.idle and not self._answers.resolving

    def flushing(self) -> Callable[[], bool]:
        """Sends lazy accepts; returns whether the settlements so far have their results.

        The predicate is called under the lock, as this is.
        """
        self.check()
        self._state.unsettled.flush_lazy()
        self.nudge()
        left = [*self._answers.resolving, *self._state.unsettled.unanswered]

        def answered() -> bool:
            while left and left[-1].ended:
                left.pop()
            return not left

        return answered

    def ready(self) -> bool:
        """Whether the broker has opened the channel; starts the stream if it does not run.

        Raises ClosedError, or the error with which the channel failed.
        """
        self.check()
        if self._thread is None:
            self._start()
        return self._state.ever_opened

    def check(self, *, visible: bool = True) -> None:
        """Raises ClosedError or the channel's failure if it no longer accepts requests."""
        if self._failure is not None:
            self._unreported = self._unreported and not visible
            raise copy(self._failure)
        if self._closing:
            raise ClosedError(f"The channel to {self.endpoint} is closed; open a new one.")

    def nudge(self) -> None:
        """Wakes the sending thread, because the state may have something to send."""
        self._changed.notify_all()

    def take(
        self, inbox: Inbox, limit: int, when: When, *, visible: bool = True
    ) -> Handover | None:
        """Takes up to `limit` received messages, accepted as `when` says; None if none arrived.

        Args:
            inbox: Inbox of a consumer or a pull.
            limit: Maximum number of messages, at least 1.
            when: When the mode accepts the messages automatically (C10).
            visible: Whether the application sees a raised error.

        Raises:
            AckqError: The channel or its consumer ended; the class says why.
        """
        if self._closing or (self._failure is not None and not inbox.no_ack):
            self.check(visible=visible)  # the tags are no longer valid
        taken = self._state.take(inbox, limit)
        if taken is None:
            self.check(visible=visible)
            if inbox.ended is not None:
                raise copy(inbox.ended)
            if inbox.closed:
                raise ClosedError("The consumer is closed; start a new one.")
            return None
        future = None
        if when is not When.NOT:
            future = self._state.accept(taken.runs, when, time.monotonic())
        if self._state.wakes_sender():
            self.nudge()
        return Handover(taken, future)

    def take_one(self, inbox: Inbox) -> tuple[Content, int, int] | None:
        """Takes the next message without an accept; returns its frame, its row in it, its tag.

        Returns None if no message has arrived; `take` raises why none will arrive.
        """
        if self._closing or self._failure is not None:
            return None
        taken = self._state.take_one(inbox)
        if self._state.at_window and self._state.wakes_sender():
            self.nudge()
        return taken

    def settle(
        self, runs: list[Range], disposition: Disposition, *, visible: bool = True
    ) -> Settlement:
        """Settles messages; see `Unsettled.settle`.

        An unknown tag closes the channel (C2).
        """
        future = Settlement()
        self._settle(
            lambda: self._state.unsettled.settle(runs, disposition, future),
            future,
            visible=visible,
        )
        return future

    def settle_one(
        self,
        tag: int,
        disposition: Disposition,
        future: Settlement | None,
        *,
        visible: bool = True,
    ) -> None:
        """Settles one message; see `settle`."""
        # While the channel is being closed, a running callback may still settle its message.
        if self._failure is not None or self._state.finishing:
            self.check(visible=visible)
        try:
            self._state.unsettled.settle_one(tag, disposition, future)
        except UnknownDeliveryTagError as error:
            self.fail(copy(error))
            raise
        except StaleDeliveryTagError as error:
            self._had_no_effect(error, future)
        if self._state.wakes_sender():
            self.nudge()

    def settle_up_to(self, tag: int, disposition: Disposition) -> Settlement:
        """Settles all unacked messages up to a tag; see `Unsettled.settle_up_to`, and `settle`."""
        future = Settlement()
        self._settle(lambda: self._state.unsettled.settle_up_to(tag, disposition, future), future)
        return future

    def accept(self, tag: int, when: When) -> None:
        """Accepts a message whose callback returned, now or lazily as `when` says."""
        if when is When.NOW:
            self.settle_one(tag, ACCEPT, None, visible=False)
        elif when is When.LAZILY:
            runs = [Range(tag, tag)]
            self._settle(
                lambda: self._state.accept(runs, when, time.monotonic()), None, visible=False
            )

    def fail(self, error: AckqError) -> None:
        """Ends the stream for an error of the application, after its settlements took effect.

        The unsettled messages are requeued (C12).
        """
        self._failure = self._failure or error
        self._state.finishing = True
        self._wake_all()
        self.nudge()

    def take_without_effect(self) -> AckqError | None:
        """Returns and clears why a settlement since the last call had no effect, if any (C17)."""
        error, self._without_effect = self._without_effect, None
        return error

    def _had_no_effect(self, error: AckqError, future: Settlement | None) -> None:
        self._without_effect = self._without_effect or copy(error)
        if future is not None:
            future.fail(error)

    def _settle(
        self, settle: Callable[[], object], future: Settlement | None, *, visible: bool = True
    ) -> None:
        # While the channel is being closed, a running callback may still settle its message.
        if self._failure is not None or self._state.finishing:
            self.check(visible=visible)
        try:
            settle()
        except UnknownDeliveryTagError as error:
            self.fail(copy(error))
            raise
        except StaleDeliveryTagError as error:
            self._had_no_effect(error, future)
        if self._state.wakes_sender():
            self.nudge()

    # --- the end; not under the lock ---

    def begin_close(self) -> bool:
        """Refuses new calls and wakes the waiting ones; False if the close had already begun."""
        self.refuse_own_thread()
        with self.lock:
            first, self._closing = not self._closing, True
            self._wake_all()
        return first

    def finish(self) -> None:
        """Has the sender send all settlements, then half-close the stream."""
        with self.lock:
            self._state.finishing = True
            self._state.unsettled.flush_lazy()
            self.nudge()

    @property
    def finished(self) -> bool:
        """Whether no settlement waits for an answer: each is answered or was given up."""
        return self._thread is None or self.idle

    def end(self) -> AckqError | None:
        """Ends the thread; gives the broker time to end the stream unless answers are missing.

        Returns the error with which the channel failed, unless the application has seen it.
        """
        self._end(answered=self.idle and self._state.opened)
        with self.lock:
            failure, unreported, self._unreported = self._failure, self._unreported, False
        return copy(failure) if failure is not None and unreported else None

    def _on_abandon(self) -> None:
        self._closing = True
        self._wake_all()

    def refuse_own_thread(self) -> None:
        """Raises PreconditionFailedError if the caller is the stream's own thread."""
        if self._on_own_thread:
            raise PreconditionFailedError(
                "This call waits for the thread that runs this callback; make it from another "
                "thread."
            )

    def _wake_all(self) -> None:
        for wake in (*self.wakers, *(inbox.wake for inbox in self._state.inboxes)):
            wake()

    # --- the receiving thread ---

    def _connect(self, channel: grpc.Channel, call_number: int) -> calls.AnswerStream[Answer]:
        self._state.on_frame(time.monotonic())
        opening = pb.ChannelOpen(
            channel_id=self._channel_id,
            window_messages=self._state.settings.window_messages,
            label=self._label,
            attempt=self._attempts.new(),
        )
        requests = self._requests(call_number, pb.ConsumeRequest(open=opening))
        return calls.consume(channel, requests)

    def _on_answer(self, answer: Answer) -> None:
        if self._answers.take(answer):
            return
        if self._disconnected_at is None:
            raise InternalError(
                f"The broker at {self.endpoint} opened the channel again without a disconnect. "
                "Check that client and broker have the same version."
            )
        if not self._renews:
            raise self._gone()
        self._renew(answer.header.opened)

    def _renew(self, opened: pb.ChannelOpened) -> None:
        """Continues with a new channel of the broker, which requeued unsettled messages (C17)."""
        assert self._disconnected_at is not None, "a channel is renewed after a disconnect"
        now = time.monotonic()
        with self.lock:
            held = self._held
            left = self._state.renew(opened, now)
            self._answers.resolving = left
        held += sum(each.messages - each.answered for each in left)
        unknown = sum(each.messages - each.answered for each in left if each.sent)
        cause = self._cause
        renewed = f"The channel to {self.endpoint} was renewed before"
        unsent = StaleDeliveryTagError(
            f"{renewed} this settlement took effect ({cause}); its messages are delivered again "
            "under other tags.",
            endpoint=self.endpoint,
            cause=cause,
        )
        unanswered = StaleDeliveryTagError(
            f"{renewed} its answer ({cause}).", endpoint=self.endpoint, cause=cause
        )
        failures = [each.fail(unanswered if each.sent else unsent) for each in left]
        with self.lock:
            self._answers.resolving = []
            if failures:
                self._without_effect = self._without_effect or failures[0]
            self._wake_all()
            self.nudge()
        told = Reconnected(cause, now - self._disconnected_at, held, unknown)
        _log.warning(
            "The channel to %s was renewed after %.1f s (%s): %d messages were put back and are "
            "delivered again%s",
            self.endpoint,
            told.away_s,
            cause,
            told.redelivered,
            f"; for {unknown} of them it is unknown if they were settled before" if unknown else "",
        )
        if self._on_reconnect is not None:
            try:
                self._on_reconnect(told)
            except BaseException:  # noqa: BLE001 - what an application raises is its own
                _log.exception("A callback of the channel raised an exception")

    def _on_disconnect(self) -> None:
        now = time.monotonic()
        with self.lock:
            if self._state.opened:
                self._disconnected_at = now
            self._state.on_disconnect(now)
            self.nudge()

    def _reconnect_wait_s(self) -> float | None:
        if self._disconnected_at is None:
            return super()._reconnect_wait_s()
        away_s = time.monotonic() - self._disconnected_at
        if away_s >= self._reconnect_s:
            return None
        wait_s = min(max(_RESUME_EVERY_S, away_s * _RESUME_PART), limits.RETRY_MAX_MS / 1000)
        return min(wait_s * (1 - random.random() / 2), self._reconnect_s - away_s)

    def _may_reconnect(self, error: AckqError) -> bool:
        # A broker that closed the channel because its client was silent may open a new one.
        closed = self._renews and self._disconnected_at is not None and type(error) is ClosedError
        if closed:
            self._leave_connection()  # the data that this client sent did not arrive
        # Fenced by an open of an earlier call that reached the broker late: reconnect. Any other
        # fence is of another process that has the channel.
        return closed or self._attempts.fenced(error) or super()._may_reconnect(error)

    def _given_up(self, error: AckqError) -> AckqError:
        return super()._given_up(error) if self._disconnected_at is None else self._gone()

    @property
    def _held(self) -> int:
        """Number of unsettled messages of the broker's channel; read it under the lock."""
        return len(self._state.unsettled.unacked) + len(self._state.unsettled.unread)

    @property
    def _cause(self) -> str:
        """Why the last call of the stream ended."""
        assert self._outage is not None, "a channel ends after a disconnect"
        return self._outage.fields.get("cause", self._outage.message).rstrip(".")

    def _gone(self) -> AckqError:
        """The error for a channel that was disconnected for too long (C11, C17)."""
        with self.lock:
            unacked = self._held
        waits = f"{self._reconnect_s:g} s" if self._renews else "the broker waits"
        return ClosedError(
            f"The channel to {self.endpoint} was cut for longer than {waits} ({self._cause}). What "
            f"it held is put back and delivered again (messages: {unacked}); the tags are void. "
            "Open a new channel.",
            endpoint=self.endpoint,
            cause=self._cause,
            unacked=unacked,
        )

    def _on_end(self, error: AckqError | None) -> None:
        """Records the failure of the channel and fails every settlement without an answer."""
        error = error or ClosedError(
            f"The channel to {self.endpoint} is closed.", endpoint=self.endpoint
        )
        with self.lock:
            wanted = isinstance(error, ClosedError) and (self._closing or self._state.done)
            left = self._state.unsettled.drain()
            if self._failure is None:
                self._failure = error
                self._unreported = not wanted or bool(left)
            self._wake_all()
        for settlement in left:
            settlement.fail(error)
        with self.lock:
            self._wake_all()
