"""The reply cache of a channel: requests repeated after a reconnect are idempotent."""

import pytest

from ackq import limits
from ackq_broker.service.consuming import reply_cache
from ackq_broker.service.consuming.reply_cache import ReplyCache


def test_answers_are_remembered_until_they_arrived():
    """C15: an answer is remembered until the ack of a later frame of its stream proves arrival."""
    cache = ReplyCache()
    cache.add_settled(1, 5)
    cache.add_pulled(1, found_fewer=True)
    cache.add_pulled(2, found_fewer=False)
    cache.add_settled(2, 7)
    assert [cache.find_settled(number) for number in (1, 2, 3)] == [5, 7, 0]
    assert [cache.find_pulled(number) for number in (1, 2, 3)] == [True, False, None]
    cache.acknowledged(2)
    assert [cache.find_settled(number) for number in (1, 2)] == [0, 7]
    assert [cache.find_pulled(number) for number in (1, 2)] == [None, False]
    cache.acknowledged(cache.answers)
    assert (cache.find_settled(2), cache.find_pulled(2)) == (0, None)


def test_a_frame_says_nothing_of_answers_on_an_older_stream():
    """C15: acks of a newer stream do not cover answers of an older one, which are repeated."""
    cache = ReplyCache()
    for number in (1, 2, 3):
        cache.add_settled(number, 5)
    cache.add_pulled(1, found_fewer=True)
    cache.disconnect()
    cache.add_settled(2, 5)
    cache.add_settled(4, 7)
    cache.acknowledged(cache.answers)
    assert [cache.find_settled(number) for number in (1, 2, 3, 4)] == [5, 0, 5, 0]
    assert cache.find_pulled(1) is True
    cache.disconnect()
    assert [cache.find_settled(number) for number in (1, 2, 3, 4)] == [5, 0, 5, 0]


@pytest.mark.parametrize("disconnects", [False, True])
def test_the_reply_cache_is_bounded(disconnects):
    """I6: the reply cache is bounded for clients that never acknowledge or always disconnect."""
    cache = ReplyCache()
    for number in range(1, reply_cache._ANSWERS + 3):
        cache.add_settled(number, 1)
        cache.add_pulled(number, found_fewer=True)
        cache.add_cancelled(str(number), None)
        if disconnects:
            cache.disconnect()
    assert (cache.find_settled(2), cache.find_settled(3)) == (0, 1)
    assert len(cache._pulled) == reply_cache._ANSWERS
    assert len(cache.cancelled) == limits.MAX_CONSUMERS_PER_CHANNEL
