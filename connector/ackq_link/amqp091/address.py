"""Address of an AMQP 0-9-1 broker, connections to it, and the meaning of its errors.

Invariant: no `repr`, message or log shows a password, wherever it was set.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import aiormq
from aiormq import exceptions
from aiormq.exceptions import (
    AuthenticationError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ConnectionNotAllowed,
    IncompatibleProtocolError,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from pamqp.commands import Connection
from yarl import URL

from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from ackq.text import printable
from ackq_link.adapter import CutError
from ackq_link.address import RemoteAddress, tls_failure
from ackq_link.process import log

_SCHEMES: Final = ("amqp", "amqps")
_CONNECT_S: Final = 20.0
_CLOSE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BrokerAddress(RemoteAddress):
    """A broker's virtual host and the link's user; without one the certificate identifies it."""

    user: str = "guest"
    password: str = field(default="guest", repr=False)

    @property
    def who(self) -> str:
        """The link's identity at the broker, for errors."""
        return f"user '{self.user}'" if self.user else f"the client certificate {self.tls.cert}"

    def connect_url(self) -> URL:
        """The URL with the credentials in it, for the client library alone."""
        if not self.user:
            return URL(self.url).with_query(heartbeat=self.heartbeat_s, auth="external")
        return (
            URL(self.url)
            .with_user(self.user)
            .with_password(self.secret())
            .with_query(heartbeat=self.heartbeat_s)
        )


def parse_url(text: str, schemes: Sequence[str] = _SCHEMES) -> tuple[str, str | None, str | None]:
    """The URL without its user, the user, and the password; None: not given.

    Raises:
        InvalidArgumentError: It is no such URL; the message does not show it.
    """
    try:
        url = URL(text)
        bare = url.with_user(None) if url.host else url
        url.explicit_port  # noqa: B018 - raises for one that is none
    except ValueError:
        url = bare = URL()
    if url.scheme not in schemes or not url.host or url.query_string or url.fragment:
        raise InvalidArgumentError(
            f"The broker's URL is not of the form {schemes[0]}://HOST[:PORT], or {schemes[1]}://"
            " for TLS. With AMQP /VHOST may follow: write a / within that name as %2F."
        )
    return str(bare), url.user, url.password


class _Connection(aiormq.Connection):
    """Logs when the broker blocks publishers, while the library waits."""

    link = blocked = ""

    # Private methods of the library, by their mangled names.
    async def _Connection__handle_connection_blocked(  # noqa: N802
        self, frame: Connection.Blocked
    ) -> None:
        told = f"publishes nothing: the remote broker has an alarm ({frame.reason})"
        log(logging.WARNING, self.link, "blocked", printable(told), reason=frame.reason)
        self.blocked = frame.reason or "an alarm"
        await super()._Connection__handle_connection_blocked(frame)  # type: ignore[misc]

    async def _Connection__handle_connection_unblocked(  # noqa: N802
        self, frame: Connection.Unblocked
    ) -> None:
        log(logging.INFO, self.link, "unblocked", "the remote broker takes messages again")
        self.blocked = ""
        await super()._Connection__handle_connection_unblocked(frame)  # type: ignore[misc]


class AmqpConnection:
    """A connection with one channel, closed together."""

    def __init__(self, connection: _Connection, channel: aiormq.Channel) -> None:
        self._connection = connection
        self.channel = channel

    @property
    def version(self) -> tuple[int, ...]:
        """RabbitMQ's version; empty for another broker."""
        properties = self._connection.server_properties or {}
        if properties.get("product") != "RabbitMQ":
            return ()
        words = re.findall(r"\d+", str(properties.get("version", "")))
        return tuple(int(word) for word in words[:3])

    @property
    def blocked(self) -> str:
        """Why the broker blocks publishers now; empty: it does not."""
        return self._connection.blocked

    @property
    def frame_bytes(self) -> int:
        """The largest size of a frame in bytes; 0: not bounded."""
        return self._connection.connection_tune.frame_max

    async def close(self) -> None:
        """Closes the channel and the connection; never raises."""
        await _close(self._connection)


async def connect(address: BrokerAddress, name: str, *, confirms: bool) -> AmqpConnection:
    """Connects and opens a channel; the broker's operators see `name`. Raises CutError."""
    connection = None
    try:
        connection = _Connection(
            address.connect_url(),
            context=address.tls.context() if address.secure else None,
            client_properties={"connection_name": f"ackq link {name}"},
        )
        connection.link = name
        async with asyncio.timeout(_CONNECT_S):
            await connection.connect()
            channel = await connection.channel(
                publisher_confirms=confirms, **({"on_return_raises": False} if confirms else {})
            )
    except BaseException as error:
        if connection is not None:
            await _close(connection)
        if isinstance(error, Exception):
            raise cut_of(error, address) from None
        raise
    assert isinstance(channel, aiormq.Channel)
    return AmqpConnection(connection, channel)


async def _close(connection: aiormq.Connection) -> None:
    """Closes a connection, or gives up after a timeout; never raises."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()
    except Exception:  # noqa: BLE001, S110 - the other end has what it needs, or is gone
        pass


def cut_of(error: BaseException, address: BrokerAddress, place: str = "") -> CutError:
    """Translates an error of the library to a CutError, with a refusal if a retry cannot mend it.

    Args:
        error: As it was raised.
        address: The broker.
        place: The queue or exchange that was used.
    """
    if isinstance(error, AckqError):
        return CutError(error.message, error)
    said = " ".join(str(each) for each in error.args) or type(error).__name__
    if isinstance(error, ChannelAccessRefused) and _TOPIC.match(said):
        return CutError(f"{address.url}: {said}", by_message=True)
    if isinstance(error, ChannelNotFoundEntity) and _DOWN.match(said):
        return CutError(f"{address.url}: {said}")
    refusal = _refusal(error, address, place)
    if refusal is not None:
        return CutError(refusal.message, refusal)
    return CutError(f"{address.url}: {said}", by_message=isinstance(error, _BY_MESSAGE))


# How RabbitMQ refuses one routing key of a topic exchange (`rabbitmqctl set_topic_permissions`).
_TOPIC: Final = re.compile(r"(ACCESS_REFUSED - )?access to topic ")
# How RabbitMQ says that a queue is there, but not its node, leader or process.
_DOWN: Final = re.compile(
    "(NOT_FOUND - )?(home node |failed to perform operation on |"
    "queue .* (is stopped by supervisor|has crashed and failed to restart)$)"
)
# Errors with which RabbitMQ closes a channel or connection for a message that it cannot take.
_BY_MESSAGE: Final = (
    exceptions.ChannelPreconditionFailed, exceptions.ConnectionFrameError,
    exceptions.ConnectionInternalError, exceptions.ConnectionNotImplemented,
    exceptions.ConnectionSyntaxError, exceptions.ConnectionUnexpectedFrame,
)  # fmt: skip


def _refusal(error: BaseException, address: BrokerAddress, place: str) -> AckqError | None:
    """The error to raise for a failure that a retry cannot mend; None for other failures."""
    said = " ".join(str(each) for each in error.args)
    failure = next((e for e in (error, error.__cause__) if isinstance(e, ssl.SSLError)), None)
    if failure is not None:
        return tls_failure(address.url, address.tls, failure)
    if isinstance(error, InvalidFrameError) and "Connection.OpenOk" in said:
        # The library has no better error for a close that answers the open.
        error, said = ConnectionNotAllowed(), "refused at the open"
    for kind, refusal, sentence in _REFUSALS:
        if isinstance(error, kind):
            message = sentence.format(
                who=address.who, user=address.user or "USER", place=place, said=said
            )
            return refusal(f"{address.url}: {message}")
    return None


_CREDENTIALS: Final = (
    "the broker refuses {who} or the password. Set them with user and password-file; 'guest' may"
    " connect from the broker's own machine only. A client certificate (cert) is used without a"
    " user: enable the plugin rabbitmq_auth_mechanism_ssl and its mechanism EXTERNAL, and add"
    " the certificate's user (ssl_cert_login_from)."
)
_VHOST: Final = (
    "{who} may not use this virtual host, or it does not exist: {said}. Name another one in"
    " the URL, or give the permission: rabbitmqctl set_permissions -p VHOST {user} '' '.*' '.*'"
)
_PROTOCOL: Final = "the server does not speak AMQP 0-9-1. Check the port: 5672, or 5671 with amqps."
_PERMISSION: Final = (
    "{who} has no permission for '{place}': {said}. A link needs read on the queue it"
    " consumes, write on the exchange it publishes to: rabbitmqctl set_permissions"
)
_PLACE: Final = (
    "there is no '{place}': {said}. Declare it at that broker, or correct the name; a link declares"
    " nothing at a remote broker."
)
_REFUSALS: Final[tuple[tuple[type[Exception], type[AckqError], str], ...]] = (
    (AuthenticationError, UnauthenticatedError, _CREDENTIALS),
    (ProbableAuthenticationError, UnauthenticatedError, _CREDENTIALS),
    (ConnectionNotAllowed, PermissionDeniedError, _VHOST),
    (IncompatibleProtocolError, InvalidArgumentError, _PROTOCOL),
    (ChannelAccessRefused, PermissionDeniedError, _PERMISSION),
    (ChannelNotFoundEntity, NotFoundError, _PLACE),
)
