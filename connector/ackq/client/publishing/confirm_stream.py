"""Moves the publishes of a publisher in confirm mode, and the application's waiting for answers.

Invariant: after `close` every publish has been told (P3).
"""

from __future__ import annotations

import time
from concurrent.futures import Future

from ackq.client.blocks import encoding
from ackq.client.connection.security import Security
from ackq.client.publishing.confirm_state import Flow
from ackq.client.publishing.notifications import OnBlocked, OnReturn, Teller
from ackq.client.publishing.receipts import Confirmation
from ackq.client.publishing.stream import Answer, Carrier
from ackq.client.publishing.unconfirmed import Destination, Frame
from ackq.client.ranges import Range
from ackq.errors import AckqError, BrokerUnavailableError
from ackq.v1 import publishing_pb2 as pb


class Pump(Carrier[Flow]):
    """Carries a `Flow`.

    Args:
        endpoint: As in Carrier, like the arguments that are not named here.
        on_return: Called with unroutable messages, before they are confirmed (P7).
        on_blocked: Called when the broker stops and goes on taking publishes (P14).
    """

    def __init__(
        self,
        endpoint: str,
        security: Security | None,
        flow: Flow,
        *,
        label: str,
        retry_total_ms: int,
        on_return: OnReturn | None,
        on_blocked: OnBlocked | None,
    ) -> None:
        super().__init__(
            endpoint,
            security,
            flow,
            mode=pb.PUBLISH_MODE_CONFIRM,
            label=label,
            retry_total_ms=retry_total_ms,
        )
        self._teller = Teller(self._turn, flow, on_return, on_blocked)
        self._handlers |= {
            "confirm": self._teller.confirmed,
            "nack": self._teller.nacked,
            "returned": self._teller.returned,
            "blocked": self._teller.blocked,
            "unblocked": self._teller.unblocked,
            "probed": self._on_probed,
        }

    # --- called by the application's threads ---

    @property
    def pending(self) -> int:
        """Messages without an answer."""
        return self._flow.window.messages

    def publish(
        self,
        destination: Destination,
        row: encoding.Row,
        payload_bytes: int,
        future: Future[Confirmation],
    ) -> None:
        """Adds a message; waits while the window is full (P14). Raises ClosedError."""
        self._refuse_fork()
        with self._turn:
            self._admit(1, payload_bytes)
            if self._flow.append(destination, row, payload_bytes, future, time.monotonic()):
                self._turn.notify_all()

    def publish_frame(self, ready: Frame) -> None:
        """Adds a frame; waits while the window is full (P14). Raises ClosedError."""
        self._refuse_fork()
        with self._turn:
            self._admit(ready.rows, ready.payload_bytes)
            self._flow.append_frame(ready)
            self._turn.notify_all()

    def flush(self, timeout_s: float | None) -> None:
        """Waits until the application knows the fate of everything added so far.

        Raises the first failure.
        """
        self._refuse_fork()
        self._refuse_callbacks("flush() and close()")
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._turn:
            self._flow.close_draft()
            self._turn.notify_all()
            barrier = self._flow.outstanding.next_number
            while self._teller.told_below < barrier:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise self._late(timeout_s)
                self._turn.wait(left_s)
            error = self._teller.take_first_error()
        if error is not None:
            raise error

    def close(self, timeout_s: float | None) -> None:
        """Takes no more, waits as `flush` does, and ends the threads.

        Repeating it does nothing, nor does it in a fork: what is unanswered is the parent's.
        """
        if self.inherited:
            return
        self._refuse_callbacks("flush() and close()")
        with self._turn:
            if self._flow.finishing and self._thread is None:
                return
            self._flow.finishing = True
            self._turn.notify_all()
        try:
            self.flush(timeout_s)
        finally:
            self._end()

    def _admit(self, rows: int, payload_bytes: int) -> None:
        while True:
            self._running()
            # The receiving thread opens the window: a callback that publishes must not wait for
            # itself.
            if self._flow.window.admits(rows, payload_bytes) or self._on_own_thread:
                return
            self._flow.close_draft()  # nothing can join it now
            self._turn.notify_all()
            self._turn.wait()

    def _late(self, timeout_s: float | None) -> BrokerUnavailableError:
        if self._outage is not None:
            return BrokerUnavailableError(
                f"{self._flow.window.messages} publishes had no answer within {timeout_s:g} s. "
                f"{self._outage.message}",
                endpoint=self._endpoint,
                cause=self._outage.fields.get("cause", self._outage.code),
            )
        why = f" It takes no publishes: {self._flow.blocked}." if self._flow.blocked else ""
        return BrokerUnavailableError(
            f"The broker at {self._endpoint} left {self._flow.window.messages} publishes "
            f"unanswered for {timeout_s:g} s.{why} Wait longer, or check its disk and load.",
            endpoint=self._endpoint,
            cause=self._flow.blocked or "no confirm",
        )

    # --- what the carrier asks ---

    def _lowest_unanswered(self) -> int:
        return self._flow.outstanding.lowest_unanswered

    def _window_messages(self) -> int:
        return self._flow.settings.window_messages

    def _on_cut(self) -> None:
        self._teller.cut()

    def _on_failure(self, error: AckqError) -> None:
        self._teller.failed(error)

    def _on_probed(self, answer: Answer) -> None:
        probed = answer.header.probed
        missing = list(map(Range, probed.missing_first, probed.missing_last))
        with self._turn:
            self._flow.on_probed(missing)
            self._turn.notify_all()
