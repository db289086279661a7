"""The back-off between attempts of a link's process."""

import pytest

from ackq_link.process import back_off


def test_waits_double_up_to_a_bound():
    """L20: each wait is twice the previous one, less at most a quarter."""
    waits = back_off(first_s=1, most_s=5)
    for whole in (1, 2, 4, 5, 5):
        assert 0.75 * whole <= waits.next_s() <= whole


def test_success_begins_anew():
    """L17: after a success the next wait is short again."""
    waits = back_off(first_s=1, most_s=60)
    for _ in range(4):
        waits.next_s()
    waits.reset()
    assert waits.next_s() == pytest.approx(1, abs=0.25)
