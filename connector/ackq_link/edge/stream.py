"""The gRPC stream of a link to the edge: its opening, its answers, its end.

Invariant: after `join` no thread is left, and every caller that waits has an answer or an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from ackq.client.connection import calls, errors, retry
from ackq.client.connection.attempts import Attempts
from ackq.client.connection.broker import Broker
from ackq.client.connection.duplex import DuplexStream
from ackq.errors import AckqError, AlreadyHeldError, ClosedError
from ackq.v1 import links_pb2 as pb
from ackq.wire import frame
from ackq_link.edge.state import LinkState, SendHeartbeat, SendPart, SendSubscribe


class LinkStream(DuplexStream[LinkState, bytes, pb.LinkResponse]):
    """The stream of one process that runs a link.

    Args:
        broker: The edge, and how long to retry without it.
        opening: The first request of each call.

    Attributes:
        state: The state machine; used under `lock` only.
        failure: Why the stream has ended; None while it has not.
        wakers: Called, under the lock, after each change that the application may wait for.
    """

    name = "link"
    thread_name = "ackq-link"

    def __init__(self, broker: Broker, opening: pb.LinkOpen) -> None:
        self.state = LinkState()
        super().__init__(broker, self.state)
        self.failure: AckqError | None = None
        self.wakers: set[Callable[[], None]] = set()
        self._opening = opening
        self._attempts = Attempts()
        self._held = retry.HolderBackoff()

    # --- called by the application's threads ---

    def begin(self) -> None:
        """Connects, and reconnects from now on."""
        self.refuse_fork()
        with self.lock:
            self._start()

    @property
    def outage(self) -> AckqError | None:
        """Why the last call to the edge ended; None while one is open."""
        return None if self.state.connected else self._outage

    def changed(self) -> None:
        """Wakes the sender; under the lock."""
        self._changed.notify_all()

    def check(self) -> None:
        """Raises the failure of a stream that has ended; ClosedError when it was closed."""
        self.refuse_fork()
        if self.failure is not None:
            raise self.failure
        if self.state.finishing:
            raise self._closed()

    def end(self) -> None:
        """Half-closes, which shows the edge at once that nobody runs the link; ends the thread.

        Unanswered requests fail. Repeating it does nothing.
        """
        if self.inherited:
            return
        with self.lock:
            self.state.fail(self._closed())
            self._wake()
        self._end(answered=True)

    def _closed(self) -> ClosedError:
        return ClosedError(f"The link to {self.endpoint} is closed; make a new one.")

    def _on_abandon(self) -> None:
        self.state.fail(self._closed())
        self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for wake in self.wakers:
            wake()

    # --- the stream's own threads ---

    def _connect(
        self, channel: grpc.Channel, call_number: int
    ) -> calls.AnswerStream[pb.LinkResponse]:
        self._opening.attempt = self._attempts.new()
        header = pb.LinkHeader(open=self._opening)
        opening = frame.encode(header.SerializeToString(), b"")
        return calls.link(channel, self._requests(call_number, opening))

    def _encode(self, action: Any) -> bytes | None:
        if isinstance(action, SendPart):
            part, subscription, lowest, proof, repeats_end = action
            return part.encoded(subscription, lowest, proof, repeats_end=repeats_end)
        if isinstance(action, SendHeartbeat):
            beat = pb.LinkHeartbeat(
                subscription=action.subscription,
                proven=action.proof.proven,
                proven_number=action.proof.number,
                report=action.report,
            )
            header = pb.LinkHeader(heartbeat=beat)
        else:
            assert isinstance(action, SendSubscribe)
            header = pb.LinkHeader(subscribe=pb.LinkSubscribe())
        return frame.encode(header.SerializeToString(), b"")

    def _on_answer(self, answer: pb.LinkResponse) -> None:
        kind = answer.WhichOneof("kind")
        state = self.state
        with self.lock:
            if kind == "opened":
                state.on_opened(answer.opened)
                self._outage = None
                self._held.reset()
            elif kind == "stored":
                state.on_stored(answer.stored, time.monotonic())
            elif kind == "permits":
                state.on_permits(answer.permits)
            elif kind == "subscribed":
                state.on_subscribed(answer.subscribed.subscription)
            elif kind == "state":
                state.on_state(answer.state)
            # A later version of the broker may send other kinds, which this client does not need.
            self._wake()
        if kind != "opened":
            self._backoff.reset()  # an open alone is no progress: the next request may be refused

    def _on_disconnect(self) -> None:
        with self.lock:
            self.state.on_disconnect()
            self._wake()

    def _may_reconnect(self, error: AckqError) -> bool:
        if isinstance(error, AlreadyHeldError):
            # After the first open it means that another process took the link over (L1).
            return self.state.opened is None
        # Fenced by an open of an earlier call that came late; else another process runs the link.
        return self._attempts.fenced(error) or errors.is_transient(error)

    def _reconnect_wait_s(self) -> float | None:
        if isinstance(self._outage, AlreadyHeldError):
            return self._held.next_wait_s(self._outage)
        # The time that a holder is silent does not count while the edge is down (S3).
        self._held.reset()
        return super()._reconnect_wait_s()

    def _given_up(self, error: AckqError) -> AckqError:
        return error if isinstance(error, AlreadyHeldError) else super()._given_up(error)

    def _on_end(self, error: AckqError | None) -> None:
        with self.lock:
            if error is not None and not self.state.finishing:
                self.failure = error
            self.state.fail(error or self._closed())
            self._wake()
