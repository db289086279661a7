"""Streams that are fenced by an open of their own client, of an earlier call, which came late.

A network may bring what a connection sent long after the client left it, and gave up the call.
"""

import asyncio
import secrets
from contextlib import suppress
from types import SimpleNamespace

import grpc
import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import AsyncLink, Channel, Publisher, TransactionalPublisher
from ackq.client.links import async_link
from ackq.v1 import publishing_pb2
from tests.fakes.raw_client import error_of
from tests.fakes.raw_link import SOURCE, RawLink, columns

SOON_S = 30


def in_queue(own):
    found, _ = own.browse()
    return sorted(found)


def wait_fenced(late):
    """Waits until the client of a stream has come back, which ends the late one."""
    with pytest.raises(grpc.RpcError) as ended:
        for _ in late.call:
            pass
    assert type(error_of(ended.value)[0]) is errors.FencedError


def test_publisher(own, broker):
    """P10: what is unanswered goes by another stream, and each message is there once."""
    wanted = [b"%05d" % at for at in range(5_000)]
    with Publisher(broker.endpoint, routing_key="q") as out:
        futures = [out.publish(body) for body in wanted[:4_999]]
        with own.publisher(out._stream._publisher_id) as late:
            futures.append(out.publish(wanted[-1]))
            wait_fenced(late)
        numbers = [each.result(SOON_S).number for each in futures]
    assert numbers == list(range(1, 5_001))
    assert in_queue(own) == wanted


def test_transactional_publisher(own, broker):
    """P13: it goes on; what was not committed is rolled back, and is said to be."""
    rows = pa.table({"body": [b"%05d" % at for at in range(1_000)]})
    with TransactionalPublisher(broker.endpoint, routing_key="q") as out:
        out.publish(b"before")
        assert out.commit(SOON_S).messages == 1
        mode = publishing_pb2.PUBLISH_MODE_TRANSACTION
        with own.publisher(out._stream._publisher_id, mode=mode) as late:
            with suppress(errors.TransactionRolledBackError):  # part of it was sent before
                out.publish_batch(rows)
                out.commit(SOON_S)
            wait_fenced(late)
        out.rollback()
        assert len(in_queue(own)) in {1, 1_001}
        out.publish(b"behind")
        assert out.commit(SOON_S).messages == 1
    assert in_queue(own)[-2:] == [b"before", b"behind"]


def test_channel(own, broker):
    """C11: it is resumed: its tags stay, and what it holds can be settled."""
    own.publish(b"a", b"b")
    with Channel(broker.endpoint) as channel:
        first, second = channel.get("q", 2)
        with own.consume(channel._stream._channel_id) as late:
            wait_fenced(late)
        first.accept()
        second.accept().result(SOON_S)
        assert channel.get("q", 1) == []
    assert in_queue(own) == []


def test_link(own, broker, monkeypatch):
    """L1: its process keeps its epoch and its subscription."""
    token = secrets.token_bytes(16)
    monkeypatch.setattr(async_link, "secrets", SimpleNamespace(token_bytes=lambda _: token))

    async def main():
        async with (
            asyncio.timeout(SOON_S),
            AsyncLink(broker.endpoint, link="l", source=SOURCE, queue="q") as link,
        ):
            await link.subscribe(lambda: 0)
            await link.store(1, **columns([1]))
            late = RawLink(own, token=token)
            await asyncio.to_thread(wait_fenced, late)
            await link.store(2, **columns([2]))

    asyncio.run(main())
    assert len(in_queue(own)) == 2
