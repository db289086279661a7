"""An outbound link's report to operators, in each of its states."""

import asyncio
import time
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import pyarrow as pa
import pytest

from ackq import limits
from ackq.client import Broker
from ackq.errors import UnauthenticatedError
from ackq_link import outbound
from ackq_link.adapter import CutError
from ackq_link.keys import fingerprints
from ackq_link.process import Edge, StoppedError
from tests.fakes.clock import run
from tests.libraries import replace

RUN = run

NOW_S = 100.0
CONNECTED = SimpleNamespace(blocked="")


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    replace(monkeypatch, outbound, time, monotonic=lambda: NOW_S)


def told(**state):
    target = SimpleNamespace(identity="amqp://there, queue t")
    link = outbound.Outbound("out", target, Edge(Broker("localhost:1"), "q"))
    for name, value in state.items():
        setattr(link, name, value)
    return link.report().report


@pytest.mark.parametrize(
    ("state", "waits", "reason"),
    [
        ({"producer": CONNECTED, "reason": "returned"}, "", "returned"),
        ({"producer": None, "reason": "closed"}, "connection", "closed"),
        ({"producer": CONNECTED, "retry_s": 101, "reason": "nacked"}, "refusals", "nacked"),
        ({"producer": CONNECTED, "retry_s": 99, "reason": "nacked"}, "", "nacked"),
        ({"producer": SimpleNamespace(blocked="low on memory")}, "alarm", "low on memory"),
    ],
)
def test_what_it_waits_for(state, waits, reason):
    """L26: one word for the cause of waiting, with the remote broker's last reason."""
    report = told(**state)
    assert (report.limited_by, report.reason) == (waits, reason)


def test_who_and_where():
    """L26: the report has all counters, the target and the process; I6, A7: a reason is bounded."""
    counters = outbound.OutboundCounters(1, 2, 3, 4, 5, 6)
    report = told(counters=counters, reason="a\nb\udcff" + "x" * 5_000)
    assert (report.link, report.queue, report.target) == ("out", "q", "amqp://there, queue t")
    figures = (report.published, report.refused, report.unfit, report.cuts, report.stale)
    assert (*figures, report.doubts) == (1, 2, 3, 4, 5, 6)
    assert report.holder.pid
    assert report.reason.startswith("a\\nb\\udcffx")
    assert len(report.reason) == limits.MAX_LINK_REASON_BYTES


async def test_a_stop_while_a_rejection_has_no_answer(monkeypatch, caplog):
    """L17, L22: a stop ends a link whose edge went away before it answered a rejection.

    The log says where the message may go: by a link's on-reject also back to where it came from.
    """
    rows = pa.record_batch({"body": [b"x"], "message_id": ["1"], "delivery_tag": [1]})
    stop, asked = asyncio.Event(), asyncio.Event()

    async def never(*_, **__):
        asked.set()
        await asyncio.Event().wait()

    consumer = SimpleNamespace(receive_batch=AsyncMock(return_value=rows), settle=never)
    channel = SimpleNamespace(consume=AsyncMock(return_value=consumer), close=AsyncMock())
    monkeypatch.setattr(outbound, "AsyncChannel", Mock(return_value=channel))
    info = SimpleNamespace(properties=SimpleNamespace(dead_letter_queue="dead"))
    edge = SimpleNamespace(broker=None, queue="q", queue_info=AsyncMock(return_value=info))
    target = SimpleNamespace(limits=SimpleNamespace(window_messages=4, window_bytes=1))
    link = outbound.Outbound("out", target, edge)
    link.found_unfit(fingerprints(rows)[0], "too large")
    moving = asyncio.ensure_future(link._move(Mock(), stop))
    await asked.wait()
    (said,) = [each.message for each in caplog.records if each.event == "link_unfit"]
    assert "a dead letter in 'dead', or of the remote broker that it came from (on-reject)" in said
    stop.set()
    with pytest.raises(StoppedError):
        await moving
    channel.close.assert_awaited_once()


async def test_a_refusal_that_an_idle_link_meets(monkeypatch):
    """L17: it may be of a password that was changed since; two in turn end a link that has
    published nothing.
    """
    refused = CutError("refused", UnauthenticatedError("the password"))
    cuts = [refused, CutError("reset"), refused, refused]
    target = SimpleNamespace(connect=AsyncMock(return_value=AsyncMock()), limits=Mock())
    link = outbound.Outbound("out", target, SimpleNamespace(broker=None))
    for name, fake in (("for_edge", AsyncMock()), ("OutboundReporter", lambda *_: None)):
        monkeypatch.setattr(outbound, name, fake)
    monkeypatch.setattr(outbound.Outbound, "_move", AsyncMock(side_effect=cuts))
    with pytest.raises(UnauthenticatedError):
        await link.run(asyncio.Event())
    assert target.connect.await_count == len(cuts)
