"""Transport acks and duplicates, with time passed in: C11."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackq.client.consuming.received_tags import ReceivedTags


@pytest.fixture
def received_tags():
    """Received tags with a window of 10, acked at 6 messages or after 1 s."""
    return ReceivedTags(10, 6, 1.0)


def test_a_duplicate_is_acked_again_after_a_cut(received_tags):
    """C11: redelivered messages are acked again, as the first ack may have been lost."""
    received_tags.add(1, 3, 0.0)
    assert received_tags.ack_due(1.0, 0) == 3
    received_tags.on_disconnect(2.0)
    assert received_tags.add(1, 3, 2.1) == []
    assert received_tags.ack_due(3.0, 0) == 3


def test_an_application_that_does_not_read_holds_the_broker_back(received_tags):
    """I6, C11: no ack is due while more than a window is unread."""
    received_tags.add(1, 20, 0.0)
    assert received_tags.ack_due(99.0, 11) is None
    assert received_tags.ack_due(99.0, 10) == 20


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=40))
def test_each_tag_is_news_once(frames):
    """C11: each delivery tag is new once, in whatever order and however often frames come.

    A transport ack is cumulative, so it stops below the first missing tag; none repeats.
    """
    received_tags, model, acked = ReceivedTags(100, 1, 1.0), set(), 0
    received_tags.on_disconnect(0.0)
    assert received_tags.ack_due(99.0, 0) is None
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
        arrived = min(missing, default=max(model) + 1) - 1
        assert received_tags.ack_due(0.0, 0) == (arrived if arrived > acked else None)
        acked = arrived
