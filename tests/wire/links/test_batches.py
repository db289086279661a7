"""Leases of a queue that a link fills (K6)."""

import pytest

from ackq import errors
from ackq.v1 import links_pb2
from tests.fakes.raw_link import RawLink

WINDOW = 10


@pytest.mark.parametrize(
    ("ack", "more", "least", "leases"),
    [
        (links_pb2.LINK_ACK_SETTLED, 0, 0, [5, 5, 0]),
        (links_pb2.LINK_ACK_STORED, 0, 0, [10, 0]),
        (links_pb2.LINK_ACK_SETTLED, 1, 0, [11, 0]),  # another publisher's message: no window
        (links_pb2.LINK_ACK_SETTLED, 0, 7, [7]),
        (links_pb2.LINK_ACK_STORED, 0, 7, [10]),
    ],
)
def test_a_lease_is_half_of_a_window(client, reader, ack, more, least, leases):
    """K6: a lease takes half of a link's window, so that the other half is ready when it ends."""
    link = RawLink(client, ack=ack)
    subscription = link.subscribe()
    link.deliver(subscription, 1, range(WINDOW))
    link.stored()
    report = links_pb2.LinkReport(window_messages=WINDOW)
    link.send(heartbeat=links_pb2.LinkHeartbeat(subscription=subscription, report=report))
    while not next(link.call).HasField("state"):
        pass
    if more:
        client.publish(*[b"own"] * more)
    incarnation, end, found = client.advance(reader).incarnation, 0, []
    for _ in leases:
        leased = client.advance(
            reader,
            incarnation=incarnation,
            start_tag=end,
            min_messages=least,
            max_messages=1_000,
        )
        found.append(leased.end_tag - end)
        end = leased.end_tag
    assert found == leases
    link.close()


def test_the_queue_of_an_idle_link_is_deleted(client, reader):
    """L13, S4: the link's process ends with its queue; sessions of other queues go on."""
    incarnation = client.advance(reader).incarnation
    client.declare("linked")
    link = RawLink(client, queue="linked")
    link.subscribe()
    client.delete("linked", force=True)
    assert client.advance(reader, incarnation=incarnation).end_tag == 0
    assert type(link.error()) is errors.LinkNotFoundError
    assert client.advance(reader, incarnation=incarnation).end_tag == 0
