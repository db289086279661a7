"""Makes gRPC channels: one per process, endpoint and security; none outlives a fork.

The cache is keyed by process id: a forked child makes its own channel on first use. (Spark's worker
daemon forks before user code runs, so there the child's channel is also the first.)
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from ackq import limits
from ackq.client.connection.authorization import authorized
from ackq.client.connection.broker import Broker
from ackq.client.connection.security import Security, is_local
from ackq.errors import InvalidArgumentError

_log: Final = logging.getLogger(__name__)
# Calls that gRPC may repeat by itself. Readers and writers limit their own retries (`retry`). Calls
# that delete, purge or release answer with the number removed: a silent second run would answer 0,
# so the caller gets the error instead.
_REPEATABLE: Final = (
    ("ackq.v1.AdminService", "ServerInfo"),
    ("ackq.v1.AdminService", "ListQueues"),
    ("ackq.v1.AdminService", "ListHoldings"),
    ("ackq.v1.AdminService", "ListExchanges"),
    ("ackq.v1.AdminService", "PlanBrowse"),
    ("ackq.v1.SessionsService", "ListSessions"),
    ("ackq.v1.LinksService", "ListLinks"),
    ("ackq.v1.LinksService", "PauseLink"),
)
_SERVICE_CONFIG: Final = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": service, "method": method} for service, method in _REPEATABLE],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": f"{limits.RETRY_INITIAL_MS / 1000}s",
                    "maxBackoff": f"{limits.RETRY_MAX_MS / 1000}s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)
# gRPC refuses a frame over its limit with an error that names no message; the limits of ackq are
# checked first.
_MAX_WIRE_BYTES: Final = limits.MAX_FRAME_BYTES + limits.MAX_HEADER_BYTES
_OPTIONS: Final = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.enable_retries", 1),
    ("grpc.max_send_message_length", _MAX_WIRE_BYTES),
    ("grpc.max_receive_message_length", _MAX_WIRE_BYTES),
    # A broker that vanished without closing is noticed while a call is open, in 40 s at most. The
    # ping time-out is for a ping that gRPC sent for its own purposes: it delays the keepalive's, by
    # default for a minute (measured with a stopped broker: 60 s without the line). The last line is
    # for a client that only waits: after two pings without data it would ping once a minute
    # (measured with time-outs of 2 s: noticed after 61 s without the line, after 5 s with it).
    ("grpc.keepalive_time_ms", limits.KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", 2 * limits.KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", limits.RETRY_INITIAL_MS),
    ("grpc.min_reconnect_backoff_ms", limits.CONNECT_TIMEOUT_MS),
    # Calls fail at once while gRPC waits to connect again, even if the broker is back. `retry`
    # decides how often to try, within its limits; this only keeps gRPC from refusing.
    ("grpc.max_reconnect_backoff_ms", 2 * limits.RETRY_INITIAL_MS),
    # Each channel has its own connections: a channel that replaces a closed one starts without the
    # old one's back-off.
    ("grpc.use_local_subchannel_pool", 1),
)

# A9: the proxy that `http_proxy` names would see the token of a plain-text connection, and does not
# know this machine's loopback.
_NO_PROXY: Final = ("grpc.enable_http_proxy", 0)

_LARGEST_PORT: Final = 65_535


class _Made(NamedTuple):
    """A channel, and the state of its certificate files when they were last read.

    None in place of a state: the channel is replaced at the next use.
    """

    channel: grpc.Channel
    files: tuple[tuple[int, int], ...] | None


_channels: dict[tuple[int, str, Security], _Made] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    """Replaces the lock in a forked child: a thread that the child lacks may have held it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def grpc_channel(endpoint: str | Broker, security: Security | None = None) -> grpc.Channel:
    """The channel of this process to an endpoint; made on first use, then shared.

    It connects on the first call. When a certificate file has changed, a new channel is made; calls
    on the previous one go on. While the changed files cannot be used, as between the renames of
    certificate and key, the previous channel stays in use (A9).

    Args:
        endpoint: `host:port`, `unix:path`, or a `Broker`.
        security: Transport security and token; None: plain text and no token, or the broker's.

    Raises:
        InvalidArgumentError: The endpoint is not host:port, the token would go to another machine
            in plain text, or there is no channel yet and a certificate or token file cannot be
            used.
    """
    broker = Broker.of(endpoint, security)
    _check_endpoint(broker.endpoint)
    security = broker.security
    key = (os.getpid(), broker.endpoint, security)
    files = _files(security) if security.tls else ()
    with _lock:
        made = _channels.get(key)
        if made is None or made.files != files:
            channel = _connect(broker.endpoint, security, made and made.channel)
            made = _channels[key] = _Made(channel, files)
        return made.channel


def forget_channel(broker: Broker) -> None:
    """Makes the next use of this broker open a new channel; calls on the present one go on."""
    with _lock:
        _channels.pop((os.getpid(), broker.endpoint, broker.security), None)


def replace_channel(broker: Broker, channel: grpc.Channel) -> None:
    """Makes the next use of this broker open a new channel, as the connection seems to lose bytes.

    The channel stays in use while certificate files cannot be used (A9), and is not replaced if
    that was done before.
    """
    key = (os.getpid(), broker.endpoint, broker.security)
    with _lock:
        made = _channels.get(key)
        if made is not None and made.channel is channel:
            _channels[key] = _Made(channel, None)


def close_channels() -> None:
    """Closes every channel of this process; calls in flight end, later ones make new channels."""
    pid = os.getpid()
    with _lock:
        mine = [key for key in _channels if key[0] == pid]
        closing = [_channels.pop(key) for key in mine]
    for each in closing:
        each.channel.close()


def _check_endpoint(endpoint: object) -> None:
    """Refuses endpoints that gRPC would misread, for instance port 65537 as 1, a URL as a host."""
    problem = ""
    if not isinstance(endpoint, str):
        problem = f"is a {type(endpoint).__name__}"
    elif not endpoint.startswith("unix:"):
        host, _, port = endpoint.rpartition(":")
        if not (port.isascii() and port.isdigit()):
            problem = "has no port"
        elif not 1 <= int(port) <= _LARGEST_PORT:
            problem = f"has no port between 1 and {_LARGEST_PORT}"
        elif not host:
            problem = "has no host"
        elif "//" in host and not host.startswith("dns:"):
            problem = "is a URL"
        elif ":" in host.removeprefix("dns:") and not host.endswith("]"):
            problem = "has an IPv6 address without brackets"
    if problem:
        raise InvalidArgumentError(
            f"The endpoint '{endpoint}' {problem}; write it as host:port, "
            "for instance 127.0.0.1:5775 or [::1]:5775.",
            endpoint=endpoint,
        )


def _files(security: Security) -> tuple[tuple[int, int], ...]:
    """The modification times and inodes of the certificate files, by which changes are noticed."""
    found = []
    for path in filter(None, (security.ca, security.cert, security.key)):
        try:
            status = Path(path).stat()
        except OSError:
            found.append((0, 0))  # reading the file reports why
        else:
            found.append((status.st_mtime_ns, status.st_ino))
    return tuple(found)


def _connect(endpoint: str, security: Security, present: grpc.Channel | None) -> grpc.Channel:
    """A new channel; the present one, if any, while files cannot be used."""
    security.check_endpoint(endpoint)
    try:
        return authorized(_transport(endpoint, security), security)
    except (InvalidArgumentError, OSError) as error:
        if present is None:
            raise
        _log.warning("The connection to %s is not renewed: %s", endpoint, error)
        return present


def _transport(endpoint: str, security: Security) -> grpc.Channel:
    if not security.tls:
        return grpc.insecure_channel(endpoint, options=(*_OPTIONS, _NO_PROXY))
    from ackq.client.connection import handshake  # noqa: PLC0415 - ssl, which plain text spares

    handshake.check_files(security)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=security.pem("ca"),
        private_key=security.pem("key"),
        certificate_chain=security.pem("cert"),
    )
    options: list[tuple[str, str | int]] = [*_OPTIONS]
    if is_local(endpoint):
        options.append(_NO_PROXY)
    if security.server_name:
        options.append(("grpc.ssl_target_name_override", security.server_name))
    return grpc.secure_channel(endpoint, credentials, options=options)
