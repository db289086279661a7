"""Turns gRPC failures into `AckqError`s.

The broker's own message is used if it sent one; a bare status gets a message from this module.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import forget_channel
from ackq.errors import (
    AckqError,
    BrokerUnavailableError,
    InternalError,
    InvalidArgumentError,
    LimitError,
    UnauthenticatedError,
    UnsupportedError,
    from_code,
)
from ackq.v1 import messages_pb2

DETAIL_KEY: Final = "ackq-error-bin"

# CANCELLED is a server that ends its calls to shut down: a client that cancels its own call does
# not ask why it ended.
_GONE: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# Signs of a connection reset in mid-stream, besides UNAVAILABLE.
_RESET: Final = ("RST_STREAM", "Stream removed", "Connection reset", "GOAWAY")
# gRPC's message for a failed connection.
_UNCONNECTED: Final = "failed to connect to all addresses"


def from_detail(detail: messages_pb2.ErrorDetail) -> AckqError:
    """The error that an `ErrorDetail` describes."""
    return from_code(detail.code, detail.message, dict(detail.fields))


def from_rpc(rpc: grpc.RpcError, broker: Broker) -> AckqError:
    """The error for a failed call to a broker; never raises.

    If no connection was made, `handshake` looks for the cause, which takes up to 2 s
    for each step with a network that does not answer.
    """
    endpoint = broker.endpoint
    call: Any = rpc  # every RpcError of a call is a grpc.Call as well
    for key, value in call.trailing_metadata() or ():
        if key == DETAIL_KEY:
            detail = messages_pb2.ErrorDetail()
            with suppress(DecodeError):  # not a broker's: the status must do
                detail.ParseFromString(value)
                return _with_remedy(from_detail(detail), broker)
    code: grpc.StatusCode = call.code()
    said: str = call.details() or code.name
    if _UNCONNECTED in said:
        refused = _refusal(broker)
        if refused is not None:
            return refused
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
    """The error for an endpoint without a usable answer, with the cause."""
    return BrokerUnavailableError(
        f"No ackq broker answered at {endpoint}: {cause.rstrip('.')}. "
        "Check the address and that the broker runs.",
        endpoint=endpoint,
        cause=cause,
    )


def is_transient(error: AckqError) -> bool:
    """Whether the error is transient: the same call may succeed a little later."""
    return isinstance(error, BrokerUnavailableError)


def _refusal(broker: Broker) -> AckqError | None:
    """The error if both sides cannot agree on a connection; None if that is not the cause."""
    from ackq.client.connection import handshake  # noqa: PLC0415 - ssl, which few processes need

    try:
        found = handshake.refusal(broker.endpoint, broker.security)
    except InvalidArgumentError:  # files that are being replaced: `grpc_channel` logs that (A9)
        return None
    if found is not None:
        forget_channel(broker)  # it would try to connect five times a second, for ever
    return found


def _with_remedy(error: AckqError, broker: Broker) -> AckqError:
    """Adds this client's token setting and the remedy to the broker's refusal of a token."""
    if not isinstance(error, UnauthenticatedError):
        return error
    endpoint, security = broker.endpoint, broker.security
    if not (security.token or security.token_file):
        said = (
            f"The broker at {endpoint} wants a token, and this client has none. Give it one:"
            " tokenFile in Spark, --token-file or ACKQ_TOKEN_FILE on a command line,"
            " Security(token_file=...)."
        )
    else:
        which = f"in the file '{security.token_file}'" if security.token_file else "of this client"
        said = (
            f"The broker at {endpoint} does not know the token {which}: it is wrong, or was"
            " revoked. Have the broker's operator give this client another one."
        )
    told = UnauthenticatedError(said)
    told.fields = {**error.fields, "endpoint": endpoint}
    return told
