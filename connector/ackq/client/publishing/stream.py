"""Carries what a publisher and its broker say: a receiving thread, gRPC's sending thread, one lock.

Invariant: after `join` no thread is left, and everything that was under way has been told.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import grpc

from ackq import limits
from ackq.client.connection import calls, errors, retry
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.client.publishing import requests
from ackq.client.publishing.requests import Action, AddRows, Finish, Wait
from ackq.errors import (
    AckqError,
    ClosedError,
    InternalError,
    PreconditionFailedError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame

_log = logging.getLogger(__name__)

Answer = frame.Frame[pb.PublishAnswer]


class PublishState(Protocol):
    """The state of a publisher, as far as its stream looks; touched under the lock only."""

    finishing: bool

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes (P14)."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing has to be sent or answered."""
        ...

    def next_action(self, now: float) -> Action:
        """What to put on the stream now."""
        ...

    def on_opened(self) -> None:
        """The stream is open."""
        ...


C = TypeVar("C", bound=PublishState)


class PublishStream(ABC, Generic[C]):
    """The threads and the stream of one publisher.

    Args:
        endpoint: Where the broker is.
        security: Transport security.
        flow: The publisher's state.
        mode: What its streams open in (P1).
        label: Shown to operators.
        retry_total_ms: Fail after so long without a broker while something is under way.
    """

    def __init__(
        self,
        endpoint: str,
        security: Security | None,
        state: C,
        *,
        mode: pb.PublishMode,
        label: str,
        retry_total_ms: int,
    ) -> None:
        self._endpoint = endpoint
        self._security = security
        self._state = state
        self._mode = mode
        self._label = label
        self._backoff = retry.Backoff(retry_total_ms)
        self._publisher_id = secrets.token_bytes(16)  # P10: never chosen by a user
        self._known = False  # to the broker: a stream was opened
        self.max_message_bytes = limits.MAX_MESSAGE_BYTES  # until the broker says less
        # Re-entrant: a garbage collection inside the lock may finalise the publisher, which calls
        # `abandon`.
        self._changed = threading.Condition(threading.RLock())
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._call: calls.AnswerStream[Answer] | None = None
        self._stream = 0  # counts streams; the sender of an older one stops
        self._abandoned = False
        self._failure: AckqError | None = None  # the publisher is dead
        self._outage: AckqError | None = None  # why there is no open stream at the moment
        self._handlers: dict[str, Callable[[Answer], None]] = {"opened": self._on_opened}

    # --- what the modes do ---

    @property
    @abstractmethod
    def pending(self) -> int:
        """Messages whose fate the application does not know."""

    @abstractmethod
    def _lowest_unanswered(self) -> int:
        """What an open announces (P10); under the lock."""

    @abstractmethod
    def _window_messages(self) -> int:
        """What an open announces (P11)."""

    @abstractmethod
    def _on_disconnect(self) -> None:
        """The stream is gone, and with it what it said."""

    @abstractmethod
    def _on_failure(self, error: AckqError) -> None:
        """The publisher is dead: what is under way will have no answer."""

    # --- called by the application's threads ---

    @property
    def blocked(self) -> str | None:
        """Why the broker takes no publishes at the moment, None when it does (P14)."""
        return self._state.blocked

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that made the publisher.

        It has neither its thread nor its stream, and must not use its publisher id (P10). The lock
        may be held for ever, so this is asked before it is taken.
        """
        return os.getpid() != self._pid

    def abandon(self) -> None:
        """Ends without waiting: what is under way fails. Safe in a finaliser."""
        if self.inherited:
            return
        with self._changed:
            self._state.finishing = True
            self._abandoned = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()

    def join(self) -> None:
        """Waits for the end of the thread, if there is one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _end(self) -> None:
        """Ends the thread: the broker has a while to end the stream, unless answers are missing."""
        thread = self._thread
        if thread is not None:
            if self._state.idle:
                thread.join(limits.CONNECT_TIMEOUT_MS / 1000)
            if thread.is_alive():
                self.abandon()
        self.join()

    @property
    def _on_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _refuse_callbacks(self, calls_refused: str) -> None:
        if self._on_own_thread:
            raise PreconditionFailedError(
                f"{calls_refused} wait for the thread that runs this callback; "
                "call them from another thread."
            )

    def _refuse_fork(self) -> None:
        if self.inherited:
            raise ClosedError(
                f"The publisher to {self._endpoint} was made in process {self._pid}, of which this "
                "one is a fork; make a new one here.",
                endpoint=self._endpoint,
            )

    def _running(self) -> None:
        """Starts the thread, once; under the lock. Raises ClosedError."""
        if self._failure is not None or self._state.finishing:
            raise self._closed()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ackq-publisher", daemon=True)
            thread.start()  # where this fails nothing has been admitted
            self._thread = thread

    def _closed(self) -> ClosedError:
        if self._failure is None:
            return ClosedError(f"The publisher to {self._endpoint} is closed; make a new one.")
        return ClosedError(
            f"The publisher to {self._endpoint} ended: {self._failure.message} Make a new one.",
            cause=self._failure.code,
            endpoint=self._endpoint,
        )

    # --- the receiving thread ---

    def _run(self) -> None:
        try:
            self._run_streams()
        except AckqError as error:  # for instance a certificate file that is gone
            self._fail(error)
        except BaseException as bug:
            self._fail(InternalError(f"The publisher's thread failed: {bug!r}."))
            raise

    def _run_streams(self) -> None:
        while self._has_work():
            error = self._run_stream()
            if self._abandoned or error is None:
                break
            if not errors.is_transient(error):
                self._fail(error)
                return
            if not self._wait_to_reconnect(error):
                return
        if self._abandoned:
            self._fail(
                ClosedError(
                    f"The publisher to {self._endpoint} was closed before the answer.",
                    endpoint=self._endpoint,
                )
            )

    def _has_work(self) -> bool:
        """Waits until something is to be sent.

        A stream that was cut while idle is not renewed for its own sake.
        """
        with self._changed:
            while self._state.idle and not self._state.finishing:
                self._changed.wait()
            return not self._abandoned and not self._state.idle

    def _wait_to_reconnect(self, error: AckqError) -> bool:
        with self._changed:
            if self._state.idle:
                return True
        wait_s = self._backoff.next_wait_s()
        if wait_s is None:
            assert self._backoff.total_ms is not None, "a bound was used up"
            self._fail(retry.exhausted(self._endpoint, error, self._backoff.total_ms))
            return False
        _log.info("Publisher: trying again in %.1f s: %s", wait_s, error)
        with self._changed:
            self._changed.wait_for(lambda: self._abandoned, wait_s)
        return True

    def _run_stream(self) -> AckqError | None:
        """One stream from open to end.

        None: it ended because everything is answered and nothing will follow.
        """
        with self._changed:
            if self._abandoned:
                return None
            opening = requests.opening(
                self._publisher_id,
                mode=self._mode,
                resume=self._known,
                lowest_unanswered=self._lowest_unanswered(),
                window_messages=self._window_messages(),
                label=self._label,
            )
            call = calls.publish(
                grpc_channel(self._endpoint, self._security), self._requests(self._stream, opening)
            )
            self._call = call
        error: AckqError | None = None
        try:
            for answer in call:
                self._on_answer(answer)
        except grpc.RpcError as rpc:
            error = errors.from_rpc(rpc, self._endpoint)
        except AckqError as broken:
            error = broken
        finally:
            call.cancel()  # does nothing to one that has ended; no other may stay behind
            with self._changed:
                self._stream += 1
                self._call = None
                finished = self._state.finishing and self._state.idle
            self._on_disconnect()
        if error is None and not finished:
            error = errors.unavailable(self._endpoint, "the broker ended the stream")
        self._outage = error
        return error

    def _fail(self, error: AckqError) -> None:
        with self._changed:
            self._failure = error
        self._on_failure(error)

    # --- answers ---

    def _on_answer(self, answer: Answer) -> None:
        kind = answer.header.WhichOneof("kind")
        # A broker of a later version may say more; what it says then is not needed by this one.
        handler = self._handlers.get(kind or "")
        if handler is not None:
            if kind != "opened":
                self._backoff.reset()  # an open alone is no progress: what follows may be refused
            handler(answer)

    def _on_opened(self, answer: Answer) -> None:
        # Whether a publisher of an older history may go on is the broker's to say, in answer to the
        # open (Q8): an operator may have accepted the new one.
        opened = answer.header.opened
        with self._changed:
            self._outage = None
            self._known = True
            if opened.max_message_bytes:
                self.max_message_bytes = min(limits.MAX_MESSAGE_BYTES, opened.max_message_bytes)
            self._state.on_opened()
            self._changed.notify_all()

    # --- gRPC's sending thread ---

    def _requests(self, stream: int, opening: bytes) -> Iterator[bytes]:
        yield opening
        while not isinstance(action := self._next_action(stream), Finish):
            if data := requests.encoded(action):
                yield data

    def _next_action(self, stream: int) -> Action:
        """Waits until there is something to put on this stream."""
        with self._changed:
            while self._stream == stream and not self._abandoned:
                now = time.monotonic()
                action = self._state.next_action(now)
                if isinstance(action, AddRows):
                    self._changed.notify_all()  # there is room in the window again
                if not isinstance(action, Wait):
                    return action
                self._changed.wait(None if action.until is None else max(0.0, action.until - now))
        return Finish()
