"""Reads of retained batches (S13) while the broker removes them."""

import asyncio

from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core import commands, views
from tests.unit.service.channel_streams import publish
from tests.unit.service.sessions.test_service_timeout import Broker


def test_a_purge_while_a_retained_batch_is_read():
    """S13, Q4: a read that began is whole; the blocks are freed behind it, and the tags holes."""
    broker = Broker()
    lease = broker.lease(retain_ms=3_600_000)
    fields = {"incarnation": lease.incarnation, "retain_ms": 3_600_000}
    publish(broker.engine, 3, b"c")
    assert broker.advance(start_tag=2, **fields).end_tag == 3
    broker.advance(start_tag=3, **fields)
    request = pb.BrowseLeaseRequest(
        session="s", incarnation=lease.incarnation, first_tag=1, last_tag=3
    )
    engine, frames = broker.engine, []

    async def write(frame):
        frames.append(frame)

    async def read():
        publish(engine, 4, b"d")  # the read waits for its sync
        reading = asyncio.ensure_future(broker.service.browse_lease(request, write))
        await asyncio.sleep(0)
        engine.decide(commands.PurgeQueue("q"))
        assert not frames
        await reading

    broker.call(read())
    assert sum(sum(frame.header.rows) for frame in frames) == 3
    broker.call(broker.service.browse_lease(request, write))
    assert sum(sum(frame.header.rows) for frame in frames) == 4
    broker.decide(commands.DeclareQueue("other"))
    assert 1 in engine.journal.freed
    assert not engine.core.state.blocks.pinned()
    assert views.list_sessions(engine.core.state, "s")[0].retained_batches == 2
