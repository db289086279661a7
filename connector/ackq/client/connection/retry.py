"""Retries with exponential back-off and jitter; each use states its limit, or that it has none."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from ackq import limits
from ackq.client.connection import errors
from ackq.client.connection.broker import Broker
from ackq.errors import AckqError, AlreadyHeldError, BrokerUnavailableError, LimitError

T = TypeVar("T")

Clock = Callable[[], float]
# Called before each wait with the error and the seconds.
OnWait = Callable[[AckqError, float], None]


class Backoff:
    """Exponential back-off: the waits between attempts.

    They double up to the longest, each is shortened at random, until `total_ms` has passed.

    Args:
        total_ms: Give up this long after the first failure; 0: at once; None: never.
        first_s: The first wait, in seconds.
        most_s: The longest wait, in seconds.
        part: The largest fraction by which a wait is shortened.
        clock: Monotonic seconds.
        jitter: Returns values in [0, 1).
    """

    def __init__(
        self,
        total_ms: int | None,
        *,
        first_s: float = limits.RETRY_INITIAL_MS / 1000,
        most_s: float = limits.RETRY_MAX_MS / 1000,
        part: float = 0.5,
        clock: Clock = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.total_ms = total_ms
        self._first_s = self._step_s = first_s
        self._most_s = most_s
        self._part = part
        self._clock = clock
        self._jitter = jitter
        self._failed_at: float | None = None

    @property
    def failing(self) -> bool:
        """Whether a wait was asked for since the last reset."""
        return self._failed_at is not None

    def reset(self) -> None:
        """Resets the back-off after progress: the next failure counts as the first."""
        self._failed_at = None
        self._step_s = self._first_s

    def next_s(self) -> float:
        """Seconds until the next attempt, regardless of how long attempts have failed."""
        step_s, self._step_s = self._step_s, min(2 * self._step_s, self._most_s)
        return step_s * (1 - self._jitter() * self._part)

    def next_wait_s(self) -> float | None:
        """Seconds until the next attempt, or None when the total is used up.

        The last attempt is made when the total has passed.
        """
        now = self._clock()
        if self._failed_at is None:
            self._failed_at = now
        wait_s = self.next_s()
        if self.total_ms is None:
            return wait_s
        left_s = self._failed_at + self.total_ms / 1000 - now
        return min(wait_s, left_s) if left_s > 0 else None


class HolderBackoff:
    """Back-off for a session's holder that may be dead: twice the heartbeat per broker start (S3).

    That outlasts a holder whose host vanished, so a start on another host just works. A broker that
    starts counts every holder as just heard; it may restart between two attempts, and each refusal
    says when it started.

    Args:
        backoff: The waits for one start of the broker; None: as the rule has it.
    """

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff(2 * limits.HEARTBEAT_MS)
        self._broker_started: str | None = None

    def reset(self) -> None:
        """Resets the back-off: the next refusal counts as the first."""
        self._backoff.reset()

    def next_wait_s(self, refusal: AlreadyHeldError) -> float | None:
        """Seconds until the next attempt, or None when the holder is alive."""
        started = refusal.fields.get("broker_started_us")
        if started != self._broker_started:
            self._broker_started = started
            self._backoff.reset()
        return self._backoff.next_wait_s()


class Patience:
    """Decides after an error whether to wait and retry, or to give up.

    Transient errors and a held session (S3) have a limit each. A user's limit right after a
    transient error is one too: the broker may still count the stream that ended, as it learns of
    a cut later.

    Args:
        broker: The broker that is called, with the limit for transient errors.
        on_wait: Called before each wait.
        sleep: Sleeps for the given seconds.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        on_wait: OnWait | None = None,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._broker = broker
        self._gone = Backoff(broker.retry_ms, clock=clock)
        self._held = HolderBackoff(Backoff(2 * limits.HEARTBEAT_MS, clock=clock))
        self._on_wait = on_wait
        self._sleep = sleep

    def progress(self) -> None:
        """Records progress: the limit for transient errors starts again at the next failure."""
        self._gone.reset()

    def judge(self, rpc: grpc.RpcError) -> None:
        """Sleeps until the next attempt, or raises the error of a failed call when it is final."""
        error = errors.from_rpc(rpc, self._broker)
        try:
            self.wait_or_raise(error)
        except AckqError as final:
            raise final from rpc

    def wait_or_raise(self, error: AckqError) -> None:
        """Sleeps until the next attempt.

        Raises the error when it is final or its limit is used up.
        """
        if isinstance(error, AlreadyHeldError):
            self._gone.reset()  # a broker has answered
            wait_s = self._held.next_wait_s(error)
        elif errors.is_transient(error) or (isinstance(error, LimitError) and self._gone.failing):
            # A holder's silence does not count while the broker is down (S3, S5).
            self._held.reset()
            wait_s = self._gone.next_wait_s()
        else:
            raise error
        if wait_s is None:
            raise self._final(error)
        if self._on_wait is not None:
            self._on_wait(error, wait_s)
        self._sleep(wait_s)

    def _final(self, error: AckqError) -> AckqError:
        if isinstance(error, AlreadyHeldError):
            return error
        return exhausted(self._broker.endpoint, error, self._gone.total_ms or 0)


def exhausted(endpoint: str, error: AckqError, total_ms: int) -> BrokerUnavailableError:
    """The error after the last attempt: names the endpoint, the cause and the time of trying."""
    said, tried_s = error.message, f"{total_ms / 1000:g} s"
    if "cause" not in error.fields:  # a broker's own words: it was reached, and drains or stops
        answered = f"The broker at {endpoint} accepted no work for {tried_s}: {said}"
        return BrokerUnavailableError(answered, endpoint=endpoint, cause=said)
    cause = error.fields["cause"]
    return BrokerUnavailableError(
        f"The broker at {endpoint} could not be reached for {tried_s}: "
        f"{cause.rstrip('.')}. Check the address and that the broker runs, then start again.",
        endpoint=endpoint,
        cause=cause,
    )


def call(attempt: Callable[[], T], patience: Patience) -> T:
    """Runs `attempt` until it succeeds.

    Its `grpc.RpcError`s become `AckqError`s and are judged by `patience`.
    """
    while True:
        try:
            return attempt()
        except grpc.RpcError as rpc:
            patience.judge(rpc)
