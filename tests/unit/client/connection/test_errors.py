"""Failures of calls as errors: the broker's words, and a server's that is none."""

from unittest.mock import Mock

import grpc
import pytest

from ackq.client import Broker
from ackq.client.connection import errors
from ackq.errors import BrokerUnavailableError, InternalError, QueueNotFoundError
from ackq.v1 import messages_pb2


def failed(detail, code=grpc.StatusCode.NOT_FOUND):
    """A failed call with this detail."""
    call = Mock(spec=["trailing_metadata", "code", "details"])
    call.trailing_metadata.return_value = ((errors.DETAIL_KEY, detail),)
    call.code.return_value, call.details.return_value = code, "said so"
    return call


def test_the_words_of_the_broker():
    """P8: its message and its fields."""
    sent = messages_pb2.ErrorDetail(code="queue_not_found", message="No.", fields={"queue": "q"})
    found = errors.from_rpc(failed(sent.SerializeToString()), Broker("h:1"))
    assert (type(found), found.message, found.fields) == (QueueNotFoundError, "No.", {"queue": "q"})


@pytest.mark.parametrize("detail", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_a_detail_that_is_none(detail):
    """P8: the status tells what there is to tell."""
    assert type(errors.from_rpc(failed(detail), Broker("h:1"))) is InternalError
    gone = errors.from_rpc(failed(detail, grpc.StatusCode.UNAVAILABLE), Broker("h:1"))
    assert type(gone) is BrokerUnavailableError
