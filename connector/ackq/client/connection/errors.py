"""Turns gRPC failures into `AckqError`s.

The broker's own words win, a bare status gets words of its own.
"""

from __future__ import annotations

from typing import Any, Final

import grpc

from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    InternalError,
    LimitError,
    UnsupportedError,
    from_code,
)
from ackq.v1 import messages_pb2

DETAIL_KEY: Final = "ackq-error-bin"

# CANCELLED is a server that ends its calls to shut down: who cancels a call here does not ask why
# it ended.
_GONE: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# What a connection reset in mid-stream can look like besides UNAVAILABLE.
_RESET: Final = ("RST_STREAM", "Stream removed", "Connection reset", "GOAWAY")


def from_detail(detail: messages_pb2.ErrorDetail) -> AckqError:
    """The error that an `ErrorDetail` describes."""
    return from_code(detail.code, detail.message, dict(detail.fields))


def from_rpc(rpc: grpc.RpcError, endpoint: str) -> AckqError:
    """The error behind a failed call to `endpoint`; never raises."""
    call: Any = rpc  # every RpcError of a call is a grpc.Call as well
    for key, value in call.trailing_metadata() or ():
        if key == DETAIL_KEY:
            detail = messages_pb2.ErrorDetail()
            detail.ParseFromString(value)
            return from_detail(detail)
    code: grpc.StatusCode = call.code()
    said: str = call.details() or code.name
    if code in _GONE or any(sign in said for sign in _RESET):
        return unavailable(endpoint, said)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(
            f"The server at {endpoint} does not offer this call: {said}. "
            "Check that it is an ackq broker of this version.",
            endpoint=endpoint,
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return LimitError(f"The broker at {endpoint} is at a limit: {said}.", endpoint=endpoint)
    return InternalError(
        f"The broker at {endpoint} failed with {code.name}: {said}.",
        endpoint=endpoint,
        status=code.name,
    )


def unavailable(endpoint: str, cause: str) -> BrokerUnavailableError:
    """No usable answer from an endpoint, with the cause."""
    return BrokerUnavailableError(
        f"No ackq broker answered at {endpoint}: {cause.rstrip('.')}. "
        "Check the address and that the broker runs.",
        endpoint=endpoint,
        cause=cause,
    )


def is_transient(error: AckqError) -> bool:
    """Whether the same call may succeed a little later."""
    return isinstance(error, BrokerUnavailableError)
