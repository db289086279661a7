"""The back-off between attempts of a link's process."""

from ackq_link.process import back_off


def test_waits_double_up_to_a_bound():
    """L17, L20: each is twice the previous one, less at most a quarter; short after a success."""
    waits = back_off(first_s=1, most_s=5)
    for _ in range(2):
        for whole in (1, 2, 4, 5, 5):
            assert 0.75 * whole <= waits.next_s() <= whole
        waits.reset()
