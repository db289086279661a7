"""The sync gate: nothing is released before its sequence is synced."""

import asyncio

import pytest

from ackq_broker.engine.sync_gate import SyncGate
from tests.unit.service.channel_streams import run_until_idle


async def test_released_in_sequence_order_until_it_is_shut():
    """I1, I2: nothing is released before its sequence; waiting releases run in sequence order.

    A client that leaves while it waits does not hold up the others. After a failure nothing is
    released: not waiting, later or immediate releases.
    """
    gate, released = SyncGate(2), []

    for sequence in (5, 3, 4, 3, 2):
        gate.when_synced(sequence, lambda sequence=sequence: released.append(sequence))
    assert released == [2]
    gone, stays = (asyncio.ensure_future(gate.wait(3)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    gate.advance(4)
    await stays
    assert released == [2, 3, 3, 4]
    with pytest.raises(AssertionError):
        gate.advance(3)
    waiting = [asyncio.ensure_future(gate.wait(5))]
    await asyncio.sleep(0)
    gate.shut()
    gate.when_synced(1, lambda: released.append(1))
    waiting.append(asyncio.ensure_future(gate.wait(1)))
    gate.advance(9)
    await run_until_idle()
    assert (released, [task.done() for task in waiting]) == ([2, 3, 3, 4], [False, False])
    for task in waiting:
        task.cancel()
