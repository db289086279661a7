"""An outbound link whose connections end with a message, and nobody says why."""

import asyncio
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock, Mock

import pyarrow as pa
import pytest

from ackq.errors import PermissionDeniedError
from ackq_link import outbound
from ackq_link.adapter import CutError, Limits, PublishedRows
from ackq_link.process import Edge
from ackq_link.suspects import CUTS
from tests.fakes.clock import run
from tests.libraries import replace

RUN = run


class Queue:
    """The edge's queue and its channel: released messages return to their places in time."""

    def __init__(self, bodies):
        self.waiting = sorted(bodies)
        self.out = []
        self.delays_s = []
        self.changed = asyncio.Event()

    async def consume(self, *_, **__):
        return self

    async def receive_batch(self, most):
        while not self.waiting:
            await self.change()
        got, self.waiting = self.waiting[:most], self.waiting[most:]
        self.out += got
        return pa.record_batch({"body": got, "message_id": got})

    def settle(self, rows, *_, delay_ms=None, **__):
        for body in rows.column("body").to_pylist():
            self.out.remove(body)
            if delay_ms is not None:
                self.delays_s.append(delay_ms / 1000)
                asyncio.get_running_loop().call_later(delay_ms / 1000, self.back, [body])
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def back(self, bodies):
        self.waiting = sorted([*bodies, *self.waiting])
        self.changed.set()

    async def change(self):
        self.changed.clear()
        await self.changed.wait()

    async def close(self, *_):
        self.back(self.out)
        self.out = []


class Target:
    """A remote broker whose connections end with some messages; it records what is sent."""

    identity = "there"
    limits = Limits(8, 1000)
    blocked = ""

    def __init__(self, poison, refusal=None):
        self.poison = poison
        self.cut = CutError("ended", refusal)
        self.sent = []
        self.stored = asyncio.Event()

    async def connect(self):
        return self

    async def publish(self, rows):
        await asyncio.sleep(0)
        bodies = rows.column("body").to_pylist()
        self.sent.append("".join(bodies))
        ended = self.poison & set(bodies)
        if ended:
            return PublishedRows([], cut=self.cut)
        self.stored.set()
        return PublishedRows(range(len(bodies)))

    async def close(self):
        pass


@pytest.fixture
def linked(monkeypatch):
    """Returns a context manager that runs a link between a queue and a target."""

    @asynccontextmanager
    async def running(queue, target):
        monkeypatch.setattr(outbound, "AsyncChannel", Mock(return_value=queue))
        monkeypatch.setattr(outbound, "for_edge", AsyncMock())
        monkeypatch.setattr(outbound, "OutboundReporter", Mock())
        replace(monkeypatch, outbound, asyncio, to_thread=AsyncMock())
        link = outbound.Outbound("out", target, Edge(None, "q"))
        stop = asyncio.Event()
        task = asyncio.create_task(link.run(stop))
        yield link
        stop.set()
        await task

    return running


async def test_what_waits_behind_goes_on(linked):
    """L22: a message that was alone at three cuts is released for 60 s; then again at each cut."""
    queue, target = Queue("abcd"), Target({"a", "b"})
    async with linked(queue, target) as link:
        await target.stored.wait()
        assert target.sent == ["ab", "ab", *CUTS * "a", *CUTS * "b", "c"]
        assert queue.delays_s == [60, 60]
        await asyncio.sleep(30)
        queue.back(["e", "f"])
        await asyncio.sleep(60)
        assert target.sent[-4:].count("a") == target.sent[-4:].count("b") == 1
        assert (link.counters.published, queue.delays_s) == (4, [60] * 4)
        target.poison = set()
        await asyncio.sleep(90)
        assert (link.counters.published, bool(link.suspects)) == (6, False)


async def test_a_refusal_is_no_messages_doing(linked):
    """L17, L22: while the link has lost a permission, its messages keep their places."""
    queue, target = Queue("a"), Target(set())
    async with linked(queue, target):
        await target.stored.wait()
        target.poison, target.cut = {"b", "c"}, CutError("no", PermissionDeniedError("no"))
        queue.back(["b", "c"])
        await asyncio.sleep(600)
        assert queue.delays_s == []
        target.stored.clear()
        target.poison, target.sent = set(), []
        await target.stored.wait()
    assert target.sent[0] == "b"
