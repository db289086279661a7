"""Figures of many queues and sessions, read between other work."""

import asyncio
import time

import pytest

from ackq_broker.core import commands as c
from ackq_broker.core import views
from ackq_broker.http import figures
from tests.fakes.journal import HeldEngine
from tests.libraries import replace


@pytest.fixture
def engine():
    held = HeldEngine()
    for name in ("orders.eu", "orders.us", "other"):
        held.decide(c.DeclareQueue(name, c.QueueProperties()))
    held.sync()
    return held


async def test_a_queue_that_goes_meanwhile_is_counted_once(engine, monkeypatch):
    """M2: the counts of a queue deleted during a scrape are in the totals exactly once."""
    monkeypatch.setattr(figures, "_SLICE_S", 0.0)
    turns = []

    async def delete_soon():
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        engine.decide(c.DeleteQueue("orders.eu", force=True))
        engine.sync()
        turns.append("deleted")

    queue = engine.core._state.queues[views.queue_ids(engine.core.state)["orders.eu"]]
    queue.published = 7
    deleting = asyncio.create_task(delete_soon())
    totals = await figures.queue_totals(engine)
    turns.append("told")
    await deleting
    assert turns == ["deleted", "told"]
    assert totals.queues == 2
    assert totals.figures["messages_published_total"] == 7


async def test_other_work_has_its_turn_between_slices(monkeypatch):
    """M2: a slice yields to other work when its time is over, and not before."""
    clock = iter(range(100))
    replace(monkeypatch, figures, time, perf_counter=lambda: next(clock) / 1000)
    monkeypatch.setattr(figures, "_SLICE_S", 0.002)
    turns = []

    async def other():
        while True:
            turns.append("other")
            await asyncio.sleep(0)

    working = asyncio.create_task(other())
    async for item in figures.slices(range(6)):
        turns.append(item)  # noqa: PERF401 - between the turns of the other
    working.cancel()
    assert turns == [0, 1, 2, "other", 3, 4, 5, "other"]
