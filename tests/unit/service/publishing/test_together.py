"""Single messages of several publishers that arrive together: one block, each its own answer."""

from contextlib import asynccontextmanager

from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands, views
from tests.fakes.blocks import encoded, rows
from tests.unit.service.channel_streams import run_until_idle
from tests.unit.service.publisher_streams import disk, newer, opened


@asynccontextmanager
async def three():
    """An engine with queues, and the open streams of three publishers."""
    async with opened() as (engine, first, service):
        engine.decide(commands.DeclareQueue("small", commands.QueueProperties(max_length=2)))
        streams = [first, *(newer(service, publisher_id=each * 16) for each in (b"1", b"2"))]
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
        columns = {
            "body": [b"x", b"xx", b"xxx"],
            "routing_key": ["q"] * 3,
            "message_id": ["id1", "id2", "id3"],
            "headers": [[("n", "1")], [("n", "2")] * 2, [("n", "3")] * 3],
        }
        for at, stream in enumerate(streams):
            row = {name: [values[at]] for name, values in columns.items()}
            block = encoded(**row, published_at=[at + 1], persistent=[True])
            stream.send(block, data=pb.PublishData(first_number=at + 1, rows=1))
        await run_until_idle()
        assert engine.core.sequence == before + 1
        (block,) = engine.journal.blocks.values()
        assert rows(block).items() >= columns.items()
        assert [stream.confirms() for stream in streams] == [[]] * 3
        await disk(engine)
        for stream in streams:
            stream.publish(9)
            stream.half_close()
        await disk(engine)
        assert [stream.confirmed() for stream in streams] == [{1, 9}, {2, 9}, {3, 9}]
        assert [stream.task.done() for stream in streams] == [True] * 3


async def test_each_row_has_its_own_answer():
    """P8, P3, P10: of rows in one block one is refused, another a repetition; others are placed."""
    async with three() as (engine, streams):
        for stream in streams:
            stream.publish(1, "small")
        await disk(engine)
        assert [stream.kinds()[-1] for stream in streams] == ["confirm", "confirm", "nack"]
        for stream in streams:
            stream.publish(1 if stream is streams[0] else 2)
        await disk(engine)
        (queue,) = views.list_queues(engine.core.state, "q")
        assert queue.ready == 2
        assert [stream.kinds()[-1] for stream in streams] == ["confirm"] * 3


async def test_a_publisher_keeps_its_order():
    """P12: messages of one publisher stand in their order, whatever others send in between."""
    async with three() as (engine, streams):
        for number, stream in enumerate(streams, 1):
            stream.publish(1, body=b"%d" % number, data={"mandatory": number == 1})
        streams[0].publish(2, body=b"later")
        streams[1].publish(2, body=b"other", message_id=["id"])
        await run_until_idle()
        stored = sorted(engine.journal.blocks.items())
        placed = [body for _, data in stored for body in rows(data)["body"]]
        assert sorted(placed) == [b"1", b"2", b"3", b"later", b"other"]
        assert placed.index(b"1") < placed.index(b"later")
        assert placed.index(b"2") < placed.index(b"other")
