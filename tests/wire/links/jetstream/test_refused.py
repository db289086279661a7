"""What a link with NATS refuses, each in one line with the remedy, and nothing taken."""

import pytest

from tests.eventually import equals
from tests.wire.links.conftest import eventually, filled, refused


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
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
    assert remedy in refused(inbound(stream, **filled(change, **places)), edge)


def test_no_permission_to_acknowledge(stream, edge, inbound, nats_authority):
    """L17, L30: the first acknowledgement shows it: the link ends, and the message is kept once.

    The next link has the permission, and connects by TLS.
    """
    stream.publish(range(3))
    link = inbound(stream, broker=f"nats://no_ack@{stream.endpoint}", ack="stored")
    assert eventually("its end", lambda: link.ended) == 2
    assert "'no_ack' has no permission" in link.log.splitlines()[-1]
    url = f"tls://link@{stream.endpoint}"
    again = inbound(stream, ack="stored", broker=url, ca=nats_authority.ca)
    eventually("the stream", lambda: stream.left, equals(0))
    assert again.stop() == 0
    assert edge.ids == [0, 1, 2]


def test_a_stream_made_anew(stream, edge, inbound):
    """L1, L30: a stream made anew under a link is a cut, and then another source: nothing of it is
    taken.
    """
    stream.publish(range(3))
    link = inbound(stream)
    eventually("the messages", lambda: edge.ready, equals(3))
    stream.make_anew()
    stream.publish(range(3, 6))
    eventually("the cut", lambda: "was deleted and created again" in link.log)
    assert link.stop() == 0
    link.start()
    assert eventually("its end", lambda: link.ended) == 2
    assert "ackq link remove link" in link.log.splitlines()[-1]
    assert edge.ids == [0, 1, 2]
    assert stream.held == (0, 0)


def test_a_stream_made_anew_under_a_full_window(stream, edge, inbound, accepting):
    """L9, L30: with a full window nothing tells a link of a stream's end: what it settles of the
    old stream acknowledges nothing of the new one.
    """
    stream.publish(range(20))
    link = inbound(stream, prefetch=10)
    eventually("the messages", lambda: edge.ready, equals(10))
    stream.make_anew()
    stream.publish(range(20, 40))
    while accepting.step():
        pass
    eventually("the remedy", lambda: "ackq link remove link" in link.log)
    assert link.stop() == 0
    assert sorted(accepting.ids) == list(range(10))
    assert stream.ids == list(range(20, 40))


def test_out(stream, edge, outbound):
    """L17: a wrong stream exits with 2 and a line that names the remedy."""
    assert "Create it there" in refused(outbound(stream, broker_queue="NOWHERE"), edge)
