"""Blocking work in a thread next to an event loop."""

import asyncio
import threading

import pytest

from ackq.client.event_loop import in_thread


def test_a_cancelled_wait_leaves_the_work_to_its_thread():
    """Cancelling the wait does not interrupt the work or block the loop; a failure is raised."""
    go_on, done = threading.Event(), threading.Event()

    def work():
        go_on.wait()
        done.set()

    async def cancelled():
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0)
        waiting = asyncio.create_task(in_thread(work))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not done.is_set()
        go_on.set()

    asyncio.run(cancelled())
    assert done.wait(60)
