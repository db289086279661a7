"""A stream in transaction mode, over a journal that syncs when the test asks (P1, P13)."""

import asyncio
from functools import partial

import pytest

from ackq import limits
from ackq.errors import FencedError, InvalidArgumentError, PermissionDeniedError
from ackq.v1 import publishing_pb2 as pb
from ackq_broker.core import commands, views
from ackq_broker.service.publishing import stream as publisher_stream
from ackq_broker.service.publishing import transaction_mode
from tests.eventually import SOON_S
from tests.unit.service import publisher_streams
from tests.unit.service.channel_streams import run_until_idle
from tests.unit.service.publisher_streams import TRANSACTION, Stream, disk, newer

ONE, TWO = b"1" * 16, b"2" * 16


opened = partial(publisher_streams.opened, mode=TRANSACTION)


def publish(stream, number, transaction_id=ONE, *, mandatory=False, exchange="", **message):
    data = {"transaction_id": transaction_id, "mandatory": mandatory, "exchange": exchange}
    stream.publish(number, data=data, **message)


def commit(stream, messages, transaction_id=ONE):
    stream.send(commit=pb.PublishTransaction(transaction_id=transaction_id, messages=messages))


def roll_back(stream, transaction_id=ONE):
    stream.send(rollback=pb.PublishTransaction(transaction_id=transaction_id))


def commit_one(stream):
    commit(stream, 1)


def too_many(stream, number=2):
    """Announces 4 billion rows, of a block that is none."""
    data = pb.PublishData(first_number=number, rows=(1 << 32) - 1, transaction_id=ONE)
    stream.send(b"no block", data=data)


def queue(engine, name="q"):
    (info,) = views.list_queues(engine.core.state, name)
    return info


def ready(engine):
    return queue(engine).ready


def staged(engine, name="q"):
    return queue(engine, name).staged


def last(stream):
    return stream.answers[-1].transaction


async def test_a_small_transaction_reaches_the_journal_with_its_commit():
    """P13: a small transaction of many frames costs one sync, and a rollback none."""
    async with opened() as (engine, stream, _):
        before = len(engine.journal.entries)
        for number in (1, 2, 3):
            publish(stream, number)
            await run_until_idle()
        assert len(engine.journal.entries) == before
        commit(stream, 3)
        await run_until_idle()
        publish(stream, 4, TWO)
        roll_back(stream, TWO)
        await disk(engine)
        assert len(engine.journal.entries) == before + 2
        assert last(stream) == pb.PublishTransaction(transaction_id=TWO)
        assert ready(engine) == 3


async def test_a_large_transaction_is_staged_as_it_comes(monkeypatch):
    """I6, P13: a large transaction's buffer is bounded; its staged rows stay invisible."""
    monkeypatch.setattr(transaction_mode, "_BUFFER_BYTES", 1000)
    async with opened() as (engine, stream, _):
        for number in range(1, 6):
            publish(stream, number, body=bytes(500))
            await run_until_idle()
        assert (staged(engine), ready(engine)) == (4, 0)
        roll_back(stream)
        await disk(engine)
        assert (staged(engine), ready(engine)) == (0, 0)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"routing_key": "small"}, "queue_full"),
        ({"exchange": "gone"}, "exchange_not_found"),
        ({"ttl_ms": [-1]}, "invalid_argument"),
        ({"body": bytes(limits.MAX_MESSAGE_BYTES + 1)}, "message_too_large"),
        # Refused without being decoded (I6).
        (None, "limit"),
    ],
)
@pytest.mark.parametrize("early", [False, True])
async def test_a_refused_row_refuses_the_commit(monkeypatch, message, code, early):
    """P8, P13, I6: a refused row refuses the commit with its reason; the next one goes on.

    A rollback clears the refusal, and its transaction id may be used again.
    """
    async with opened() as (engine, stream, _):
        if early:
            monkeypatch.setattr(transaction_mode, "_BUFFER_BYTES", 0)
        engine.decide(commands.DeclareQueue("small", commands.QueueProperties(max_length=1)))
        await stream.published(1, "small", data={"transaction_id": ONE})
        if message is None:
            too_many(stream)
        else:
            publish(stream, 2, **message)
        publish(stream, 3)
        commit(stream, 3)
        async with asyncio.timeout(SOON_S):  # large frames are decoded in a thread
            while not stream.of("transaction"):
                await disk(engine)
        assert last(stream).reason.code == code
        assert (ready(engine), staged(engine), staged(engine, "small")) == (0, 0, 0)
        publish(stream, 4, TWO, exchange="gone")
        roll_back(stream, TWO)
        publish(stream, 5, TWO)
        commit(stream, 1, TWO)
        await disk(engine)
        assert last(stream) == pb.PublishTransaction(transaction_id=TWO, messages=1)
        assert ready(engine) == 1


async def test_a_full_disk_refuses_the_transaction(monkeypatch):
    """P8, P13, P14: a full disk blocks the publisher; staged rows commit, later ones do not."""
    monkeypatch.setattr(transaction_mode, "_BUFFER_BYTES", 0)
    async with opened() as (engine, stream, _):
        publish(stream, 1)
        await run_until_idle()
        engine.free_bytes = 0
        engine.alarms.poll_disk()
        commit(stream, 1)
        publish(stream, 2, TWO)
        commit(stream, 1, TWO)
        await disk(engine)
        assert stream.kinds() == ["opened", "blocked", "transaction", "transaction"]
        assert stream.answers[2].transaction.messages == 1
        assert last(stream).reason.code == "disk_full"
        assert ready(engine) == 1


async def test_repeated_returns_that_nobody_reads_are_bounded(monkeypatch):
    """I6, P7, P13: a client that repeats commits without reading the returns is not read from."""
    monkeypatch.setattr(publisher_stream, "_RETURNED_BYTES", 1000)
    async with opened() as (engine, stream, _):
        publish(stream, 1, routing_key="nobody", mandatory=True)
        commit(stream, 1)
        await disk(engine)
        handled, decide = [], engine.decide
        monkeypatch.setattr(engine, "decide", lambda *args: handled.append(1) or decide(*args))
        stream.reading.clear()
        for _ in range(100):
            commit(stream, 1)
        await run_until_idle()
        assert len(handled) < 20
        stream.reading.set()
        await stream.finish()
        assert stream.kinds().count("returned") == 101


@pytest.mark.parametrize(
    ("buffer_bytes", "requests", "error"),
    [
        (0, [commit_one], None),
        (0, [commit_one], PermissionDeniedError("No right to write.")),
        (0, [roll_back], None),
        (0, [too_many], None),
        (1 << 20, [commit_one], None),
        (1 << 20, [too_many, commit_one], None),
    ],
)
async def test_a_fenced_stream_does_nothing_more(monkeypatch, buffer_bytes, requests, error):
    """P10, P13: a stream fenced while its rows are decoded, or in its commit, does nothing more.

    Its commit, rollback or refusal must not end the newer stream's transaction.
    """
    monkeypatch.setattr(transaction_mode, "_BUFFER_BYTES", buffer_bytes)
    async with opened() as (engine, stream, service):
        decoded = asyncio.Event()

        async def decode_late(work):
            await decoded.wait()
            if error is not None:
                raise error
            return work()

        engine.run = decode_late
        publish(stream, 1, body=bytes(100_000))
        for request in requests:
            request(stream)
        await run_until_idle()
        monkeypatch.setattr(transaction_mode, "_BUFFER_BYTES", 0)
        other = newer(service, mode=TRANSACTION)
        publish(other, 3, TWO)
        await disk(engine)
        decoded.set()
        with pytest.raises(FencedError):
            await stream.task
        assert (ready(engine), staged(engine)) == (0, 1)
        commit(other, 1, TWO)
        await disk(engine)
        assert last(other) == pb.PublishTransaction(transaction_id=TWO, messages=1)
        assert (ready(engine), staged(engine)) == (1, 0)
        await other.finish()


async def test_a_fenced_stream_does_not_hide_a_transaction(monkeypatch):
    """O6, P10: a drain reports what the newer stream has in memory, and not what the older had."""
    monkeypatch.setattr(publisher_stream, "UNREAD_ANSWERS", 0)
    async with opened() as (engine, stream, service):
        stream.reading.clear()
        roll_back(stream)
        publish(stream, 1)
        commit(stream, 1)  # waits until the client has read the answer to the rollback
        await run_until_idle()

        def unfinished():
            return views.unfinished(engine.core.state, engine.buffering).transactions

        assert unfinished() == 1
        other = newer(service, mode=TRANSACTION)
        await disk(engine)
        assert unfinished() == 0
        publish(other, 1)
        await run_until_idle()
        stream.reading.set()
        with pytest.raises(FencedError):
            await stream.task
        assert unfinished() == 1
        await other.finish()


def two_at_once(stream):
    publish(stream, 1, body=bytes(transaction_mode._BUFFER_BYTES))
    publish(stream, 2, TWO, body=bytes(transaction_mode._BUFFER_BYTES))


@pytest.mark.parametrize(
    "wrong",
    [
        two_at_once,
        partial(publish, number=1, transaction_id=b"short"),
        partial(commit, messages=0, transaction_id=b"short"),
        partial(roll_back, transaction_id=b""),
        partial(publish, number=0, body=bytes(transaction_mode._BUFFER_BYTES)),
        partial(Stream.open, mode=TRANSACTION),
    ],
)
async def test_what_is_no_transaction_ends_the_stream(wrong):
    """I6, P13: a stream ends at an invalid id, a second transaction, number 0 or a second open."""
    async with opened() as (engine, stream, _):
        wrong(stream)
        with pytest.raises(InvalidArgumentError):
            await asyncio.wait_for(stream.task, SOON_S)
        assert (ready(engine), staged(engine)) == (0, 0)
