"""Consuming on an event loop, over a scripted broker: C10, C11, C15."""

import asyncio
import contextlib
import logging
import threading

import pytest

from ackq import errors
from ackq.client import AsyncChannel
from tests.fakes import scripted_channel as fake
from tests.fakes.scripted_broker import Cut
from tests.unit.client.consuming.scripts import outcomes, serve
from tests.unit.client.threads import SOON_S, client_threads, logged


def run(coroutine):
    """Runs a coroutine on an event loop with a time limit; no client thread may remain."""

    async def bounded():
        async with asyncio.timeout(3 * SOON_S):
            return await coroutine

    result = asyncio.run(bounded())
    assert client_threads() == []
    return result


RUN = run


@contextlib.asynccontextmanager
async def consuming(broker, callback=None, *, channel=(), **options):
    """Opens an `AsyncChannel` with one consumer; yields both."""
    async with AsyncChannel(broker.endpoint, **dict(channel)) as it:
        yield it, await it.consume("orders", callback, **options)


async def test_iteration_and_settlements(broker):
    """C15: the future of a settlement may be awaited or ignored."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    async with consuming(broker, mode="client", outcomes=["rejected"]) as (_, consumer):
        async for message in consumer:
            if message.body == b"1":
                assert await message.accept() == 1
            elif message.body == b"2":
                message.reject("no")
            else:
                break
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "REJECTED")]


async def test_auto_accepts_before_it_returns(broker):
    """C10: the message is accepted at the broker when the application gets it."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 2)))
    async with consuming(broker) as (_, consumer):
        assert (await consumer.receive()).body == b"1"
        assert outcomes(broker) == [(1, "ACCEPTED")]


async def test_batches(broker):
    """C16: batches are received and settled without an object per message."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 5)))
    async with consuming(broker, mode="client") as (_, consumer):
        first = await consumer.receive_batch(2)
        rest = await consumer.receive_batch()
        assert [first.num_rows, rest.num_rows] == [2, 3]
        assert await consumer.settle(rest.slice(0, 0)) == 0
        assert await consumer.settle(rest) == 3
        assert await consumer.settle(first) == 2
    assert [tag for tag, _ in outcomes(broker)] == [1, 2, 3, 4, 5]


async def test_receive_gives_up_in_time(broker):
    """`receive` and `receive_batch` return None when no message comes within the timeout."""
    async with consuming(broker) as (_, consumer):
        assert await consumer.receive(0.01) is None
        assert await consumer.receive_batch(timeout_s=0) is None


async def test_a_cancelled_receive_loses_no_message(broker):
    """C10: a message already accepted for a cancelled `receive` is given to the next call."""
    asked, go_on = threading.Event(), threading.Event()

    def script(requests):
        for request in requests:
            if request.HasField("open"):
                yield fake.opened()
            elif request.HasField("subscribe"):
                yield fake.numbered(1, 1)
            elif request.HasField("settle"):
                asked.set()
                assert go_on.wait(SOON_S)
                yield fake.settled(request)

    broker.consuming.scripts.append(script)
    async with consuming(broker) as (_, consumer):
        task = asyncio.create_task(consumer.receive())
        assert await asyncio.to_thread(asked.wait, SOON_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        assert (await consumer.receive()).body == b"1"


async def test_a_callback_is_awaited(broker, caplog):
    """C10: a message is accepted after its callback, requeued if that raises; logged once."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    bodies = []
    done = asyncio.Event()

    async def call_back(message):
        await asyncio.sleep(0)
        bodies.append(message.body)
        if message.body == b"3":
            done.set()
        if message.body == b"2":
            raise ValueError

    async with AsyncChannel(broker.endpoint) as it:
        await it.consume("orders", call_back, outcomes=["failed"])
        await done.wait()
        await asyncio.sleep(0)
        await it.flush()
    assert bodies == [b"1", b"2", b"3"]
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "FAILED"), (3, "ACCEPTED")]
    assert [each.levelno for each in logged(caplog)] == [logging.ERROR]


async def test_a_callback_may_be_a_plain_function(broker):
    """C10: a callback need not be a coroutine function; what is not callable is refused."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 2)))
    done = asyncio.Event()

    def call_back(message):
        if message.body == b"2":
            done.set()

    async with AsyncChannel(broker.endpoint) as it:
        with pytest.raises(errors.InvalidArgumentError, match="'callback' is a int"):
            await it.consume("orders", 7)
        await it.consume("orders", call_back)
        await done.wait()
        await asyncio.sleep(0)
        await it.flush()
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "ACCEPTED")]


async def test_a_callback_may_close_its_consumer_and_not_its_channel(broker):
    """Closing the channel from a callback is refused, as the callback would end itself."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 2)))
    caught = []

    async def call_back(_):
        try:
            await it.close()
        except errors.PreconditionFailedError as error:
            caught.append(error)
        await consumer.close()

    async with consuming(broker, call_back, mode="client") as (it, consumer):
        await asyncio.wait([consumer.task])
        assert consumer.task.exception() is None
    assert len(caught) == 1
    assert outcomes(broker) == [(2, "RELEASED")]


async def test_a_consumer_with_a_callback_has_no_receive(broker):
    """Messages of a consumer with a callback go to the callback only."""

    async def call_back(_):
        pass

    async with consuming(broker, call_back) as (_, consumer):
        with pytest.raises(errors.PreconditionFailedError):
            await consumer.receive()


async def test_why_a_callbacks_consumer_ended_is_in_its_task(broker):
    """Awaiting the consumer's task raises the reason of its end: the queue was deleted."""
    reason = errors.QueueNotFoundError("The queue 'orders' was deleted.")
    broker.consuming.scripts.append(serve(fake.cancelled("1", reason)))

    async def call_back(_):
        pass

    async with consuming(broker, call_back) as (_, consumer):
        with pytest.raises(errors.QueueNotFoundError):
            await consumer.task


async def test_pulls(broker):
    """C9: a pull gives the messages that are ready; an unanswered pull fails in time."""
    frames = [fake.numbered(1, 2, get_number=1), fake.get_empty(1)]
    broker.consuming.scripts.append(serve(*frames))
    async with AsyncChannel(broker.endpoint) as it:
        messages = await it.get("orders", 5)
        assert [each.body for each in messages] == [b"1", b"2"]
        assert await messages[0].release() == 1
        with pytest.raises(errors.BrokerUnavailableError, match="left a pull"):
            await it.get("orders", 5, timeout_s=0.02)
        it.acknowledge(messages[1])


async def test_a_cut_beyond_the_grace_is_told(broker):
    """C11: pending settlements and waiting receives fail when the channel is lost."""

    def script(requests):
        for request in requests:
            if request.HasField("open"):
                yield fake.opened()
            elif request.HasField("subscribe"):
                yield fake.numbered(1, 2)
            elif request.HasField("settle"):
                raise Cut

    broker.consuming.scripts += [script, serve()]
    once = {"reconnect_timeout_ms": 0}
    async with consuming(broker, mode="client", channel=once) as (it, consumer):
        message = await consumer.receive()
        await consumer.receive()
        with pytest.raises(errors.OutcomeUnknownError):
            await message.accept()
        with pytest.raises(errors.ClosedError, match="tags are void"):
            await consumer.receive()
        with pytest.raises(errors.ClosedError, match="tags are void"):
            await it.flush()


async def test_close_ends_an_iteration(broker):
    """Closing the channel ends an `async for` over its consumer."""
    it = AsyncChannel(broker.endpoint)
    consumer = await it.consume("orders")

    async def iterate():
        return [message async for message in consumer]

    task = asyncio.create_task(iterate())
    await asyncio.sleep(0)
    await it.close()
    await it.close()
    assert await task == []


async def test_close_with_a_bound_gives_up(broker):
    """C15: with an unanswered settlement, close raises after its timeout."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 1), settle=False))
    it = AsyncChannel(broker.endpoint)
    consumer = await it.consume("orders", mode="client")
    settlement = (await consumer.receive()).accept()
    with pytest.raises(errors.BrokerUnavailableError, match=r"unanswered for 0\.05 s"):
        await it.close(0.05)
    with pytest.raises(errors.OutcomeUnknownError):
        await settlement


def test_a_loop_that_is_gone_hears_nothing(broker):
    """A channel that outlives its event loop ends its thread when it is abandoned."""
    broker.consuming.scripts.append(serve())

    async def main():
        it = AsyncChannel(broker.endpoint)
        await it.consume("orders")
        return it

    it = asyncio.run(main())
    it._stream.abandon()
    it._stream._thread.join(SOON_S)
    assert client_threads() == []
