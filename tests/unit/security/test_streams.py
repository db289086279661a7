"""Open streams, counted and ended."""

import asyncio

import pytest

from ackq.errors import LimitError, UnauthenticatedError
from ackq_broker.security.callers import Caller, Rights
from ackq_broker.security.streams import OpenStreams
from ackq_broker.security.users import User, UserLimits


def caller(name="app", port=1, **most):
    return Caller(f"ipv4:127.0.0.1:{port}", Rights(User(name, (), limits=UserLimits(**most))))


async def test_a_stream_that_is_ended():
    """A1: an ended stream gets the reason where it waits and frees its resources; others go on."""
    streams = OpenStreams()
    waiting, gone, released = asyncio.Event(), [], []

    async def run(name):
        try:
            async with streams.one_more(caller(name)):
                waiting.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    released.append(name)
        except UnauthenticatedError as error:
            gone.append((name, str(error)))

    app, other = asyncio.create_task(run("app")), asyncio.create_task(run("other"))
    await waiting.wait()
    assert streams.end({"app": UnauthenticatedError("removed"), "nobody": LimitError("x")}) == 1
    await app
    assert (gone, released, other.done()) == ([("app", "removed")], ["app"], False)
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert streams.end({"other": UnauthenticatedError("removed")}) == 0


async def test_a_timeout_of_its_own_is_its_own():
    """A1: a TimeoutError that a stream raises itself is not mistaken for its end by the broker."""
    with pytest.raises(TimeoutError):
        async with OpenStreams().one_more(caller()):
            raise TimeoutError
