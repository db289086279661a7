"""Waits for a broker to serve, by the standard gRPC health check."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Final

import grpc

from ackq import limits
from ackq.client.connection import calls, errors
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.retry import Patience, exhausted
from ackq.client.connection.security import Security
from ackq.errors import AckqError

# grpc.health.v1 has one-field messages, so the two values needed are constants and clients do not
# need its package: a request for the whole server is empty, and SERVING is field 1 with value 1.
_WHOLE_SERVER: Final = b""
_SERVING: Final = b"\x08\x01"


def wait_ready(
    endpoint: str | Broker, timeout_s: float, *, security: Security | None = None
) -> None:
    """Waits until the broker reports that it serves.

    Args:
        endpoint: `host:port`, or a `Broker`.
        timeout_s: Maximum wait in seconds.
        security: Transport security; a `Broker` has its own.

    Raises:
        BrokerUnavailableError: The broker did not serve within `timeout_s`; names the endpoint and
            the cause.
    """
    bound_ms, shortest_s = int(timeout_s * 1000), limits.RETRY_INITIAL_MS / 1000
    broker = replace(Broker.of(endpoint, security), retry_ms=bound_ms)
    check, patience = _check(broker), Patience(broker)
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(deadline - time.monotonic(), shortest_s)
        try:
            if check(_WHOLE_SERVER, timeout=min(left_s, calls.REQUEST_TIMEOUT_S)) == _SERVING:
                return
            error: AckqError = errors.unavailable(
                broker.endpoint, "it is up but does not serve yet"
            )
        except grpc.RpcError as rpc:
            error = errors.from_rpc(rpc, broker)
        # A server that accepts the connection but does not answer uses all the time of a call.
        if errors.is_transient(error) and time.monotonic() > deadline - shortest_s:
            raise exhausted(broker.endpoint, error, bound_ms)
        patience.wait_or_raise(error)


def serving(broker: Broker, timeout_s: float) -> bool:
    """Whether the broker reports that it serves: False while it starts or drains.

    Args:
        broker: The broker.
        timeout_s: Maximum wait in seconds; the check is not retried.

    Raises:
        BrokerUnavailableError: The broker did not answer; the cause is gRPC's.
        AckqError: It refused the connection or the call; the class says why, as for any call.
    """
    try:
        answer: bytes = _check(broker)(_WHOLE_SERVER, timeout=calls.bounded(timeout_s))
    except grpc.RpcError as rpc:
        raise errors.from_rpc(rpc, broker) from rpc
    return answer == _SERVING


def _check(broker: Broker) -> Any:
    """The function that calls the health check."""
    return grpc_channel(broker).unary_unary(
        "/grpc.health.v1.Health/Check", request_serializer=None, response_deserializer=None
    )
