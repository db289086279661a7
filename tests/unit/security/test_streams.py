"""Open streams, counted and ended."""

import asyncio

import pytest

from ackq.errors import BrokerUnavailableError, UnauthenticatedError
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


async def test_a_user_that_changes_twice():
    """A1, I2: a stream that is ending may be ended again, which is no failure of the broker."""
    streams, reached, go_on = OpenStreams(), asyncio.Event(), asyncio.Event()

    async def serve():
        async with streams.one_more(Caller("peer", Rights(User("app", ())))):
            try:
                await asyncio.Event().wait()
            finally:
                reached.set()
                await go_on.wait()

    serving = asyncio.create_task(serve())
    await asyncio.sleep(0)
    assert streams.end({"app": BrokerUnavailableError("changed")}) == 1
    await reached.wait()
    assert streams.end({"app": UnauthenticatedError("removed")}) == 1
    go_on.set()
    with pytest.raises(UnauthenticatedError, match="removed"):
        await serving
