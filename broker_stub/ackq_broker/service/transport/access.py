"""Authentication of gRPC calls (A1), for the bridge, reflection and health."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from ackq.errors import AckqError, UnauthenticatedError, status_of
from ackq_broker.security.authorization import Authorization, bearer
from ackq_broker.security.callers import Caller
from ackq_broker.security.logins import LoginFailures
from ackq_broker.service.transport.first_reads import FirstReads

_ANY_BYTES: Final = 1 << 62


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
    """The gRPC health service: anyone may check, authenticated callers may watch (a stream)."""

    def __init__(self, access: Access) -> None:
        super().__init__()
        self._access = access

    async def Watch(self, request: Any, context: aio.ServicerContext[Any, Any]) -> None:  # noqa: D102, N802
        async with _stream(self._access, context):
            await super().Watch(request, context)


@asynccontextmanager
async def _stream(access: Access, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Context of an authenticated, counted stream (A5, I6); a refusal is sent as a bare status."""
    try:
        caller = await access.caller(context)
        async with access.authorization.streams.one_more(caller):
            yield
    except AckqError as error:
        await context.abort(grpc.StatusCode[status_of(error)], error.message)


def add_reflection(server: aio.Server, names: Iterable[str], access: Access) -> None:
    """Registers reflection of the named services and of the reflection service itself."""
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
        _Reflection((*names, reflection.SERVICE_NAME), access), server
    )
