"""Consuming on an event loop, over a scripted broker: C10, C11, C15."""

import asyncio
import contextlib
import logging
import threading

import pytest

from ackq import errors
from ackq.client import AsyncChannel
from tests.fakes import scripted_channel as fake
from tests.unit.client.consuming.scripts import outcomes, react, serve
from tests.unit.client.threads import SOON_S, client_threads, logged


@contextlib.asynccontextmanager
async def consuming(broker, callback=None, **options):
    """Opens an `AsyncChannel` with one consumer; yields both."""
    async with AsyncChannel(broker.endpoint) as it:
        yield it, await it.consume("orders", callback, **options)


async def cancelled(task):
    """Cancels a task, and waits for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def held_answers(broker, messages):
    """Lets the broker deliver messages and answer no settlement until told.

    Returns the event that a settlement was asked for, and the event that lets it be answered.
    """
    asked, go_on = threading.Event(), threading.Event()

    def settled(request):
        asked.set()
        assert go_on.wait(SOON_S)
        return fake.settled(request)

    broker.consuming.scripts.append(react(subscribe=fake.numbered(1, messages), settle=settled))
    return asked, go_on


async def test_a_cancelled_receive_loses_no_message(broker):
    """C10: a message already accepted for a cancelled `receive` is given to a call that waits."""
    asked, go_on = held_answers(broker, 1)
    async with consuming(broker) as (_, consumer):
        task = asyncio.create_task(consumer.receive())
        assert await asyncio.to_thread(asked.wait, SOON_S)
        waits = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        await cancelled(task)
        go_on.set()
        assert (await waits).body == b"1"


async def test_cancelled_calls_keep_the_order(broker):
    """C10: what was accepted for cancelled calls comes in its order, also in parts."""
    asked, go_on = held_answers(broker, 3)
    async with consuming(broker) as (_, consumer):
        batch = asyncio.create_task(consumer.receive_batch(3))
        assert await asyncio.to_thread(asked.wait, SOON_S)
        await cancelled(batch)
        one, rest = (asyncio.create_task(consumer.receive_batch(each)) for each in (1, 2))
        await asyncio.sleep(0)  # each has its part of the batch, and waits for the accept
        await cancelled(rest)
        await cancelled(one)
        go_on.set()
        assert [(await consumer.receive()).body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_a_callback_is_awaited(broker, caplog, error):
    """C10: a message is accepted after its callback, requeued if that raises; logged once.

    Also if what the callback awaits was cancelled.
    """
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    bodies = []
    done = asyncio.Event()

    async def call_back(message):
        await asyncio.sleep(0)
        bodies.append(message.body)
        if message.body == b"3":
            done.set()
        if message.body == b"2":
            raise error

    async with consuming(broker, call_back, outcomes=["failed"]) as (it, consumer):
        wanted = asyncio.create_task(done.wait())
        await asyncio.wait([wanted, consumer.task], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        await it.flush()
    assert bodies == [b"1", b"2", b"3"]
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "FAILED"), (3, "ACCEPTED")]
    assert [each.levelno for each in logged(caplog)] == [logging.ERROR]


async def test_a_cancelled_close_ends_the_channel(broker):
    """C12: a close that is cancelled while a callback cleans up leaves no thread and no stream."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    running, cleaning, cleaned = (asyncio.Event() for _ in range(3))

    async def call_back(_):
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await cleaned.wait()

    it = AsyncChannel(broker.endpoint)
    await it.consume("orders", call_back)
    await running.wait()
    closing = asyncio.create_task(it.close())
    await cleaning.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert client_threads() == []
    await it.close()


async def test_why_a_callbacks_consumer_ended_is_in_its_task(broker):
    """Awaiting the consumer's task raises the reason of its end: the queue was deleted."""
    reason = errors.QueueNotFoundError("The queue 'orders' was deleted.")
    broker.consuming.scripts.append(serve(fake.cancelled("1", reason)))

    async def call_back(_):
        pass

    async with consuming(broker, call_back) as (_, consumer):
        with pytest.raises(errors.QueueNotFoundError):
            await consumer.task


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
