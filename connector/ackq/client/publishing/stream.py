"""The stream of a publisher, in either mode: its publisher id, its open, its answers.

Invariant: after `join` no thread is left, and the application knows the result of every publish.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

import grpc

from ackq import limits
from ackq.client.blocks import encoding
from ackq.client.connection import calls
from ackq.client.connection.attempts import Attempts
from ackq.client.connection.broker import Broker
from ackq.client.connection.duplex import DuplexStream
from ackq.client.futures import wait_s
from ackq.client.publishing import requests
from ackq.client.publishing.notifications import (
    Answer,
    AnsweredCondition,
    BlockedNotifier,
    Conditions,
    OnBlocked,
    OnReturn,
)
from ackq.client.publishing.state import PublishState
from ackq.errors import AckqError, ClosedError, PreconditionFailedError
from ackq.v1 import publishing_pb2 as pb

S = TypeVar("S", bound=PublishState)


class StreamArguments(TypedDict):
    """Arguments of the streams of both modes.

    Attributes:
        label: Shown to operators; empty: host and process id.
        on_return: Called with unroutable messages, before their publish is answered (P7).
        on_blocked: Called when the broker stops taking publishes, when its reason changes, and when
            it resumes (P14).
    """

    label: str
    on_return: OnReturn | None
    on_blocked: OnBlocked | None


class PublishStream(DuplexStream[S, bytes, Answer]):
    """The stream of one publisher.

    Args:
        broker: The broker to connect to, and how long to retry while a publish is unanswered.
        state: The publisher's state.
        arguments: See `StreamArguments`.

    Raises:
        InvalidArgumentError: A bad address, certificate file or label.
    """

    name = "publisher"
    thread_name = "ackq-publisher"
    mode: ClassVar[pb.PublishMode]  # the mode that its streams open in (P1)

    def __init__(self, broker: Broker, state: S, **arguments: Unpack[StreamArguments]) -> None:
        super().__init__(broker, state)
        encoding.text_bytes("label", arguments["label"])
        self._label = arguments["label"] or f"{socket.gethostname()}:{os.getpid()}"
        self._publisher_id = secrets.token_bytes(16)  # P10: never chosen by a user
        self._attempts = Attempts()
        self._known = False  # the broker knows this id: a stream was opened
        self.max_message_bytes = limits.MAX_MESSAGE_BYTES  # until the broker announces less
        self._failure: AckqError | None = None  # why the publisher has ended
        self._on_return = arguments["on_return"]
        self._conditions = Conditions(self._changed, AnsweredCondition(self.lock))
        self._blocked = BlockedNotifier(self._conditions, state, arguments["on_blocked"])
        self._handlers: dict[str, Callable[[Answer], None]] = {
            "opened": self._on_opened,
            "blocked": self._blocked.blocked,
            "unblocked": self._blocked.unblocked,
        }

    # --- implemented by each mode ---

    @abstractmethod
    def _on_failure(self, error: AckqError) -> None:
        """Fails unanswered publishes: the publisher has ended."""

    @abstractmethod
    def _late(self, timeout_s: float | None) -> AckqError:
        """The error of a wait that timed out."""

    # --- called by the application's threads ---

    @property
    def pending(self) -> int:
        """Number of messages whose result the application does not know yet."""
        return self._state.pending

    @property
    def dropped(self) -> int:
        """Number of messages that `abandon` would leave without a result."""
        return self._state.pending

    @property
    def blocked(self) -> str | None:
        """Why the broker blocks publishers at the moment; None when it does not (P14)."""
        return self._state.blocked

    def _refuse_callbacks(self, calls_refused: str) -> None:
        if self._on_own_thread:
            raise PreconditionFailedError(
                f"{calls_refused} wait for the thread that runs this callback; "
                "call them from another thread."
            )

    def _admit(self, rows: int, payload_bytes: int) -> None:
        """Waits while the window is full (P14); under the lock. Raises ClosedError."""
        while not self._admits(rows, payload_bytes):
            self._conditions.answered.wait(wait_s(None))

    def _admits(self, rows: int, payload_bytes: int) -> bool:
        """Whether the window has room (P14); under the lock. Raises ClosedError."""
        self._check_open()
        # The receiving thread opens the window: a callback that publishes must not wait for itself.
        if self._state.window.admits(rows, payload_bytes) or self._on_own_thread:
            return True
        self._state.close_draft()  # nothing can join it now
        self._conditions.work.notify_all()
        return False

    def _wait_until(self, answered: Callable[[], bool], timeout_s: float | None) -> None:
        """Waits for answers; under the lock. Raises `_late`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not answered():
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise self._late(timeout_s)
            self._conditions.answered.wait(wait_s(left_s))

    def _check_open(self) -> None:
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
        self._conditions.answered.notify_all()

    # --- the receiving thread ---

    def _wait_for_work(self) -> bool:
        """Waits until there is something to send.

        A stream that was disconnected while idle is not reconnected before that.
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

    def _may_reconnect(self, error: AckqError) -> bool:
        # An opening of an earlier call that reached the broker late may fence this stream; any
        # other fence shows that another process has this publisher's id and numbers, as in a copy
        # of its machine.
        return self._attempts.fenced(error) or super()._may_reconnect(error)

    def _connect(self, channel: grpc.Channel, call_number: int) -> calls.AnswerStream[Answer]:
        opening = requests.opening(
            self._publisher_id,
            mode=self.mode,
            resume=self._known,
            attempts_before=self._attempts.before(),
            attempt=self._attempts.new(),
            next_number=self._state.next_number,
            lowest_unanswered=self._state.lowest_unanswered,
            window_messages=self._state.window_messages,
            label=self._label,
        )
        return calls.publish(channel, self._requests(call_number, opening))

    def _on_disconnect(self) -> None:
        self._blocked.disconnected()

    def _encode(self, action: Any) -> bytes | None:
        return requests.encoded(action) or None

    def _on_end(self, error: AckqError | None) -> None:
        if error is None and self._abandoned:
            error = ClosedError(
                f"The publisher to {self.endpoint} was closed before the answer.",
                endpoint=self.endpoint,
            )
        elif self._state.done:
            return  # everything is answered: how the stream ends after the close is irrelevant
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
                self._backoff.reset()  # an open alone is no progress: publishes may be refused
            handler(answer)

    def _on_opened(self, answer: Answer) -> None:
        self._attempts.answered()
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
