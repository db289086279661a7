"""A subscription by AMQP 1.0, whose deliveries have the state that the test says."""

from functools import partial
from types import SimpleNamespace

import pytest

from tests.optional import needs

needs("proton", "amqp1")
pytestmark = pytest.mark.servers

from proton import Delivery, Link, Message  # noqa: E402

from ackq_link.adapter import CutError, Limits  # noqa: E402
from ackq_link.amqp1.source import Amqp1Subscription  # noqa: E402


def nothing(*_):
    pass


def brought():
    """A delivery of a whole message."""
    kind = {"aborted": False, "partial": False, "pending": 1, "readable": True, "settled": False}
    made = SimpleNamespace(**kind, local_state=0, remote_state=0, settle=nothing)
    made.update = partial(setattr, made, "local_state")
    return made


@pytest.mark.parametrize(
    ("said", "answer", "proven"),
    [
        (None, Delivery.RELEASED, None),
        (None, 0, None),
        (Delivery.ACCEPTED, Delivery.ACCEPTED, 1),
        (Delivery.ACCEPTED, 0, 1),
        (Delivery.ACCEPTED, Delivery.MODIFIED, None),
        (Delivery.ACCEPTED, Delivery.REJECTED, None),
        (Delivery.REJECTED, Delivery.REJECTED, 1),
    ],
)
async def test_what_the_broker_settles(said, answer, proven):
    """L10, L17: the settlement of a message that the link holds, or that it accepted and the broker
    did not, is a cut; any other one is a proof.
    """
    connection = SimpleNamespace(cut=None, flush=nothing)
    receiver = SimpleNamespace(
        credit=0,
        flow=nothing,
        advance=nothing,
        recv=lambda _: bytes(Message(body=b"x").encode()),
        remote_rcv_settle_mode=Link.RCV_SECOND,
    )
    subscription = Amqp1Subscription(connection, receiver, Limits(1, 1000))
    delivery = brought()
    subscription._on_deliveries([delivery])
    assert (await subscription.deliver()).rows.num_rows == 1
    if said:
        (subscription.settle if said == Delivery.ACCEPTED else subscription.reject)(1, 1)
    assert delivery.local_state == (said or 0)
    delivery.readable, delivery.settled, delivery.remote_state = False, True, answer
    subscription._on_deliveries([delivery])
    assert subscription.proven == (proven or 0)
    assert (subscription._cut is None) == (proven is not None)
    if proven is None:
        with pytest.raises(CutError, match="took back a message"):
            await subscription.deliver()
