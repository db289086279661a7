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


def test_a_slice_asks_for_little_more_than_the_one_before_brought():
    """I6: asking for all remaining labels each time would cost time in proportion to them."""
    ranges = []

    def ask(after, last):
        ranges.append((after, last))
        labels = range(after + 1, min(last, 5) + 1)
        return [Piece(label, "q", (0, 1), (Run(label, 1, 1),)) for label in labels[:3]]

    found = [piece.block_id for each in sending.slices(ask, 0, 99) for piece in each]
    assert (found, ranges) == ([1, 2, 3, 4, 5], [(0, 99), (3, 15), (15, 99)])


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


async def test_a_fetch_of_single_messages():
    """S2, S3, I6: a sliced fetch gives each row of the lease once, in the order of the tags.

    A reader that is fenced between two slices gets no further slice.
    """
    broker = singles(10)
    service = SessionsService(broker.engine, Liveness(lambda: 0.0))
    advance = pb.AdvanceRequest(session="s", holder=READER, queues=["q"], open_and_lease=True)
    lease = await service.advance(advance)
    holding = {"incarnation": lease.incarnation, "epoch": lease.epoch}
    fetch = partial(pb.FetchRequest, session="s", last_tag=10, **holding)
    sent, operators = Sent(), Sent()
    await service.fetch(fetch(after_tag=1), sent)
    assert sent.bodies == list(range(1, 10))
    await service.browse_lease(pb.BrowseLeaseRequest(session="s", max_messages=8), operators)
    assert operators.bodies == list(range(8))
    fence = pb.SettleSessionRequest(session="s", outcome=4, first_tag=[9], last_tag=[9], fence=True)
    fenced = Sent(then=lambda: broker.engine.decide(sessions.settlement_of(fence)))
    with pytest.raises(FencedError):
        await service.fetch(fetch(), fenced)
    assert fenced.bodies == [0, 1, 2]
