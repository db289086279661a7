"""Confirm mode over a journal that syncs when the test asks: no answer before its sync."""

import asyncio

import pytest

from ackq import errors, limits
from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.publishing import pending_confirms
from ackq_broker.service.publishing import stream as publisher_stream
from tests.eventually import SOON_S
from tests.fakes.blocks import encoded
from tests.unit.service.channel_streams import run_until_idle
from tests.unit.service.publisher_streams import TRANSACTION, Stream, disk, opened, resumed


async def test_frames_that_arrive_together_are_one_record():
    """P4: a burst of small frames is one block, one record and one confirm."""
    async with opened() as (engine, stream, _):
        before = engine.core.sequence
        for number in range(1, 101):
            stream.publish(number)
        await run_until_idle()
        assert engine.core.sequence == before + 1
        await disk(engine)
        assert stream.confirms() == [(100, True)]


async def test_which_publish_is_synced_at_once():
    """P4, P5: one that alone waits for the disk, on the only stream; not a transient one."""
    async with opened() as (engine, stream, service):

        async def lone(*publishes, **given):
            for each in publishes:
                await stream.published(each, **given)
            found = engine.journal.lone[-len(publishes) :]
            await disk(engine)
            return found

        assert await lone(1) == [True]
        assert await lone(2, 3) == [True, False]
        assert await lone(4, delivery_mode=2) == [False]
        other = Stream(service)
        other.send(open=pb.PublishOpen(publisher_id=b"o" * 16, mode=pb.PUBLISH_MODE_CONFIRM))
        await disk(engine)
        assert await lone(5) == [False]
        other.half_close()
        await disk(engine)
        await other.task
        assert await lone(6) == [True]


async def test_returns_keep_the_order_of_their_publishes():
    """P7, P5: the return of a transient message does not overtake one that waits for the disk."""
    async with opened() as (engine, stream, _):
        # Together with a publish that waits, so that its whole frame waits.
        stream.send(
            encoded(body=[b"x", b"x"], routing_key=["q", "nobody"]),
            data=pb.PublishData(first_number=1, rows=2, mandatory=True),
        )
        await run_until_idle()
        await stream.published(3, "nobody", data={"mandatory": True}, delivery_mode=2)
        assert stream.kinds() == ["opened"]
        await disk(engine)
        returned = [list(a.returned.numbers) for a in stream.answers if a.HasField("returned")]
        assert returned == [[2], [3]]
        assert stream.confirmed() == {1, 2, 3}


async def test_a_publish_after_the_close_is_refused():
    """P10: a publish after the close is refused, and the publisher is not forgotten."""
    async with opened() as (engine, stream, _):
        stream.send(close=pb.PublishClose())
        stream.publish(1)
        with pytest.raises(errors.InvalidArgumentError, match="after its close"):
            await stream.task
        assert len(engine.core._state.publishers) == 1


async def test_a_newer_stream_fences():
    """P10: the error of a fenced stream names the attempt; its close forgets no publisher."""
    async with opened() as (engine, stream, service):
        stream.send(close=pb.PublishClose())
        await run_until_idle()
        newer = Stream(service)
        newer.open(resume=True, attempt=b"newer")
        await run_until_idle()
        with pytest.raises(errors.FencedError) as fenced:
            await stream.task
        assert fenced.value.fields["attempt"] == b"newer".hex()
        assert len(engine.core._state.publishers) == 1
        newer.half_close()
        await disk(engine)
        await newer.task
        long = Stream(service)
        long.open(attempt=bytes(17))
        with pytest.raises(errors.InvalidArgumentError, match="16 bytes"):
            await long.task


async def test_a_full_disk_confirms_what_it_has():
    """P8, P10: on a full disk a repeated publish is confirmed again, as a nack would double it.

    A nacked message is in no queue: only the numbers that were never accepted are nacked.
    """
    async with opened() as (engine, stream, service):
        await stream.published(1)
        engine.free_bytes = 0
        engine.alarms.poll_disk()
        newer = resumed(service)
        await disk(engine)
        newer.publish(1)
        newer.publish(2)
        await run_until_idle()
        nacked = [a.nack.first_number for a in newer.answers if a.HasField("nack")]
        assert (newer.confirms(), nacked) == ([(1, True)], [2])
        newer.task.cancel()
        await asyncio.gather(stream.task, newer.task, return_exceptions=True)


async def test_returns_that_nobody_reads_are_bounded(monkeypatch):
    """I6, P7: a client that does not read its returned messages is not read from either."""
    monkeypatch.setattr(publisher_stream, "_RETURNED_BYTES", 100_000)
    async with opened() as (engine, stream, _):
        stream.reading.clear()
        for number in range(1, 51):
            await stream.published(number, "nobody", body=b"x" * 10_000, data={"mandatory": True})
        assert engine.counters["published"] == 10
        stream.reading.set()
        await stream.finish()
        returned = [a for a in stream.answers if a.HasField("returned")]
        assert sum(len(answer.returned.numbers) for answer in returned) == 50


@pytest.mark.parametrize(
    "numbers",
    [(0, 1), (1, 1 << 63), ((1 << 64) - 1,) * 2, (1, 1 << 40), 0, (1 << 62) + 1, (1 << 64) - 1],
)
async def test_numbers_have_bounds(numbers):
    """I6, P2, P10: a publish number out of range, or a probe of too many, ends the stream.

    A probe of 40 bytes for 2^63 publish numbers takes no memory.
    """
    async with opened() as (_, stream, _service):
        if isinstance(numbers, int):
            stream.publish(numbers)
        else:
            probed = pb.PublishProbe(first_number=numbers[0], last_number=numbers[1])
            stream.send(probe=probed)
        with pytest.raises(errors.InvalidArgumentError):
            await asyncio.wait_for(stream.task, SOON_S)


@pytest.mark.parametrize("free_bytes", [0, 1 << 60])
async def test_numbers_far_apart_take_no_memory(free_bytes):
    """I6, P10: two frames with 2^60 numbers between them cost two rows, on a full disk as well."""
    far = 1 << 60
    async with opened(lowest=far) as (engine, stream, _):
        block = encoded(body=[b"x"], routing_key="q")
        stream.send(block, lowest=far, data=pb.PublishData(first_number=far, rows=1))
        await run_until_idle()
        engine.free_bytes = free_bytes
        engine.alarms.poll_disk()
        for number in (1, far, far + 1):
            stream.publish(number)
        await disk(engine)
        unread = [answer for answer in stream.answers if answer.HasField("nack")]
        assert [answer.nack.first_number for answer in unread] == [far + 1] * (not free_bytes)
        assert views.list_queues(engine.core.state, "q")[0].ready == 1 + bool(free_bytes)


async def test_a_frame_of_too_many_rows_is_nacked_unread():
    """I6, P8: a frame that announces 4 billion rows is nacked without being decoded."""
    async with opened() as (_, stream, _service):
        stream.send(b"no block", data=pb.PublishData(first_number=1, rows=(1 << 32) - 1))
        await run_until_idle()
        nack = stream.answers[-1].nack
        assert (nack.first_number, nack.last_number) == (1, (1 << 32) - 1)
        assert nack.reason.code == "limit"


async def test_too_much_waiting_for_the_disk_blocks():
    """P14: above the bound of unsynced bytes publishes wait until the disk has caught up."""
    async with opened() as (engine, stream, _):
        await stream.published(1)
        engine.journal.unsynced_bytes = limits.MAX_UNSYNCED_BYTES + 1
        before = engine.core.sequence
        await stream.published(2)
        assert (stream.kinds()[-1], engine.core.sequence) == ("blocked", before)
        engine.journal.unsynced_bytes = 0
        await disk(engine)
        assert (stream.kinds()[-1], engine.core.sequence) == ("unblocked", before + 1)


def mixed(stream, first, rows, **data):
    """Publishes a frame whose rows are transient and persistent in turn."""
    stream.send(
        encoded(body=[b"x"] * rows, routing_key="q", persistent=[False, True] * (rows // 2)),
        data=pb.PublishData(first_number=first, rows=rows, **data),
    )


async def test_a_slow_disk_delays_confirms_by_a_second_at_most(monkeypatch):
    """P11: out-of-order confirms are delayed by 1 s at most; with `ack_immediately` not at all."""
    async with opened() as (engine, stream, _):
        mixed(stream, 1, 200, ack_immediately=True)
        await run_until_idle()
        assert stream.confirms() == [(1, True), *((n, False) for n in range(3, 201, 2))]
        mixed(stream, 201, 200)
        await run_until_idle()
        assert len(stream.confirms()) == 100
        monkeypatch.setattr(pending_confirms, "_DELAY_S", 0.0)
        mixed(stream, 401, 2)
        await run_until_idle()
        assert len(stream.confirms()) == 201
        await disk(engine)
        assert stream.confirms()[-1] == (402, True)


async def test_a_number_in_progress_is_not_missing():
    """P10: a probe does not report a publish as missing while its answer waits for the disk.

    The client would publish it again, and a queue might take it by then.
    """
    async with opened() as (engine, stream, _):
        engine.decide(commands.DeclareQueue("other", commands.QueueProperties()))
        stream.publish(1)
        await stream.published(2, routing_key="late", data={"mandatory": True})
        assert stream.kinds() == ["opened"]
        stream.send(probe=pb.PublishProbe(first_number=1, last_number=4))
        await disk(engine)
        (answer,) = [each.probed for each in stream.answers if each.HasField("probed")]
        assert (list(answer.missing_first), list(answer.missing_last)) == ([3], [4])
        assert stream.confirms() == [(2, True)]


async def test_a_number_in_progress_that_comes_again_is_answered_once():
    """P10: a publish repeated while in progress gets one answer: returned or stored, never both."""
    async with opened() as (engine, stream, _):
        durable = commands.QueueProperties(durable=True)
        engine.decide(commands.DeclareQueue("full", commands.QueueProperties(max_length=1)))
        stream.publish(1, routing_key="full")
        stream.publish(2, routing_key="late", data={"mandatory": True})
        await stream.published(3, routing_key="full")
        engine.decide(commands.DeclareQueue("late", durable))
        engine.decide(commands.PurgeQueue("full"))
        stream.publish(2, routing_key="late", data={"mandatory": True})
        stream.publish(3, routing_key="full")
        await disk(engine)
        assert sorted(stream.kinds()) == ["confirm", "nack", "opened", "returned"]
        assert stream.confirms() == [(2, True)]
        assert views.list_queues(engine.core.state, "late")[0].ready == 0
        assert views.list_queues(engine.core.state, "full")[0].ready == 0


async def test_an_opening_in_the_wrong_mode_harms_nobody():
    """P1: an opening in another mode is refused, and the publisher's existing stream goes on."""
    async with opened() as (engine, stream, service):
        wrong = resumed(service, TRANSACTION)
        await run_until_idle()
        with pytest.raises(errors.WrongModeError):
            await wrong.task
        stream.publish(1)
        await disk(engine)
        assert stream.confirms() == [(1, True)]
