"""Address of a NATS server, the link's credentials there, and the meaning of its errors.

Invariant: no `repr`, message or log shows a password, wherever it was set.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from ackq_link.adapter import CutError
from ackq_link.address import RemoteAddress, tls_failure

_PORT: Final = 4222


class NatsAddress(RemoteAddress):
    """A NATS server and the link's user; without one the client certificate identifies it."""

    @property
    def place(self) -> str:
        """The host and port."""
        url = urlsplit(self.url)
        return f"{url.hostname}:{url.port or _PORT}"

    @property
    def who(self) -> str:
        """The link's identity at the server, for errors."""
        if self.user:
            return f"user '{self.user}'"
        return f"the client certificate {self.tls.cert}" if self.tls.cert else "a link without user"


# The server's errors, in lower case, as the library shows them.
_PROTOCOL: Final = (
    "the server does not speak NATS. Check the port: 4222 is for clients, with and without TLS."
)
_CREDENTIALS: Final = (
    "the server refuses {who} or the password. Set them with user and password-file; a client"
    " certificate (cert) is used without a user, where the server has verify_and_map."
)
_ENCRYPTED: Final = (
    "the server wants TLS. Write the URL as tls://, and name its authority with ca, if that is not"
    " one of the system's."
)
_PERMISSION: Final = (
    "{who} has no permission: {said}. A link in needs to publish to $JS.API.STREAM.INFO.STREAM,"
    " $JS.API.CONSUMER.INFO.STREAM.CONSUMER, $JS.API.CONSUMER.MSG.NEXT.STREAM.CONSUMER and"
    " $JS.ACK.STREAM.CONSUMER.>, a link out to $JS.API.STREAM.INFO.STREAM,"
    " $JS.API.STREAM.MSG.GET.STREAM and its subjects; both to subscribe to _INBOX.>"
)
_JETSTREAM: Final = (
    "the server or the user's account has no JetStream, or no such stream: {said}. Enable it"
    " (jetstream in the server's configuration)."
)
_PLACE: Final = (
    "there is no '{place}': {said}. Create it there (nats stream add, nats consumer add), or"
    " correct the name; a link declares nothing at a remote broker."
)
_REFUSALS: Final[tuple[tuple[str, type[AckqError], str], ...]] = (
    ("permissions violation", PermissionDeniedError, _PERMISSION),
    ("authorization", UnauthenticatedError, _CREDENTIALS),
    ("authentication", UnauthenticatedError, _CREDENTIALS),
    ("secure connection", InvalidArgumentError, _ENCRYPTED),
    ("info message", InvalidArgumentError, _PROTOCOL),
    ("jetstream not enabled", NotFoundError, _JETSTREAM),
    ("not found", NotFoundError, _PLACE),
)
# Errors by which a server closes because of a message.
_BY_MESSAGE: Final = ("maximum control line", "maximum payload")


def cut_of(error: BaseException | str, address: NatsAddress, place: str = "") -> CutError:
    """Translates an error to a CutError, with a refusal if a retry cannot mend it.

    It is by a message if the server closes because of one (L22).

    Args:
        error: The exception of the library, or the server's words.
        address: The server.
        place: The stream, consumer or subject that was used.
    """
    if isinstance(error, CutError):
        return error
    if isinstance(error, ssl.SSLError) and address.secure:
        refusal: AckqError = tls_failure(address.url, address.tls, error)
        return CutError(refusal.message, refusal)
    if isinstance(error, AckqError):
        return CutError(error.message, error)
    if isinstance(error, ssl.SSLError):
        error = "secure connection required"
    said = (str(error) or type(error).__name__).removeprefix("nats: ").strip("'")
    for words, kind, sentence in _REFUSALS:
        if words in said.lower():
            message = sentence.format(who=address.who, place=place, said=said)
            return CutError(f"{address.url}: {message}", kind(f"{address.url}: {message}"))
    by_message = any(words in said.lower() for words in _BY_MESSAGE)
    return CutError(f"{address.url}: {said}", by_message=by_message)


def api_error(answer: Mapping[str, Any]) -> str:
    """The error of an answer of JetStream's API; empty: it has none."""
    error = answer.get("error")
    return str(error.get("description") or error.get("code")) if isinstance(error, dict) else ""


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object of an answer; empty: it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
