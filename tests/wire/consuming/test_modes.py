"""Acknowledge modes (C10)."""

import threading

import pytest

from ackq.client import Channel
from tests.eventually import SOON_S
from tests.wire.bench import refused_as, taken


def test_no_ack(bench):
    """C10: without acks a message is removed when it is sent, and there is nothing to settle."""
    queue, channel = bench.filled(b"a", b"b"), bench.channel()
    channel.consume(queue, prefetch=1, no_ack=True)
    deliveries = taken(channel, 2)
    assert [delivery.tag for delivery in deliveries] == [1, 2]
    with refused_as("precondition_failed"):
        channel.settle(1)
    assert bench.drain(queue) == []


def consumed(ackq, queue, *, raising=False, **options):
    """The bodies that a client's callback sees, and the messages left when it sees the last one.

    With `raising`, it raises at the first message.
    """
    seen, looked = [], threading.Event()

    def callback(message):
        seen.append(message.body)
        if len(seen) == 1 and raising:
            raise RuntimeError("at the first message")
        if message.body == b"last":
            left.append(left_of(ackq, queue))
            looked.set()

    left = []
    with Channel(ackq.broker.endpoint) as channel:
        channel.consume(queue, callback, **{"prefetch": 1, **options})
        assert looked.wait(SOON_S)
    return seen, left[0]


def left_of(ackq, queue):
    """The number of messages of a queue, ready or unacked."""
    info = ackq.broker.admin.queue(queue)
    return info.ready + info.unacked


@pytest.mark.parametrize(
    ("mode", "left_in_callback", "left_after"),
    [("auto", 1, 0), ("dups_ok", None, 0), ("pre", 0, 0), ("none", 0, 0), ("client", 2, 2)],
)
def test_acknowledge_modes(ackq, mode, left_in_callback, left_after):
    """C10: each mode accepts at its own moment: after the callback, before, at send, or never."""
    queue = ackq.filled(b"first", b"last")
    options = {"prefetch": 0} if mode == "client" else {}
    seen, left = consumed(ackq, queue, mode=mode, **options)
    assert seen == [b"first", b"last"]
    if left_in_callback is not None:
        assert left == left_in_callback
    assert left_of(ackq, queue) == left_after


@pytest.mark.parametrize("outcomes", [(), ("failed",)], ids=["released", "failed"])
def test_a_callback_that_raises(ackq, outcomes):
    """C10: in AUTO a message whose callback raises is FAILED if declared, else RELEASED."""
    queue, _ = ackq.dead_lettering(b"bad", b"last", delivery_limit=1)
    seen, _ = consumed(ackq, queue, raising=True, mode="auto", outcomes=outcomes)
    assert seen == [b"bad", b"bad", b"last"]
    assert ackq.broker.admin.queue(queue).accepted == 2
