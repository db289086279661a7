"""Dead letters, expiry and redrive over the wire, against a real broker process."""

import time

import pytest

from ackq.v1 import admin_pb2
from tests.eventually import equals, eventually
from tests.fakes.blocks import rows
from tests.fakes.raw_client import TIMEOUT_S, holder, restarted
from tests.wire.consuming.test_stream import FAILED, REJECTED


def headers(delivered):
    return dict(delivered.row["headers"])


@pytest.fixture
def dead(client):
    """The shared client, with queue `work`, whose dead letters go to `dead` after two failures."""
    client.declare("dead")
    client.declare("work", dead_letter_queue="dead", delivery_limit=1)
    return client


@pytest.mark.parametrize(
    ("reasons", "said"), [(("", ""), "delivery_limit"), (("first", "last"), "last")]
)
def test_one_failure_too_many(dead, reasons, said):
    """C13: a FAILED over the limit dead-letters, with its reason or else the cause as reason."""
    dead.publish(b"a", queue="work")
    with dead.consume() as channel:
        channel.subscribe(queue="work")
        for reason in reasons:
            (delivered,) = channel.deliveries(1)
            channel.settled(channel.settle(delivered.tag, FAILED, reason=reason))
        channel.get(queue="dead")
        told = headers(*channel.deliveries(1))
        assert (told["ackq-dead-cause"], told["ackq-dead-reason"]) == ("delivery_limit", said)
        assert told["ackq-dead-deliveries"] == "2"


def test_browse_and_fetch_show_provenance(dead):
    """C13: browse and fetch show a dead letter's origin in its headers."""
    dead.publish(b"a", queue="work")
    with dead.consume() as channel:
        channel.get(queue="work")
        channel.deliveries(1)
        channel.settled(channel.settle(1, REJECTED))
    (browsed,) = dead.admin.Browse(admin_pb2.BrowseRequest(queue="dead"), timeout=TIMEOUT_S)
    _, lease = dead.open(holder(), queues=["dead"])
    (fetched,) = dead.fetch_frames(lease, 0, 1)
    for frame in (browsed, fetched):
        (entries,) = rows(frame.block)["headers"]
        assert dict(entries)["ackq-dead-queue"] == "work"


def test_a_message_with_time_to_live_says_when_it_expires(client):
    """Q3: a consumer sees the expiry that the broker set."""
    client.publish(b"a", ttl_ms=[3_600_000])
    with client.consume() as channel:
        (found,) = channel.pull()
        left_s = found.row["expires_at"].timestamp() - time.time()
        assert 3500 < left_s <= 3600


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
