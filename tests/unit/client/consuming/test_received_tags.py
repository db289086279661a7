"""Transport acks and duplicates, with the time given: C11."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.client.consuming.received_tags import ReceivedTags


@pytest.fixture
def arrivals():
    """A window of 10, acked at 6 messages or after 1 s."""
    return ReceivedTags(10, 6, 1.0)


def test_an_ack_is_due_at_its_part_of_the_window(arrivals):
    """C11: at 60 % of the window, at once."""
    assert arrivals.add(1, 5, 0.0) == [(1, 5)]
    assert arrivals.ack_due(0.0, 0) is None
    arrivals.add(6, 6, 0.1)
    assert arrivals.wake_at(0) == 0
    assert arrivals.ack_due(0.1, 0) == 6
    assert arrivals.ack_due(0.1, 0) is None


def test_an_ack_is_due_after_its_delay(arrivals):
    """C11: 1 s after the first message without one, however many came since."""
    arrivals.add(1, 1, 5.0)
    arrivals.add(2, 2, 5.9)
    assert arrivals.wake_at(0) == 6.0
    assert arrivals.ack_due(5.9, 0) is None
    assert arrivals.ack_due(6.0, 0) == 2
    assert arrivals.wake_at(0) is None


def test_what_comes_again_is_no_news(arrivals):
    """C11: the application sees a message once, whatever the frames are that bring it again."""
    arrivals.add(1, 4, 0.0)
    assert arrivals.add(1, 4, 0.0) == []
    assert arrivals.add(3, 7, 0.0) == [(5, 7)]
    assert arrivals.add(2, 3, 0.0) == []


def test_an_ack_names_no_tag_behind_a_gap(arrivals):
    """C11: an ack is cumulative, so it waits for what is missing."""
    arrivals.add(1, 2, 0.0)
    arrivals.add(5, 9, 0.0)
    assert arrivals.lowest_missing == 3
    assert arrivals.ack_due(1.0, 0) == 2
    assert arrivals.add(3, 5, 1.5) == [(3, 4)]
    assert arrivals.lowest_missing is None
    assert arrivals.ack_due(1.5, 0) == 9


def test_a_duplicate_is_acked_again_after_a_cut(arrivals):
    """C11: an ack may have been lost with its stream."""
    arrivals.add(1, 3, 0.0)
    assert arrivals.ack_due(1.0, 0) == 3
    arrivals.on_disconnected(2.0)
    assert arrivals.add(1, 3, 2.1) == []
    assert arrivals.ack_due(3.0, 0) == 3


def test_a_slow_application_holds_the_broker_back(arrivals):
    """I6: nothing is acked while more than a window waits to be read."""
    arrivals.add(1, 9, 0.0)
    assert arrivals.wake_at(11) is None
    assert arrivals.ack_due(9.0, 11) is None
    assert arrivals.ack_due(9.0, 10) == 9


def test_without_messages_nothing_is_due(arrivals):
    """No tag has arrived, so none can be named."""
    arrivals.on_disconnected(0.0)
    assert arrivals.wake_at(0) is None
    assert arrivals.ack_due(99.0, 0) is None


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=40))
def test_each_tag_is_news_once(frames):
    """C11: in whatever order frames come, and however often."""
    arrivals, model = ReceivedTags(100, 1, 1.0), set()
    for first, more in frames:
        came = set(range(first, first + more + 1))
        news = [
            tag
            for low, high in arrivals.add(first, first + more, 0.0)
            for tag in range(low, high + 1)
        ]
        assert news == sorted(came - model)
        model |= came
        missing = set(range(1, max(model))) - model
        assert arrivals.lowest_missing == min(missing, default=None)
        acked = arrivals.ack_due(0.0, 0)
        assert acked is None or set(range(1, acked + 1)) <= model
