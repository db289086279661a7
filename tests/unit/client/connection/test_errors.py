"""Errors made from failed calls: the broker's error, or the status of another server."""

from unittest.mock import Mock

import grpc
import pytest

from ackq.client import Broker
from ackq.client.connection import errors
from ackq.errors import BrokerUnavailableError, InternalError, QueueNotFoundError
from ackq.v1 import messages_pb2


def failed(detail, code=grpc.StatusCode.NOT_FOUND):
    """A failed call with the given error detail."""
    call = Mock(spec=["trailing_metadata", "code", "details"])
    call.trailing_metadata.return_value = ((errors.DETAIL_KEY, detail),)
    call.code.return_value, call.details.return_value = code, "said so"
    return call


def test_the_words_of_the_broker():
    """P8: the error has the broker's code, message and fields."""
    sent = messages_pb2.ErrorDetail(code="queue_not_found", message="No.", fields={"queue": "q"})
    found = errors.from_rpc(failed(sent.SerializeToString()), Broker("h:1"))
    assert (type(found), found.message, found.fields) == (QueueNotFoundError, "No.", {"queue": "q"})


@pytest.mark.parametrize("detail", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_a_detail_that_is_none(detail):
    """P8: without a valid error detail the call's status decides the error."""
    assert type(errors.from_rpc(failed(detail), Broker("h:1"))) is InternalError
    gone = errors.from_rpc(failed(detail, grpc.StatusCode.UNAVAILABLE), Broker("h:1"))
    assert type(gone) is BrokerUnavailableError
