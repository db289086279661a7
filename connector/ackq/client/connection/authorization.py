"""Sends a client's token with each call (metadata `authorization: Bearer TOKEN`).

A token file is read again when a call begins and the file has changed, so a rotated token is used
without a new connection. An open stream keeps the token that it began with.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from ackq.client.connection.security import Security, check_token
from ackq.errors import InvalidArgumentError
from ackq.secret_files import warn_if_public

_log: Final = logging.getLogger(__name__)
# A larger file holds no token; the size of the broker's headers is limited too.
_MOST_BYTES: Final = 4_096

Continuation = Callable[[grpc.ClientCallDetails, Any], Any]


class TokenFile:
    """A token file, and the token that it holds at present.

    Args:
        path: The file; it holds the token, and nothing else but white space around it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] = ()
        self._token = ""

    def read(self) -> str:
        """The file's token; the last good one while the file is unusable, as in mid-rotation.

        Raises:
            InvalidArgumentError: The file cannot be read, or holds no token.
        """
        with self._lock:
            try:
                found = Path(self.path).stat()
                seen = (found.st_mtime_ns, found.st_ino, found.st_size)
                if seen != self._seen:
                    self._token = self._load()
                    self._seen = seen
            except OSError as error:
                self._miss(f"cannot be read: {error.strerror}", error)
            except _NoTokenError as error:
                self._miss(str(error), error)
            return self._token

    def _load(self) -> str:
        warn_if_public(self.path)
        with Path(self.path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        token = content.decode("ascii", errors="replace").strip()
        if not token:
            raise _NoTokenError("is empty")
        if len(content) > _MOST_BYTES:
            raise _NoTokenError(f"holds more than {_MOST_BYTES} bytes; it is not a token")
        try:
            check_token(token, "It")
        except InvalidArgumentError:
            raise _NoTokenError("does not hold exactly one token, without spaces") from None
        return token

    def _miss(self, problem: str, error: Exception) -> None:
        if not self._token:
            raise InvalidArgumentError(
                f"The token file '{self.path}' {problem}.", path=self.path
            ) from error
        _log.warning("The token file '%s' %s; its previous token stays in use.", self.path, problem)


class _NoTokenError(Exception):
    """The content of a token file is no token; the message says why."""


class _CallDetails(NamedTuple):
    """The details that gRPC has of a call before it begins."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class BearerToken(  # the stubs have type arguments, the classes have none
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """Adds the token to the metadata of each call of a channel.

    Args:
        token: Returns the token for the next call.
    """

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def intercept_unary_unary(
        self, continuation: Continuation, details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Adds the token to a call with one request and one answer."""
        return continuation(self._signed(details), request)

    def intercept_unary_stream(
        self, continuation: Continuation, details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Adds the token to a call with one request and many answers."""
        return continuation(self._signed(details), request)

    def intercept_stream_unary(
        self, continuation: Continuation, details: grpc.ClientCallDetails, requests: Any
    ) -> Any:
        """Adds the token to a call with many requests and one answer."""
        return continuation(self._signed(details), requests)

    def intercept_stream_stream(
        self, continuation: Continuation, details: grpc.ClientCallDetails, requests: Any
    ) -> Any:
        """Adds the token to a call with many requests and many answers."""
        return continuation(self._signed(details), requests)

    def _signed(self, details: grpc.ClientCallDetails) -> grpc.ClientCallDetails:
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {self._token()}")]
        signed: Any = _CallDetails(
            details.method,
            details.timeout,
            metadata,
            details.credentials,
            getattr(details, "wait_for_ready", None),
            getattr(details, "compression", None),
        )
        return signed  # type: ignore[no-any-return]


@cache
def _token_file(pid: int, path: str) -> TokenFile:  # noqa: ARG001 - a fork has locks of its own
    """The token file of this process: a new channel still has the last good token (A9)."""
    return TokenFile(path)


def authorized(channel: grpc.Channel, security: Security) -> grpc.Channel:
    """A channel whose calls carry the token of `security`; without a token, the given channel.

    Raises:
        InvalidArgumentError: The token file cannot be read, or holds no token.
    """
    if security.token_file:
        file = _token_file(os.getpid(), security.token_file)
        file.read()  # a bad file is reported at once
        return grpc.intercept_channel(channel, BearerToken(file.read))
    if security.token:
        return grpc.intercept_channel(channel, BearerToken(lambda: security.token))
    return channel
