"""The bridge between gRPC and plain coroutines: servicers see requests, `read` and `write`, and raise `AckqError`.

Invariant: every failure reaches the client as a status with an `ErrorDetail` in `ackq-error-bin`; what nobody foresaw is
logged once, with its traceback, and told as an internal error.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from ackq.errors import AckqError, InternalError, MalformedBlockError, status_of
from ackq.wire import frame
from ackq_broker.service.details import detail

ERROR_KEY: Final = "ackq-error-bin"

_log = logging.getLogger(__name__)

Request = TypeVar("Request", covariant=True)
Response = TypeVar("Response", contravariant=True)

_Context = aio.ServicerContext[Any, Any]


class Read(Protocol[Request]):
    """The next request of a stream; None when the client has half-closed."""

    def __call__(self) -> Awaitable[Request | None]: ...  # noqa: D102


class Write(Protocol[Response]):
    """Sends one response; returns when gRPC's flow control has taken it."""

    def __call__(self, response: Response, /) -> Awaitable[None]: ...  # noqa: D102


def service_handler(
    service: ServiceDescriptor, servicer: object, settled: Callable[[], Awaitable[None]]
) -> grpc.GenericRpcHandler:
    """Registers `servicer.<method_name>` for every method of a service.

    The coroutine's shape follows from the method's: unary `(request) -> response`, server stream
    `(request, write)`, both streams `(read, write)`. Data frames (a `header` and a `block`) arrive and leave as
    `frame.Frame`, without a copy through protobuf.

    Args:
        service: As generated from the protocol.
        servicer: Has a coroutine for each method.
        settled: Awaited before an error leaves: what it tells may rest on what is not on disk yet (I1).
    """
    return grpc.method_handlers_generic_handler(
        service.full_name,
        {method.name: _handler(method, servicer, settled) for method in service.methods},
    )


def _handler(
    method: MethodDescriptor, servicer: object, settled: Callable[[], Awaitable[None]]
) -> grpc.RpcMethodHandler[Any, Any]:
    call = getattr(servicer, re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower())
    parse = _parser(method.input_type)
    serialize = frame.serializer if _is_frame(method.output_type) else _serialize

    async def guard(context: _Context, run: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await run()
        except AckqError as error:
            failure = error
        except Exception as error:
            if context.done():
                # The client went away in the middle of a write: there is nobody to tell.
                raise asyncio.CancelledError from error
            failure = _unforeseen(method, error)
        await settled()
        return await _abort(context, failure)

    async def unary(data: bytes, context: _Context) -> Any:
        return await guard(context, lambda: call(parse(data)))

    async def server_stream(data: bytes, context: _Context) -> None:
        await guard(context, lambda: call(parse(data), context.write))

    async def both_streams(_: object, context: _Context) -> None:
        async def read() -> Any:
            data = await context.read()
            return None if data is aio.EOF else parse(data)

        await guard(context, lambda: call(read, context.write))

    if method.client_streaming:
        assert method.server_streaming, method.full_name
        return grpc.stream_stream_rpc_method_handler(both_streams, None, serialize)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(server_stream, None, serialize)
    return grpc.unary_unary_rpc_method_handler(unary, None, serialize)


def _is_frame(message: Descriptor) -> bool:
    """Whether a message is a data frame (see DATA FRAMES in messages.proto)."""
    return "block" in message.fields_by_name and "header" in message.fields_by_name


def _parser(message: Descriptor) -> Callable[[bytes], Any]:
    """From request bytes to a message or frame; raises MalformedBlockError for bytes that are neither."""
    if _is_frame(message):
        header_type = message.fields_by_name["header"].message_type
        read: Callable[[bytes], Any] = frame.deserializer(GetMessageClass(header_type))
    else:
        read = GetMessageClass(message).FromString

    def parse(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            raise MalformedBlockError(
                f"The request is not a valid {message.name}: {error}"
            ) from error

    return parse


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _unforeseen(method: MethodDescriptor, error: Exception) -> InternalError:
    _log.error("%s failed", method.full_name, exc_info=error)
    return InternalError(
        f"The broker failed in {method.name} ({type(error).__name__}); its log has the cause."
    )


async def _abort(context: _Context, failure: AckqError) -> NoReturn:
    await context.abort(
        grpc.StatusCode[status_of(failure)],
        failure.message,
        ((ERROR_KEY, detail(failure).SerializeToString()),),
    )
    raise AssertionError("abort returned")
