"""Moves a channel's requests and deliveries.

One receiving thread, gRPC's sending thread, and the lock around `ChannelFlow`.

Invariant: after `close` no thread is left and every settlement has been told.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from typing import Final, NamedTuple

import grpc

from ackq import limits
from ackq.client.connection import calls, errors, retry
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.client.consuming.answers import Answer, ChannelAnswers, fail_pending
from ackq.client.consuming.inbox import Inbox, RowSlice
from ackq.client.consuming.settlement import Settlement
from ackq.client.consuming.state import (
    Action,
    ChannelState,
    Finish,
    Lost,
    Send,
    Wait,
)
from ackq.client.outcomes import When
from ackq.client.ranges import Range
from ackq.errors import (
    AckqError,
    ClosedError,
    InternalError,
    PreconditionFailedError,
    UnknownDeliveryTagError,
)
from ackq.outcomes import Disposition
from ackq.v1 import consuming_pb2 as pb

_log = logging.getLogger(__name__)

# A cut channel is tried again this often: its broker does not wait long (C11).
_RESUME_EVERY_S: Final = limits.RETRY_INITIAL_MS / 1000
# The broker may notice a cut as late as the heartbeat says, and waits from then on.
_RESUMABLE_S: Final = (limits.HEARTBEAT_MS + limits.CHANNEL_RESUME_MS) / 1000


class Handover(NamedTuple):
    """Messages the application gets, and the settlement it waits for before it does, if any."""

    taken: RowSlice
    accepted: Settlement | None


class ChannelPump:
    """The threads and the stream of one channel.

    Args:
        endpoint: Where the broker is.
        security: Transport security.
        flow: The channel's state; touched under `lock` only.
        label: Shown to operators.
        retry_total_ms: Fail after so long without a broker that answers the first open.

    Attributes:
        lock: Around the flow and everything here that changes.
        rings: Called, under the lock, when the channel opened, failed, or answered everything.
    """

    def __init__(
        self,
        endpoint: str,
        security: Security | None,
        flow: ChannelState,
        *,
        label: str,
        retry_total_ms: int,
    ) -> None:
        self.endpoint = endpoint
        # Re-entrant: a garbage collection inside the lock may finalise the channel, which calls
        # `abandon`.
        self.lock = threading.RLock()
        self.wakers: set[Callable[[], None]] = set()
        self._security = security
        self._flow = flow
        self._label = label
        self._backoff = retry.Backoff(retry_total_ms)
        self._channel_id = secrets.token_bytes(16)  # C11: names the channel across streams
        self._turn = threading.Condition(self.lock)  # of the sending thread
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._call: calls.AnswerStream[Answer] | None = None
        self._stream = 0  # counts streams; the sender of an older one stops
        self._cut_at: float | None = None  # when a stream that was open ended
        self._outage: AckqError | None = None  # why the last stream ended
        self._silent = False  # the present stream was cut for its silence
        self._closing = False  # the application wants no more
        self._abandoned = False
        self._failure: AckqError | None = None
        self._untold = False  # nobody has seen the failure yet
        self._answers = ChannelAnswers(self._turn, flow, self.wakers)

    # --- called by the application's threads, under the lock ---

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that made the pump.

        It has neither its threads nor its stream. The lock may be held for ever, so this is asked
        before it is taken.
        """
        return os.getpid() != self._pid

    @property
    def closing(self) -> bool:
        """Whether the application has closed the channel."""
        return self._closing

    @property
    def idle(self) -> bool:
        """Whether every settlement is answered and told."""
        return self._flow.unsettled.idle and not self._answers.notifying

    def refuse_fork(self) -> None:
        """Raises ClosedError in a fork; not under the lock."""
        if self.inherited:
            raise ClosedError(
                f"The channel to {self.endpoint} was made in process {self._pid}, of which this "
                "one is a fork; open a new one here.",
                endpoint=self.endpoint,
            )

    def ready(self) -> bool:
        """Whether the broker knows the channel; starts to open it.

        Raises ClosedError, or what the channel failed with.
        """
        self.check()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ackq-channel", daemon=True)
            thread.start()
            self._thread = thread
        return self._flow.ever_opened

    def check(self, *, told: bool = True) -> None:
        """Raises when the channel takes nothing more: ClosedError, or what it failed with."""
        if self._failure is not None:
            self._untold = self._untold and not told
            raise copy(self._failure)
        if self._closing:
            raise ClosedError(f"The channel to {self.endpoint} is closed; open a new one.")

    def nudge(self) -> None:
        """The flow may have something for the sender."""
        self._turn.notify_all()

    def take(self, inbox: Inbox, limit: int, when: When, *, told: bool = True) -> Handover | None:
        """Hands over up to `limit` messages, accepted as `when` says; None: none is there.

        Args:
            inbox: Of a consumer or a pull.
            limit: At least 1.
            when: What the mode does by itself (C10).
            told: Whether the application sees what is raised.

        Raises:
            AckqError: None will come any more, and why.
        """
        if self._closing or (self._failure is not None and not inbox.no_ack):
            self.check(told=told)  # their tags are gone
        taken = self._flow.take(inbox, limit)
        if taken is None:
            self.check(told=told)
            if inbox.ended is not None:
                raise copy(inbox.ended)
            if inbox.closed:
                raise ClosedError("The consumer is closed; start a new one.")
            return None
        future = self._flow.accept(taken.runs, when, time.monotonic())
        if self._flow.wakes_sender():
            self.nudge()
        return Handover(taken, future)

    def settle(
        self, runs: list[Range], disposition: Disposition, *, told: bool = True
    ) -> Settlement:
        """Settles messages; see `Settling.settle`.

        A tag that is not there closes the channel (C2).
        """
        future = Settlement()
        self._settle(lambda: self._flow.unsettled.settle(runs, disposition, future), told=told)
        return future

    def settle_up_to(self, tag: int, disposition: Disposition) -> Settlement:
        """Settles all messages up to one; see `Settling.settle_up_to`, and `settle`."""
        future = Settlement()
        self._settle(lambda: self._flow.unsettled.settle_up_to(tag, disposition, future))
        return future

    def accept(self, runs: list[Range], when: When) -> None:
        """Accepts messages whose callback returned, as `when` says."""
        self._settle(lambda: self._flow.accept(runs, when, time.monotonic()), told=False)

    def fail(self, error: AckqError) -> None:
        """The application broke a rule: what it settled so far takes effect, then the stream ends.

        What it did not settle is put back (C12).
        """
        self._failure = self._failure or error
        self._flow.finishing = True
        self._ring_all()
        self.nudge()

    def _settle(self, settle: Callable[[], object], *, told: bool = True) -> None:
        # While the channel is being closed, a callback that runs still has its message to settle.
        if self._failure is not None or self._flow.finishing:
            self.check(told=told)
        try:
            settle()
        except UnknownDeliveryTagError as error:
            self.fail(copy(error))
            raise
        if self._flow.wakes_sender():
            self.nudge()

    # --- the end; not under the lock ---

    def begin_close(self) -> bool:
        """Refuses everything new; who waits is told. False: that was done before."""
        self.refuse_own_thread()
        with self.lock:
            first, self._closing = not self._closing, True
            self._ring_all()
        return first

    def finish(self) -> None:
        """Lets what was settled leave, and then the stream end."""
        with self.lock:
            self._flow.finishing = True
            self._flow.unsettled.flush_lazy()
            self.nudge()

    @property
    def finished(self) -> bool:
        """Whether nothing is owed any more: all is answered, or given up."""
        return self._thread is None or self.idle

    def end(self) -> AckqError | None:
        """Ends the thread: the broker has a while to end the stream, unless answers are missing.

        Returns what the channel failed with, unless somebody was told.
        """
        thread = self._thread
        if thread is not None:
            if self.idle and self._flow.opened:
                thread.join(limits.CONNECT_TIMEOUT_MS / 1000)
            if thread.is_alive():
                self.abandon()
            thread.join()
        self._thread = None
        with self.lock:
            failure, untold, self._untold = self._failure, self._untold, False
        return copy(failure) if failure is not None and untold else None

    def abandon(self) -> None:
        """Ends without waiting: what is unanswered fails. Safe in a finaliser."""
        if self.inherited:
            return
        with self.lock:
            self._closing = self._abandoned = True
            call = self._call
            self._ring_all()
            self.nudge()
        if call is not None:
            call.cancel()

    def refuse_own_thread(self) -> None:
        """Raises PreconditionFailedError on the thread that would be waited for."""
        if threading.current_thread() is self._thread:
            raise PreconditionFailedError(
                "This call waits for the thread that runs this callback; make it from another one."
            )

    def _ring_all(self) -> None:
        for ring in (*self.wakers, *(inbox.wake for inbox in self._flow.inboxes)):
            ring()

    # --- the receiving thread ---

    def _run(self) -> None:
        try:
            self._run_streams()
        except AckqError as error:  # for instance a certificate file that is gone
            self._failed(error)
        except BaseException as bug:
            self._failed(InternalError(f"The channel's thread failed: {bug!r}."))
            raise

    def _run_streams(self) -> None:
        while True:
            error = self._run_stream()
            if error is None or self._abandoned:
                break
            if not errors.is_transient(error):
                self._failed(error)
                return
            if not self._wait_to_reconnect(error):
                return
        self._failed(
            ClosedError(f"The channel to {self.endpoint} is closed.", endpoint=self.endpoint)
        )

    def _wait_to_reconnect(self, error: AckqError) -> bool:
        self._outage = error
        if self._cut_at is None:
            wait_s = self._backoff.next_wait_s()
            if wait_s is None:
                assert self._backoff.total_ms is not None, "a bound was used up"
                self._failed(retry.exhausted(self.endpoint, error, self._backoff.total_ms))
                return False
        elif time.monotonic() < self._cut_at + _RESUMABLE_S:
            wait_s = _RESUME_EVERY_S * (1 - random.random() / 2)
        else:
            self._failed(self._gone())
            return False
        _log.info("Channel: trying again in %.1f s: %s", wait_s, error)
        with self._turn:
            self._turn.wait_for(lambda: self._abandoned or self._over(), wait_s)
        return True

    def _run_stream(self) -> AckqError | None:
        """One stream from open to end.

        None: it ended because everything is answered and nothing will follow.
        """
        with self.lock:
            if self._abandoned or self._over():
                return None
            self._silent = False
            self._flow.on_heard(time.monotonic())
            call = calls.consume(
                grpc_channel(self.endpoint, self._security), self._requests(self._stream)
            )
            self._call = call
        error: AckqError | None = None
        try:
            for answer in call:
                if not self._answers.take(answer):
                    raise self._gone()
        except grpc.RpcError as rpc:
            error = errors.from_rpc(rpc, self.endpoint)
        except AckqError as broken:
            error = broken
        finally:
            call.cancel()  # does nothing to one that has ended; no other may stay behind
            with self.lock:
                self._stream += 1
                self._call = None
                over = self._over() and not self._silent
                if self._flow.opened:
                    self._cut_at = time.monotonic()
                self._flow.on_cut(time.monotonic())
                self.nudge()
        if self._silent:
            return errors.unavailable(
                self.endpoint, f"it gave no sign of life for {limits.HEARTBEAT_MS} ms"
            )
        if error is None and not over:
            error = errors.unavailable(self.endpoint, "the broker ended the stream")
        return error

    def _over(self) -> bool:
        return self._flow.finishing and self._flow.unsettled.idle

    def _gone(self) -> AckqError:
        """C11: the channel was cut for too long."""
        assert self._outage is not None, "a channel is gone after a cut"
        cause = self._outage.fields.get("cause", self._outage.message)
        with self.lock:
            unacked = len(self._flow.unsettled.unacked) + len(self._flow.unsettled.unread)
        return ClosedError(
            f"The channel to {self.endpoint} was cut for longer than the broker waits "
            f"({cause.rstrip('.')}). The {unacked} messages it held were put back and are "
            "delivered again; their tags are gone. Open a new channel.",
            endpoint=self.endpoint,
            cause=cause,
            unacked=unacked,
        )

    def _failed(self, error: AckqError) -> None:
        """The end of the thread: what has no answer will get none."""
        with self.lock:
            wanted = isinstance(error, ClosedError) and (self._closing or self._over())
            left = self._flow.unsettled.drain()
            if self._failure is None:
                self._failure = error
                self._untold = not wanted or bool(left)
            self._ring_all()
        fail_pending(left, error)

    # --- gRPC's sending thread ---

    def _requests(self, stream: int) -> Iterator[pb.ConsumeRequest]:
        yield pb.ConsumeRequest(
            open=pb.ChannelOpen(
                channel_id=self._channel_id,
                window_messages=self._flow.settings.window_messages,
                label=self._label,
            )
        )
        while True:
            action = self._next_action(stream)
            if not isinstance(action, Send):
                return
            yield action.request

    def _next_action(self, stream: int) -> Action:
        """Waits until there is something to put on this stream."""
        with self._turn:
            while self._stream == stream and not self._abandoned:
                now = time.monotonic()
                action = self._flow.next_action(now)
                if isinstance(action, Lost):
                    self._silent = True
                    assert self._call is not None, "a stream that sends is open"
                    self._call.cancel()
                if not isinstance(action, Wait):
                    return action
                self._turn.wait(None if action.until is None else max(0.0, action.until - now))
        return Finish()
