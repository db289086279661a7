"""Where an AMQP 1.0 broker is, how a link proves who it is there, and what its refusals mean.

Invariant: no `repr`, message or log shows a password, wherever it was said.
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
    UnauthenticatedError,
)
from ackq_link.adapter import CutError
from ackq_link.address import RemoteAddress, tls_failure

_PORTS: Final = {"amqp": 5672, "amqps": 5671}


class Condition(NamedTuple):
    """An error as the broker says it: a symbol of the specification, and a text."""

    name: str
    description: str


class Amqp1Address(RemoteAddress):
    """A broker, and the user there; without a user: who the client certificate says, or nobody."""

    @property
    def host(self) -> str:
        """The machine's name."""
        host = self._split.hostname
        assert host is not None, "a URL is parsed before"
        return host

    @property
    def port(self) -> int:
        """The port that is said, or the protocol's."""
        return self._split.port or _PORTS[self._split.scheme]

    @property
    def virtual_host(self) -> str:
        """What the connection asks for: the URL's path, or the machine's name."""
        return unquote(self._split.path.removeprefix("/")) or self.host

    @property
    def mechanism(self) -> str:
        """How SASL proves the user."""
        if self.user:
            return "PLAIN"
        return "EXTERNAL" if self.tls.cert else "ANONYMOUS"

    @property
    def _split(self) -> SplitResult:
        return urlsplit(self.url)


def cut_of(address: Amqp1Address, error: BaseException | Condition, place: str = "") -> CutError:
    """The cut that an error is, in words; with a refusal where waiting mends nothing.

    Args:
        address: The broker.
        error: What the connection met, or what the broker said.
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
    if error.name in _REFUSALS:
        kind, sentence = _REFUSALS[error.name]
        message = sentence.format(user=address.user or address.mechanism, place=place, said=said)
        return CutError(f"{address.url}: {message}", kind(f"{address.url}: {message}"))
    return CutError(f"{address.url}: {said}", by_message=error.name in _BY_MESSAGE)


# What a broker ends a link or connection with for a message that it cannot take.
_BY_MESSAGE: Final = {
    "amqp:connection:framing-error", "amqp:decode-error", "amqp:frame-size-too-small",
    "amqp:internal-error", "amqp:invalid-field", "amqp:link:message-size-exceeded",
    "amqp:not-implemented", "amqp:precondition-failed",
}  # fmt: skip
# Not the specification's: names of what the connection itself tells.
SASL_FAILED: Final = "ackq:sasl"
OTHER_PROTOCOL: Final = "ackq:protocol"
_CREDENTIALS: Final = (
    "the broker refuses user '{user}' or the password, or the way it is proven. Set them with user"
    " and password-file; a client certificate (cert) is used without a user."
)
_PROTOCOL: Final = (
    "what listens there does not speak AMQP 1.0. Check the port: 5672, or 5671 with amqps; for AMQP"
    " 0-9-1 leave protocol out."
)
_PERMISSION: Final = (
    "user '{user}' has no permission for '{place}': {said}. A link needs to consume from the queue"
    " that it takes from, and to send to the one that it publishes to."
)
_PLACE: Final = (
    "there is no '{place}': {said}. Make it there, or correct the name; a link declares nothing at"
    " another broker."
)
_REFUSALS: Final[Mapping[str, tuple[type[AckqError], str]]] = {
    SASL_FAILED: (UnauthenticatedError, _CREDENTIALS),
    OTHER_PROTOCOL: (InvalidArgumentError, _PROTOCOL),
    "amqp:unauthorized-access": (PermissionDeniedError, _PERMISSION),
    "amqp:not-found": (NotFoundError, _PLACE),
}
