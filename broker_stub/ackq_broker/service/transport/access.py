"""Authentication of gRPC calls (A1), for the bridge, reflection and health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    LimitError,
    UnauthenticatedError,
    status_of,
)
from ackq_broker.security.authorization import Authorization, bearer
from ackq_broker.security.callers import Caller
from ackq_broker.security.logins import LoginFailures, address_of
from ackq_broker.service.transport.first_reads import FirstReads
from ackq_broker.service.transport.requests import RequestParser

_ANY_BYTES: Final = 1 << 62
# Health checks, which need no token, that wait for their requests at a time.
_CHECKS: Final = 100


class Access:
    """Admits calls, each with the caller that its token proves.

    Args:
        authorization: Knows the users; None: there are no users.
        first_reads: Reads the first request of each call; None: without a bound.

    Attributes:
        first_reads: The argument, or a reader without a bound.
    """

    def __init__(
        self,
        authorization: Authorization | None = None,
        first_reads: FirstReads | None = None,
    ) -> None:
        self.authorization = authorization or Authorization()
        self.first_reads = first_reads or FirstReads(_ANY_BYTES, time.monotonic)
        self._failures = LoginFailures()

    async def caller(self, context: aio.ServicerContext[Any, Any]) -> Caller:
        """The caller of a call; raises UnauthenticatedError, delayed after failed logins (A3)."""
        if not self.authorization.required:
            return Caller.anonymous
        peer = context.peer()
        token = bearer(dict(context.invocation_metadata() or ()))
        try:
            return self.authorization.authenticate(token, peer)
        except UnauthenticatedError:
            if token is not None:  # else no token was tried
                await self._failures.slow(peer)
            raise


class _Reflection(reflection.aio.ReflectionServicer):  # type: ignore[name-defined,misc]
    """The gRPC reflection service, for authenticated callers."""

    def __init__(self, names: Iterable[str], access: Access) -> None:
        super().__init__(names)
        self._access = access

    async def ServerReflectionInfo(  # noqa: N802 - the method's name
        self, requests: AsyncIterable[Any], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        async with _stream(self._access, context):
            async for answer in super().ServerReflectionInfo(requests, context):
                yield answer


class HealthOfUsers(health.aio.HealthServicer):  # type: ignore[name-defined,misc]
    """The gRPC health service: anyone may check, authenticated callers may watch (a stream).

    Both methods are registered as client streams, as in `rpc.service_handler`: for others gRPC
    waits for the request, without end, before the method is called.
    """

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access
        self._parser = RequestParser(health_pb2.HealthCheckRequest.DESCRIPTOR)
        self._checks: dict[asyncio.Timeout, None] = {}  # without a request yet; the oldest first

    def add_to(self, server: aio.Server) -> None:
        """Registers the service."""
        write = health_pb2.HealthCheckResponse.SerializeToString
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, None, write),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, None, write),
        }
        handler = grpc.method_handlers_generic_handler(health.SERVICE_NAME, handlers)
        server.add_generic_rpc_handlers((handler,))

    async def _check(self, _: object, context: aio.ServicerContext[Any, Any]) -> Any:
        async with _refusing(context):
            return await self.Check(await self._few(context), context)

    async def _watch(self, _: object, context: aio.ServicerContext[Any, Any]) -> None:
        async with _stream(self._access, context):
            await self.Watch(await self._request(context), context)

    async def _few(self, context: aio.ServicerContext[Any, Any]) -> Any:
        """The request of a check; of too many checks that wait for theirs the oldest is ended."""
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._checks[scope] = None
                if len(self._checks) > _CHECKS:
                    oldest = next(iter(self._checks))
                    del self._checks[oldest]
                    oldest.reschedule(0.0)
                return await self._request(context)
        except TimeoutError as error:
            raise LimitError(
                f"More than {_CHECKS} health checks wait for their requests. Try again.",
                limit=_CHECKS,
            ) from error
        finally:
            self._checks.pop(scope, None)

    async def _request(self, context: aio.ServicerContext[Any, Any]) -> Any:
        # Who has no token may have many connections: it is known by its address.
        who = address_of(context.peer())
        data = await self._access.first_reads.read(who, context.read)
        if data is aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
            raise InvalidArgumentError("The call ended before its request came.")
        return await self._parser.parse(data)


@asynccontextmanager
async def _refusing(context: aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Sends an `AckqError` as a bare status."""
    try:
        yield
    except AckqError as error:
        await context.abort(grpc.StatusCode[status_of(error)], error.message)


@asynccontextmanager
async def _stream(access: Access, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Context of an authenticated, counted stream (A5, I6)."""
    async with _refusing(context):
        caller = await access.caller(context)
        async with access.authorization.streams.one_more(caller):
            yield


def add_reflection(server: aio.Server, names: Iterable[str], access: Access) -> None:
    """Registers reflection of the named services and of the reflection service itself."""
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
        _Reflection((*names, reflection.SERVICE_NAME), access), server
    )
