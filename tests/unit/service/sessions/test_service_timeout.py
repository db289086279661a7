"""Timeouts and retention of sessions (S5, S13) with an injected clock and a real core."""

import asyncio

import pytest

from ackq import limits
from ackq.errors import FencedError
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.sessions.service import SessionsService
from tests.fakes.journal import HeldEngine
from tests.unit.service.channel_streams import PUBLISHER, ClientStream, publish, run_until_idle

READER = pb.Holder(token=b"r" * 16, host="host", pid=1)
GRACE_S = limits.HOLDER_CUT_GRACE_MS / 1000
HEARTBEAT_S = limits.HEARTBEAT_MS / 1000
TIMEOUT_MS = 60_000


class Broker:
    """An engine with a queue of two messages, and its sessions service with a clock of the test."""

    def __init__(self):
        self.now = 1000.0
        self.engine = HeldEngine()
        self.decide(commands.DeclareQueue("q", commands.QueueProperties(durable=True)))
        self.decide(commands.OpenPublisher(PUBLISHER))
        publish(self.engine, 1, b"a", b"b")
        self.start()

    def start(self):
        """Starts the service as after a restart: it knows only the core's state."""
        self.liveness = Liveness(lambda: self.now)
        self.service = SessionsService(self.engine, self.liveness)

    def decide(self, command):
        return self.engine.decide(command).reply

    def call(self, awaitable):
        async def run():
            task = asyncio.ensure_future(awaitable)
            while not task.done():
                await asyncio.sleep(0)
                self.engine.sync()
            return task.result()

        return asyncio.run(run())

    def advance(self, **fields):
        request = {"session": "s", "holder": READER, "queues": ["q"], **fields}
        request.setdefault("session_timeout_ms", TIMEOUT_MS)
        return self.call(self.service.advance(pb.AdvanceRequest(**request)))

    def lease(self, **fields):
        incarnation = self.advance(**fields).incarnation
        return self.advance(incarnation=incarnation, **fields)

    def passed(self, seconds):
        """Advances the clock, and lets the service detach absent holders."""
        self.now += seconds
        self.service.detach_absent()

    @property
    def session(self):
        (info,) = views.list_sessions(self.engine.core.state, "s")
        return info


@pytest.fixture
def broker():
    return Broker()


def hold(lease):
    """A heartbeat of the reader of a lease."""
    held = {"incarnation": lease.incarnation, "epoch": lease.epoch}
    return pb.HoldRequest(session="s", token=READER.token, **held)


def test_the_lease_of_an_absent_owner_goes_back(broker):
    """S5: past the timeout of a cut owner one record requeues its lease and raises the epoch.

    After a restart of the broker it has the full timeout again. A query that is restarted without
    a timeout keeps its lease.
    """
    lease = broker.lease()
    broker.liveness.disconnected(broker.liveness.opened(lease.incarnation, READER.token))
    broker.passed(GRACE_S + TIMEOUT_MS / 1000)
    broker.start()
    broker.passed(TIMEOUT_MS / 1000)
    assert (broker.session.detached, broker.session.epoch) == (False, 1)
    before = len(broker.engine.journal.entries)
    for later_s in (HEARTBEAT_S + 0.001, TIMEOUT_MS):
        broker.passed(later_s)
        assert len(broker.engine.journal.entries) == before + 1
    assert (broker.session.detached, broker.session.epoch) == (True, 2)
    (queue,) = views.list_queues(broker.engine.core.state, "q")
    assert (queue.ready, queue.unacked) == (2, 0)
    broker.advance(incarnation=lease.incarnation, session_timeout_ms=0)
    broker.passed(10 * TIMEOUT_MS)
    assert broker.session.detached is False


def test_leases_of_absent_owners_are_in_the_log(broker, caplog):
    """S5: the log names absent sessions that hold messages, with count and age, in one line."""
    lease = broker.lease()
    broker.advance(session="idle", queues=["q"])
    stream = broker.liveness.opened(lease.incarnation, READER.token)
    broker.service.report_absent()
    assert caplog.text == ""
    broker.liveness.disconnected(stream)
    broker.now += GRACE_S + 1
    broker.service.report_absent()
    (record,) = caplog.records
    assert "1 session without a live reader held messages: 's' 2 for 0:" in record.getMessage()
    assert "`ackq session release NAME`" in record.getMessage()


def test_the_session_of_a_live_holder_is_never_forgotten(broker, monkeypatch):
    """S9: an unproven session is kept while its holder is live, and forgotten afterwards."""
    monkeypatch.setattr(limits, "UNPROVEN_RETENTION_S", 1)
    opened = broker.advance()
    stream = broker.liveness.opened(opened.incarnation, READER.token)
    broker.engine.wall_us += 2_000_000
    broker.service.housekeep()
    assert broker.session.incarnation == opened.incarnation
    broker.liveness.disconnected(stream)
    broker.now += 2 * GRACE_S
    broker.service.housekeep()
    assert views.list_sessions(broker.engine.core.state) == []


def test_a_heartbeat_counts_however_long_its_answer_waits(broker):
    """S3, S5: a heartbeat counts when it arrives, though the sync for its answer takes a minute."""
    lease = broker.lease()

    async def held():
        broker.decide(commands.DeclareQueue("other", commands.QueueProperties(durable=True)))
        stream = ClientStream(broker.service.hold)
        for _ in range(4):
            stream.request(hold(lease))
            await run_until_idle()
            broker.now += HEARTBEAT_S - 1
            assert broker.liveness.connected(lease.incarnation)
        assert stream.answers == []
        broker.engine.sync()
        await run_until_idle()
        assert stream.answers
        await stream.disconnect()

    asyncio.run(held())


def attach(broker, **fields):
    return broker.call(
        broker.service.attach(pb.AttachRequest(session="s", holder=READER, **fields))
    )


@pytest.mark.parametrize("call", [Broker.advance, attach])
def test_the_owner_comes_back(broker, call):
    """S5: a returning owner gets the same tags again, and the timeout applies again.

    Its detached reader is fenced.
    """
    lease = broker.lease()
    broker.passed(HEARTBEAT_S + TIMEOUT_MS / 1000 + 1)

    async def beat():
        return hold(lease)

    with pytest.raises(FencedError):
        broker.call(broker.service.hold(beat, None))
    tags = {"end_tag": 2} if call is attach else {}
    again = call(broker, incarnation=lease.incarnation, **tags)
    assert (broker.session.detached, broker.session.leased) == (False, 2)
    assert again.epoch > lease.epoch
    broker.passed(HEARTBEAT_S + TIMEOUT_MS / 1000 + 1)
    assert broker.session.detached is True


def test_a_session_that_an_operator_fenced_is_free_also_after_a_restart(broker):
    """S3, S8: a session fenced by an operator is free at once, also after a restart."""
    lease = broker.lease()
    tags = {"first_tag": [1], "last_tag": [1]}
    request = pb.SettleSessionRequest(session="s", outcome=4, fence=True, **tags)
    assert broker.call(broker.service.settle_session(request)).settled == 1
    broker.start()
    broker.passed(TIMEOUT_MS / 1000)
    other = pb.Holder(token=b"o" * 16, host="other", pid=2)
    again = broker.advance(incarnation=lease.incarnation, holder=other)
    assert (again.epoch > lease.epoch, broker.session.leased) == (True, 1)


def test_retention_gives_way_to_publishers(broker, caplog):
    """S13, P8: near the disk reserve the oldest batches end, once in ten seconds or a snapshot."""
    tag, fields = 0, {"retain_ms": 60_000}
    fields["incarnation"] = broker.advance(**fields).incarnation
    for number in (1, 2, 3, 4):
        publish(broker.engine, number + 2, b"c")
        tag = broker.advance(start_tag=tag, **fields).end_tag
        broker.advance(start_tag=tag, **fields)

    async def left(free_bytes):
        broker.engine.free_bytes = free_bytes
        broker.engine.alarms.poll_disk()
        broker.service.give_way()
        broker.service.give_way()
        return broker.session.retained_batches

    reserve = limits.DISK_RESERVE_BYTES
    assert (asyncio.run(left(3 * reserve)), caplog.text) == (4, "")
    assert asyncio.run(left(3 * reserve - 1)) == 3
    broker.engine.journal.snapshot_under_way = True
    assert asyncio.run(left(2 * reserve - 1)) == 3
    broker.engine.journal.snapshot_under_way = False
    assert asyncio.run(left(2 * reserve - 1)) == 1
    assert "the 1 oldest retained batches" in caplog.text
    assert broker.engine.alarms.reason == ""


def test_a_purge_while_a_retained_batch_is_read(broker):
    """S13, Q4: a read that began is whole; the blocks are freed behind it, and the tags holes."""
    lease = broker.lease(retain_ms=3_600_000)
    fields = {"incarnation": lease.incarnation, "retain_ms": 3_600_000}
    engine, rows = broker.engine, []
    publish(engine, 3, b"c")
    for start_tag in (2, 3):
        assert broker.advance(start_tag=start_tag, **fields).end_tag == 3
    request = pb.BrowseLeaseRequest(
        session="s", incarnation=lease.incarnation, first_tag=1, last_tag=3
    )

    async def write(frame):
        rows.extend(frame.header.rows)

    async def read():
        publish(engine, 4, b"d")  # the read waits for its sync
        reading = asyncio.ensure_future(broker.service.browse_lease(request, write))
        await asyncio.sleep(0)
        engine.decide(commands.PurgeQueue("q"))
        assert not rows
        await reading

    broker.call(read())
    assert sum(rows) == 3
    broker.call(broker.service.browse_lease(request, write))
    assert sum(rows) == 4
    broker.decide(commands.DeclareQueue("other"))
    assert 1 in engine.journal.freed
    assert not engine.core.state.blocks.pinned()
    assert views.list_sessions(engine.core.state, "s")[0].retained_batches == 2
