"""The bridge to gRPC with a real server in this process: every failure reaches the client (I1)."""

import asyncio
import contextlib
import gc
import weakref
from unittest.mock import AsyncMock, Mock

import grpc
import pytest
from grpc import aio

from ackq.errors import StageMismatchError
from ackq.v1 import publishing_pb2 as pb
from ackq.v1 import publishing_pb2_grpc
from ackq_broker.service.transport import rpc

SERVICE = pb.DESCRIPTOR.services_by_name["PublishingService"]


async def synced():
    """Waits for nothing, as if everything were on disk."""


async def refuses(read, write):
    """Fails while its first answer is being sent, like a stage whose seal differs."""
    await read()
    answer = asyncio.ensure_future(write(pb.StageResponse(stored=pb.StageStored(rows=1))))
    await asyncio.sleep(0)  # gRPC has the answer by now, and has not reported that it was sent
    answer.cancel()
    raise StageMismatchError("The seal counts 2 rows, and 1 came.")


async def test_an_error_that_meets_the_first_answer_reaches_the_client():
    """P3, K3: a stream that fails while its first answer is being sent ends with its status."""
    server = aio.server()
    servicer = Mock(stage=refuses)
    server.add_generic_rpc_handlers((rpc.service_handler(SERVICE, servicer, synced),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = publishing_pb2_grpc.PublishingServiceStub(channel)
        call = stub.Stage(iter([pb.StageRequest()]), timeout=20)
        with pytest.raises(aio.AioRpcError) as failed:
            async for _ in call:
                pass
    await server.stop(None)
    error = failed.value
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert rpc.ERROR_KEY in [key for key, _ in error.trailing_metadata()]


def refused(read, abort):
    """A call that fails after `read()`, and its context, whose `abort` raises an error."""

    async def fails(_read, _write):
        read()
        raise StageMismatchError("The seal counts 2 rows, and 1 came.")

    handlers = rpc.service_handler(SERVICE, Mock(publish=fails), synced)
    handler = handlers.service(Mock(method="/ackq.v1.PublishingService/Publish"))
    context = AsyncMock(peer=Mock(return_value="ipv4:127.0.0.1:1"))
    context.abort.side_effect = abort
    return handler.stream_stream(None, context), context


async def test_a_client_that_goes_while_its_error_is_sent_is_no_failure():
    """I6: a client that leaves while its error is sent causes a cancelled call, no traceback."""
    call, context = refused(list, aio.InternalError("Failed to execute a batch"))
    with pytest.raises(asyncio.CancelledError):
        await call
    context.abort.assert_awaited_once()


class Request:
    """A large object that a call brought."""


async def test_a_refused_call_keeps_nothing_of_its_request():
    """I6: a refused call frees its request with the answer, not with a garbage collection."""
    requests = []

    def read():
        request = Request()
        requests.append(weakref.ref(request))

    call, _ = refused(read, aio.AbortError)
    gc.disable()
    try:
        with contextlib.suppress(aio.AbortError):
            await call
        assert [kept() for kept in requests] == [None]
    finally:
        gc.enable()
