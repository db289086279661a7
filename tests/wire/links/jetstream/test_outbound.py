"""Outbound links with a real NATS server, as processes that are killed and cut."""

import asyncio

import pytest

from ackq import limits
from ackq.client import Admin
from tests.eventually import equals
from tests.wire.links.conftest import all_out, events, eventually, refused
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
    edge.send(*((body, {"message_id": "5"}) for body in ("1", "2")))
    link = outbound(stream)
    eventually("both", lambda: stream.ids, equals([1, 2]))
    all_out(link, edge)
    assert "another message with this id" in link.log


def test_a_stream_that_transforms_subjects(nats_server, edge, outbound):
    """L23: a repetition is one message, though the stream has it under another subject."""
    stream = Stream(nats_server, {"subject_transform": {"src": ">", "dest": "kept.>"}})
    edge.publish([1, 1])
    link = outbound(stream)
    eventually("the messages", lambda: edge.total_with_delayed, equals(0))
    assert link.stop() == 0
    assert (stream.left, events(link, "refused")) == (1, [])


def test_what_no_stream_takes(stream, edge, outbound):
    """L22: a message to a subject that no stream takes waits at the edge."""
    link = outbound(stream, routing_key="")
    edge.publish([1])
    eventually("refused", lambda: "no stream takes 'q'" in link.log)
    assert link.stop() == 0
    eventually("the message", lambda: edge.total, equals(1))


def put(edge, *subjects):
    """Publishes messages with these subjects, long ones in a header, and ids and bodies from 1."""
    with Admin(edge.endpoint) as admin:
        admin.declare_exchange("all", "fanout")
        admin.bind("all", "q")
    messages = []
    for number, subject in enumerate(subjects, 1):
        short = len(subject) <= limits.MAX_ROUTING_KEY_BYTES
        place = {"routing_key": subject} if short else {"headers": {"nats-subject": subject}}
        messages.append((str(number), {"message_id": str(number), **place}))
    edge.send(*messages, exchange="all")


def test_orders_to_the_server(stream, nats_server, edge, outbound):
    """L22: a message to a subject of the server's API is no request: it is a dead letter here."""
    other = Stream(nats_server)
    other.publish(range(3))
    edge.bury()
    subjects = [f"$JS.API.STREAM.{each}.{other.name}" for each in ("PURGE", "DELETE")]
    put(edge, *subjects, f"{stream.name}.x")
    link = outbound(stream, routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([3]))
    eventually("the dead letters", lambda: len(edge.dead), equals(2))
    assert link.stop() == 0
    assert other.ids == [0, 1, 2]
    assert subjects[0] in refused(outbound(stream, routing_key=subjects[0]), edge)


def waits_alone(stream, edge, outbound, subject, why, **keys):
    """Sends a message that waits with this reason, and another one, which goes out, over no cut."""
    put(edge, subject, f"{stream.name}.x")
    link = outbound(stream, routing_key="", **keys)
    eventually("the message behind", lambda: stream.ids, equals([2]))
    eventually("refused", lambda: why in link.log)
    assert link.stop() == 0
    assert not events(link, "cut")
    eventually("the message", lambda: edge.total_with_delayed, equals(1))


def test_no_permission_for_a_subject(stream, edge, outbound):
    """L17, L22: a message that the user may not publish waits; those behind it go out."""
    user = f"nats://no_publish@{stream.endpoint}"
    why = "may not publish to 'denied.x'"
    waits_alone(stream, edge, outbound, "denied.x", why, broker=user)


def test_a_subject_of_another_stream(stream, nats_server, edge, outbound):
    """L22: that stream stores nothing of a message to it, which waits; those behind it go out."""
    other = Stream(nats_server)
    why = f"the subject is of stream '{other.name}'"
    waits_alone(stream, edge, outbound, f"{other.name}.x", why)
    assert other.left == 0


@pytest.fixture
def small(tmp_path, nats_authority):
    """A server that takes lines of 1,024 bytes."""
    server = NatsServer(tmp_path / "small", nats_authority, "small", "max_control_line: 1024")
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize(("kind", "size", "cuts"), [("nats_server", 4_200, 0), ("small", 1_100, 2)])
def test_a_long_subject(request, edge, outbound, kind, size, cuts):
    """L22: a subject over what a server takes by default is a dead letter at once; one over what a
    server takes that is set to less, when it closed because of it.
    """
    stream = Stream(request.getfixturevalue(kind).ready())
    edge.bury()
    put(edge, f"{stream.name}.{'y' * size}", f"{stream.name}.x")
    link = outbound(stream, routing_key="")
    eventually("the message behind", lambda: stream.ids, equals([2]))
    eventually("the dead letter", lambda: [name for name, _ in edge.dead], equals(["1"]))
    assert link.stop() == 0
    assert len(events(link, "cut")) == cuts


def test_a_subject_of_a_service(stream, nats_server, edge, outbound):
    """L22: an answer that is none of the stream refuses its message; those behind it go out."""

    async def answer(message):
        await message.respond(b"OK")

    async def serving(client):
        await client.subscribe("service", cb=answer)
        await client.flush()
        why = "'service' is answered by another subscriber"
        await asyncio.to_thread(waits_alone, stream, edge, outbound, "service", why)

    nats_server.call(serving)
