"""Address of an AMQP 1.0 broker, the link's credentials there, and the meaning of its errors.

Invariant: no `repr`, message or log shows a password, wherever it was set.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
    UnauthenticatedError,
)
from ackq_link.adapter import CutError
from ackq_link.address import RemoteAddress, tls_failure

_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class Condition(NamedTuple):
    """An error condition of the broker: a symbol of the specification, and a description."""

    name: str
    description: str


class Amqp1Address(RemoteAddress):
    """A broker and the link's user; without one the client certificate identifies it, if any."""

    @property
    def host(self) -> str:
        """The host name of the URL."""
        host = self._split.hostname
        assert host is not None, "a URL is parsed before"
        return host

    @property
    def port(self) -> int:
        """The port of the URL, or the protocol's default."""
        return self._split.port or _PORTS[self._split.scheme]

    @property
    def virtual_host(self) -> str:
        """The virtual host that the connection opens: the URL's path, or the host name."""
        return unquote(self._split.path.removeprefix("/")) or self.host

    @property
    def mechanism(self) -> str:
        """The SASL mechanism that authenticates the link."""
        if self.user:
            return "PLAIN"
        return "EXTERNAL" if self.tls.cert else "ANONYMOUS"

    @property
    def _split(self) -> SplitResult:
        return urlsplit(self.url)


def cut_of(address: Amqp1Address, error: BaseException | Condition, place: str = "") -> CutError:
    """Translates an error to a CutError, with a refusal if a retry cannot mend it.

    Args:
        address: The broker.
        error: The exception of the connection, or the condition that the broker sent.
        place: The queue that was used.
    """
    # A handshake that is not answered in time is aborted.
    if isinstance(error, ssl.SSLError | ConnectionAbortedError) and address.secure:
        refusal = tls_failure(address.url, address.tls, error)
        return CutError(refusal.message, refusal)
    if isinstance(error, AckqError):
        return CutError(error.message, error)
    if not isinstance(error, Condition):
        return CutError(f"{address.url}: {str(error) or type(error).__name__}")
    said = f"{error.name}: {error.description}" if error.description else error.name
    name = NO_QUEUE if _TOPIC in error.description else error.name
    said = said.removeprefix(f"{NO_QUEUE}: ")
    if name in _REFUSALS:
        kind, sentence = _REFUSALS[name]
        message = sentence.format(user=address.user or address.mechanism, place=place, said=said)
        return CutError(f"{address.url}: {message}", kind(f"{address.url}: {message}"))
    return CutError(f"{address.url}: {said}", by_message=error.name in _BY_MESSAGE)


# Conditions with which a broker ends a link or connection for a message that it cannot take.
_BY_MESSAGE: Final = {
    "amqp:connection:framing-error", "amqp:decode-error", "amqp:frame-size-too-small",
    "amqp:internal-error", "amqp:invalid-field", "amqp:link:message-size-exceeded",
    "amqp:not-implemented", "amqp:precondition-failed",
}  # fmt: skip
# Names outside the specification, for failures that the connection itself detects.
SASL_FAILED: Final = "ackq:sasl"
OTHER_PROTOCOL: Final = "ackq:protocol"
# The address is a topic; and how Artemis says so.
NO_QUEUE: Final = "ackq:no-queue"
_TOPIC: Final = "not configured for queue support"
_CREDENTIALS: Final = (
    "the broker refuses user '{user}' or the password, or the SASL mechanism. Set them with user"
    " and password-file; a client certificate (cert) is used without a user."
)
_PROTOCOL: Final = (
    "the server does not speak AMQP 1.0. Check the port: 5672, or 5671 with amqps; for AMQP"
    " 0-9-1 leave protocol out."
)
_PERMISSION: Final = (
    "user '{user}' has no permission for '{place}': {said}. A link needs to consume from the queue"
    " that it takes from, and to send to the one that it publishes to."
)
_NO_QUEUE: Final = (
    "'{place}' is no queue: {said}. A topic or exchange keeps only what it has a queue for. Name a"
    " queue; at Artemis one of the topic's own as ADDRESS::QUEUE, or give the address the routing"
    " type anycast."
)
_PLACE: Final = (
    "there is no '{place}': {said}. Create it at that broker (Artemis: as anycast), or correct the"
    " name; a link declares nothing at a remote broker."
)
_REFUSALS: Final[Mapping[str, tuple[type[AckqError], str]]] = {
    SASL_FAILED: (UnauthenticatedError, _CREDENTIALS),
    OTHER_PROTOCOL: (InvalidArgumentError, _PROTOCOL),
    NO_QUEUE: (PreconditionFailedError, _NO_QUEUE),
    "amqp:unauthorized-access": (PermissionDeniedError, _PERMISSION),
    "amqp:not-found": (NotFoundError, _PLACE),
}
