"""The waits between attempts."""

import pytest

from ackq_link.process import RetryDelay


def test_waits_double_up_to_a_bound():
    """L20: each is the double of the one before, less at most a quarter."""
    backoff = RetryDelay(first_s=1, most_s=5)
    for whole in (1, 2, 4, 5, 5):
        assert 0.75 * whole <= backoff.next_s() <= whole


def test_success_begins_anew():
    """L17: after what went well the next wait is short again."""
    backoff = RetryDelay(first_s=1, most_s=60)
    for _ in range(4):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == pytest.approx(1, abs=0.25)
