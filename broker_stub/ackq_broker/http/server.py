"""The HTTP server of a broker, in its event loop (M1).

Invariant: it offers nothing beyond the gRPC calls, and checks requests by the same rules. The page
of another site, in a browser on the same machine, gets nothing from it and changes nothing through
it: its requests name another host, or state another origin.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from ackq import limits
from ackq.errors import AckqError, status_of
from ackq_broker.http import api, health, metrics
from ackq_broker.http.context import Context, token_of
from ackq_broker.security.logins import LoginFailures
from ackq_broker.service.transport.listening import Address, check_free, explained

# Modules that each add their paths by `add_routes(app, context)`.
_MODULES: Final = (health, metrics, api)
_READS: Final = frozenset({"GET", "HEAD"})
_SAME_SITE: Final = frozenset({"same-origin", "none"})
_REQUEST_BYTES: Final = limits.MIB
# A connection without a request for this time is closed.
_IDLE_S: Final = limits.FIRST_REQUEST_MS / 1000
_GRACE_S: Final = 1.0
_POLL_S: Final = 1.0
_STATUS: Final = {
    "OK": HTTPStatus.OK,
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "FAILED_PRECONDITION": HTTPStatus.CONFLICT,
    "ALREADY_EXISTS": HTTPStatus.CONFLICT,
    "ABORTED": HTTPStatus.CONFLICT,
    "RESOURCE_EXHAUSTED": HTTPStatus.TOO_MANY_REQUESTS,
    "UNAVAILABLE": HTTPStatus.SERVICE_UNAVAILABLE,
    "UNIMPLEMENTED": HTTPStatus.NOT_IMPLEMENTED,
}


class HttpServer:
    """Serves the paths of all modules. It binds its address when created; then `start`, `close`.

    Args:
        listen: Host and port; port 0 takes a free one.

    Raises:
        InvalidArgumentError: The address is in use, or is not one of this machine.
    """

    def __init__(self, listen: Address) -> None:
        check_free(listen, "--http")
        self._socket = _bound(listen)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._polling: asyncio.Task[None] | None = None
        host, port, *_ = self._socket.getsockname()
        self.address = Address(listen.host, port)
        self._local = _is_loopback(host)

    async def start(self, context: Context) -> None:
        """Starts serving with these parts of the broker; by HTTPS where gRPC has TLS."""
        app = web.Application(
            middlewares=[_answers(LoginFailures()), _guard(local=self._local)],
            client_max_size=_REQUEST_BYTES,
        )
        app.on_response_prepare.append(_add_headers)
        for module in _MODULES:
            module.add_routes(app, context)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_quiet_logger(),
            handler_cancellation=True,
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=_GRACE_S,
        )
        await self._runner.setup()
        serving = self._runner.server
        assert serving is not None
        secured = context.credentials.https() if context.credentials is not None else None
        with explained(self.address, "--http"):
            self._server = await asyncio.get_running_loop().create_server(
                serving,
                sock=self._socket,
                ssl=secured,
                ssl_handshake_timeout=_IDLE_S if secured is not None else None,
            )
        self._polling = context.engine.background(_poll(UnreadAnswers(), serving))

    async def close(self) -> None:
        """Ends requests under way after a second, and releases the address."""
        if self._polling is not None:
            self._polling.cancel()
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()


class BoundedListener(socket.socket):
    """A listening socket that closes connections beyond the bounds as it accepts them (I6).

    A connection counts before its TLS handshake: many that send nothing would else take all
    descriptors, also those that the journal needs.
    """

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        super().__init__(family, kind, protocol)
        # The accepted connections, with their remote addresses; closed ones until the next accept.
        self._accepted: dict[socket.socket, str] = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Accepts a connection; raises ConnectionAbortedError for one beyond the bounds."""
        connection, address = super().accept()
        there = {each: peer for each, peer in self._accepted.items() if each.fileno() >= 0}
        self._accepted = there
        own = list(there.values()).count(address[0])
        if len(there) >= limits.MAX_HTTP_CONNECTIONS or own >= limits.MAX_HTTP_CONNECTIONS_EACH:
            connection.close()
            raise ConnectionAbortedError
        there[connection] = address[0]
        return connection, address


class UnreadAnswers:
    """Ends connections whose client reads no byte of its answer for 15 s (M1).

    They are aborted: closing them would wait forever for the unread bytes.
    """

    def __init__(self) -> None:
        # By connection: the bytes that wait to be sent, and since when their number is unchanged.
        self._waiting: dict[asyncio.Transport, tuple[int, float]] = {}

    def poll(self, transports: Iterable[asyncio.Transport], now_s: float) -> None:
        """Aborts the connections on which nothing moved; to be called every second or so."""
        before, self._waiting = self._waiting, {}
        for transport in transports:
            size = transport.get_write_buffer_size()
            known, since_s = before.get(transport, (size, now_s))
            if not size or size != known:
                since_s = now_s
            self._waiting[transport] = size, since_s
            if now_s - since_s >= _IDLE_S:
                transport.abort()


async def _poll(answers: UnreadAnswers, serving: web.Server) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_POLL_S)
        transports = (each.transport for each in serving.connections)
        answers.poll(
            (each for each in transports if isinstance(each, asyncio.Transport)), loop.time()
        )


def _quiet_logger() -> logging.Logger:
    """The logger of aiohttp without malformed requests: any stranger could fill the log."""
    quiet = logging.getLogger("aiohttp.server")
    quiet.addFilter(_is_ours)
    return quiet


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


def _answers(failures: LoginFailures) -> Middleware:
    """Middleware that turns errors into answers: `{"error": {"code": ..., "message": ...}}`."""

    @web.middleware
    async def answers(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except AckqError as error:
            status = _STATUS.get(status_of(error), HTTPStatus.INTERNAL_SERVER_ERROR)
            said = {"error": {"code": error.code, "message": error.message}}
            answer = web.json_response(said, status=status)
        if status is HTTPStatus.UNAUTHORIZED:
            if token_of(request) is not None:  # else no token was tried
                await failures.slow(request.remote or "")
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    return answers


def _guard(*, local: bool) -> Middleware:
    """Middleware that refuses requests that a page of another site may have sent.

    Args:
        local: The server is for this machine alone: then a request that names another host was led
            to it by the name of another site.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if local and not _names_loopback(request.host):
            raise web.HTTPMisdirectedRequest(
                text="This server accepts requests from this machine only.\n"
            )
        if request.method not in _READS and not _of_this_site(request):
            raise web.HTTPForbidden(text="Requests of other sites are refused.\n")
        return await handler(request)

    return guard


def _names_loopback(host: str) -> bool:
    """Whether the Host header of a request names this machine, with or without a port."""
    name = _parts(f"//{host}").hostname or ""
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _of_this_site(request: web.Request) -> bool:
    """Whether a request comes from a page of this server, or from no page."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    origin = request.headers.get("Origin")
    return site in _SAME_SITE and (origin is None or _parts(origin).netloc == request.host)


def _parts(url: str) -> SplitResult:
    """The parts of a URL; empty parts if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "ackq"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-store")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _bound(listen: Address) -> socket.socket:
    """A socket bound to this address; it does not listen yet."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        listen.host.strip("[]"), listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    taken = BoundedListener(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except BaseException:
        taken.close()
        raise
    return taken
