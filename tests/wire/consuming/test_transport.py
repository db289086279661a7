"""Transport acks: windows, retransmission, resumption (C11)."""

from tests.wire.bench import bodies, silent, taken

TEN = [b"%d" % number for number in range(10)]


def unacked_transport(ackq, queue, messages, **options):
    """A consumer's first deliveries on a channel that sends no transport acks by itself."""
    connection = ackq.connect()
    channel = connection.channel(transport_acks=False, **options)
    channel.consume(queue)
    return connection, channel, taken(channel, messages)


def test_transport_acks_open_the_window(ackq):
    """C11: deliveries stop at the window, and go on by what a transport ack covers."""
    queue = ackq.filled(*TEN)
    _, channel, first = unacked_transport(ackq, queue, 4, window_messages=4)
    assert silent(channel)
    channel.transport_ack(first[1].tag)
    assert bodies(taken(channel, 2)) == TEN[4:6]
    assert silent(channel)
    assert ackq.ready(queue) == 4


def test_retransmission_of_deliveries(ackq):
    """C11: without a transport ack for 2 s the oldest frame is resent under its tag."""
    queue, publisher = ackq.filled(b"a"), ackq.publisher()
    _, channel, (first,) = unacked_transport(ackq, queue, 1)
    publisher.publish(queue, b"b")
    second = channel.delivery()
    assert channel.delivery() == first
    channel.transport_ack(second.tag)
    channel.settle(second, multiple=True)
    channel.close()
    assert ackq.drain(queue) == []


def test_channel_that_comes_too_late(ackq):
    """C11, C12: a channel cut for longer than its grace is closed; its id opens a new one."""
    queue = ackq.filled(b"a")
    connection, channel, _ = unacked_transport(ackq, queue, 1)
    connection.cut()
    ackq.wait_ready(queue, 1)
    late = ackq.connect().channel(channel.channel_id)
    assert not late.opened.resumed
    (again,) = late.get(queue)
    assert (again.tag, again.redelivered) == (1, True)
