"""The stream of a link: when it reconnects, and when it ends."""

from ackq.client import Broker
from ackq.errors import AlreadyHeldError
from ackq.v1 import links_pb2 as pb
from ackq_link.edge.stream import LinkStream


def test_another_holder():
    """L1: a process waits for an earlier holder at first, and ends when another took its place."""
    stream = LinkStream(Broker("localhost:1", retry_ms=None), pb.LinkOpen())
    held = AlreadyHeldError("The link 'l' is run by a.")
    assert stream._may_reconnect(held)
    stream._on_answer(pb.LinkResponse(opened=pb.LinkOpened(incarnation="i", epoch=1, history="h")))
    assert not stream._may_reconnect(held)
