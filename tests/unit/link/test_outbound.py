"""An outbound link's report to operators, in each of its states."""

from types import SimpleNamespace

import pytest

from ackq import limits
from ackq.client import Broker
from ackq_link import outbound
from ackq_link.process import Edge

NOW_S = 100.0
CONNECTED = SimpleNamespace(blocked="")


@pytest.fixture(autouse=True)
def _clock(monkeypatch):
    monkeypatch.setattr(outbound.time, "monotonic", lambda: NOW_S)


def told(**state):
    target = SimpleNamespace(identity="amqp://there, queue t")
    link = outbound.Outbound("out", target, Edge(Broker("localhost:1"), "q"))
    for name, value in state.items():
        setattr(link, name, value)
    return link.report().report


@pytest.mark.parametrize(
    ("state", "waits", "reason"),
    [
        ({"producer": CONNECTED}, "", ""),
        ({"producer": CONNECTED, "reason": "returned"}, "", "returned"),
        ({"producer": None, "reason": "closed"}, "connection", "closed"),
        ({"producer": CONNECTED, "retry_s": 101, "reason": "nacked"}, "refusals", "nacked"),
        ({"producer": CONNECTED, "retry_s": 99, "reason": "nacked"}, "", "nacked"),
        ({"producer": SimpleNamespace(blocked="low on memory")}, "alarm", "low on memory"),
        ({"producer": None, "retry_s": 101}, "connection", ""),
    ],
)
def test_what_it_waits_for(state, waits, reason):
    """L26: one word for the cause of waiting, with the remote broker's last reason."""
    report = told(**state)
    assert (report.limited_by, report.reason) == (waits, reason)


def test_who_and_where():
    """L26: the report has all counters, the target and the process."""
    counters = outbound.OutboundCounters(1, 2, 3, 4, 5, 6)
    report = told(counters=counters)
    assert (report.link, report.queue, report.target) == ("out", "q", "amqp://there, queue t")
    figures = (report.published, report.refused, report.unfit, report.cuts, report.stale)
    assert (*figures, report.doubts) == (1, 2, 3, 4, 5, 6)
    assert report.holder.application == "ackq-broker link"
    assert report.holder.pid


def test_words_that_others_wrote():
    """I6, A7: a foreign reason is escaped to one line of bounded length."""
    report = told(reason="a\nb\udcff" + "x" * 5_000)
    assert report.reason.startswith("a\\nb\\udcffx")
    assert len(report.reason) == limits.MAX_LINK_REASON_BYTES
