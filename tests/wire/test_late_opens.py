"""Streams fenced by an earlier open of their own client that arrived late.

A network may deliver an open long after its client gave up the call. An open by another process, a
copy of the client, ends the client instead.
"""

import asyncio
import importlib
import secrets
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import grpc
import pyarrow as pa
import pytest

from ackq import errors
from ackq.client import Channel, Publisher, TransactionalPublisher
from ackq.v1 import publishing_pb2
from ackq_link.edge import AsyncLink, Proof
from ackq_link.edge import link as async_link
from tests.eventually import SOON_S, eventually
from tests.fakes.raw_client import error_of
from tests.fakes.raw_link import SOURCE, RawLink, columns

COPY = {"attempt": b"of a copy"}


@pytest.fixture
def token(monkeypatch):
    """The token of every link of a test."""
    made = secrets.token_bytes(16)
    monkeypatch.setattr(async_link, "secrets", SimpleNamespace(token_bytes=lambda _: made))
    return made


@asynccontextmanager
async def subscribed(broker):
    """A subscribed link, for a time that is long enough."""
    async with (
        asyncio.timeout(SOON_S),
        AsyncLink(broker.endpoint, link="l", source=SOURCE, queue="q") as link,
    ):
        await link.subscribe(Proof)
        yield link


def last_attempt(stream):
    """The fields of the last open that the client itself made."""
    return {"attempt": bytes.fromhex(stream._attempts._made[-1])}


def last_open(publisher):
    """The fields of a publisher's last open, which also has the earlier attempts."""
    before = publisher._attempts.before()
    return {**last_attempt(publisher), "attempts_before": before, "resume": True}


def in_queue(own):
    found, _ = own.browse()
    return sorted(found)


def wait_fenced(late):
    """Waits until the client has reconnected, which fences the late stream."""
    with pytest.raises(grpc.RpcError) as ended:
        for _ in late.call:
            pass
    assert type(error_of(ended.value)[0]) is errors.FencedError


def test_publisher(own, broker):
    """P10: a publisher fenced by its own late open reconnects, and each message is stored once."""
    wanted = [b"%05d" % at for at in range(5_000)]
    with Publisher(broker.endpoint, routing_key="q") as out:
        futures = [out.publish(wanted[0])]
        futures[0].result(SOON_S)  # the client's own open has arrived: the late one resumes it
        futures += [out.publish(body) for body in wanted[1:4_999]]
        with own.publisher(out._stream._publisher_id, **last_open(out._stream)) as late:
            futures.append(out.publish(wanted[-1]))
            wait_fenced(late)
        numbers = [each.result(SOON_S).number for each in futures]
    assert numbers == list(range(1, 5_001))
    assert in_queue(own) == wanted


def test_transactional_publisher(own, broker):
    """P13: a transactional publisher fenced by its late open reports the rollback, and goes on."""
    rows = pa.table({"body": [b"%05d" % at for at in range(1_000)]})
    with TransactionalPublisher(broker.endpoint, routing_key="q") as out:
        out.publish(b"before")
        assert out.commit(SOON_S).messages == 1
        mode = publishing_pb2.PUBLISH_MODE_TRANSACTION
        late_open = last_open(out._stream)
        with own.publisher(out._stream._publisher_id, mode=mode, **late_open) as late:
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
    """C11: a channel fenced by its own late open is resumed with its tags."""
    own.publish(b"a", b"b")
    with Channel(broker.endpoint) as channel:
        first, second = channel.get("q", 2)
        with own.consume(channel._stream._channel_id, **last_attempt(channel._stream)) as late:
            wait_fenced(late)
        first.accept()
        second.accept().result(SOON_S)
        assert channel.get("q", 1) == []
    assert in_queue(own) == []


def test_link(own, broker, token):
    """L1: a link fenced by its own late open keeps its epoch and subscription."""

    async def main():
        async with subscribed(broker) as link:
            await link.store(1, **columns([1]))
            late = RawLink(own, token=token, **last_attempt(link._stream))
            await asyncio.to_thread(wait_fenced, late)
            await link.store(2, **columns([2]))

    asyncio.run(main())
    assert len(in_queue(own)) == 2


def test_two_copies_publish(own, broker, monkeypatch):
    """P10: of two processes that publish under one id, all confirmed messages are stored."""
    token = secrets.token_bytes(16)
    module = importlib.import_module("ackq.client.publishing.stream")
    with monkeypatch.context() as patched:
        patched.setattr(module, "secrets", SimpleNamespace(token_bytes=lambda _: token))
        copies = [Publisher(broker.endpoint, routing_key="q") for _ in range(2)]
    confirmed, ended = [], set()
    for number in range(20):
        for at, copy in enumerate(copies):
            body = b"%d %d" % (at, number)
            try:
                copy.publish(body).result(SOON_S)
                confirmed.append(body)
            except (errors.FencedError, errors.OutcomeUnknownError, errors.ClosedError):
                ended.add(at)
    assert len(ended) == 1
    assert in_queue(own) == sorted(confirmed)
    for copy in copies:
        with suppress(errors.AckqError):
            copy.close()


def test_copied_channel(own, broker):
    """C11: a channel fenced by a copy ends."""
    own.publish(b"a")
    with Channel(broker.endpoint) as channel:
        channel.get("q", 1)
        with own.consume(channel._stream._channel_id, **COPY):
            assert "was copied" in eventually("a refusal", lambda: refusal_of_pull(channel))


def refusal_of_pull(channel):
    """Why a pull is refused; empty if it is not."""
    try:
        channel.get("q", 1)
    except errors.AckqError as refused:
        return refused.message
    return ""


def test_copied_link(own, broker, token):
    """L1: a link ends when another process with its token opens it."""

    async def store(link):
        for first in range(1, 1_000_000):
            await link.store(first, **columns([first]))

    async def main():
        async with subscribed(broker) as link:
            copy = RawLink(own, token=token, **COPY)
            with pytest.raises(errors.FencedError, match="newer stream"):
                await store(link)
            copy.call.cancel()

    asyncio.run(main())
