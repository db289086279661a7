"""Dead letters, expiry and redrive over the wire, against a real broker process."""

from tests.eventually import equals, eventually
from tests.fakes.raw_client import restarted
from tests.wire.consuming.test_stream import FAILED, REJECTED


def headers(delivered):
    return dict(delivered.row["headers"])


def test_queue_ttl_drops_without_dead_letter_queue(client):
    """Q3: a message that expires without a dead-letter queue is dropped and counted."""
    client.declare("brief", message_ttl_ms=1)
    client.publish(b"a", b"b", queue="brief")
    eventually("their expiry", lambda: left(client, "brief"), equals((0, 2)))


def test_staged_messages_expire(client):
    """Q3, K3: rows of a writer's batch expire by their TTL, too."""
    client.stage([b"a", b"b"], stage_id=b"s" * 16, seal=(2, 4), ttl_ms=[1, None])
    client.commit((b"s" * 16, 2, 4))
    eventually("the expiry of one", lambda: left(client), equals((1, 1)))


def left(client, queue="q"):
    info = client.queue(queue)
    return info.ready, info.expired


def test_provenance_and_delays_survive_a_kill(broker, own):
    """Q7: origins of dead letters, delays and expiries survive a kill -9."""
    own.declare("dead")
    own.declare("work", dead_letter_queue="dead", redelivery_delay_ms=1000)
    own.publish(b"a", b"b", queue="work")
    with own.consume() as channel:
        channel.subscribe(queue="work")
        channel.deliveries(2)
        channel.settled(channel.settle(1, REJECTED, reason="bad"))
        channel.settled(channel.settle(2, FAILED))
        broker.kill()
    with restarted(broker) as again, again.consume() as channel:
        channel.get(queue="dead")
        assert headers(channel.deliveries(1)[0])["ackq-dead-reason"] == "bad"
        channel.subscribe(queue="work")
        assert channel.deliveries(1)[0].body == b"b"
