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
from tests.unit.service.publisher_streams import TRANSACTION, disk, newer, opened


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
        other = newer(service, publisher_id=b"o" * 16)
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
        assert [list(each.numbers) for each in stream.of("returned")] == [[2], [3]]
        assert stream.confirmed() == {1, 2, 3}


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
        assert sum(len(each.numbers) for each in stream.of("returned")) == 50


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"probe": pb.PublishProbe(first_number=first, last_number=last)}
            for first, last in ((0, 1), (1, 1 << 63), ((1 << 64) - 1,) * 2, (1, 1 << 40))
        ),
        *(
            {"data": pb.PublishData(first_number=number, rows=1), "block": encoded(body=[b"x"])}
            for number in (0, (1 << 62) + 1, (1 << 64) - 1)
        ),
        {"close": pb.PublishClose()},
    ],
)
async def test_what_ends_the_stream(wrong):
    """I6, P2, P10: a publish number out of range, a probe of too many, or more after a close.

    A probe of 40 bytes for 2^63 publish numbers takes no memory. The publisher is not forgotten.
    """
    async with opened() as (engine, stream, _):
        stream.send(**wrong)
        if "close" in wrong:
            stream.publish(1)
        with pytest.raises(errors.InvalidArgumentError):
            await asyncio.wait_for(stream.task, SOON_S)
        assert len(engine.core._state.publishers) == 1


@pytest.mark.parametrize("free_bytes", [0, 1 << 60])
async def test_numbers_far_apart_take_no_memory(free_bytes):
    """I6, P8, P10: two frames with 2^60 numbers between them cost two rows, also on a full disk.

    A frame that announces 4 billion rows is nacked without being decoded.
    """
    far, many = 1 << 60, (1 << 32) - 1
    async with opened(lowest=far) as (engine, stream, _):
        stream.send(
            encoded(body=[b"x"], routing_key="q"),
            lowest=far,
            data=pb.PublishData(first_number=far, rows=1),
        )
        await run_until_idle()
        engine.free_bytes = free_bytes
        engine.alarms.poll_disk()
        for number in (1, far, far + 1):
            stream.publish(number)
        stream.send(b"no block", data=pb.PublishData(first_number=far + 2, rows=many))
        await disk(engine)
        nacks = stream.of("nack")
        assert [(nack.first_number, nack.last_number) for nack in nacks] == [
            *[(far + 1, far + 1)] * (not free_bytes),
            (far + 2, far + 1 + many),
        ]
        assert nacks[-1].reason.code == "limit"
        assert views.list_queues(engine.core.state, "q")[0].ready == 1 + bool(free_bytes)


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


async def test_a_number_in_progress_is_neither_missing_nor_answered_twice():
    """P10: while its answer waits for the disk a probe leaves it out, as a client would repeat it.

    A repeated publish gets one answer: returned or stored, never both.
    """
    async with opened() as (engine, stream, _):
        engine.decide(commands.DeclareQueue("full", commands.QueueProperties(max_length=1)))
        stream.publish(1, "full")
        stream.publish(2, "late", data={"mandatory": True})
        await stream.published(3, "full")
        engine.decide(commands.DeclareQueue("late", commands.QueueProperties(durable=True)))
        engine.decide(commands.PurgeQueue("full"))
        stream.publish(2, "late", data={"mandatory": True})
        stream.publish(3, "full")
        stream.send(probe=pb.PublishProbe(first_number=1, last_number=4))
        await disk(engine)
        assert sorted(stream.kinds()) == ["confirm", "nack", "opened", "probed", "returned"]
        (answer,) = stream.of("probed")
        assert (list(answer.missing_first), list(answer.missing_last)) == ([4], [4])
        assert stream.confirms() == [(2, True)]
        for queue in ("late", "full"):
            assert views.list_queues(engine.core.state, queue)[0].ready == 0


async def test_other_streams_of_a_publisher():
    """P1, P10: a stream in another mode is refused, and a newer one fences, naming its attempt.

    The close of a fenced stream forgets no publisher.
    """
    async with opened() as (engine, stream, service):
        wrong = newer(service, mode=TRANSACTION)
        await run_until_idle()
        with pytest.raises(errors.WrongModeError):
            await wrong.task
        stream.publish(1)
        await disk(engine)
        assert stream.confirms() == [(1, True)]
        stream.send(close=pb.PublishClose())
        await run_until_idle()
        other = newer(service, attempt=b"newer")
        await run_until_idle()
        with pytest.raises(errors.FencedError) as fenced:
            await stream.task
        assert fenced.value.fields["attempt"] == b"newer".hex()
        assert len(engine.core._state.publishers) == 1
        await other.disconnect()
