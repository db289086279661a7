"""Back-off between attempts, and when to give up, with time passed in: rule S3."""

from collections import deque
from itertools import repeat

import pytest

from ackq import errors
from ackq.client import Broker
from ackq.client.connection import retry

GONE = errors.BrokerUnavailableError("The broker is shutting down.")


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


def test_backoff_jitter_and_largest_wait():
    backoff = retry.Backoff(None, clock=lambda: 0.0, jitter=lambda: 0.5)
    waits = [backoff.next_wait_s() for _ in range(10)]
    assert waits[:3] == pytest.approx([0.075, 0.15, 0.3])
    assert waits[-1] == 3.75


class Clock:
    """A clock that moves only when it sleeps."""

    def __init__(self):
        self._now = 0.0

    def time(self):
        return self._now

    def sleep(self, seconds):
        self._now += seconds


@pytest.fixture
def clock():
    return Clock()


def test_a_broker_that_answers_has_its_own_words():
    """O6: the error gives a draining broker's message, and no hint to check the address."""
    drained = errors.BrokerUnavailableError("It is drained: try again when it is back.")
    assert retry.exhausted("e:1", drained, 1_000).message == (
        "The broker at e:1 accepted no work for 1 s: It is drained: try again when it is back."
    )


def test_progress_renews_the_patience(clock):
    """The retry bound counts from the last progress."""
    patience = retry.Patience(Broker("e:1", retry_ms=1_000), clock=clock.time, sleep=clock.sleep)
    for _ in range(3):
        patience.wait_or_raise(GONE)
        clock.sleep(900)
        patience.progress()
    patience.wait_or_raise(GONE)
    clock.sleep(2)
    with pytest.raises(errors.BrokerUnavailableError, match="accepted no work for 1 s"):
        patience.wait_or_raise(GONE)


def test_held_session_has_a_bound_of_its_own(clock):
    """S3: after twice the heartbeat the holder is alive, and `AlreadyHeld` is raised."""
    held = errors.AlreadyHeldError("held by a", host="a")
    patience = retry.Patience(Broker("e:1", retry_ms=1_000), clock=clock.time, sleep=clock.sleep)
    with pytest.raises(errors.AlreadyHeldError):
        deque(map(patience.wait_or_raise, repeat(held)))
    assert clock.time() == pytest.approx(30.0)


def test_outage_renews_the_wait_for_a_holder(clock):
    """S3: neither a holder's silence nor the wait for it counts while the broker is down."""
    held = errors.AlreadyHeldError("held by a", host="a")
    patience = retry.Patience(Broker("e:1", retry_ms=60_000), clock=clock.time, sleep=clock.sleep)
    patience.wait_or_raise(held)
    patience.wait_or_raise(GONE)
    clock.sleep(40)
    with pytest.raises(errors.AlreadyHeldError):
        deque(map(patience.wait_or_raise, repeat(held)))
    assert clock.time() > 70


def test_a_restart_between_two_attempts_renews_the_wait_for_a_holder(clock):
    """S3: the wait restarts when the refusal shows that the broker was restarted."""

    def held(started):
        return errors.AlreadyHeldError("held by a", broker_started_us=started)

    patience = retry.Patience(Broker("e:1", retry_ms=60_000), clock=clock.time, sleep=clock.sleep)
    patience.wait_or_raise(held(1))
    clock.sleep(29)
    patience.wait_or_raise(held(2))
    restarted = clock.time()
    clock.sleep(29)
    patience.wait_or_raise(held(2))
    with pytest.raises(errors.AlreadyHeldError):
        deque(map(patience.wait_or_raise, repeat(held(2))))
    assert clock.time() - restarted < 31


def test_answer_of_a_held_session_renews_the_patience_with_outages(clock):
    """S3: an `AlreadyHeld` answer is progress, so a later outage has its whole bound."""
    patience = retry.Patience(Broker("e:1", retry_ms=1_000), clock=clock.time, sleep=clock.sleep)
    patience.wait_or_raise(GONE)
    patience.wait_or_raise(errors.AlreadyHeldError("held by a"))
    clock.sleep(10)
    patience.wait_or_raise(GONE)
    assert clock.time() < 11
