"""Turns gRPC failures into `AckqError`s.

The broker's own words win, a bare status gets words of its own.
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

# CANCELLED is a server that ends its calls to shut down: who cancels a call here does not ask why
# it ended.
_GONE: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)
# What a connection reset in mid-stream can look like besides UNAVAILABLE.
_RESET: Final = ("RST_STREAM", "Stream removed", "Connection reset", "GOAWAY")
# What gRPC says when a connection failed.
_UNCONNECTED: Final = "failed to connect to all addresses"


def from_detail(detail: messages_pb2.ErrorDetail) -> AckqError:
    """The error that an `ErrorDetail` describes."""
    return from_code(detail.code, detail.message, dict(detail.fields))


def from_rpc(rpc: grpc.RpcError, broker: Broker) -> AckqError:
    """The error behind a failed call to a broker; never raises.

    Where no connection came about, the cause is looked for (`handshake`), which takes 2 s at most.
    """
    endpoint = broker.endpoint
    call: Any = rpc  # every RpcError of a call is a grpc.Call as well
    for key, value in call.trailing_metadata() or ():
        if key == DETAIL_KEY:
            detail = messages_pb2.ErrorDetail()
            with suppress(DecodeError):  # no broker's: the status says what there is to say
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


def _refusal(broker: Broker) -> AckqError | None:
    """Why the two sides cannot agree on a connection; None: that is not what is wrong."""
    from ackq.client.connection import handshake  # noqa: PLC0415 - ssl, which few processes need

    try:
        found: AckqError | None = handshake.refusal(broker.endpoint, broker.security)
    except InvalidArgumentError as error:  # a certificate file that is gone meanwhile
        found = error
    if found is not None:
        forget_channel(broker)  # it would try to connect five times a second, for ever
    return found


def _with_remedy(error: AckqError, broker: Broker) -> AckqError:
    """The broker's refusal of a token, with what this client was given and what to do."""
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
