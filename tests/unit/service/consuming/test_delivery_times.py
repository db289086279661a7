"""Q9: the age of outstanding tags, kept with a bounded number of marks."""

from ackq_broker.service.consuming.delivery_times import MOST_MARKS, DeliveryTimes

SECOND_US = 1_000_000


def test_a_tag_is_as_old_as_the_mark_before_it():
    """Q9, I6: marks are one second apart, and those of a month-old channel are bounded.

    Then ages are too long rather than short.
    """
    times = DeliveryTimes()
    assert times.since_us(1) == 0
    for tag, at_s in ((1, 10), (5, 10.9), (9, 12)):
        times.note(tag, round(at_s * SECOND_US))
    since_s = [times.since_us(tag) / SECOND_US for tag in (1, 5, 8, 9, 99)]
    assert since_s == [10, 10, 10, 12, 12]
    times = DeliveryTimes()
    for second in range(1, 30 * 24 * 3600, 7):
        times.note(second, second * SECOND_US)
    assert len(times._tags) < MOST_MARKS
    for second in (1, 5_000, 1_000_000, 2_500_000):
        since_s = times.since_us(second) // SECOND_US
        assert since_s <= second
        assert second - since_s < 30 * 24 * 3600 / (MOST_MARKS / 2) + 7
