"""The start of an engine from a data directory."""

import asyncio
import logging

from ackq_broker.core import commands, views
from ackq_broker.engine.recovery import recover, wait_synced
from ackq_broker.journal.failpoints import unarmed
from tests.unit.service.channel_streams import PUBLISHER, publish

CHANNEL = b"c" * 16


def blocks_of(engine):
    """The ids of blocks in files of the journal, and of blocks that the core refers to."""
    return set(engine.journal._blocks.copy_table().ids().tolist()), set(
        views.live_blocks(engine.core.state)
    )


async def live(directory, number):
    """Runs a process that stops while a consumer without acks reads; returns its first blocks."""
    recovered = recover(directory, sync=False, failpoint=unarmed)
    await wait_synced(recovered)
    engine = recovered.engine
    found = blocks_of(engine)
    if not number:
        engine.decide(commands.DeclareQueue("q", commands.QueueProperties()))
    engine.decide(commands.OpenPublisher(PUBLISHER, resume=number > 0))
    for at in range(12):
        publish(engine, 100 * number + 1 + at, b"x")
    for at in range(3):
        publish(engine, 100 * number + 50 + at, b"x", persistent=False)
    engine.decide(commands.Deliver(CHANNEL, "q", 10, 0, no_ack=True))
    await engine.wait_synced()
    await engine.close()
    return found


def test_blocks_that_were_read_at_a_stop_do_not_leak(tmp_path, caplog):
    """C10, Q7: after a start the journal has the blocks that the core refers to, and no others.

    However many processes ended while a consumer without acks still read.
    """
    caplog.set_level(logging.INFO)
    for number in range(4):
        in_files, live_blocks = asyncio.run(live(tmp_path / "data", number))
        assert in_files == live_blocks
    assert "dropped 10 dead blocks" in caplog.text


def test_a_stream_that_ends_behind_the_stop(tmp_path):
    """I1, P10: a stream that outlasts the stop's grace writes no record, and is no failure.

    The next start lets its publisher continue.
    """

    async def stopped():
        recovered = recover(tmp_path / "data", sync=False, failpoint=unarmed)
        await wait_synced(recovered)
        engine = recovered.engine
        engine.decide(commands.OpenPublisher(PUBLISHER))
        await engine.close()
        sequence = engine.core.sequence
        engine.end(commands.ClosePublisherStream(PUBLISHER))
        engine.end(commands.DropStage(b"s" * 16))
        assert (engine.core.sequence, engine.failure) == (sequence, None)

    async def started():
        recovered = recover(tmp_path / "data", sync=False, failpoint=unarmed)
        await wait_synced(recovered)
        recovered.engine.decide(commands.OpenPublisher(PUBLISHER, resume=True))
        await recovered.engine.close()

    asyncio.run(stopped())
    asyncio.run(started())
