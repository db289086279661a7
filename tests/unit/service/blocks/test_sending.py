"""Readers of many pieces, which are requested slice by slice."""

from functools import partial

import pytest

from ackq.errors import FencedError
from ackq.v1 import admin_pb2
from ackq.v1 import sessions_pb2 as pb
from ackq_broker.core.commands import Piece, Run
from ackq_broker.service import admin
from ackq_broker.service.admin import AdminService
from ackq_broker.service.blocks import sending
from ackq_broker.service.sessions import service as sessions
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.sessions.service import SessionsService
from tests.fakes.blocks import rows
from tests.unit.service.channel_streams import Broker

READER = pb.Holder(token=b"r" * 16, host="host", pid=1)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Limits a slice to three pieces."""
    for module in (sending, admin, sessions):
        monkeypatch.setattr(module, "MOST_PIECES", 3)


def asked(after, last, present):
    """The ranges that `slices` requests, and the labels it yields, for pieces of one label each."""
    ranges = []

    def ask(begin, end):
        ranges.append((begin, end))
        there = [label for label in present if begin < label <= end]
        return [Piece(label, "q", (0, 1), (Run(label, 1, 1),)) for label in there[:3]]

    found = [piece.block_id for each in sending.slices(ask, after, last) for piece in each]
    return ranges, found


@pytest.mark.parametrize(
    ("after", "last", "present", "ranges"),
    [
        (0, 9, range(1, 3), [(0, 9)]),
        (0, 9, (), [(0, 9)]),
        (5, 5, range(1, 10), [(5, 5)]),
        (0, 3, range(1, 4), [(0, 3)]),
        (0, 99, range(1, 6), [(0, 99), (3, 15), (15, 99)]),
        (0, 99, (1, 50, 98, 99), [(0, 99), (98, 99)]),
    ],
)
def test_slices(after, last, present, ranges):
    """S2, I6: slices give every label once and in order, and never request beyond the bounds."""
    expected = [label for label in present if after < label <= last]
    assert asked(after, last, present) == (ranges, expected)


def singles(count):
    """A broker with `count` messages of one block each."""
    broker = Broker()
    for number in range(count):
        broker.publish(b"%d" % number)
    return broker


class Sent:
    """The frames that a reader gets; `then` is called after the first."""

    def __init__(self, then=lambda: None):
        self.bodies = []
        self._then = then

    async def __call__(self, frame):
        self.bodies += [int(body) for body in rows(frame.block)["body"]]
        then, self._then = self._then, lambda: None
        then()


@pytest.mark.parametrize(("first", "last", "most"), [(0, 0, 0), (3, 8, 0), (0, 0, 7), (2, 0, 3)])
async def test_a_browse_of_single_messages(first, last, most):
    """Q5, I6: a sliced browse equals one slice, and does not wait for new messages."""
    broker = singles(10)
    sent = Sent(then=lambda: broker.publish(b"99"))
    request = admin_pb2.BrowseRequest(
        queue="q", first_position=first, last_position=last, max_messages=most
    )
    await AdminService(broker.engine, broker.dispatcher, "none", None, None).browse(request, sent)
    expected = range(max(first, 1) - 1, last or 10)
    assert sent.bodies == list(expected)[: most or None]


async def leased():
    """A broker with a lease of ten messages, its sessions service, and fetches of the lease."""
    broker = singles(10)
    service = SessionsService(broker.engine, Liveness(lambda: 0.0))
    advance = pb.AdvanceRequest(session="s", holder=READER, queues=["q"], open_and_lease=True)
    lease = await service.advance(advance)
    holding = {"incarnation": lease.incarnation, "epoch": lease.epoch}
    return broker, service, partial(pb.FetchRequest, session="s", last_tag=10, **holding)


async def test_a_fetch_of_single_messages():
    """S2, I6: a sliced fetch gives each row of the lease once, in the order of the tags."""
    _, service, fetch = await leased()
    sent, operators = Sent(), Sent()
    await service.fetch(fetch(after_tag=1), sent)
    assert sent.bodies == list(range(1, 10))
    await service.browse_lease(pb.BrowseLeaseRequest(session="s", max_messages=8), operators)
    assert operators.bodies == list(range(8))


async def test_a_fetch_is_fenced_between_two_slices():
    """S3: a reader that is fenced between two slices gets no further slice."""
    broker, service, fetch = await leased()
    fence = pb.SettleSessionRequest(session="s", outcome=4, first_tag=[9], last_tag=[9], fence=True)
    sent = Sent(then=lambda: broker.engine.decide(sessions.settlement_of(fence)))
    with pytest.raises(FencedError):
        await service.fetch(fetch(), sent)
    assert sent.bodies == [0, 1, 2]
