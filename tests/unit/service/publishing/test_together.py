"""Single messages of several publishers that arrive together: one block, each its own answer."""

from contextlib import asynccontextmanager

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands, views
from tests.fakes.blocks import encoded, rows
from tests.unit.service.channel_streams import run_until_idle
from tests.unit.service.publisher_streams import CONFIRM, Stream, disk, opened


def another(service, number):
    """A stream of another publisher."""
    stream = Stream(service)
    stream.send(open=pb.PublishOpen(publisher_id=bytes([number]) * 16, mode=CONFIRM))
    return stream


@asynccontextmanager
async def three():
    """An engine with queues, and the open streams of three publishers."""
    async with opened() as (engine, first, service):
        engine.decide(commands.DeclareQueue("small", commands.QueueProperties(max_length=2)))
        streams = [first, another(service, 1), another(service, 2)]
        await disk(engine)
        yield engine, streams
        for stream in streams:
            await stream.disconnect()


async def test_singles_of_a_turn_are_one_block():
    """P4, P9, P3: one record, and each publisher's confirm of its own number, after the sync.

    Each row reads as its publisher sent it. A stream that ends has its answers first.
    """
    async with three() as (engine, streams):
        before = engine.core.sequence
        for number, stream in enumerate(streams, 1):
            block = encoded(
                body=[b"x" * number],
                routing_key=["q"],
                message_id=[f"id{number}"],
                headers=[[("n", str(number))] * number],
                published_at=[number],
                persistent=[True],
            )
            stream.send(block, data=pb.PublishData(first_number=number, rows=1))
        await run_until_idle()
        assert engine.core.sequence == before + 1
        (block,) = engine.journal.blocks.values()
        found = rows(block)
        assert found["body"] == [b"x", b"xx", b"xxx"]
        assert found["message_id"] == ["id1", "id2", "id3"]
        assert found["headers"] == [[("n", str(n))] * n for n in (1, 2, 3)]
        assert found["routing_key"] == ["q"] * 3
        assert [stream.confirms() for stream in streams] == [[]] * 3
        await disk(engine)
        assert [stream.confirmed() for stream in streams] == [{1}, {2}, {3}]
        for stream in streams:
            stream.publish(9)
            stream.half_close()
        await disk(engine)
        assert [stream.confirmed() for stream in streams] == [{1, 9}, {2, 9}, {3, 9}]
        assert [stream.task.done() for stream in streams] == [True] * 3


async def test_one_refused_row_leaves_the_others():
    """P8, P3: the row that a full queue refuses is nacked, and the others are placed."""
    async with three() as (engine, streams):
        for stream in streams:
            stream.publish(1, "small")
        await disk(engine)
        assert [stream.kinds()[-1] for stream in streams] == ["confirm", "confirm", "nack"]


async def test_a_repeated_number_is_placed_once():
    """P10: one publisher's retransmission is confirmed again, and the others' rows are placed."""
    async with three() as (engine, streams):
        for turn in (1, 2):
            for stream in streams:
                stream.publish(1 if stream is streams[0] else turn)
            await disk(engine)
        (queue,) = views.list_queues(engine.core.state, "q")
        assert queue.ready == 5
        assert streams[0].kinds() == ["opened", "confirm", "confirm"]


async def test_a_publisher_keeps_its_order():
    """P12: messages of one publisher stand in their order, whatever others send in between."""
    async with three() as (engine, streams):
        for number, stream in enumerate(streams, 1):
            stream.publish(1, body=b"%d" % number, data={"mandatory": number == 1})
        streams[0].publish(2, body=b"later", data={"mandatory": False})
        streams[1].send(
            encoded(body=[b"other"], routing_key="q", message_id=["id"]),
            data=pb.PublishData(first_number=2, rows=1),
        )
        await run_until_idle()
        stored = sorted(engine.journal.blocks.items())
        placed = [body for _, data in stored for body in rows(data)["body"]]
        assert sorted(placed) == sorted([b"1", b"2", b"3", b"later", b"other"])
        assert placed.index(b"1") < placed.index(b"later")
        assert placed.index(b"2") < placed.index(b"other")
