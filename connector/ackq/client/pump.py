"""Moves a publisher's frames and answers.

One receiving thread, gRPC's sending thread, and the lock around `Flow`.

Invariant: after `close` no thread is left and every publish has been told.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import grpc

from ackq import limits
from ackq.client import calls, encoding, requests, retry, rpc_errors
from ackq.client.channels import channel
from ackq.client.flow import Action, Finish, Flow, Probe, Send, Wait
from ackq.client.outstanding import Destination, Frame
from ackq.client.ranges import Range
from ackq.client.receipts import Confirmation
from ackq.client.security import Security
from ackq.client.telling import OnBlocked, OnReturn, Teller
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    ClosedError,
    HistoryChangedError,
    InternalError,
    PreconditionFailedError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame

_log = logging.getLogger(__name__)


class Pump:
    """The threads and the stream of one publisher.

    Args:
        endpoint: Where the broker is.
        security: Transport security.
        flow: The publisher's state; only the pump touches it, under its lock.
        label: Shown to operators.
        retry_total_ms: Fail after so long without a broker while something is unanswered.
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
        self._endpoint = endpoint
        self._security = security
        self._flow = flow
        self._label = label
        self._backoff = retry.Backoff(retry_total_ms)
        self._publisher_id = secrets.token_bytes(16)  # P10: never chosen by a user
        self._history_id = ""  # of the broker; known once a stream was opened
        self.max_message_bytes = limits.MAX_MESSAGE_BYTES  # until the broker says less
        # Re-entrant: a garbage collection inside the lock may finalise the publisher, which calls
        # `abandon`.
        self._turn = threading.Condition(threading.RLock())
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._call: calls.Answers[frame.Frame[pb.PublishAnswer]] | None = None
        self._stream = 0  # counts streams; the sender of an older one stops
        self._abandoned = False
        self._failure: AckqError | None = None  # the publisher is dead
        self._outage: AckqError | None = None  # why there is no open stream at the moment
        self._teller = Teller(self._turn, flow, on_return, on_blocked)
        self._handlers: dict[str, Callable[[frame.Frame[pb.PublishAnswer]], None]] = {
            "opened": self._on_opened,
            "confirm": self._teller.confirmed,
            "nack": self._teller.nacked,
            "returned": self._teller.returned,
            "blocked": self._teller.blocked,
            "unblocked": self._teller.unblocked,
            "probed": self._on_probed,
        }

    # --- called by the application's threads ---

    @property
    def unconfirmed(self) -> int:
        """Messages without an answer."""
        return self._flow.window.messages

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that made the pump.

        It has neither its thread nor its stream, and must not use its publisher id (P10). The lock
        may be held for ever, so this is asked before it is taken.
        """
        return os.getpid() != self._pid

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
        self._refuse_callbacks()
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
        self._refuse_callbacks()
        with self._turn:
            if self._flow.finishing and self._thread is None:
                return
            self._flow.finishing = True
            self._turn.notify_all()
        try:
            self.flush(timeout_s)
        finally:
            self._end()

    def abandon(self) -> None:
        """Ends without waiting: what is unanswered fails. Safe in a finaliser."""
        if self.inherited:
            return
        with self._turn:
            self._flow.finishing = True
            self._abandoned = True
            call = self._call
            self._turn.notify_all()
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
            if self._flow.idle:
                thread.join(limits.CONNECT_TIMEOUT_MS / 1000)
            if thread.is_alive():
                self.abandon()
        self.join()

    def _refuse_callbacks(self) -> None:
        if threading.current_thread() is self._thread:
            raise PreconditionFailedError(
                "flush() and close() wait for the thread that runs this callback; "
                "call them from another thread."
            )

    def _refuse_fork(self) -> None:
        if self.inherited:
            raise ClosedError(
                f"The publisher to {self._endpoint} was made in process {self._pid}, of which this "
                "one is a fork; make a new one here.",
                endpoint=self._endpoint,
            )

    def _admit(self, rows: int, payload_bytes: int) -> None:
        while True:
            if self._failure is not None or self._flow.finishing:
                raise self._closed()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="ackq-publisher", daemon=True)
                thread.start()  # where this fails nothing has been admitted
                self._thread = thread
            # The receiving thread opens the window: a callback that publishes must not wait for
            # itself.
            if (
                self._flow.window.admits(rows, payload_bytes)
                or threading.current_thread() is self._thread
            ):
                return
            self._flow.close_draft()  # nothing can join it now
            self._turn.notify_all()
            self._turn.wait()

    def _closed(self) -> ClosedError:
        if self._failure is None:
            return ClosedError(f"The publisher to {self._endpoint} is closed; make a new one.")
        return ClosedError(
            f"The publisher to {self._endpoint} ended: {self._failure.message} Make a new one.",
            cause=self._failure.code,
            endpoint=self._endpoint,
        )

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
            if not rpc_errors.is_transient(error):
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
        with self._turn:
            while self._flow.idle and not self._flow.finishing:
                self._turn.wait()
            return not self._abandoned and not self._flow.idle

    def _wait_to_reconnect(self, error: AckqError) -> bool:
        with self._turn:
            if self._flow.idle:
                return True
        wait_s = self._backoff.next_wait_s()
        if wait_s is None:
            assert self._backoff.total_ms is not None, "a bound was used up"
            self._fail(retry.exhausted(self._endpoint, error, self._backoff.total_ms))
            return False
        _log.info("Publisher: trying again in %.1f s: %s", wait_s, error)
        with self._turn:
            self._turn.wait_for(lambda: self._abandoned, wait_s)
        return True

    def _run_stream(self) -> AckqError | None:
        """One stream from open to end.

        None: it ended because everything is answered and nothing will follow.
        """
        with self._turn:
            if self._abandoned:
                return None
            opening = requests.opening(
                self._publisher_id,
                resume=bool(self._history_id),
                lowest_unanswered=self._flow.outstanding.lowest_unanswered,
                window_messages=self._flow.settings.window_messages,
                label=self._label,
            )
            call = calls.publish(
                channel(self._endpoint, self._security), self._requests(self._stream, opening)
            )
            self._call = call
        error: AckqError | None = None
        try:
            for answer in call:
                self._on_answer(answer)
        except grpc.RpcError as rpc:
            error = rpc_errors.from_rpc(rpc, self._endpoint)
        except AckqError as broken:
            error = broken
        finally:
            call.cancel()  # does nothing to one that has ended; no other may stay behind
            with self._turn:
                self._stream += 1
                self._call = None
                finished = self._flow.finishing and self._flow.idle
            self._teller.cut()
        if error is None and not finished:
            error = rpc_errors.unavailable(self._endpoint, "the broker ended the stream")
        self._outage = error
        return error

    def _fail(self, error: AckqError) -> None:
        with self._turn:
            self._failure = error
        self._teller.failed(error)

    # --- answers ---

    def _on_answer(self, answer: frame.Frame[pb.PublishAnswer]) -> None:
        kind = answer.header.WhichOneof("kind")
        # A broker of a later version may say more; what it says then is not needed by this one.
        handler = self._handlers.get(kind or "")
        if handler is not None:
            if kind != "opened":
                self._backoff.reset()  # an open alone is no progress: what follows may be refused
            handler(answer)

    def _on_opened(self, answer: frame.Frame[pb.PublishAnswer]) -> None:
        opened = answer.header.opened
        if self._history_id and self._history_id != opened.history_id:
            raise HistoryChangedError(
                f"The broker at {self._endpoint} has another history than before: "
                "its journal was restored or replaced.",
                endpoint=self._endpoint,
                history_id=opened.history_id,
            )
        with self._turn:
            self._outage = None
            self._history_id = opened.history_id
            if opened.max_message_bytes:
                self.max_message_bytes = min(limits.MAX_MESSAGE_BYTES, opened.max_message_bytes)
            self._flow.on_opened()
            self._turn.notify_all()

    def _on_probed(self, answer: frame.Frame[pb.PublishAnswer]) -> None:
        probed = answer.header.probed
        missing = list(map(Range, probed.missing_first, probed.missing_last))
        with self._turn:
            self._flow.on_probed(missing)
            self._turn.notify_all()

    # --- gRPC's sending thread ---

    def _requests(self, stream: int, opening: bytes) -> Iterator[bytes]:
        yield opening
        while True:
            action = self._next_action(stream)
            if isinstance(action, Send):
                if data := requests.data(action):
                    yield data
            elif isinstance(action, Probe):
                yield requests.probe(action)
            else:
                return

    def _next_action(self, stream: int) -> Action:
        """Waits until there is something to put on this stream."""
        with self._turn:
            while self._stream == stream and not self._abandoned:
                now = time.monotonic()
                action = self._flow.next_action(now)
                if not isinstance(action, Wait):
                    return action
                self._turn.wait(None if action.until is None else max(0.0, action.until - now))
        return Finish()
