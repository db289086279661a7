"""What a link with NATS refuses, each in one line with the remedy, and nothing taken."""

import pytest

from tests.eventually import equals
from tests.wire.links.conftest import eventually, refused
from tests.wire.links.jetstream.nats_server import Stream


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"broker_queue": "NOWHERE/link"}, "Create it there"),
        ({"broker_queue": "{stream}/nobody"}, "Create it there"),
        ({"broker_queue": "{stream}"}, "STREAM/CONSUMER"),
        ({"prefetch": 1001}, "--max-pending=1001"),
        ({"broker": "nats://stranger@127.0.0.1:{port}"}, "refuses user 'stranger'"),
        ({"broker": "nats://no_api@127.0.0.1:{port}"}, "'no_api' has no permission"),
        ({"broker": "nats://no_pull@127.0.0.1:{port}"}, "'no_pull' has no permission"),
        ({"broker": "tls://link@127.0.0.1:{port}"}, "Name the PEM file of the authority"),
        ({"broker": "tls://link@localhost:{port}", "ca": "{ca}"}, "has this name"),
        ({"on_reject": "there"}, "on-reject=discard"),
    ],
)
def test_at_the_start(stream, edge, inbound, nats_authority, change, remedy):
    """L14, L17: a start that cannot work exits with 2 and a line with the remedy."""
    stream.publish(range(3))
    places = {"port": stream.server.port, "ca": nats_authority.ca, "stream": stream.name}
    filled = {
        key: value.format(**places) if isinstance(value, str) else value
        for key, value in change.items()
    }
    assert remedy in refused(inbound(stream, **filled), edge)


@pytest.mark.parametrize(
    ("consumer", "remedy"),
    [
        ({"ack_policy": "none"}, "ack policy 'none'"),
        ({"deliver_subject": "push.here"}, "is a push consumer"),
        ({"headers_only": True}, "headers only"),
        ({"max_deliver": 5}, "--max-deliver=-1"),
        ({"ack_wait": 24 * 3600 * 10**9}, "--wait=30s"),
    ],
)
def test_a_consumer_of_another_kind(nats_server, edge, inbound, consumer, remedy):
    """L14, L31: a consumer whose messages a link cannot hold is refused."""
    stream = Stream(nats_server, {"retention": "limits"}, **consumer)
    stream.publish(range(3))
    assert remedy in refused(inbound(stream), edge)


def test_no_permission_to_acknowledge(stream, edge, inbound):
    """L17, L30: the first acknowledgement shows it: the link ends, and the message is kept once."""
    stream.publish(range(3))
    link = inbound(stream, broker=f"nats://no_ack@127.0.0.1:{stream.server.port}", ack="stored")
    assert eventually("its end", lambda: link.ended) == 2
    assert "'no_ack' has no permission" in link.log.splitlines()[-1]
    again = inbound(stream, ack="stored")
    eventually("the stream", lambda: stream.state["messages"], equals(0))
    assert again.stop() == 0
    assert edge.ids == [0, 1, 2]


def test_encrypted(stream, edge, inbound, nats_authority):
    """L17: a link connects by TLS with the authority of the server's certificate."""
    stream.publish(range(3))
    url = f"tls://link@127.0.0.1:{stream.server.port}"
    link = inbound(stream, broker=url, ca=nats_authority.ca)
    eventually("the messages", lambda: edge.ready, equals(3))
    assert link.stop() == 0


def test_a_stream_made_anew(stream, edge, inbound):
    """L1, L30: a stream made anew under a link is a cut, and then another source: nothing of it is
    taken.
    """
    stream.publish(range(3))
    link = inbound(stream)
    eventually("the messages", lambda: edge.ready, equals(3))
    stream.delete()
    stream.make()
    stream.consumer()
    stream.publish(range(3, 6))
    eventually("the cut", lambda: "was deleted and created again" in link.log)
    assert link.stop() == 0
    link.start()
    assert eventually("its end", lambda: link.ended) == 2
    assert "ackq link remove link" in link.log.splitlines()[-1]
    assert edge.ids == [0, 1, 2]
    assert stream.held == (0, 0)


def test_out(stream, edge, outbound):
    """L17: a wrong stream exits with 2 and a line that names the remedy."""
    assert "Create it there" in refused(outbound(stream, broker_queue="NOWHERE"), edge)
