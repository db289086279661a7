"""The stream of a publisher in confirm mode: backpressure, confirms, `flush` and `close`.

Invariant: after `close` every publish has its result (P3).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Unpack

import pyarrow as pa

from ackq.client.blocks import encoding
from ackq.client.connection.broker import Broker
from ackq.client.publishing.confirm_state import ConfirmState
from ackq.client.publishing.confirmations import ConfirmationFuture
from ackq.client.publishing.notifications import Answer, PublishNotifier
from ackq.client.publishing.receipts import Receipt
from ackq.client.publishing.stream import PublishStream, StreamArguments
from ackq.client.publishing.unconfirmed import Destination, PublishFrame
from ackq.client.ranges import Range
from ackq.errors import AckqError, BrokerUnavailableError
from ackq.v1 import publishing_pb2 as pb


class SmallBatch(NamedTuple):
    """An Arrow batch that shares a frame with others; `rows` is its row count."""

    destination: Destination
    batch: pa.RecordBatch
    routing_key: str
    rows: int
    payload_bytes: int
    receipt: Receipt


class ConfirmStream(PublishStream[ConfirmState]):
    """The stream of a `ConfirmState`; for the arguments see `PublishStream`.

    Attributes:
        owner: Returns the publisher, or None. The stream keeps it alive while a publish is
            unanswered, so that `Publisher(endpoint).publish(body).result()` gets its confirm.
    """

    mode = pb.PUBLISH_MODE_CONFIRM

    def __init__(
        self,
        broker: Broker,
        state: ConfirmState,
        **arguments: Unpack[StreamArguments],
    ) -> None:
        super().__init__(broker, state, **arguments)
        self.owner: Callable[[], object] = lambda: None
        self._held: object = None
        self._notifier = PublishNotifier(self._conditions, state, self._on_return)
        self._handlers |= {
            "confirm": self._notifier.confirmed,
            "nack": self._notifier.nacked,
            "returned": self._notifier.returned,
            "probed": self._on_probed,
        }

    # --- called by the application's threads ---

    def publish(
        self, destination: Destination, message: encoding.Message, payload_bytes: int
    ) -> ConfirmationFuture:
        """Adds a message; waits while the window is full (P14). Raises ClosedError."""
        self.refuse_fork()
        with self.lock:
            self._admit(1, payload_bytes)
            return self._append(destination, message, payload_bytes)

    def publish_nowait(
        self, destination: Destination, message: encoding.Message, payload_bytes: int
    ) -> ConfirmationFuture | None:
        """Adds a message; returns None if the window is full (P14). Raises ClosedError."""
        self.refuse_fork()
        with self.lock:
            if not self._admits(1, payload_bytes):
                return None
            return self._append(destination, message, payload_bytes)

    def publish_part(self, part: SmallBatch | PublishFrame) -> None:
        """Adds a part of a batch; waits while the window is full (P14). Raises ClosedError."""
        self.refuse_fork()
        with self.lock:
            self._admit(part.rows, part.payload_bytes)
            self._append_part(part)

    def publish_part_nowait(self, part: SmallBatch | PublishFrame) -> bool:
        """Adds a part of a batch; returns False if the window is full (P14). Raises ClosedError."""
        self.refuse_fork()
        with self.lock:
            admitted = self._admits(part.rows, part.payload_bytes)
            if admitted:
                self._append_part(part)
        return admitted

    def has_room(self) -> bool:
        """Whether the window has room for a message (P14). Raises ClosedError."""
        self.refuse_fork()
        with self.lock:
            return self._admits(1, 0)

    def _append(
        self, destination: Destination, message: encoding.Message, payload_bytes: int
    ) -> ConfirmationFuture:
        self._held = self._held or self.owner()
        future = ConfirmationFuture()
        now = time.monotonic()
        if self._state.append(destination, message, payload_bytes, future, now):
            self._changed.notify_all()
        return future

    def _append_part(self, part: SmallBatch | PublishFrame) -> None:
        self._held = self._held or self.owner()
        if isinstance(part, PublishFrame):
            self._state.append_frame(part)
            self._changed.notify_all()
        elif self._state.append_batch(
            part.destination,
            part.batch,
            part.routing_key,
            part.payload_bytes,
            part.receipt,
            time.monotonic(),
        ):
            self._changed.notify_all()

    def flush(self, timeout_s: float | None) -> None:
        """Waits until the application has the result of every publish added so far.

        Raises the first failure.
        """
        self.refuse_fork()
        self._refuse_callbacks("flush() and close()")
        answered = self.flushing()
        with self.lock:
            self._wait_until(answered, timeout_s)
        self.raise_first_error()

    def flushing(self) -> Callable[[], bool]:
        """Queues the draft; returns a predicate that is true once everything so far is answered.

        The predicate is called under the lock.
        """
        self.refuse_fork()
        with self.lock:
            self._state.close_draft()
            self._changed.notify_all()
            barrier = self._state.unconfirmed.next_number
        return lambda: self._notifier.answered_below >= barrier

    def raise_first_error(self) -> None:
        """Raises the first failure since the last call, if any."""
        with self.lock:
            error = self._notifier.take_first_error()
        if error is not None:
            raise error

    def close(self, timeout_s: float | None) -> None:
        """Refuses new publishes, waits as `flush` does, and ends the threads.

        A repeated close does nothing, nor does one in a fork, whose parent has the unanswered
        publishes.
        """
        if self.inherited:
            return
        self._refuse_callbacks("flush() and close()")
        if self.begin_close():
            try:
                self.flush(timeout_s)
            finally:
                self.end()

    def begin_close(self) -> bool:
        """Refuses new publishes; returns False if the stream is closed already."""
        with self.lock:
            if self._state.finishing and self._thread is None:
                return False
            self._state.finishing = True
            self._conditions.notify_all()
        return True

    def end(self) -> None:
        """Ends the threads; unanswered publishes fail."""
        self._end(answered=self._state.idle)

    @property
    def wakers(self) -> set[Callable[[], None]]:
        """Functions that are called, under the lock, when an application's wait may be over."""
        return self._conditions.answered.wakers

    def late(self, timeout_s: float | None) -> BrokerUnavailableError:
        """The error of a flush that timed out."""
        return self._late(timeout_s)

    def _late(self, timeout_s: float | None) -> BrokerUnavailableError:
        if self._outage is not None:
            return BrokerUnavailableError(
                f"{self._state.window.messages} publishes had no answer within {timeout_s:g} s. "
                f"{self._outage.message}",
                endpoint=self.endpoint,
                cause=self._outage.fields.get("cause", self._outage.code),
            )
        why = f" It blocks publishers: {self._state.blocked}." if self._state.blocked else ""
        return BrokerUnavailableError(
            f"The broker at {self.endpoint} left {self._state.window.messages} publishes "
            f"unanswered for {timeout_s:g} s.{why} Wait longer, or check its disk and load.",
            endpoint=self.endpoint,
            cause=self._state.blocked or "no confirm",
        )

    # --- called by the stream ---

    def _on_answer(self, answer: Answer) -> None:
        super()._on_answer(answer)
        if self._held is not None and self._state.idle:
            self._let_go()

    def _let_go(self) -> None:
        """Releases the publisher if all is answered: it may be garbage-collected on return."""
        with self.lock:
            _held, self._held = self._held, None if self._state.idle else self._held

    def _on_failure(self, error: AckqError) -> None:
        self._notifier.failed(error)
        self._held = None

    def _on_probed(self, answer: Answer) -> None:
        probed = answer.header.probed
        missing = list(map(Range, probed.missing_first, probed.missing_last))
        with self.lock:
            self._state.on_probed(missing)
            self._changed.notify_all()
