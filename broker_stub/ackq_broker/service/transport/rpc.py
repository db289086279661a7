"""The bridge to gRPC: servicers see requests, `read` and `write`, and raise `AckqError`.

Invariant: every failure of a request reaches the client as a status with an `ErrorDetail` in
`ackq-error-bin`; an unexpected one is logged once, with its traceback, and sent as an internal
error. Only authorized requests reach a servicer (A2). Where a failure may have touched state, the
engine has ended the process before (I2).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc import aio

from ackq.errors import (
    AckqError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnauthenticatedError,
    status_of,
)
from ackq.wire import frame
from ackq_broker.security.callers import Caller, current
from ackq_broker.service.transport.access import Access
from ackq_broker.service.transport.fields import error_detail
from ackq_broker.service.transport.requests import RequestParser, is_frame

ERROR_KEY: Final = "ackq-error-bin"

_log = logging.getLogger(__name__)

Request_co = TypeVar("Request_co", covariant=True)
Response_contra = TypeVar("Response_contra", contravariant=True)

_Context = aio.ServicerContext[Any, Any]


# Methods that answer a request its caller may not make; all others end with the refusal.
_ANSWER_DENIED: Final = frozenset({"ackq.v1.PublishingService.Publish"})


class Denied(frame.Frame[Any]):
    """A frame that its caller may not send, passed to a method that answers it."""

    error: PermissionDeniedError


class Read(Protocol[Request_co]):
    """Reads the next request of a stream; None once the client has half-closed."""

    def __call__(self) -> Awaitable[Request_co | None]: ...  # noqa: D102


class Write(Protocol[Response_contra]):
    """Sends one response; returns when gRPC's flow control has taken it."""

    def __call__(self, response: Response_contra, /) -> Awaitable[None]: ...  # noqa: D102


def service_handler(
    service: ServiceDescriptor,
    servicer: object,
    wait_synced: Callable[[], Awaitable[None]],
    access: Access | None = None,
) -> grpc.GenericRpcHandler[Any, Any]:
    """Registers `servicer.<method_name>` for every method of a service.

    The coroutine's shape follows from the method's: unary `(request) -> response`, server stream
    `(request, write)`, client stream `(read) -> response`, both streams `(read, write)`. Data
    frames (a `header` and a `block`) arrive and leave as `frame.Frame`, without a copy through
    protobuf. All methods are registered with gRPC as client streams: for a single-request method
    gRPC would wait for the request for ever, whereas the bridge ends a call without one in time.

    Args:
        service: The descriptor generated from the protocol.
        servicer: Has a coroutine for each method.
        wait_synced: Awaited before an error leaves, which may depend on unsynced records (I1).
        access: Admits the calls of all services; None: every caller may do everything.
    """
    access = access or Access()
    handlers = {}
    for method in service.methods:
        bridge = _Bridge(method, servicer, wait_synced, access)
        make = {
            (False, False): (grpc.stream_unary_rpc_method_handler, bridge.unary),
            (False, True): (grpc.stream_stream_rpc_method_handler, bridge.server_stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, bridge.client_stream),
            (True, True): (grpc.stream_stream_rpc_method_handler, bridge.both_streams),
        }
        handler, behaviour = make[method.client_streaming, method.server_streaming]
        handlers[method.name] = handler(behaviour, None, bridge.serialize)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


class _Bridge:
    """One method: parses requests, calls the servicer, converts its errors to a status."""

    def __init__(
        self,
        method: MethodDescriptor,
        servicer: object,
        wait_synced: Callable[[], Awaitable[None]],
        access: Access,
    ) -> None:
        self._name = method.full_name
        self._call = getattr(servicer, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower())
        self._parser = RequestParser(method.input_type)
        self._wait_synced = wait_synced
        self._access = access
        self._authorization = access.authorization
        self.serialize = frame.serializer if is_frame(method.output_type) else _serialize

    async def unary(self, _: object, context: _Context) -> Any:
        async def run(caller: Caller) -> Any:
            request = await self._only(context, caller)
            if caller.rights is not None:
                again = self._authorization.check
                caller.check_again = partial(again, caller, self._name, request)
            work = self._call(request)
            response = await self._authorization.audited(caller, self._name, request, work)
            return self._authorization.visible(caller, request, response)

        return await self._guard(context, run)

    async def server_stream(self, _: object, context: _Context) -> None:
        async def run(caller: Caller) -> None:
            async with self._authorization.streams.one_more(caller):
                await self._call(await self._only(context, caller), context.write)

        await context.send_initial_metadata(())  # as in both_streams
        await self._guard(context, run)

    async def client_stream(self, _: object, context: _Context) -> Any:
        async def run(caller: Caller) -> Any:
            async with self._authorization.streams.one_more(caller):
                return await self._call(self._reader(context, caller))

        return await self._guard(context, run)

    async def both_streams(self, _: object, context: _Context) -> None:
        async def run(caller: Caller) -> None:
            async with self._authorization.streams.one_more(caller):
                await self._call(self._reader(context, caller), context.write)

        # Sent before any response. gRPC sends the metadata with the first response and notes that
        # only when the write returns: a failure that cancels the write would send it twice, which
        # gRPC refuses, and the client would wait for a status for ever.
        await context.send_initial_metadata(())
        await self._guard(context, run)
        await self._wait_synced()  # the end of a stream is an answer, too (I1)

    async def _only(self, context: _Context, caller: Caller) -> Any:
        """Reads the only request of a single-request call."""
        request = await self._reader(context, caller)()
        if request is None:
            raise InvalidArgumentError("The call ended before its request came.")
        return request

    def _reader(self, context: _Context, caller: Caller) -> Callable[[], Awaitable[Any]]:
        """Returns a function that reads and checks requests; the first has a deadline (I6)."""
        first_reads, who = self._access.first_reads, caller.user or context.peer()
        read_next: Callable[[], Awaitable[Any]] = partial(first_reads.read, who, context.read)

        async def read() -> Any:
            nonlocal read_next
            data = await read_next()
            read_next = context.read
            if data is aio.EOF:  # type: ignore[attr-defined] # the stubs lack it
                return None
            request = await self._parser.parse(data)
            try:
                self._authorization.check(caller, self._name, request)
            except PermissionDeniedError as error:
                if self._name not in _ANSWER_DENIED:
                    raise
                request = Denied(*request)
                request.error = error
            return request

        return read

    async def _guard(self, context: _Context, run: Callable[[Caller], Awaitable[Any]]) -> Any:
        caller = None
        try:
            caller = await self._access.caller(context)
            if caller.rights is not None:
                audit = self._authorization.refused
                caller.denied = partial(audit, caller, context.peer(), self._name)
            current.set(caller)  # each call is a task of its own
            return await run(caller)
        except (UnauthenticatedError, PermissionDeniedError) as error:
            failure: AckqError = error
            self._authorization.refused(caller, context.peer(), self._name, error)
        except AckqError as error:
            failure = error
        except Exception as error:
            if context.done():
                # The client disconnected during a write: nobody reads a status.
                raise asyncio.CancelledError from error
            _log.exception("%s failed", self._name)
            failure = InternalError(
                f"The broker failed in {self._name} ({type(error).__name__}); its log says why."
            )
        await self._wait_synced()
        sent = error_detail(failure)
        failure.__traceback__ = None  # its frames hold the request, and this frame holds it
        try:
            await context.abort(
                grpc.StatusCode[status_of(failure)],
                sent.message,
                ((ERROR_KEY, sent.SerializeToString()),),
            )
        except aio.InternalError as error:
            # The client disconnected while its status was sent.
            raise asyncio.CancelledError from error
        raise AssertionError("abort returned")


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
