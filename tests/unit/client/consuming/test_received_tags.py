"""Transport acks and duplicates, with time passed in: C11."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.client.consuming.received_tags import ReceivedTags


@pytest.fixture
def received_tags():
    """Received tags with a window of 10, acked at 6 messages or after 1 s."""
    return ReceivedTags(10, 6, 1.0)


def test_an_ack_is_due_at_its_part_of_the_window(received_tags):
    """C11: a transport ack is due at once at 60 % of the window."""
    assert received_tags.add(1, 5, 0.0) == [(1, 5)]
    assert received_tags.ack_due(0.0, 0) is None
    received_tags.add(6, 6, 0.1)
    assert received_tags.wake_at(0) == 0
    assert received_tags.ack_due(0.1, 0) == 6
    assert received_tags.ack_due(0.1, 0) is None


def test_an_ack_is_due_after_its_delay(received_tags):
    """C11: an ack is due 1 s after the first unacked message, however many follow."""
    received_tags.add(1, 1, 5.0)
    received_tags.add(2, 2, 5.9)
    assert received_tags.wake_at(0) == 6.0
    assert received_tags.ack_due(5.9, 0) is None
    assert received_tags.ack_due(6.0, 0) == 2
    assert received_tags.wake_at(0) is None


def test_what_comes_again_is_no_news(received_tags):
    """C11: repeated frames yield each delivery tag once."""
    received_tags.add(1, 4, 0.0)
    assert received_tags.add(1, 4, 0.0) == []
    assert received_tags.add(3, 7, 0.0) == [(5, 7)]
    assert received_tags.add(2, 3, 0.0) == []


def test_an_ack_names_no_tag_behind_a_gap(received_tags):
    """C11: an ack is cumulative, so it stops below the first missing tag."""
    received_tags.add(1, 2, 0.0)
    received_tags.add(5, 9, 0.0)
    assert received_tags.lowest_missing == 3
    assert received_tags.ack_due(1.0, 0) == 2
    assert received_tags.add(3, 5, 1.5) == [(3, 4)]
    assert received_tags.lowest_missing is None
    assert received_tags.ack_due(1.5, 0) == 9


def test_a_duplicate_is_acked_again_after_a_cut(received_tags):
    """C11: redelivered messages are acked again, as the first ack may have been lost."""
    received_tags.add(1, 3, 0.0)
    assert received_tags.ack_due(1.0, 0) == 3
    received_tags.on_disconnect(2.0)
    assert received_tags.add(1, 3, 2.1) == []
    assert received_tags.ack_due(3.0, 0) == 3


def test_a_slow_application_holds_the_broker_back(received_tags):
    """I6: no transport ack is sent while more than a window of messages is unread."""
    received_tags.add(1, 9, 0.0)
    assert received_tags.wake_at(11) is None
    assert received_tags.ack_due(9.0, 11) is None
    assert received_tags.ack_due(9.0, 10) == 9


def test_without_messages_nothing_is_due(received_tags):
    """No transport ack is due before the first message."""
    received_tags.on_disconnect(0.0)
    assert received_tags.wake_at(0) is None
    assert received_tags.ack_due(99.0, 0) is None


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=40))
def test_each_tag_is_news_once(frames):
    """C11: each delivery tag is new once, in whatever order and however often frames come."""
    received_tags, model = ReceivedTags(100, 1, 1.0), set()
    for first, more in frames:
        came = set(range(first, first + more + 1))
        news = [
            tag
            for low, high in received_tags.add(first, first + more, 0.0)
            for tag in range(low, high + 1)
        ]
        assert news == sorted(came - model)
        model |= came
        missing = set(range(1, max(model))) - model
        assert received_tags.lowest_missing == min(missing, default=None)
        acked = received_tags.ack_due(0.0, 0)
        assert acked is None or set(range(1, acked + 1)) <= model
