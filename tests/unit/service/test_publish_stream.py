"""A publish stream over a journal that syncs when the test says so: no answer before its sync."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from ackq import limits
from ackq.errors import BrokerUnavailableError, FencedError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service import recovery
from ackq_broker.service.publish_stream import PublishStream
from tests.unit.service.blocks import encoded
from tests.unit.service.fake_journal import HeldEngine

PUBLISHER = b"p" * 16


class Stream:
    """A stream's client side in memory."""

    def __init__(self, engine, live):
        self._requests = asyncio.Queue()
        self.answers = []
        self.task = asyncio.create_task(
            PublishStream(engine, live, self._requests.get, self._write).run()
        )

    async def _write(self, response):
        self.answers.append(response.header)

    def send(self, block=b"", **kind):
        self._requests.put_nowait(frame.Frame(pb.PublishHeader(lowest_unanswered=1, **kind), block))

    def open(self, *, resume=False):
        opening = pb.PublishOpen(publisher_id=PUBLISHER, mode=1, resume=resume)
        self.send(open=opening)

    def publish(self, number, routing_key="q", **constants):
        data = pb.PublishData(first_number=number, rows=1)
        self.send(encoded(body=[b"x"], routing_key=routing_key, **constants), data=data)

    def half_close(self):
        self._requests.put_nowait(None)

    def kinds(self):
        return [answer.WhichOneof("kind") for answer in self.answers]

    def confirms(self):
        return [
            (answer.confirm.last_number, answer.confirm.multiple)
            for answer in self.answers
            if answer.HasField("confirm")
        ]


async def settle():
    """Lets everything that can run now run."""
    for _ in range(30):
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(engine=None):
    """An engine with a durable queue on disk, and an open stream."""
    engine = engine or HeldEngine()
    live = {}
    engine.decide(commands.DeclareQueue("q", commands.QueueProperties(durable=True)))
    engine.sync()
    stream = Stream(engine, live)
    stream.open()
    await settle()
    engine.sync()
    await settle()
    assert stream.kinds() == ["opened"]
    yield engine, stream, live
    stream.task.cancel()
    await asyncio.gather(stream.task, return_exceptions=True)


def test_the_opening_is_answered_from_disk():
    """I1: a publisher that got `opened` is known after a crash."""

    async def run():
        engine = HeldEngine()
        stream = Stream(engine, {})
        stream.open()
        await settle()
        assert stream.kinds() == []
        engine.sync()
        await settle()
        assert stream.kinds() == ["opened"]
        stream.half_close()
        await stream.task

    asyncio.run(run())


def test_no_confirm_before_the_sync_and_one_for_all_it_covers():
    """I1, P4, P11: nothing is confirmed before its sync; one sync is one cumulative confirm."""

    async def run():
        async with opened() as (engine, stream, _):
            for number in range(1, 6):
                stream.publish(number)
                await settle()
            assert stream.confirms() == []
            engine.sync(engine.core.sequence - 2)
            await settle()
            assert stream.confirms() == [(3, True)]
            engine.sync()
            await settle()
            assert stream.confirms() == [(3, True), (5, True)]

    asyncio.run(run())


def test_frames_that_arrive_together_are_one_record():
    """P4: a burst of small frames is one block, one record and one confirm."""

    async def run():
        async with opened() as (engine, stream, _):
            before = engine.core.sequence
            for number in range(1, 101):
                stream.publish(number)
            await settle()
            assert engine.core.sequence == before + 1
            engine.sync()
            await settle()
            assert stream.confirms() == [(100, True)]

    asyncio.run(run())


def test_transient_overtakes_persistent():
    """P5, P9: a transient publish is confirmed at once, while a persistent one before it waits."""

    async def run():
        async with opened() as (engine, stream, _):
            stream.publish(1)
            await settle()
            stream.publish(2, delivery_mode=2)
            await settle()
            assert stream.confirms() == [(2, False)]
            engine.sync()
            await settle()
            assert stream.confirms() == [(2, False), (1, True)]

    asyncio.run(run())


def test_nacks_wait_for_the_sync():
    """I1, P8: a nack tells of a full queue, and leaves only when that is on disk."""

    async def run():
        async with opened() as (engine, stream, _):
            small = commands.QueueProperties(durable=True, max_length=1)
            engine.decide(commands.DeclareQueue("small", small))
            stream.publish(1, routing_key="small")
            await settle()
            stream.publish(2, routing_key="small")
            await settle()
            assert stream.kinds() == ["opened"]
            engine.sync()
            await settle()
            assert sorted(stream.kinds()) == ["confirm", "nack", "opened"]

    asyncio.run(run())


def test_half_close_answers_everything_first():
    """P3: the stream ends only when every publish has its answer."""

    async def run():
        async with opened() as (engine, stream, _):
            stream.publish(1)
            stream.half_close()
            await settle()
            assert not stream.task.done()
            engine.sync()
            await stream.task
            assert stream.confirms() == [(1, True)]

    asyncio.run(run())


def test_a_fenced_stream_publishes_nothing_more():
    """P10: after a newer stream came, what the older one still sends is not handled."""

    async def run():
        async with opened() as (engine, stream, live):
            newer = Stream(engine, live)
            newer.open(resume=True)
            await settle()
            stream.publish(1)
            await settle()
            with pytest.raises(FencedError):
                await stream.task
            engine.sync()
            await settle()
            assert engine.core.queues("q")[0].ready == 0
            newer.publish(1)
            await settle()
            engine.sync()
            await settle()
            assert newer.confirms() == [(1, True)]
            newer.half_close()
            await newer.task

    asyncio.run(run())


def test_a_stopping_broker_answers_what_it_has_and_ends_the_stream():
    """P3: at a shutdown what arrived is answered; then the client is told to come back."""

    async def run():
        async with opened() as (engine, stream, _):
            stream.publish(1)
            await settle()
            engine.stop()
            await settle()
            engine.sync()
            with pytest.raises(BrokerUnavailableError):
                await stream.task
            assert stream.confirms() == [(1, True)]

    asyncio.run(run())


def test_a_full_disk_blocks_and_nacks():
    """P8, P14: at the reserve the publisher is told why, what still comes is nacked, then go on."""

    async def run():
        async with opened() as (engine, stream, _):
            engine.free_bytes = 0
            engine.watch_disk()
            await settle()
            assert "bytes left" in stream.answers[-1].blocked.reason
            stream.publish(1)
            await settle()
            assert stream.answers[-1].nack.reason.code == "disk_full"
            engine.free_bytes = limits.DISK_RESERVE_BYTES
            engine.watch_disk()
            stream.publish(2)
            await settle()
            engine.sync()
            await settle()
            assert stream.kinds() == ["opened", "blocked", "nack", "unblocked", "confirm"]

    asyncio.run(run())


def test_too_much_waiting_for_the_disk_blocks():
    """P14: over the bound of unsynced bytes nothing more is taken in until the disk caught up."""

    async def run():
        async with opened() as (engine, stream, _):
            stream.publish(1)
            await settle()
            engine.journal.unsynced_bytes = limits.MAX_UNSYNCED_BYTES + 1
            before = engine.core.sequence
            stream.publish(2)
            await settle()
            assert (stream.kinds()[-1], engine.core.sequence) == ("blocked", before)
            engine.journal.unsynced_bytes = 0
            engine.sync()
            await settle()
            assert (stream.kinds()[-1], engine.core.sequence) == ("unblocked", before + 1)

    asyncio.run(run())


def test_a_failed_sync_ends_the_process_without_answers(monkeypatch, caplog):
    """I1, P8: after a failed sync nobody is answered; the process ends, its log says why."""

    class EndedError(Exception):
        pass

    def end(status):
        raise EndedError(status)

    monkeypatch.setattr(recovery.os, "_exit", end)
    monkeypatch.setattr(recovery.logging, "shutdown", lambda: None)
    with pytest.raises(EndedError, match="70"):
        recovery._die(OSError("input/output error"))
    assert "input/output error" in caplog.text
