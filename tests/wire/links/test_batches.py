"""Leases of a queue that a link fills (K6)."""

import asyncio

import pyarrow as pa
import pytest

from ackq.client import Admin, Publisher, Session, holder
from ackq.v1 import links_pb2
from ackq.v1 import sessions_pb2 as pb
from ackq_link.edge import AsyncLink, Proof
from tests.eventually import eventually_async

WINDOW = 10


@pytest.fixture
def reader(edge):
    """Returns a function that advances a session, and returns the number of leased rows."""
    session, reading, at = Session(edge.endpoint), holder("test"), {}

    def lease(**keys):
        found = session.advance(
            pb.AdvanceRequest(holder=reading, queues=["q"], max_messages=1_000, **keys, **at)
        )
        rows = found.end_tag - at.get("start_tag", 0)
        at.update(session=found.session, incarnation=found.incarnation, start_tag=found.end_tag)
        return rows

    assert lease() == 0  # the opening
    return lease


async def filled(endpoint, ack, check):
    """Runs `check` while a link is open that has delivered and reported its window."""
    there = {"link": "there", "source": "amqp://there/orders", "queue": "q"}
    async with AsyncLink(endpoint, **there, ack=ack) as link:
        await link.subscribe(Proof)
        rows = pa.record_batch({"body": [b"x"] * WINDOW})
        await link.store(1, rows, keys=bytes(range(160)), checks=bytes(8 * WINDOW))
        link.report(links_pb2.LinkReport(window_messages=WINDOW))
        with Admin(endpoint) as admin:
            await eventually_async("its report", lambda: admin.link("there").report.window_messages)
        await asyncio.to_thread(check)


@pytest.mark.parametrize(
    ("ack", "more", "least", "leases"),
    [
        ("settled", 0, 0, [5, 5, 0]),
        ("stored", 0, 0, [10, 0]),
        ("settled", 1, 0, [11, 0]),  # another publisher's message: no window
        ("settled", 0, 7, [7]),
        ("stored", 0, 7, [10]),
    ],
)
def test_a_lease_is_half_of_a_window(edge, reader, monkeypatch, ack, more, least, leases):
    """K6: a lease takes half of a link's window, so that the other half is ready when it ends."""
    monkeypatch.setattr("ackq_link.edge.state._HEARTBEAT_S", 0.05)

    def check():
        with Publisher(edge.endpoint, routing_key="q") as publisher:
            for _ in range(more):
                publisher.publish(b"own")
        assert [reader(min_messages=least) for _ in leases] == leases

    asyncio.run(filled(edge.endpoint, ack, check))
