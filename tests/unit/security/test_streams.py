"""Open streams, counted and ended."""

import asyncio

import pytest

from ackq import limits
from ackq.errors import LimitError, UnauthenticatedError
from ackq_broker.security.callers import Caller, Rights
from ackq_broker.security.streams import OpenStreams
from ackq_broker.security.users import User, UserLimits


def caller(name="app", port=1, **most):
    return Caller(f"ipv4:127.0.0.1:{port}", Rights(User(name, (), limits=UserLimits(**most))))


async def test_the_bound_of_the_broker(monkeypatch):
    """I6: a stream above the broker's limit is refused, and admitted when another has ended."""
    monkeypatch.setattr(limits, "MAX_STREAMS", 1)
    streams = OpenStreams()
    async with streams.one_more(Caller.anonymous):
        with pytest.raises(LimitError, match="serves 1 streams"):
            async with streams.one_more(Caller.anonymous):
                pass
    async with streams.one_more(Caller.anonymous):
        pass


async def test_the_bounds_of_a_user():
    """A5: a user is limited in streams and in connections with a stream; each user by itself."""
    streams = OpenStreams()
    async with streams.one_more(caller(streams=1)):
        with pytest.raises(LimitError, match="'app' is at its limit of 1 streams"):
            async with streams.one_more(caller(streams=1)):
                pass
        async with streams.one_more(caller("other", streams=1)):
            pass
    async with streams.one_more(caller(port=1, connections=1)):
        async with streams.one_more(caller(port=1, connections=1)):
            pass
        with pytest.raises(LimitError, match="limit of 1 connections"):
            async with streams.one_more(caller(port=2, connections=1)):
                pass


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
