"""Back-off between attempts, and when to give up, with time passed in: rule S3."""

from collections import deque
from itertools import repeat

import pytest

from ackq import errors
from ackq.client import Broker
from ackq.client.connection import retry

GONE = errors.BrokerUnavailableError("The broker is shutting down.")
HELD = errors.AlreadyHeldError("held by a", host="a")


def test_backoff_doubles_up_to_its_bound():
    """Waits double, less a jitter of up to half; the last attempt falls on the bound."""
    now = 0.0
    backoff = retry.Backoff(1_000, clock=lambda: now, jitter=lambda: 0.0)
    waits = []
    while (wait_s := backoff.next_wait_s()) is not None:
        waits.append(round(wait_s, 6))
        now += wait_s
    assert waits == [0.1, 0.2, 0.4, 0.3]
    backoff.reset()
    assert backoff.next_wait_s() == 0.1


class Patient(retry.Patience):
    """Patience with a clock that moves only when it sleeps.

    Attributes:
        now: The time in seconds.
    """

    def __init__(self, retry_ms):
        self.now = 0.0
        super().__init__(Broker("e:1", retry_ms=retry_ms), clock=self._time, sleep=self.sleep)

    def _time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def exhaust(self, error):
        """Waits until the error is raised."""
        with pytest.raises(type(error)):
            deque(map(self.wait_or_raise, repeat(error)))


def test_progress_renews_the_patience():
    """S3: the retry bound counts from the last progress, such as an `AlreadyHeld` answer."""
    patience = Patient(1_000)
    for _ in range(3):
        patience.wait_or_raise(GONE)
        patience.sleep(900)
        patience.progress()
    patience.wait_or_raise(GONE)
    patience.wait_or_raise(HELD)
    patience.sleep(10)
    patience.wait_or_raise(GONE)
    patience.sleep(2)
    with pytest.raises(errors.BrokerUnavailableError, match="accepted no work for 1 s"):
        patience.wait_or_raise(GONE)


def test_a_limit_after_a_cut_is_waited_for():
    """P10, A5: the broker may still count the stream that was cut; a first LimitError is final."""
    patience, full = Patient(1_000), errors.LimitError("The user 'u' has 2 of 2 connections.")
    with pytest.raises(errors.LimitError):
        patience.wait_or_raise(full)
    patience.wait_or_raise(GONE)
    patience.wait_or_raise(full)
    patience.sleep(2)
    with pytest.raises(errors.BrokerUnavailableError, match="no work for 1 s: The user 'u' has 2"):
        patience.wait_or_raise(full)


def test_held_session_has_a_bound_of_its_own():
    """S3: after twice the heartbeat the holder is alive, and `AlreadyHeld` is raised."""
    patience = Patient(1_000)
    patience.exhaust(HELD)
    assert patience.now == pytest.approx(30.0)


def test_outage_renews_the_wait_for_a_holder():
    """S3: neither a holder's silence nor the wait for it counts while the broker is down."""
    patience = Patient(60_000)
    patience.wait_or_raise(HELD)
    patience.wait_or_raise(GONE)
    patience.sleep(40)
    patience.exhaust(HELD)
    assert patience.now > 70


def test_a_restart_between_two_attempts_renews_the_wait_for_a_holder():
    """S3: the wait restarts when the refusal shows that the broker was restarted."""
    patience = Patient(60_000)
    before, after = (errors.AlreadyHeldError("held", broker_started_us=at) for at in (1, 2))
    patience.wait_or_raise(before)
    patience.sleep(29)
    patience.wait_or_raise(after)
    restarted = patience.now
    patience.sleep(29)
    patience.wait_or_raise(after)
    patience.exhaust(after)
    assert patience.now - restarted < 31
