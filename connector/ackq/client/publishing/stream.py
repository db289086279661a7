"""The stream of a publisher, in either mode: its publisher id, its open, its answers.

Invariant: after `join` no thread is left, and the application knows the result of every publish.
"""

from __future__ import annotations

import os
import secrets
import socket
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

import grpc

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.connection import calls
from ackq.client.connection.duplex import DuplexStream
from ackq.client.connection.security import Security
from ackq.client.publishing import requests
from ackq.errors import AckqError, ClosedError, PreconditionFailedError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame

Answer = frame.Frame[pb.PublishAnswer]


class PublishState(Protocol):
    """What both modes' state machines have."""

    finishing: bool
    blocked: str | None  # why the broker takes no publishes (P14)

    @property
    def idle(self) -> bool:
        """Whether nothing has to be sent or answered."""
        ...

    @property
    def done(self) -> bool:
        """Whether it is idle and nothing will follow."""
        ...

    def next_action(self, now: float, /) -> requests.Action:
        """What the sending thread does now."""
        ...

    def on_opened(self) -> None:
        """Lets the state send: the stream is open."""
        ...

    def on_blocked(self, reason: str) -> None:
        """Holds publishes back: the broker takes none (P14)."""
        ...

    def on_unblocked(self) -> None:
        """Lets publishes be sent again (P14)."""
        ...

    def on_disconnect(self) -> None:
        """Prepares for the next stream, without the answers that are missing."""
        ...


S = TypeVar("S", bound=PublishState)


class PublishStream(DuplexStream[S, bytes, Answer]):
    """The stream of one publisher.

    Args:
        endpoint: Where the broker is.
        security: Transport security.
        state: The publisher's state.
        label: Shown to operators; empty: host and process id.
        retry_total_ms: Fail after so long without a broker while something is unanswered.

    Raises:
        InvalidArgumentError: A bad address, certificate file or label.
    """

    name = "publisher"
    thread_name = "ackq-publisher"
    mode: ClassVar[pb.PublishMode]  # that its streams open in (P1)

    def __init__(
        self,
        endpoint: str,
        security: Security | None,
        state: S,
        *,
        label: str,
        retry_total_ms: int,
    ) -> None:
        super().__init__(endpoint, security, state, retry_total_ms=retry_total_ms)
        encoding.text_bytes("label", label)
        self._label = label or f"{socket.gethostname()}:{os.getpid()}"
        self._publisher_id = secrets.token_bytes(16)  # P10: never chosen by a user
        self._known = False  # to the broker: a stream was opened
        self.max_message_bytes = limits.MAX_MESSAGE_BYTES  # until the broker announces less
        self._failure: AckqError | None = None  # why the publisher has ended
        self._handlers: dict[str, Callable[[Answer], None]] = {"opened": self._on_opened}

    # --- what the modes do ---

    @property
    @abstractmethod
    def pending(self) -> int:
        """Messages whose result the application does not know."""

    @abstractmethod
    def _lowest_unanswered(self) -> int:
        """The lowest number without an answer, for an open (P10); under the lock."""

    @abstractmethod
    def _window_messages(self) -> int:
        """The publisher's window, for an open (P11)."""

    @abstractmethod
    def _on_failure(self, error: AckqError) -> None:
        """Fails what is unanswered: the publisher has ended."""

    # --- called by the application's threads ---

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes at the moment, None when it does (P14)."""
        return self._state.blocked

    def _refuse_callbacks(self, calls_refused: str) -> None:
        if self._on_own_thread:
            raise PreconditionFailedError(
                f"{calls_refused} wait for the thread that runs this callback; "
                "call them from another thread."
            )

    def _running(self) -> None:
        """Starts the thread, once; under the lock. Raises ClosedError."""
        if self._failure is not None or self._state.finishing:
            raise self._closed()
        if self._thread is None:
            self._start()

    def _closed(self) -> ClosedError:
        if self._failure is None:
            return ClosedError(f"The publisher to {self.endpoint} is closed; make a new one.")
        return ClosedError(
            f"The publisher to {self.endpoint} ended: {self._failure.message} Make a new one.",
            cause=self._failure.code,
            endpoint=self.endpoint,
        )

    def _on_abandon(self) -> None:
        self._state.finishing = True

    # --- the receiving thread ---

    def _wait_for_work(self) -> bool:
        """Waits until something is to be sent.

        A stream that was disconnected while idle is not renewed for its own sake.
        """
        with self.lock:
            while self._state.idle and not self._state.finishing:
                self._changed.wait()
            return not self._abandoned and not self._state.idle

    def _reconnect_wait_s(self) -> float | None:
        with self.lock:
            if self._state.idle:
                return 0.0
        return super()._reconnect_wait_s()

    def _connect(self, channel: grpc.Channel, call_number: int) -> calls.AnswerStream[Answer]:
        opening = requests.opening(
            self._publisher_id,
            mode=self.mode,
            resume=self._known,
            lowest_unanswered=self._lowest_unanswered(),
            window_messages=self._window_messages(),
            label=self._label,
        )
        return calls.publish(channel, self._requests(call_number, opening))

    def _encode(self, action: Any) -> bytes | None:
        return requests.encoded(action) or None

    def _on_end(self, error: AckqError | None) -> None:
        if error is None and self._abandoned:
            error = ClosedError(
                f"The publisher to {self.endpoint} was closed before the answer.",
                endpoint=self.endpoint,
            )
        if error is not None:
            with self.lock:
                self._failure = error
            self._on_failure(error)

    # --- answers ---

    def _on_answer(self, answer: Answer) -> None:
        kind = answer.header.WhichOneof("kind")
        # A later version of the broker may send other kinds, which this client does not need.
        handler = self._handlers.get(kind or "")
        if handler is not None:
            if kind != "opened":
                self._backoff.reset()  # an open alone is no progress: what follows may be refused
            handler(answer)

    def _on_opened(self, answer: Answer) -> None:
        # Whether a publisher of an older history may go on is decided by the broker, in its answer
        # to the open (Q8): an operator may have accepted the new one.
        opened = answer.header.opened
        with self.lock:
            self._outage = None
            self._known = True
            if opened.max_message_bytes:
                self.max_message_bytes = min(limits.MAX_MESSAGE_BYTES, opened.max_message_bytes)
            self._state.on_opened()
            self._changed.notify_all()
