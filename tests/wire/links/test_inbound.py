"""Inbound links with a real RabbitMQ, as processes that are killed and cut."""

from collections import Counter

import pytest

from tests.fakes.relay import Relay
from tests.wire.links.conftest import eventually

PREFETCH = 50


def inbound(links, rabbit, edge, port=None, endpoint=None, **keys):
    return links(
        edge=endpoint or edge.endpoint,
        direction="in",
        broker=f"amqp://127.0.0.1:{port or rabbit.port}",
        broker_queue=rabbit.queue,
        queue="q",
        ack="stored",
        **{"prefetch": PREFETCH, **keys},
    )


def ledger(ids, count, cuts):
    """Nothing is lost, and so much is doubled at most (L9)."""
    assert set(ids) == set(range(count))
    doubled = sum(times - 1 for times in Counter(ids).values())
    assert doubled <= cuts * PREFETCH


def test_all_come_in_order(rabbit, edge, links):
    """L8, L9, L12: and are acknowledged there; a stop ends with status 0."""
    rabbit.publish(range(300), content_type="text/plain", headers={"a": "b", "n": 5})
    link = inbound(links, rabbit, edge)
    eventually(lambda: edge.ready == 300)
    assert link.stop() == 0
    assert edge.ids == list(range(300))
    row = edge.messages[0]
    assert row["content_type"] == "text/plain"
    assert dict(row["headers"])["a"] == "b"
    assert dict(row["headers"])["n"] == "5"
    assert rabbit.ready == 0
    assert "at least once" in link.log
    assert '"event": "link_stopped"' in link.log


def test_kills(rabbit, edge, links):
    """L8, L9: in mid-flow, again and again; nothing is lost, and the doubles are bounded."""
    count, kills = 2_000, 3
    rabbit.publish(range(count))
    link = inbound(links, rabbit, edge)
    for kill in range(1, kills + 1):
        eventually(lambda least=kill * count // (kills + 1): edge.ready >= least)
        link.kill()
        link.start()
    eventually(lambda: edge.ready >= count and rabbit.ready == 0)
    assert link.stop() == 0
    assert rabbit.ready == 0
    ids = edge.ids
    ledger(ids, count, kills)
    first_places = list(dict.fromkeys(ids))
    assert first_places == sorted(first_places)


def test_cuts_there(classic, edge, links):
    """L9, L12, L17: connections that are reset between the link and RabbitMQ."""
    count = 1_000
    relay = Relay(f"127.0.0.1:{classic.port}")
    try:
        classic.publish(range(count))
        link = inbound(links, classic, edge, port=relay.port)
        for cut in (1, 2):
            eventually(lambda least=cut * count // 4: edge.ready >= least)
            relay.cut()
            relay.heal()
        classic.publish(range(count, count + 10))
        eventually(lambda: count + 9 in edge.ids)
        assert link.stop() == 0
        ledger(edge.ids, count + 10, relay.accepted - 1)
        assert classic.ready == 0
    finally:
        relay.close()


def test_cuts_here(classic, edge, links):
    """L20: connections that are reset between the link and the edge; nothing doubles."""
    count = 1_000
    relay = Relay(edge.endpoint)
    try:
        classic.publish(range(count))
        link = inbound(links, classic, edge, endpoint=relay.endpoint)
        eventually(lambda: edge.ready >= count // 4)
        relay.cut()
        relay.heal()
        eventually(lambda: edge.ready >= count)
        assert link.stop() == 0
        assert edge.ids == list(range(count))
    finally:
        relay.close()


def test_a_queue_that_is_deleted(classic, edge, links):
    """L17: the consumer is cancelled by the server; the link goes on when the queue is back."""
    classic.publish(range(10))
    link = inbound(links, classic, edge)
    eventually(lambda: edge.ready == 10)
    classic.delete()
    eventually(lambda: "link_cut" in link.log)
    classic.declare()
    classic.publish(range(10, 20))
    eventually(lambda: edge.ready == 20)
    assert edge.ids == list(range(20))


def test_a_full_edge(classic, broker, links):
    """L20: the link holds its window and no more, and goes on when there is room."""
    from ackq.client import Admin, Channel

    with Admin(broker.endpoint) as admin:
        admin.declare_queue("q", max_length=30)
        classic.publish(range(200))

        class Edge:
            endpoint = broker.endpoint

        link = inbound(links, classic, Edge, prefetch=20)
        eventually(lambda: "link_edge_refused" in link.log)
        assert admin.queue("q").ready == 30
        assert classic.ready >= 200 - 30 - 20
        taken = []
        with Channel(broker.endpoint) as channel:
            consumer = channel.consume("q", mode="client")
            while len(taken) < 200:
                message = consumer.receive(60)
                assert message is not None
                taken.append(int(message.message_id))
                message.accept().result()
    assert taken == list(range(200))
    assert link.stop() == 0


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"broker_queue": "nowhere"}, "Declare it there"),
        ({"broker": "amqp://nobody@127.0.0.1:{port}"}, "refuses user 'nobody'"),
        ({"broker": "amqps://127.0.0.1:{port}"}, "TLS failed"),
        ({"broker": "amqp://127.0.0.1:{port}/none"}, "virtual host"),
        ({"queue": "none"}, "'none'"),
    ],
)
def test_what_is_refused_at_the_start(classic, edge, links, change, remedy):
    """L17: status 2 and a line that names the remedy; nothing was taken."""
    classic.publish([0])
    change = {key: value.format(port=classic.port) for key, value in change.items()}
    if "broker" not in change:
        change["broker"] = f"amqp://127.0.0.1:{classic.port}"
    link = links(
        **{
            "edge": edge.endpoint,
            "direction": "in",
            "broker_queue": classic.queue,
            "queue": "q",
            "ack": "stored",
            **change,
        }
    )
    status = eventually(lambda: link.ended)
    assert status == 2
    assert remedy in link.log.splitlines()[-1]
    assert classic.ready == 1
    assert edge.ready == 0
