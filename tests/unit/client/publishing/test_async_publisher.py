"""Publishing on an event loop, over a scripted broker: P3, P7, P9, P10, P14.

Behaviour shared with `Publisher` is tested there, for both kinds.
"""

import asyncio
import threading
from contextlib import nullcontext

import pytest

from ackq import errors
from ackq.client import AsyncPublisher, Confirmation
from tests.eventually import eventually_async
from tests.fakes import scripted_broker as fake
from tests.unit.client.publishing.scripts import LINGER_MS, confirmed, holding, never_answer, sent
from tests.unit.client.threads import SOON_S, client_threads


def publisher(broker, **options):
    return AsyncPublisher(broker.endpoint, routing_key="orders", **options)


@pytest.fixture
def release(broker):
    """An event before which the broker confirms nothing."""
    event = threading.Event()
    broker.publishing.scripts.append(holding(event))
    return event


async def test_returns_are_told_on_the_loop_before_the_confirm(broker):
    """P7: `on_return` runs on the application's event loop."""
    broker.publishing.scripts.append(fake.answering(fake.second_returned, fake.confirm(2)))
    loop, events = asyncio.get_running_loop(), []

    def on_return(returned):
        assert asyncio.get_running_loop() is loop
        events.append(returned.numbers)

    async with publisher(broker, linger_ms=LINGER_MS, on_return=on_return) as out:
        futures = [out.publish_nowait(b"a"), out.publish_nowait(b"b")]
        flushing = asyncio.create_task(out.flush())
        confirmation = await futures[1]
        assert events == [(2,)]
        assert confirmation.returned.message == "No queue."
        assert (await futures[0]).returned is None
        await flushing


async def test_a_full_window_makes_publish_wait_in_turn(broker, release):
    """P14: waiting coroutines publish in the order of their calls; one that is cancelled does not.

    None of them spins.
    """
    async with publisher(broker, window_messages=2) as out:
        tasks = [asyncio.create_task(out.publish(b"%d" % at)) for at in range(20)]
        await eventually_async("a full window", lambda: out.unconfirmed == 2, every_s=0.001)
        await asyncio.sleep(0)
        assert out.unconfirmed == 2
        tasks[2].cancel()
        release.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert answers == [Confirmation(at) for at in range(1, 20)]
    assert sent(broker) == [b"%d" % at for at in range(20) if at != 2]


async def test_a_new_publish_does_not_overtake_one_whose_turn_has_come(
    broker, release, monkeypatch
):
    """P14: `publish` is called after one has room, and before the next one in turn has run."""
    async with publisher(broker, window_messages=2) as out:
        admit = out._stream.publish_nowait

        def admitted(*prepared):
            done = admit(*prepared)
            if done and len(tasks) == 2:
                tasks.append(asyncio.create_task(out.publish(b"e")))
            return done

        full = [out.publish_nowait(body) for body in (b"a", b"b")]
        monkeypatch.setattr(out._stream, "publish_nowait", admitted)
        tasks = [asyncio.create_task(out.publish(body)) for body in (b"c", b"d")]
        await asyncio.sleep(0)
        release.set()
        assert full[1].result(SOON_S) == Confirmation(2)  # room for both; the loop did not run
        await asyncio.gather(*tasks)
        await tasks[2]
    assert sent(broker) == [b"a", b"b", b"c", b"d", b"e"]


async def test_a_publish_that_does_not_wait_says_that_the_window_is_full(broker, release):
    """P14: `publish_nowait` raises without publishing, and `drain` waits for room.

    It does not overtake coroutines that wait for room.
    """
    async with publisher(broker, window_messages=1) as out:
        first = out.publish_nowait(b"a")
        with pytest.raises(errors.WindowFullError, match="1 messages are unconfirmed"):
            out.publish_nowait(b"lost")
        draining = asyncio.create_task(out.drain())
        waiting = asyncio.create_task(out.publish(b"b"))
        await asyncio.sleep(0)
        assert not draining.done()
        release.set()
        assert first.result(SOON_S) == Confirmation(1)  # the window has room; the loop did not run
        with pytest.raises(errors.WindowFullError, match="window is full"):
            out.publish_nowait(b"lost")
        await draining
        assert await waiting == Confirmation(2)
        assert (await out.publish_nowait(b"c")).number == 3
    assert sent(broker) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("nacked", [False, True])
async def test_cancelled_while_it_waits_for_the_answer(broker, nacked):
    """P3, P8: the publish goes on; `close` waits for its answer, and raises its failure."""
    full = errors.QueueFullError("The queue 'orders' is full.")
    release = threading.Event()
    answer = fake.nack(1, 1, full) if nacked else confirmed
    broker.publishing.scripts.append(fake.answering(fake.held(release), answer))
    out = publisher(broker)
    task = asyncio.create_task(out.publish(b"a"))
    await eventually_async("the publish", lambda: out.unconfirmed == 1, every_s=0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closing = asyncio.create_task(out.close())
    await asyncio.sleep(0)
    assert (closing.done(), out.unconfirmed) == (False, 1)
    release.set()
    with pytest.raises(errors.QueueFullError) if nacked else nullcontext():
        await closing
    assert (out.unconfirmed, sent(broker)) == (0, [b"a"])


async def test_close_ends_who_waits_for_room(broker):
    """P14: coroutines that wait for room fail without publishing."""
    broker.publishing.scripts.append(never_answer)
    out = publisher(broker, window_messages=1)
    first = out.publish_nowait(b"a")
    waiting = asyncio.create_task(out.publish(b"b"))
    await asyncio.sleep(0)
    with pytest.raises(errors.BrokerUnavailableError, match=r"1 publishes unanswered for 0\.1 s"):
        await out.close(0.1)
    with pytest.raises(errors.ClosedError, match="is closed"):
        await waiting
    with pytest.raises(errors.OutcomeUnknownError):
        await first
    with pytest.raises(errors.ClosedError):
        await out.publish(b"c")
    await out.close()
    assert client_threads() == []


def test_a_loop_that_is_gone_hears_nothing(broker, release):
    """P3: a future whose event loop has ended is answered all the same."""
    out = publisher(broker)

    async def main():
        future = out.publish_nowait(b"a")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(future, 0.01)
        return future

    future = asyncio.run(main())
    release.set()
    assert future.result(SOON_S) == Confirmation(1)
    asyncio.run(out.close())
    assert client_threads() == []
