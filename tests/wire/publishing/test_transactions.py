"""Transactions over the wire, by raw stubs, against real broker processes (P1, P7, P13)."""

import secrets
from contextlib import contextmanager
from functools import partial

import grpc
import pytest

from ackq.errors import PublisherForgottenError, WrongModeError
from ackq.v1 import publishing_pb2 as pb
from tests.fakes.blocks import encoded, rows
from tests.fakes.raw_client import Client, PublishCall, error_of

CONFIRM, TRANSACTION = pb.PUBLISH_MODE_CONFIRM, pb.PUBLISH_MODE_TRANSACTION


@contextmanager
def transactions(client, publisher_id=None, *, resume=False):
    """A publish stream in transaction mode, opened."""
    stream = PublishCall(
        client, publisher_id or secrets.token_bytes(16), resume=resume, mode=TRANSACTION
    )
    try:
        yield stream
    finally:
        stream.call.cancel()


def publish(stream, transaction_id, first, *bodies, routing_key="q", mandatory=False):
    """One frame of a transaction."""
    block = encoded(body=list(bodies), routing_key=routing_key)
    fields = {"transaction_id": transaction_id, "mandatory": mandatory}
    stream.send_data(first, len(bodies), block, **fields)


def commit(stream, transaction_id, messages):
    """The answer to a commit."""
    ending = pb.PublishTransaction(transaction_id=transaction_id, messages=messages)
    stream.send(pb.PublishHeader(commit=ending))
    return stream.answer().transaction


def refused(call):
    """The error with which a call ends."""
    with pytest.raises(grpc.RpcError) as ended:
        call()
    return error_of(ended.value)


def test_a_transaction_is_visible_after_its_commit_alone(client):
    """P13: nothing before, all of it after."""
    one = secrets.token_bytes(16)
    with transactions(client) as stream:
        publish(stream, one, 1, b"a", b"b")
        publish(stream, one, 3, b"c")
        assert client.queue().ready == 0
        assert commit(stream, one, 3) == pb.PublishTransaction(transaction_id=one, messages=3)
        assert client.browse()[0] == [b"a", b"b", b"c"]


def test_a_return_comes_before_the_commits_answer(client):
    """P7, P13: with the message, under its number."""
    one = secrets.token_bytes(16)
    with transactions(client) as stream:
        publish(stream, one, 1, b"a", b"b", routing_key=["q", "nobody"], mandatory=True)
        ending = pb.PublishTransaction(transaction_id=one, messages=2)
        stream.send(pb.PublishHeader(commit=ending))
        assert list(stream.answer().returned.numbers) == [2]
        assert rows(stream.returned_block)["body"] == [b"b"]
        assert stream.answer().transaction == ending
    assert client.browse()[0] == [b"a"]


def test_a_refused_row_fails_the_commit(client):
    """P8, P13: the reason is in the answer, nothing is visible, and the stream goes on."""
    client.declare("small", max_length=1)
    one, two = secrets.token_bytes(16), secrets.token_bytes(16)
    with transactions(client) as stream:
        publish(stream, one, 1, b"a", b"b", b"c", routing_key=["q", "small", "small"])
        answer = commit(stream, one, 3)
        assert (answer.reason.code, answer.reason.fields["queue"]) == ("queue_full", "small")
        assert (client.queue().ready, client.queue("small").ready) == (0, 0)
        publish(stream, two, 4, b"d")
        assert commit(stream, two, 1).messages == 1
    assert client.browse()[0] == [b"d"]


def test_what_was_not_committed_goes_with_the_stream(client):
    """P13: half-closed without a commit; the next stream is told."""
    publisher_id, one = secrets.token_bytes(16), secrets.token_bytes(16)
    with transactions(client, publisher_id) as stream:
        publish(stream, one, 1, b"a")
        stream.half_close()
        with pytest.raises(StopIteration):
            stream.answer()
    with transactions(client, publisher_id, resume=True) as stream:
        assert commit(stream, one, 1).reason.code == "transaction_rolled_back"
    assert client.queue().ready == 0


def test_a_committed_transaction_survives_a_kill(broker, own):
    """P13: a commit returns after disk; the repeated one is answered from the record."""
    publisher_id, one, two = (secrets.token_bytes(16) for _ in range(3))
    with transactions(own, publisher_id) as stream:
        publish(stream, one, 1, b"a", b"b")
        assert commit(stream, one, 2).messages == 2
        publish(stream, two, 3, b"lost" * 50_000)
        broker.kill()
    broker.restart()
    with Client(broker.endpoint) as again, transactions(again, publisher_id, resume=True) as stream:
        assert again.browse()[0] == [b"a", b"b"]
        assert again.queue().staged == 0
        expected = pb.PublishTransaction(transaction_id=one, messages=2, repeated=True)
        assert commit(stream, one, 2) == expected
        assert commit(stream, two, 1).reason.code == "transaction_rolled_back"
        assert again.browse()[0] == [b"a", b"b"]


@pytest.mark.parametrize("first", [CONFIRM, TRANSACTION])
def test_a_publisher_keeps_its_mode(broker, own, first):
    """P1: FAILED_PRECONDITION in both directions, on the next stream and after a restart."""
    other = CONFIRM + TRANSACTION - first
    publisher_id = secrets.token_bytes(16)
    PublishCall(own, publisher_id, mode=first).call.cancel()
    for _ in range(2):
        with Client(broker.endpoint) as client:
            error, status = refused(
                partial(PublishCall, client, publisher_id, resume=True, mode=other)
            )
            assert (type(error), status) == (WrongModeError, "FAILED_PRECONDITION")
            PublishCall(client, publisher_id, resume=True, mode=first).call.cancel()
        broker.kill()
        broker.restart()


def test_the_other_mode_on_a_live_stream(client):
    """P1: FAILED_PRECONDITION, and the stream is closed."""
    one = secrets.token_bytes(16)
    with transactions(client) as stream:
        stream.publish(1, b"a", routing_key="q")
        error, status = refused(stream.answer)
        assert (type(error), status) == (WrongModeError, "FAILED_PRECONDITION")
    with client.publisher() as stream:
        publish(stream, one, 1, b"a")
        error, status = refused(stream.answer)
        assert (type(error), status) == (WrongModeError, "FAILED_PRECONDITION")
    assert client.queue().ready == 0


def test_a_forgotten_publisher_commits_nothing(client):
    """P10: an id that the broker does not know."""
    error, status = refused(
        lambda: PublishCall(client, secrets.token_bytes(16), resume=True, mode=TRANSACTION)
    )
    assert (type(error), status) == (PublisherForgottenError, "FAILED_PRECONDITION")
