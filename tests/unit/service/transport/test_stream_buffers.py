"""The request and response buffers of a stream, and its concurrent tasks."""

import asyncio

import pytest

from ackq_broker.service.transport.stream_buffers import RequestBuffer, alongside


async def test_requests_over_the_bound_block_the_reader():
    """I6: a reader is blocked above the buffer's byte bound until requests are taken."""
    requests = RequestBuffer(1000)
    putting = asyncio.create_task(requests.put("a", 1001))
    await asyncio.sleep(0)
    assert not putting.done()
    await requests.take()
    await putting
    # A flood of empty requests is blocked as well, as each is an object.
    requests = RequestBuffer(100_000)

    async def flood():
        for _ in range(1000):
            await requests.put("", 0)

    flooding = asyncio.create_task(flood())
    for _ in range(2000):
        await asyncio.sleep(0)
    assert not flooding.done()
    assert len(await requests.take()) == 391
    flooding.cancel()


async def test_a_failure_overtakes_waiting_requests():
    """P10: the failure of a fenced stream is raised before waiting requests are handled."""
    requests = RequestBuffer(1000)
    await requests.put("a", 1)
    requests.fail(ValueError("fenced"))
    with pytest.raises(ValueError, match="fenced"):
        await requests.take()


async def test_alongside_ends_with_main_and_with_a_failure():
    """P3: `alongside` ends its other tasks with the main one, and raises any failure."""
    ended = []

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def short():
        await asyncio.sleep(0)

    async def fails():
        raise ValueError("broken")

    await alongside(short(), forever())
    with pytest.raises(ValueError, match="broken"):
        await alongside(forever(), fails(), forever())
    assert ended == [True, True, True]
