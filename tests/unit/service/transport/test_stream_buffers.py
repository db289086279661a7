"""The request and response buffers of a stream, and its concurrent tasks."""

import asyncio

import pytest

from ackq_broker.engine.sync_gate import SyncGate
from ackq_broker.service.transport.stream_buffers import RequestBuffer, ResponseBuffer, alongside


async def test_responses_are_released_in_bulk():
    """I1: responses are released together, once their sequences are synced."""
    gate = SyncGate(0)
    responses = ResponseBuffer(gate)
    for sequence in (1, 2, 3):
        responses.put(sequence, sequence)
    taking = asyncio.create_task(responses.take())
    await asyncio.sleep(0)
    assert not taking.done()
    gate.advance(2)
    assert await taking == [1, 2]
    responses.written(2)
    drained = asyncio.create_task(responses.drained())
    await asyncio.sleep(0)
    assert not drained.done()
    gate.advance(3)
    responses.written(len(await responses.take()))
    await drained


async def test_requests_that_arrived_together_are_taken_together():
    """P2: waiting requests are taken together; an empty list marks the end."""
    requests = RequestBuffer(1000)
    await requests.put("a", 1)
    await requests.put("b", 1)
    assert await requests.take() == ["a", "b"]
    await requests.put("c", 1)
    requests.close()
    assert [await requests.take(), await requests.take()] == [["c"], []]


async def test_requests_over_the_bound_block_the_reader():
    """I6: a reader is blocked above the buffer's byte bound until requests are taken."""
    requests = RequestBuffer(1000)
    putting = asyncio.create_task(requests.put("a", 1001))
    await asyncio.sleep(0)
    assert not putting.done()
    await requests.take()
    await putting


async def test_requests_that_say_nothing_have_a_bound():
    """I6: a flood of empty requests is blocked as well, as each is an object."""
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
