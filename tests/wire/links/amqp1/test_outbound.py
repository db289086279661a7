"""Outbound links with real Artemis and Qpid, as processes that are killed and cut."""

from tests.optional import needs

needs("proton", "amqp1")

from ackq.client import Publisher  # noqa: E402
from tests.eventually import equals  # noqa: E402
from tests.wire.links.amqp1.servers import SMALL  # noqa: E402
from tests.wire.links.conftest import (  # noqa: E402
    compare,
    eventually,
    lose_answers,
    refused,
    strike_going_out,
)


def test_all_go_out_in_order(peer, edge, outbound):
    """L22: messages go out in order, durable, with properties, and are accepted at the edge."""
    edge.publish(range(100))
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        publisher.publish(b"last", message_id="100", headers={"a": "b"}, reply_to="r")
    link = outbound(peer)
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    there = peer.take()
    assert [int(each.id) for each in there] == list(range(101))
    last = there[-1]
    assert (bytes(last.body), last.reply_to, last.properties["a"]) == (b"last", "r", "b")
    assert last.durable


def test_kills(peer, edge, outbound):
    """L22, L23: kills of the link lose nothing; Artemis has each message once, by its id."""
    count = 500
    edge.publish(range(count))
    link = outbound(peer)
    strike_going_out(edge, (334, 167), link.kill, link.start)
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    compare(peer.ids, count, 0 if peer.server.name == "artemis" else 2)


def test_artemis_drops_what_comes_again(artemis, edge, outbound, relay_to):
    """L23: over lost answers and a kill of the broker, Artemis has each message once.

    Messages are sent again, and Artemis accepts and drops them.
    """
    part, cuts = 100, 3
    relay = relay_to(f"127.0.0.1:{artemis.server.port}")
    link = outbound(artemis, broker=f"amqp://link@{relay.endpoint}")
    lose_answers(edge, link, relay, cuts, part)
    count = (cuts + 3) * part
    edge.publish(range(cuts * part, count))
    eventually("progress", lambda: edge.total < count - cuts * part)
    artemis.server.kill()
    artemis.server.start()
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    assert "link_doubts" in link.log
    assert sorted(artemis.ids) == list(range(count))


def test_one_id_for_two_messages(artemis, edge, outbound):
    """L23: two messages with one id and different bodies are two messages, also for Artemis."""
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        for body in ("one", "two"):
            publisher.publish(body, message_id="5")
    link = outbound(artemis)
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0
    assert [bytes(each.body) for each in artemis.browse()] == [b"one", b"two"]


def test_what_is_refused_waits(artemis_queues, edge, outbound):
    """L22: messages that a full address rejects wait at the edge, and go when there is room."""
    small = artemis_queues(SMALL)
    edge.publish(range(20))
    link = outbound(small)
    eventually("refused", lambda: "link_refused" in link.log)
    taken = []
    eventually("all", lambda: taken.extend(small.take()) or len(taken) == 20)
    assert {int(each.id) for each in taken} == set(range(20))
    assert link.stop() == 0


def test_a_wrong_queue(peer, edge, outbound):
    """L17: a wrong remote queue exits with 2 and a line that names the remedy."""
    assert "Create it at that broker" in refused(outbound(peer, broker_queue="nowhere"), edge)
