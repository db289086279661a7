"""The holders of a queue's messages (Q9)."""

from tests.fakes.raw_client import Client, holder


def test_every_unacked_message_is_in_one_holding(ackq):
    """Q9: each unacked message is in one holding, of a session or channel; listing changes none."""
    admin = ackq.broker.admin
    queue = ackq.queue()
    with Client(ackq.broker.endpoint) as client:
        client.publish(*[b"x"] * 9, queue=queue)
        client.open(holder(), session=queue, queues=[queue], max_messages=4)
        with client.consume(label="me") as channel:
            channel.subscribe(queue=queue, prefetch=3)
            channel.deliveries(3)
            found = admin.holdings(queue)
            held = {each.session or each.channel: each for each in found.holdings}
            assert {who: each.messages for who, each in held.items()} == {queue: 4, "me": 3}
            assert admin.queue(queue).unacked == 7
            assert [each.unacked for each in found.consumers] == [3]
            assert (held["me"].first_position, held["me"].last_position) == (5, 7)
            assert held["me"].payload_bytes == 3 * (1 + len(queue))
            assert held["me"].stored_bytes > 3
            (at_six,) = admin.holdings(queue, position=6).holdings
            assert (at_six.channel, at_six.delivery_tag) == ("me", 2)
            assert admin.holdings(queue, position=8).holdings == ()
            assert admin.queue(queue).unacked == 7
        admin.release_session(queue, fence=True)
