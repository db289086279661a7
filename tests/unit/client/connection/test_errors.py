"""Errors made from failed calls: the broker's error, or the status of another server."""

from unittest.mock import Mock

import grpc
import pytest

from ackq.client import Broker
from ackq.client.connection import errors
from ackq.errors import BrokerUnavailableError, InternalError


def failed(detail, code=grpc.StatusCode.NOT_FOUND):
    """A failed call with the given error detail."""
    call = Mock(spec=["trailing_metadata", "code", "details"])
    call.trailing_metadata.return_value = ((errors.DETAIL_KEY, detail),)
    call.code.return_value, call.details.return_value = code, "said so"
    return call


@pytest.mark.parametrize("detail", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_a_detail_that_is_none(detail):
    """P8: without a valid error detail the call's status decides the error."""
    assert type(errors.from_rpc(failed(detail), Broker("h:1"))) is InternalError
    gone = errors.from_rpc(failed(detail, grpc.StatusCode.UNAVAILABLE), Broker("h:1"))
    assert type(gone) is BrokerUnavailableError
