"""Outbound links with a real NATS server, as processes that are killed and cut."""

import base64

from ackq.client import Publisher
from tests.eventually import equals
from tests.wire.links.conftest import eventually, lose_answers
from tests.wire.links.jetstream.nats_server import Stream


def headers_of(message):
    """The headers of a message that the stream gave."""
    lines = base64.b64decode(message["hdrs"]).decode().split("\r\n")[1:-2]
    return dict(line.split(": ", 1) for line in lines)


def test_all_go_out_in_order(stream, edge, outbound):
    """L22, L23: messages go out in order under their ids, with headers; a server's own are not
    sent.
    """
    edge.publish(range(100))
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        publisher.publish(b"100", headers={"a": "b", "Nats-Rollup": "all"}, reply_to="r")
    link = outbound(stream)
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    assert stream.ids == list(range(101))
    *_, before, last = stream.messages
    assert headers_of(before) == {"Nats-Msg-Id": "99"}
    found = headers_of(last)
    assert found.pop("Nats-Msg-Id").startswith("ackq:")
    assert found == {"a": "b", "Reply-To": "r"}


def test_what_comes_again_is_dropped_there(stream, edge, outbound, relay_to):
    """L23: over lost answers and a kill of the link the stream has each message once."""
    part, cuts = 100, 2
    relay = relay_to(f"127.0.0.1:{stream.server.port}")
    link = outbound(stream, broker=f"nats://link@{relay.endpoint}")
    lose_answers(edge, link, relay, cuts, part)
    edge.publish(range(cuts * part, (cuts + 2) * part))
    eventually("progress", lambda: edge.total < 2 * part)
    link.kill()
    link.start()
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    assert "link_doubts" in link.log
    assert sorted(stream.ids) == list(range((cuts + 2) * part))


def test_one_id_for_two_messages(nats_server, edge, outbound):
    """L23: of two messages with one id the second waits until the duplicate window has passed."""
    stream = Stream(nats_server, {"duplicate_window": 10**9})
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        for body in ("1", "2"):
            publisher.publish(body, message_id="5")
    link = outbound(stream)
    eventually("both", lambda: stream.ids, equals([1, 2]))
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    assert "another message with this id" in link.log


def test_what_no_stream_takes(stream, edge, outbound):
    """L22: a message to a subject that no stream takes waits at the edge."""
    link = outbound(stream, routing_key="")
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        publisher.publish(b"1", message_id="1")
    eventually("refused", lambda: "no stream takes 'q'" in link.log)
    assert link.stop() == 0
    eventually("the message", lambda: edge.total, equals(1))
