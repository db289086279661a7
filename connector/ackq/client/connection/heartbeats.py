"""A stream that sends a request at once and then one per interval, and reconnects by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Self, TypeVar

from ackq import limits
from ackq.client.connection.broker import Broker
from ackq.client.connection.duplex import DuplexStream, Send, Wait

Q = TypeVar("Q")
A = TypeVar("A")


class Heartbeats(Generic[Q]):
    """State machine of a stream that sends a heartbeat per interval.

    Args:
        request: Makes the request of a heartbeat, under the lock of the stream.
    """

    done = False

    def __init__(self, request: Callable[[], Q]) -> None:
        self.interval_s = limits.HEARTBEAT_SEND_MS / 1000
        self._request = request
        self._sent_at: float | None = None  # on the present stream

    def next_action(self, now: float) -> Send[Q] | Wait:
        """The next heartbeat if it is due, else a wait until it is."""
        if self._sent_at is not None and now < self._sent_at + self.interval_s:
            return Wait(self._sent_at + self.interval_s)
        self._sent_at = now
        return Send(self._request())

    def on_disconnect(self) -> None:
        """Makes a heartbeat due at once on the next stream."""
        self._sent_at = None


class HeartbeatStream(DuplexStream[Heartbeats[Q], Q, A]):
    """A stream that shows the broker that this process is alive; it reconnects without limit.

    Args:
        broker: The broker to connect to; its limit of retries does not apply.
        request: Makes the request of a heartbeat, on another thread.
    """

    def __init__(self, broker: Broker, request: Callable[[], Q]) -> None:
        super().__init__(replace(broker, retry_ms=None), Heartbeats(request))
        with self.lock:
            self._start()

    def close(self) -> None:
        """Ends the stream and the thread."""
        self.abandon()
        self.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_answer(self, answer: A) -> None:  # noqa: ARG002 - any answer is progress
        self._backoff.reset()

    def _on_disconnect(self) -> None:
        with self.lock:
            self._state.on_disconnect()
