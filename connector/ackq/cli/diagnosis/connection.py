"""Gathers facts on the path to a broker for `ackq doctor`: name, TCP, TLS, health, token, queue.

Invariant: a step is tried when the steps before it succeeded, the server info also after a failed
health check; none changes anything.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ackq import __version__
from ackq.cli.context import Target
from ackq.client import Admin, Security
from ackq.client.connection.security import proxy_variable
from ackq.diagnosis.installation_facts import BrokerFacts
from ackq.errors import AckqError, status_of

_TIMEOUT_S: Final = 5.0
_DENIED: Final = "PERMISSION_DENIED"
_UNAUTHENTICATED: Final = "UNAUTHENTICATED"


class _Handshake(NamedTuple):
    """Result of a TLS handshake: why it failed, and when the certificate expires (0: unknown)."""

    error: str
    ends_us: int = 0


def gather_connection(target: Target, queue: str) -> BrokerFacts:
    """Tries the steps on the path to the broker; asks for its time and, if named, for a queue."""
    endpoint, security = target.broker.endpoint, target.broker.security
    facts = BrokerFacts(
        endpoint,
        tls=security.tls,
        proxy=proxy_variable(endpoint, tls=security.tls, environment=os.environ),
        client_version=__version__,
        queue=queue,
    )
    if not endpoint.startswith("unix:"):
        facts = _reached(facts, security)
        if facts.resolve_error or facts.connect_error or facts.tls_error:
            return facts
    with target.admin() as admin:
        return _asked(_healthy(facts, admin), admin)


def _reached(facts: BrokerFacts, security: Security) -> BrokerFacts:
    """Tries name, TCP and TLS by plain sockets, whose errors say more than gRPC's."""
    host, _, port = facts.endpoint.rpartition(":")
    host = host.removeprefix("dns:").strip("[]/")
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        return replace(facts, resolve_error=error.strerror or str(error))
    where: Any = addresses[0][4][:2]
    try:
        socket.create_connection(where, timeout=_TIMEOUT_S).close()
    except OSError as error:
        return replace(facts, connect_error=_reason(error))
    try:
        context = _context(security)
    except (OSError, ssl.SSLError) as error:
        return replace(facts, tls_error=f"a certificate file cannot be read ({_reason(error)})")
    shaken = _handshake(where, context, security.server_name or host)
    if security.tls:
        return replace(
            facts,
            tls_error=shaken.error,
            certificate_ends_us=shaken.ends_us,
            speaks_tls=not shaken.error,
        )
    return replace(facts, speaks_tls=not shaken.error)


def _context(security: Security) -> ssl.SSLContext:
    """The TLS context: checks what gRPC would; without `tls` nothing, only to detect TLS."""
    if not security.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cafile=security.ca or None)
        if security.cert:
            context.load_cert_chain(security.cert, security.key or None)
    context.set_alpn_protocols(["h2"])
    return context


def _handshake(where: Any, context: ssl.SSLContext, name: str) -> _Handshake:
    try:
        with (
            socket.create_connection(where, timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=name) as secured,
        ):
            certificate = secured.getpeercert() or {}
            # In TLS 1.3 a client without a certificate is refused after its handshake. A broker
            # that takes it speaks first, as HTTP/2 has it.
            secured.settimeout(_TIMEOUT_S)
            with suppress(TimeoutError):
                if not secured.recv(1):
                    return _Handshake(
                        "the broker closed the connection after it (client certificate required?)"
                    )
            ends = certificate.get("notAfter")
            seconds = ssl.cert_time_to_seconds(ends) if isinstance(ends, str) else 0
            return _Handshake("", int(seconds * 1_000_000))
    except ssl.SSLCertVerificationError as error:
        return _Handshake((error.verify_message or str(error)).rstrip("."))
    except (OSError, ssl.SSLError) as error:
        return _Handshake(_reason(error))


def _healthy(facts: BrokerFacts, admin: Admin) -> BrokerFacts:
    try:
        return replace(facts, serving=admin.serving())
    except AckqError as error:
        return replace(facts, health_error=error.message.rstrip("."))


def _asked(facts: BrokerFacts, admin: Admin) -> BrokerFacts:
    """Asks the broker for its server info, compares its time, and looks at the queue if named."""
    if facts.health_error and facts.speaks_tls and not facts.tls:
        return facts
    before_s, started_s = time.time(), time.monotonic()
    try:
        info = admin.info()
    except AckqError as error:
        status = status_of(error)
        return replace(
            facts,
            info_error=error.message,
            unauthenticated=status == _UNAUTHENTICATED,
            denied=status == _DENIED,
        )
    taken_s = time.monotonic() - started_s
    half_way_us = int((before_s + taken_s / 2) * 1_000_000)
    facts = replace(
        facts,
        info=info,
        skew_ms=(info.now_us - half_way_us) // 1000 if info.now_us else 0,
        round_trip_ms=int(taken_s * 1000),
    )
    if not facts.queue:
        return facts
    try:
        admin.queue(facts.queue)
    except AckqError as error:
        denied = status_of(error) == _DENIED
        return replace(facts, queue_error=error.message, queue_denied=denied)
    return facts


def _reason(error: Exception) -> str:
    """The reason of a socket error, without errno and the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, TimeoutError):
        return f"no answer for {_TIMEOUT_S:.0f} s"
    strerror = getattr(error, "strerror", None)
    return strerror.lower() if isinstance(strerror, str) else str(error)
