"""The engine: what the disk reserve refuses, waits of callers, and failures (P8, P14, I2)."""

import asyncio
import dataclasses

import pytest
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import ClosedError, DiskFullError, QueueNotFoundError
from ackq.outcomes import Disposition, Outcome
from ackq.v1 import admin_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.admin import AdminService
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from tests.fakes.blocks import encoded
from tests.fakes.journal import HeldEngine
from tests.unit.service.channel_streams import PUBLISHER, publish, run_until_idle

DURABLE = commands.QueueProperties(durable=True)


def open_publisher(engine):
    engine.decide(commands.OpenPublisher(PUBLISHER))


@pytest.fixture
def engine():
    """An engine with the queue `q`, without any sync."""
    held = HeldEngine()
    held.decide(commands.DeclareQueue("q", DURABLE))
    return held


async def test_a_transient_publish_does_not_wait_for_its_own_record(engine):
    """P5: it is confirmed when the topology it depends on is on disk, before any further sync."""
    open_publisher(engine)
    engine.sync()
    reply, sequence = publish(engine, 1, b"x", persistent=False)
    assert (list(reply.confirmed), sequence <= engine.sync_gate.synced) == ([1], True)
    assert engine.journal.read_block(reply.block_id) == encoded(body=[b"x"])
    _, sequence = publish(engine, 2, b"x")
    assert sequence > engine.sync_gate.synced


def leased(engine):
    """The owner of a lease of two messages, and its `Advance` call."""
    holder = commands.HolderInfo(b"h" * 16, "host", 1, "app")
    opening = commands.Advance("s", "", holder, ("q",), 0, new_incarnation="1" * 32)
    incarnation = engine.decide(opening).reply.incarnation
    advance = dataclasses.replace(opening, incarnation=incarnation, max_messages=2)
    assert engine.decide(advance).reply.end_tag == 2
    return commands.LeaseOwner(session="s"), advance


def fill_disk(engine, free_bytes=limits.DISK_RESERVE_BYTES - 1):
    engine.free_bytes = free_bytes
    engine.alarms.poll_disk()


async def test_the_reserve_is_kept_from_all_that_fills_it(engine):
    """P8, P14, K3, S6: publishes, declares, new publishers, commits and outcomes are refused.

    An accept, a purge, a publisher that returns and all ends are not.
    """
    open_publisher(engine)
    publish(engine, 1, b"x", b"x")
    owner, advance = leased(engine)
    stage = commands.StageRef(b"s" * 16, 1, 1)
    engine.decide(commands.OpenStage(stage.stage_id, "w", 1, "run"))
    rows = commands.StageBlock(stage.stage_id, "", commands.Routes(("q",)), 1, 1)
    engine.decide(rows, (encoded(body=[b"x"]),))
    engine.decide(commands.SealStage(stage.stage_id, 1, 1))
    commit = commands.CommitBatch("w", 1, "run", "", (stage,))
    group = commands.OutcomeGroup(Disposition(Outcome.RELEASED), BitMap64((1,)))
    outcomes = commands.StageOutcomes(b"o" * 16, owner, "task", False, (group,))
    fill_disk(engine)
    before, entries = engine.core.sequence, len(engine.journal.entries)
    declare = commands.DeclareQueue("r", DURABLE)
    for refused in (commands.OpenPublisher(b"n" * 16), commit, outcomes, declare):
        with pytest.raises(DiskFullError):
            engine.decide(refused)
    with pytest.raises(DiskFullError):
        publish(engine, 3, b"x")
    # What was done before, and what is refused anyway, adds nothing.
    assert engine.decide(commands.DeclareQueue("q", DURABLE)).reply.created is False
    with pytest.raises(QueueNotFoundError):
        engine.decide(commands.PurgeQueue("r"))
    assert (engine.core.sequence, len(engine.journal.entries)) == (before, entries)
    engine.decide(commands.ClosePublisherStream(PUBLISHER))
    engine.decide(commands.OpenPublisher(PUBLISHER, resume=True))
    engine.decide(dataclasses.replace(advance, start_tag=2))
    engine.decide(commands.PurgeQueue("q"))
    fill_disk(engine, limits.DISK_RESERVE_BYTES)
    assert engine.decide(commit).reply.rows == 1
    fill_disk(engine)
    assert engine.decide(commit).reply.repeated
    engine.decide(commands.AbortBatch("w", 2, (b"u" * 16,)))


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
    waiting = asyncio.create_task(engine.wait_changed(3600))
    await run_until_idle()
    engine.decide(commands.DeclareQueue("q", DURABLE))
    await waiting
    waiting = asyncio.create_task(engine.wait_changed(3600))
    await run_until_idle()
    engine.stop()
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
            open_publisher(engine)
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


def broken(monkeypatch, engine, at, error):
    """Makes the engine fail at one step of its next decision."""

    def fail(*_, **__):
        raise error

    whose, name = {
        "decide": (type(engine.core), "decide"),
        "apply": (type(engine.core), "apply"),
        "append": (engine.journal, "append"),
        "free": (type(engine.core), "drain_dead_blocks"),
    }[at]
    monkeypatch.setattr(whose, name, fail)


@pytest.mark.parametrize(
    ("at", "error"),
    [
        *((at, MemoryError) for at in ("decide", "apply", "append", "free")),
        # A refusal by the journal comes too late: its records are applied already.
        ("append", ClosedError),
    ],
)
async def test_what_is_no_refusal_ends_the_broker(monkeypatch, at, error):
    """I2: core and journal may differ: nothing is answered or decided from then on."""
    engine = HeldEngine()
    waiting = asyncio.ensure_future(engine.call(commands.DeclareQueue("q", DURABLE)))
    await run_until_idle()
    with monkeypatch.context() as patched:
        broken(patched, engine, at, error("no room for a column"))
        with pytest.raises(error):
            engine.decide(commands.DeclareQueue("r", DURABLE))
    assert [type(each) for each in engine.failures] == [error]
    entries = len(engine.journal.entries)
    with pytest.raises(ClosedError, match="no room for a column"):
        engine.decide(commands.DeclareQueue("s", DURABLE))
    asked = asyncio.ensure_future(engine.query(lambda: views.list_queues(engine.core.state)))
    engine.sync()
    await run_until_idle()
    assert (waiting.done(), asked.done()) == (False, False)
    assert (len(engine.journal.entries), len(engine.failures)) == (entries, 1)
    waiting.cancel()
    asked.cancel()


def test_work_in_the_background_goes_on_or_ends_the_broker(caplog):
    """I2, P8: an error of the disk or a refusal is logged, any other error ends the broker."""
    engine = HeldEngine()

    def raises(error):
        def work():
            raise error

        return engine.or_fail(work)

    raises(OSError("statvfs failed"))()
    raises(QueueNotFoundError("no queue 'q'"))()
    assert engine.failures == []
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    with pytest.raises(ZeroDivisionError):
        raises(ZeroDivisionError())()
    assert [type(error) for error in engine.failures] == [ZeroDivisionError]
