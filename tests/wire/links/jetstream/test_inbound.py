"""Inbound links with a real NATS server, as processes that are killed and cut."""

import signal

from tests.eventually import equals
from tests.wire.links.conftest import events, eventually, info
from tests.wire.links.jetstream.nats_server import Stream
from tests.wire.links.scenarios import (  # noqa: F401 - scenarios of every protocol
    drained,
    finished,
    test_faults,
    test_stored,
)


def test_settled(nats_server, edge, inbound, accepting):
    """L9, L10, L31: what is held stays in the stream, is signed for beyond AckWait, and is given
    back at a stop.
    """
    count = 40
    stream = Stream(nats_server, ack_wait=4 * 10**9)
    stream.publish(range(count))
    link = inbound(stream)
    eventually("the messages", lambda: edge.ready, equals(count))
    assert accepting.step(10) == 10
    accepting.step(10)  # accepts the previous ten
    eventually("the stream", lambda: stream.left, equals(count - 10))
    proven = eventually("the proofs", lambda: info(edge).proven, equals(10))
    assert proven == 10

    def undisturbed():
        before = stream.deliveries
        signal.sigtimedwait([], 4.5)  # longer than AckWait
        return stream.deliveries == before

    # A link that a busy machine made late once has redeliveries, but not in each such time.
    eventually("no redelivery", undisturbed)
    assert stream.held[0] == count - 10
    assert link.stop() == 0
    link.start()
    eventually("the matches", lambda: info(edge).matched_held >= count - 10)
    finished(link, stream, edge, accepting, count, in_order=False)


def test_a_server_that_is_killed(nats_server, edge, inbound, accepting):
    """L10, L30: answered acknowledgements that a killed server takes back are matched.

    The stream keeps acknowledged messages, so its consumer alone knows of them.
    """
    count = 100
    stream = Stream(nats_server, {"retention": "limits"})
    stream.publish(range(count))
    link = inbound(stream, prefetch=count)
    eventually("the messages", lambda: edge.ready, equals(count))
    accepting.step(count // 2)
    accepting.step(1)  # accepts the previous ones
    eventually("the proofs", lambda: info(edge).proven, equals(count // 2))
    nats_server.restart()
    eventually("the redeliveries", lambda: info(edge).matched_held + info(edge).matched_settled)
    drained(edge, accepting, count)
    eventually("the acknowledgements", lambda: stream.held[0], equals(0))
    assert sorted(accepting.ids) == list(range(count))
    assert link.stop() == 0


def test_a_late_acknowledgement_counts_for_the_newer_delivery(stream, edge, inbound, accepting):
    """L30: a delivery that came again, while the link stood still, is one message; an
    acknowledgement of the delivery before the cut settles it.
    """
    stream.publish(range(3))
    link = inbound(stream)
    eventually("the messages", lambda: edge.ready, equals(3))
    link.pause()
    signal.sigtimedwait([], 1.2)
    link.resume()
    finished(link, stream, edge, accepting, 3, in_order=False)


def test_what_is_rejected_here_is_terminated_there(stream, edge, inbound):
    """L28: with on-reject=discard a rejected message is terminated, and does not come again."""
    stream.publish(range(4))
    link = inbound(stream, on_reject="discard")
    eventually("the messages", lambda: edge.ready, equals(4))
    edge.settle(4, [1])
    eventually("the stream", lambda: stream.ids, equals([0, 2, 3]))
    assert link.stop() == 0
    assert edge.ids == [0, 2, 3]
    assert events(link, "stopped")[0]["rejected"] == 1


def test_a_window_of_bytes(stream, edge, inbound):
    """L19: a link holds no more bytes than its window; a message larger than it is held alone."""
    stream.publish([10**1000, *range(20), 10**1001])
    link = inbound(stream, window_bytes=500, ack="stored")
    eventually("the messages", lambda: edge.ready, equals(22))
    eventually("the stream", lambda: stream.left, equals(0))
    assert link.stop() == 0
    assert edge.ids == [10**1000, *range(20), 10**1001]


def test_a_consumer_with_few_bytes_a_request(nats_server, edge, inbound):
    """L19: a consumer's max_bytes bounds each pull, and not the window."""
    stream = Stream(nats_server, max_bytes=1_000)
    stream.publish([*range(20), 10**1001, *range(21, 41)])
    link = inbound(stream)
    eventually("the messages", lambda: edge.ready, equals(41))
    assert stream.held[0] == 41
    assert link.stop() == 0
