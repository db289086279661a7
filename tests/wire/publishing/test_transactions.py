"""Transactions over the wire, by raw stubs, against real broker processes (P1, P7, P13)."""

import secrets
from contextlib import contextmanager

import grpc
import pytest

from ackq.errors import WrongModeError
from ackq.v1 import publishing_pb2 as pb
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import PublishCall, error_of

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


def refused(call):
    """The error with which a call ends."""
    with pytest.raises(grpc.RpcError) as ended:
        call()
    return error_of(ended.value)


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
