"""Outbound links with a real NATS server, as processes that are killed and cut."""

import pytest

from ackq.client import Admin, Publisher
from tests.eventually import equals
from tests.wire.links.conftest import eventually, refused
from tests.wire.links.jetstream.nats_server import Stream
from tests.wire.links.scenarios import sent_again, test_all_go_out_in_order  # noqa: F401


def test_what_comes_again_is_dropped_there(stream, edge, outbound, relay_to):
    """L23: over lost answers and a kill of the link the stream has each message once."""

    def kill(link):
        link.kill()
        link.start()

    sent_again(stream, edge, outbound, relay_to, kill)


def test_one_id_for_two_messages(nats_server, edge, outbound):
    """L23: of two messages with one id the second waits until the duplicate window has passed."""
    stream = Stream(nats_server, {"duplicate_window": 5 * 10**9})
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


@pytest.fixture
def dead(edge):
    """The rows of a dead-letter queue, which the edge's queue gets."""
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("dead")
        admin.delete_queue("q")
        admin.declare_queue("q", dead_letter_queue="dead")

    def rows():
        with Admin(edge.endpoint) as admin:
            return [row for batch in admin.browse("dead") for row in batch.to_pylist()]

    return rows


def put(edge, *subjects):
    """Publishes messages with these subjects, and 1, 2 ... as ids and bodies."""
    with Admin(edge.endpoint) as admin:
        admin.declare_exchange("all", "fanout")
        admin.bind("all", "q")
    with Publisher(edge.endpoint, exchange="all") as publisher:
        for number, subject in enumerate(subjects, 1):
            publisher.publish(str(number), routing_key=subject, message_id=str(number))


def test_orders_to_the_server(stream, nats_server, edge, outbound, dead):
    """L22: a message to a subject of the server's API is no request: it is a dead letter here."""
    other = Stream(nats_server)
    other.publish(range(3))
    subjects = [f"$JS.API.STREAM.{each}.{other.name}" for each in ("PURGE", "DELETE")]
    put(edge, *subjects, f"{stream.name}.x")
    link = outbound(stream, routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([3]))
    eventually("the dead letters", lambda: len(dead()), equals(2))
    assert link.stop() == 0
    assert other.ids == [0, 1, 2]
    assert subjects[0] in refused(outbound(stream, routing_key=subjects[0]), edge)
