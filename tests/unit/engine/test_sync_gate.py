"""The sync gate: nothing is released before its sequence is synced."""

import asyncio

import pytest

from ackq_broker.engine.sync_gate import SyncGate
from tests.unit.service.channel_streams import run_until_idle


def test_released_in_sequence_order():
    """I1: nothing is released before its sequence; waiting releases run in sequence order."""
    gate, released = SyncGate(2), []
    for sequence in (5, 3, 4, 3, 2):
        gate.when_synced(sequence, lambda sequence=sequence: released.append(sequence))
    assert released == [2]
    gate.advance(4)
    assert released == [2, 3, 3, 4]
    gate.advance(9)
    assert released == [2, 3, 3, 4, 5]


async def test_a_shut_gate_holds_everything_back():
    """I2: after a failure nothing is released: not waiting, later or immediate releases."""
    gate, released = SyncGate(2), []
    gate.when_synced(3, lambda: released.append(3))
    waiting = [asyncio.ensure_future(gate.wait(3))]
    await asyncio.sleep(0)
    gate.shut()
    gate.when_synced(1, lambda: released.append(1))
    waiting.append(asyncio.ensure_future(gate.wait(1)))
    gate.advance(9)
    await run_until_idle()
    assert (released, [task.done() for task in waiting]) == ([], [False, False])
    for task in waiting:
        task.cancel()


def test_synced_never_goes_back():
    """I1: a synced sequence that decreases is a broken invariant."""
    with pytest.raises(AssertionError):
        SyncGate(2).advance(1)


async def test_wait_survives_a_cancelled_waiter():
    """I1: a client that leaves while it waits does not hold up the others."""
    gate = SyncGate(0)
    gone, stays = (asyncio.create_task(gate.wait(1)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    gate.advance(1)
    await stays
