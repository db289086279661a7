"""Delivery tags: their scope, and the effect of a wrong one (C1-C3)."""

import pytest

from tests.wire.bench import refused_as, taken
from tests.wire.brokers.dialect import Outcome

# --- C1: delivery tags ---


def test_tags_count_from_one_per_channel(bench):
    """C1: each channel's tags begin at 1 and grow by one, over consumers and pulls together."""
    consumed, pulled = bench.filled(b"a", b"b"), bench.filled(b"c")
    connection = bench.connect()
    for _ in range(2):
        channel = connection.channel()
        channel.consume(consumed)
        tags = [delivery.tag for delivery in taken(channel, 2)]
        tags += [delivery.tag for delivery in channel.get(pulled)]
        assert tags == [1, 2, 3]
        channel.close()
        bench.wait_ready(consumed, 2)
        bench.wait_ready(pulled, 1)


# --- C2: tags that are not outstanding ---


@pytest.mark.parametrize("outcome", [Outcome.ACCEPTED, Outcome.REJECTED, Outcome.RELEASED])
@pytest.mark.parametrize("multiple", [False, True], ids=["one", "multiple"])
@pytest.mark.parametrize("wrong", ["unknown", "twice", "nothing"])
def test_wrong_tag(bench, wrong, multiple, outcome):
    """C2: a tag that is not outstanding closes the channel, and unacked messages are requeued."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    first = channel.get(queue)[0] if wrong != "nothing" else None
    if wrong == "twice":
        channel.settle(first)
        channel.get(queue)
    tag = {"unknown": 7, "twice": 1, "nothing": 1}[wrong]
    with refused_as("precondition_failed") as refused:
        channel.settle(tag, outcome, multiple=multiple)
    assert f"unknown delivery tag {tag}" in refused.value.text
    bench.wait_ready(queue, 1 if wrong == "twice" else 2)


def test_tag_of_another_channel(bench):
    """C2: a tag is valid on its own channel only."""
    queue, connection = bench.filled(b"a", b"b"), bench.connect()
    mine, other = connection.channel(), connection.channel()
    mine.get(queue, 2)
    with refused_as("precondition_failed"):
        other.settle(2)
    mine.settle(2)  # still open
    assert bench.ready(queue) == 0


# --- C3: multiple ---


@pytest.mark.parametrize("no_ack", [False, True], ids=["settled", "no_ack"])
def test_multiple_of_a_tag_that_is_not_outstanding(bench, no_ack):
    """C2, C3: the tag of `multiple` must be outstanding itself, however many are below it."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.get(queue)
    (second,) = channel.get(queue, no_ack=no_ack)
    if not no_ack:
        channel.settle(second)
    with refused_as("precondition_failed"):
        channel.settle(second, multiple=True)
    bench.wait_ready(queue, 1)
    assert bench.drain(queue) == [b"a"]
