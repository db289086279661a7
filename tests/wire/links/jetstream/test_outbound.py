"""Outbound links with a real NATS server, as processes that are killed and cut."""

import asyncio

import pytest

from ackq import limits
from ackq.client import Admin, Publisher
from tests.eventually import equals
from tests.wire.links.conftest import events, eventually, refused
from tests.wire.links.jetstream.nats_server import NatsServer, Stream
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


def test_a_stream_that_transforms_subjects(nats_server, edge, outbound):
    """L23: a repetition is one message, though the stream has it under another subject."""
    stream = Stream(nats_server, {"subject_transform": {"src": ">", "dest": "kept.>"}})
    with Publisher(edge.endpoint, routing_key="q") as publisher:
        for _ in range(2):
            publisher.publish("1", message_id="1")
    link = outbound(stream)
    eventually("the messages", lambda: edge.total_with_delayed, equals(0))
    assert link.stop() == 0
    assert (stream.left, events(link, "refused")) == (1, [])


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
    """Publishes messages with these subjects, long ones in a header, and ids and bodies from 1."""
    with Admin(edge.endpoint) as admin:
        admin.declare_exchange("all", "fanout")
        admin.bind("all", "q")
    with Publisher(edge.endpoint, exchange="all") as publisher:
        for number, subject in enumerate(subjects, 1):
            short = len(subject) <= limits.MAX_ROUTING_KEY_BYTES
            place = {"routing_key": subject} if short else {"headers": {"nats-subject": subject}}
            publisher.publish(str(number), message_id=str(number), **place)


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


def test_no_permission_for_a_subject(stream, edge, outbound):
    """L17, L22: a message that the user may not publish waits; those behind it go out."""
    put(edge, "denied.x", f"{stream.name}.x")
    link = outbound(stream, broker=f"nats://no_publish@{stream.endpoint}", routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([2]))
    eventually("refused", lambda: "may not publish to 'denied.x'" in link.log)
    assert link.stop() == 0
    assert not events(link, "cut")
    eventually("the message", lambda: edge.total, equals(1))


def test_a_subject_of_another_stream(stream, nats_server, edge, outbound):
    """L22: that stream stores nothing of a message to it, which waits; those behind it go out."""
    other = Stream(nats_server)
    put(edge, f"{other.name}.x", f"{stream.name}.x")
    link = outbound(stream, routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([2]))
    eventually("refused", lambda: f"the subject is of stream '{other.name}'" in link.log)
    assert other.left == 0
    assert link.stop() == 0
    eventually("the message", lambda: edge.total_with_delayed, equals(1))


@pytest.fixture
def small(tmp_path, nats_authority):
    """A server that takes lines of 1,024 bytes."""
    server = NatsServer(tmp_path / "small", nats_authority, "small", "max_control_line: 1024")
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize(("kind", "size", "cuts"), [("nats_server", 4_200, 0), ("small", 1_100, 2)])
def test_a_long_subject(request, edge, outbound, dead, kind, size, cuts):
    """L22: a subject over what a server takes by default is a dead letter at once; one over what a
    server takes that is set to less, when it closed because of it.
    """
    stream = Stream(request.getfixturevalue(kind).ready())
    put(edge, f"{stream.name}.{'y' * size}", f"{stream.name}.x")
    link = outbound(stream, routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([2]))
    eventually("the dead letter", lambda: [row["message_id"] for row in dead()], equals(["1"]))
    assert link.stop() == 0
    assert len(events(link, "cut")) == cuts


def test_a_subject_of_a_service(stream, nats_server, edge, outbound):
    """L22: an answer that is none of the stream refuses its message; those behind it go out."""

    def sent():
        put(edge, "service", f"{stream.name}.x")
        link = outbound(stream, routing_key="")
        eventually("the message behind", lambda: stream.ids, equals([2]))
        eventually("refused", lambda: "'service' is answered by another subscriber" in link.log)
        assert link.stop() == 0
        assert not events(link, "cut")

    async def answer(message):
        await message.respond(b"OK")

    async def serving(client):
        await client.subscribe("service", cb=answer)
        await client.flush()
        await asyncio.to_thread(sent)

    nats_server.call(serving)
    eventually("the message", lambda: edge.total_with_delayed, equals(1))
