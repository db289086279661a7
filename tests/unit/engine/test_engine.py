"""The engine: what the disk reserve refuses, waits of callers, and failures (P8, P14, I2)."""

import asyncio
from unittest.mock import Mock

import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import ClosedError, DiskFullError, QueueNotFoundError
from ackq.v1 import admin_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.admin import AdminService
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from tests.fakes.blocks import encoded
from tests.fakes.journal import HeldEngine
from tests.unit.service.channel_streams import PUBLISHER, publish, run_until_idle

DURABLE = commands.QueueProperties(durable=True)


@pytest.fixture
def engine():
    """An engine with the queue `q`, without any sync."""
    held = HeldEngine()
    held.decide(commands.DeclareQueue("q", DURABLE))
    return held


async def test_a_transient_publish_does_not_wait_for_its_own_record(engine):
    """P5: it is confirmed when the topology it depends on is on disk, before any further sync."""
    engine.decide(commands.OpenPublisher(PUBLISHER))
    engine.sync()
    reply, sequence = publish(engine, 1, b"x", persistent=False)
    assert (list(reply.confirmed), sequence <= engine.sync_gate.synced) == ([1], True)
    assert engine.journal.read_block(reply.block_id) == encoded(body=[b"x"])
    _, sequence = publish(engine, 2, b"x")
    assert sequence > engine.sync_gate.synced


async def test_the_reserve_is_kept_from_all_that_fills_it(engine):
    """P8: publishes and new queues are refused; a purge and all ends are not.

    What was done before, and what is refused anyway, adds nothing.
    """
    engine.decide(commands.OpenPublisher(PUBLISHER))
    publish(engine, 1, b"x", b"x")
    engine.free_bytes = limits.DISK_RESERVE_BYTES - 1
    engine.alarms.poll_disk()
    before = engine.core.sequence, len(engine.journal.entries)
    with pytest.raises(DiskFullError):
        engine.decide(commands.DeclareQueue("r", DURABLE))
    with pytest.raises(DiskFullError):
        publish(engine, 3, b"x")
    assert engine.decide(commands.DeclareQueue("q", DURABLE)).reply.created is False
    with pytest.raises(QueueNotFoundError):
        engine.decide(commands.PurgeQueue("r"))
    assert (engine.core.sequence, len(engine.journal.entries)) == before
    engine.decide(commands.ClosePublisherStream(PUBLISHER))
    engine.decide(commands.PurgeQueue("q"))
    engine.free_bytes = limits.DISK_RESERVE_BYTES
    engine.alarms.poll_disk()
    engine.decide(commands.DeclareQueue("r", DURABLE))


async def test_at_the_reserve_any_garbage_is_worth_a_snapshot():
    """P8: the garbage of a full disk may be too little for a snapshot otherwise, but must help."""
    engine = HeldEngine()
    engine.journal.has_garbage = True
    engine.reclaim()
    assert engine.journal.snapshots == []
    engine.free_bytes = 0
    engine.alarms.poll_disk()
    engine.reclaim()
    assert engine.journal.snapshots == [engine.core.sequence]
    engine.journal.has_garbage = False
    engine.reclaim()
    assert len(engine.journal.snapshots) == 1


async def test_changed_wakes_on_records_and_on_stop():
    """K5, I6: a call that waits for messages is woken; one that waits in vain leaves nothing."""
    engine = HeldEngine()
    for _ in range(3):
        await engine.wait_changed(0)
    assert not engine._changed
    for change in (lambda: engine.decide(commands.DeclareQueue("q", DURABLE)), engine.stop):
        waiting = asyncio.create_task(engine.wait_changed(3600))
        await run_until_idle()
        change()
        await waiting
    await engine.wait_changed(0)


async def test_writable_leaves_the_loop_to_others_while_transient_blocks_are_written():
    """P14: blocks that are never synced wait for the disk as well, and no sync ends that wait."""
    engine = HeldEngine()
    engine.journal.unsynced_bytes = limits.MAX_UNSYNCED_BYTES + 1
    wait_writable = asyncio.create_task(engine.wait_writable())
    await run_until_idle()
    assert not wait_writable.done()
    engine.journal.unsynced_bytes = 0
    await wait_writable


async def test_server_info_tells_of_one_moment():
    """I1, Q8: server info leaves out decisions made while it waited for the disk."""
    engine = HeldEngine()
    for history_id in ("older", "newer"):
        engine.decide(commands.Start(history_id, "a copy", BitMap64()))
        if history_id == "older":
            engine.decide(commands.OpenPublisher(PUBLISHER))
    engine.sync()
    engine.decide(commands.DeclareQueue("q", DURABLE))
    asked = engine.core.sequence
    service = AdminService(engine, ConsumerDispatcher(engine), "none", None)
    task = asyncio.ensure_future(service.server_info(pb.ServerInfoRequest()))
    await run_until_idle()
    engine.decide(commands.AcceptHistory())
    engine.sync(asked)
    assert (await task).held_back == 1


# --- I2: an error that is no refusal ends the broker ---


@pytest.mark.parametrize(
    ("part", "step", "error"),
    [
        *(("core", step, MemoryError) for step in ("decide", "apply", "drain_dead_blocks")),
        ("journal", "append", MemoryError),
        # A refusal by the journal comes too late: its records are applied already.
        ("journal", "append", ClosedError),
    ],
)
async def test_what_is_no_refusal_ends_the_broker(monkeypatch, part, step, error):
    """I2: core and journal may differ: nothing is answered or decided from then on."""
    engine = HeldEngine()
    waiting = [asyncio.ensure_future(engine.call(commands.DeclareQueue("q", DURABLE)))]
    await run_until_idle()
    with monkeypatch.context() as patched:
        fails = Mock(side_effect=error("no room for a column"))
        patched.setattr(type(getattr(engine, part)), step, fails)
        with pytest.raises(error):
            engine.decide(commands.DeclareQueue("r", DURABLE))
    assert [type(each) for each in engine.failures] == [error]
    entries = len(engine.journal.entries)
    with pytest.raises(ClosedError, match="no room for a column"):
        engine.decide(commands.DeclareQueue("s", DURABLE))
    asked = engine.query(lambda: views.list_queues(engine.core.state)), engine.sync_gate.wait(0)
    waiting += map(asyncio.ensure_future, asked)
    engine.sync()
    await run_until_idle()
    assert [task.done() for task in waiting] == [False] * 3
    assert (len(engine.journal.entries), len(engine.failures)) == (entries, 1)
    for task in waiting:
        task.cancel()


def test_work_in_the_background_goes_on_or_ends_the_broker(caplog):
    """I2, P8: an error of the disk or a refusal is logged, any other error ends the broker."""
    engine = HeldEngine()
    for error in (OSError("statvfs failed"), QueueNotFoundError("no queue 'q'")):
        engine.or_fail(Mock(side_effect=error))()
    assert engine.failures == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    with pytest.raises(ZeroDivisionError):
        engine.or_fail(Mock(side_effect=ZeroDivisionError))()
    assert [type(error) for error in engine.failures] == [ZeroDivisionError]
