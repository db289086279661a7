"""Which consumer gets the next messages, with channels in memory."""

import asyncio
from collections import Counter

from ackq import limits
from ackq_broker.core import commands
from ackq_broker.service.consuming import dispatcher
from ackq_broker.service.consuming.consumer import BrokerConsumer
from tests.unit.service.channel_streams import Broker, run_until_idle


async def consuming(broker, **queues):
    """A stream with a wide window, and a consumer for each name, of its queue."""
    stream = broker.open(window_messages=1_000_000)
    for name, queue in queues.items():
        stream.subscribe(name, queue)
    await run_until_idle()
    return stream


def shares(stream):
    """The consumer and the messages of each delivery since the last call."""
    deliveries = [frame.header.delivery for frame in stream.answers]
    found = [(each.consumer, sum(each.runs.rows)) for each in deliveries if each.consumer]
    stream.answers.clear()
    return found


async def test_shares_are_equal():
    """C8: ready messages are divided equally among consumers; single ones go to them in turn."""
    broker = Broker()
    stream = await consuming(broker, **dict.fromkeys("abcd", "q"))
    broker.publish(*[b"m"] * 1000)
    await run_until_idle()
    assert shares(stream) == [(name, 250) for name in "abcd"]
    for _ in range(8):
        broker.publish(b"m")
        await run_until_idle()
    assert shares(stream) == [(name, 1) for name in "abcd" * 2]


async def test_queues_take_turns(monkeypatch):
    """Fairness: a queue with a long backlog does not keep another queue waiting.

    A turn of the dispatcher ends on time, so that the event loop is never blocked for long.
    """
    monkeypatch.setattr(limits, "FRAME_TARGET_ROWS", 10)
    monkeypatch.setattr(dispatcher, "_TURN_S", 0)
    broker = Broker()
    broker.engine.decide(commands.DeclareQueue("r"))
    stream = await consuming(broker, long="q", short="r")
    broker.publish(*[b"m"] * 100)
    broker.publish(*[b"m"] * 20, queue="r")
    await asyncio.sleep(0)
    assert broker.queue("q").ready + broker.queue("r").ready == 110
    for _ in range(3):
        await run_until_idle()
    got = shares(stream)
    assert Counter(got[:4]) == {("long", 10): 2, ("short", 10): 2}
    assert got[4:] == [("long", 10)] * 8


async def test_overdue_messages_are_no_loop(monkeypatch):
    """Q3: overdue ready messages go to no consumer, and cause no retries until the queue wakes."""
    asked, deliver = [], BrokerConsumer.deliver

    def counted(consumer, messages):
        asked.append(messages)
        return deliver(consumer, messages)

    monkeypatch.setattr(BrokerConsumer, "deliver", counted)
    broker = Broker()
    broker.engine.decide(commands.DeclareQueue("t", commands.QueueProperties(message_ttl_ms=1000)))
    broker.publish(*[b"m"] * 3, queue="t")
    broker.engine.wall_us += 2_000_000
    stream = await consuming(broker, c="t")
    broker.publish(b"m")
    await run_until_idle()
    assert (asked, stream.tags()) == ([3], [])
    broker.publish(b"m", queue="t")
    await run_until_idle()
    assert stream.tags() == [1]


async def test_a_parked_consumer_is_served_in_its_turn():
    """C8, C11: a parked consumer whose channel has room again gets its share, then waits again."""
    broker = Broker()
    stream = broker.open(window_messages=20)
    for name in ("one", "other"):
        stream.subscribe(name)
    await run_until_idle()
    for published, acked, expected in (
        (20, 0, [("one", 10), ("other", 10)]),
        (10, 20, [("one", 10)]),
        (9, 20, [("one", 5), ("other", 4)]),
    ):
        broker.publish(*[b"m"] * published)
        await run_until_idle()
        stream.transport_ack(acked)
        await run_until_idle()
        assert shares(stream) == expected
