"""Open streams, counted and ended."""

import pytest

from ackq.errors import UnauthenticatedError
from ackq_broker.security.callers import Caller, Rights
from ackq_broker.security.streams import OpenStreams
from ackq_broker.security.users import User


async def test_a_timeout_of_its_own_is_its_own():
    """A1: a TimeoutError that a stream raises itself is not mistaken for its end by the broker."""
    streams = OpenStreams()
    with pytest.raises(TimeoutError):
        async with streams.one_more(Caller("peer", Rights(User("app", ())))):
            raise TimeoutError
    assert streams.end({"app": UnauthenticatedError("removed")}) == 0
