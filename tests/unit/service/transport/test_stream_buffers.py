"""The request and response buffers of a stream, and its concurrent tasks."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from ackq_broker.service.transport.stream_buffers import RequestBuffer, alongside


async def test_requests_over_the_bound_block_the_reader():
    """I6, P10: a reader is blocked above the buffer's byte bound until requests are taken.

    So does a flood of empty requests, as each is an object. The failure of a fenced stream is
    raised before waiting requests are handled.
    """
    for size, taken in ((1001, 1), (0, 391)):
        requests = RequestBuffer(1000 if size else 100_000)

        async def flood(requests=requests, size=size):
            for _ in range(1000):
                await requests.put("a", size)

        flooding = asyncio.create_task(flood())
        for _ in range(2000):
            await asyncio.sleep(0)
        assert not flooding.done()
        assert len(await requests.take()) == taken
        flooding.cancel()
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

    await alongside(asyncio.sleep(0), forever())
    fails = AsyncMock(side_effect=ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        await alongside(forever(), fails(), forever())
    assert ended == [True, True, True]
