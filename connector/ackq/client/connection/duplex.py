"""A bidirectional stream that reconnects: a receiving thread, gRPC's sending thread, one lock.

Invariant: after `join` no thread is left, and no call outlives the stream it was made for.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import grpc

from ackq import limits
from ackq.client.condition import StreamCondition
from ackq.client.connection import calls, errors, retry
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel, replace_channel
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    ClosedError,
    InternalError,
    LimitError,
)

_log = logging.getLogger(__name__)
# After waiting this long for the broker, a warning names the reason.
_TOLD_AFTER_S = 2.0

Q = TypeVar("Q")
A = TypeVar("A")


class Send(NamedTuple, Generic[Q]):
    """Send this request."""

    request: Q


class Wait(NamedTuple):
    """Do nothing until the state changes, or until this time."""

    until: float | None


class Lost(NamedTuple):
    """The broker has been silent for longer than the heartbeat: reconnect by a new connection."""


class Finish(NamedTuple):
    """Half-close: everything is answered and nothing will follow."""


class _Forks:
    """Counts the forks that led to this process; cheaper to check per message than its id."""

    before_this = 0

    @classmethod
    def one_more(cls) -> None:
        """Counts one more fork, in the child process."""
        cls.before_this += 1


os.register_at_fork(after_in_child=_Forks.one_more)


class StreamState(Protocol):
    """State machine of a stream; touched under the lock only."""

    @property
    def done(self) -> bool:
        """Whether every request is answered and nothing will follow."""
        ...

    def next_action(self, now: float, /) -> object:
        """The sending thread's next action: `Wait`, `Lost`, `Finish`, or a request to encode."""
        ...


S = TypeVar("S", bound=StreamState)


class DuplexStream(ABC, Generic[S, Q, A]):
    """The threads of one stream, which is opened again after each disconnect.

    Args:
        broker: The broker to connect to, and how long to retry without an answer.
        state: Decides what to send; touched under `lock` only.

    Attributes:
        lock: Protects the state and every attribute of the stream that changes.
    """

    name: ClassVar[str]  # of the stream's owner, in messages
    thread_name: ClassVar[str]
    renew: ClassVar[str] = "make"  # the verb for getting another one, in messages

    def __init__(self, broker: Broker, state: S) -> None:
        grpc_channel(broker)  # raises for a bad address or certificate
        self.endpoint = broker.endpoint
        # Re-entrant: a garbage collection inside the lock may finalise the owner, which calls
        # `abandon`.
        self.lock = threading.RLock()
        self._changed = StreamCondition(self.lock)
        self._broker = broker
        self._state = state
        self._backoff = retry.Backoff(broker.retry_ms)
        self._pid = os.getpid()
        self._forks = _Forks.before_this
        self._thread: threading.Thread | None = None
        self._call: calls.AnswerStream[A] | None = None
        self._channel: grpc.Channel | None = None  # of the last call
        self._calls_ended = 0  # the sender of an older call stops
        self._lost = False  # the present call was cancelled for the broker's silence
        self._abandoned = False
        self._served = False  # a call was answered
        self._outage: AckqError | None = None  # why the last call ended
        self._silent_since: float | None = None  # no answer since; infinity: it was logged

    # --- implemented by each kind of stream ---

    @abstractmethod
    def _connect(self, channel: grpc.Channel, call_number: int) -> calls.AnswerStream[A]:
        """Makes the call, with `_requests(call_number, ...)`; under the lock."""

    @abstractmethod
    def _on_answer(self, answer: A) -> None:
        """Applies an answer, on the receiving thread; an AckqError ends the call."""

    @abstractmethod
    def _on_disconnect(self) -> None:
        """Handles the end of a call: unanswered requests are sent again on the next call."""

    @abstractmethod
    def _on_end(self, error: AckqError | None) -> None:
        """Handles the thread's end; None: everything is answered, or the stream was abandoned."""

    def _on_abandon(self) -> None:
        """Handles `abandon`, under the lock: the application no longer waits."""

    def _encode(self, action: Any) -> Q | None:
        """Makes an action's request, if it has one, on the sending thread without the lock."""
        request: Q = action.request
        return request

    def _wait_for_work(self) -> bool:
        """Waits until a call is needed; returns False if nothing is left to do."""
        return True

    def _reconnect_wait_s(self) -> float | None:
        """Seconds until the next attempt; None: give up."""
        return self._backoff.next_wait_s()

    def _may_reconnect(self, error: AckqError) -> bool:
        """Whether another call may succeed after `error`."""
        return errors.is_transient(error)

    def _given_up(self, error: AckqError) -> AckqError:
        """The failure of a stream that gives up after `error`."""
        return retry.exhausted(self.endpoint, error, self._backoff.total_ms or 0)

    # --- called by the application's threads ---

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that made the stream.

        A fork has neither the threads nor the call. In a fork the lock may be held for ever, so
        this is checked before the lock is taken.
        """
        return self._forks != _Forks.before_this

    def refuse_fork(self) -> None:
        """Raises ClosedError in a fork; not under the lock."""
        if self._forks != _Forks.before_this:
            raise ClosedError(
                f"The {self.name} to {self.endpoint} was made in process {self._pid}, and this "
                f"process is a fork of it; {self.renew} a new one in this process.",
                endpoint=self.endpoint,
            )

    def abandon(self) -> None:
        """Ends the stream without waiting: unanswered requests fail. Safe in a finaliser."""
        if self.inherited:
            return
        with self.lock:
            self._abandoned = True
            self._on_abandon()
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()

    def join(self) -> None:
        """Waits for the end of the thread, if there is one."""
        while (thread := self._thread) is not None and thread.is_alive():
            thread.join(limits.SIGNAL_WAIT_S)
        self._thread = None

    def _start(self) -> None:
        """Starts the receiving thread; under the lock."""
        thread = threading.Thread(target=self._run, name=self.thread_name, daemon=True)
        thread.start()  # if this fails, nothing has been admitted
        self._thread = thread

    def _end(self, *, answered: bool) -> None:
        """Ends the thread; if all is answered, the broker first has a while to end the call."""
        thread = self._thread
        if thread is not None:
            if answered:
                thread.join(limits.CONNECT_TIMEOUT_MS / 1000)
            if thread.is_alive():
                self.abandon()
        self.join()

    @property
    def _on_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    # --- the receiving thread ---

    def _run(self) -> None:
        try:
            self._on_end(self._run_calls())
        except AckqError as error:  # for instance a certificate file that is missing
            self._on_end(error)
        except BaseException as bug:
            self._on_end(InternalError(f"The {self.name}'s thread failed: {bug!r}."))
            raise

    def _run_calls(self) -> AckqError | None:
        """Calls the broker until nothing is left to do; returns a final error, if any."""
        while self._wait_for_work():
            error = self._run_call()
            if error is None or self._abandoned:
                break
            if not self._may_reconnect(error):
                return error
            wait_s = self._reconnect_wait_s()
            if wait_s is None:
                return self._given_up(error)
            if wait_s:
                self._log_wait(error, wait_s)
                with self.lock:
                    self._changed.wait_for(lambda: self._abandoned or self._state.done, wait_s)
        return None

    def _log_wait(self, error: AckqError, wait_s: float) -> None:
        """Logs a wait for the broker: as a warning once in a long outage, otherwise as info."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        long = now + wait_s - self._silent_since >= _TOLD_AFTER_S
        self._silent_since = math.inf if long else self._silent_since
        level = logging.WARNING if long else logging.INFO
        _log.log(level, "The %s waits for the broker and goes on trying: %s", self.name, error)

    def _run_call(self) -> AckqError | None:
        """Runs one call from open to end; returns the error that ended it.

        None: it ended because everything is answered and nothing will follow.
        """
        with self.lock:
            if self._abandoned or self._state.done:
                return None
            self._lost = False
            self._channel = grpc_channel(self._broker)
            call = self._call = self._connect(self._channel, self._calls_ended)
        error: AckqError | None = None
        answered = False
        try:
            for answer in call:
                answered = self._served = True
                self._silent_since = None
                self._on_answer(answer)
        except grpc.RpcError as rpc:
            error = errors.from_rpc(rpc, self._broker)
        except AckqError as broken:
            error = broken
        finally:
            call.cancel()  # no effect on a call that has ended; any other must not remain open
            with self.lock:
                self._calls_ended += 1
                self._call = None
                done = self._state.done
            self._on_disconnect()
        if self._lost:
            self._leave_connection()
            cause = f"it gave no sign of life for {limits.HEARTBEAT_MS} ms"
            error = errors.unavailable(self.endpoint, cause)
        elif isinstance(error, LimitError) and self._served and not answered:
            # The broker may still count the stream that ended: it learns of a cut later.
            error = BrokerUnavailableError(error.message, endpoint=self.endpoint)
        elif error is None and not done:
            error = errors.unavailable(self.endpoint, "the broker ended the stream")
        self._outage = error
        return error

    def _leave_connection(self) -> None:
        """Makes the next call use another connection, because this one seems to lose bytes.

        gRPC notices that only by its pings; until then each call would fail the same way.
        """
        assert self._channel is not None, "a call was made"
        replace_channel(self._broker, self._channel)

    # --- gRPC's sending thread ---

    def _requests(self, call_number: int, *opening: Q) -> Iterator[Q]:
        """The requests of a call, until the state finishes or the call has ended."""
        yield from opening
        while not isinstance(action := self._next_action(call_number), Finish):
            request = self._encode(action)
            if request is not None:
                yield request

    def _next_action(self, call_number: int) -> object:
        """Waits until there is something to send on this call."""
        with self.lock:
            while self._calls_ended == call_number and not self._abandoned:
                now = time.monotonic()
                action = self._state.next_action(now)
                if not isinstance(action, Wait):
                    if not isinstance(action, Lost):
                        return action
                    self._lost = True
                    assert self._call is not None, "a call that sends is open"
                    self._call.cancel()
                    break
                left_s = None if action.until is None else max(0.0, action.until - now)
                self._changed.wait(left_s and min(left_s, threading.TIMEOUT_MAX))
        return Finish()
