"""First requests of calls: a few per caller at a time, and no slow one for long."""

import asyncio

import pytest

from ackq import limits
from ackq.errors import BrokerUnavailableError
from ackq_broker.service.transport.first_reads import FirstReads
from tests.unit.service.channel_streams import run_until_idle

LIMIT = 12 * limits.MAX_FRAME_BYTES  # three at a time


class Call:
    """A call that has begun; setting `came` ends its read."""

    def __init__(self, reads, who):
        self.began = False
        self.came = asyncio.Event()
        self.task = asyncio.create_task(reads.read(who, self._read))

    async def _read(self):
        self.began = True
        await self.came.wait()
        return "request"


async def test_a_caller_waits_for_its_own_alone():
    """I6: a caller's fourth first request waits for one of its own, and not for other callers'.

    A cancelled call gives its place to the next, whether it was waiting or being read.
    """
    reads = FirstReads(LIMIT, lambda: 0.0)
    calls = [Call(reads, "mallory") for _ in range(7)]
    other = Call(reads, "alice")
    await run_until_idle()
    assert [each.began for each in (*calls, other)] == [True] * 3 + [False] * 4 + [True]
    calls[0].came.set()
    await run_until_idle()
    assert [each.began for each in calls] == [True] * 4 + [False] * 3
    calls[1].task.cancel()
    calls[4].task.cancel()
    await run_until_idle()
    assert [each.began for each in calls[4:]] == [False, True, False]
    for each in (*calls, other):
        each.came.set()
    await asyncio.gather(*(each.task for each in (*calls, other)), return_exceptions=True)
    assert await calls[6].task == "request"
    assert not reads._taken
    assert not reads._waiting


async def test_those_that_are_slow():
    """I6: slow first requests let others begin, and are ended when memory is short."""
    now = [0.0]
    reads = FirstReads(LIMIT, lambda: now[0])
    slow = [Call(reads, "mallory") for _ in range(3)]
    waiting = Call(reads, "mallory")
    await run_until_idle()
    now[0] = 0.4
    reads.poll(LIMIT)
    await run_until_idle()
    assert not waiting.began
    now[0] = 0.6
    reads.poll(LIMIT // 2)
    await run_until_idle()
    assert waiting.began
    assert not any(each.task.done() for each in slow)
    reads.poll(LIMIT)
    for each in slow:
        with pytest.raises(BrokerUnavailableError, match="was not complete"):
            await each.task
    waiting.came.set()
    assert await waiting.task == "request"
    assert not reads._taken


async def test_none_waits_for_ever(monkeypatch):
    """I6: a first request that does not come in time is given up, and one that waits for it."""
    monkeypatch.setattr(limits, "FIRST_REQUEST_MS", 0)
    reads = FirstReads(LIMIT, lambda: 0.0)
    for each in [Call(reads, "mallory") for _ in range(4)]:
        with pytest.raises(BrokerUnavailableError, match="did not come within"):
            await each.task
    assert not reads._taken
    assert not reads._waiting
