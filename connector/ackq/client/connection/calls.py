"""The broker's calls, typed; calls with data frames use the zero-copy framing of `ackq.wire`.

Requests of these streams are given as serialised frames, so bulk bytes are copied once; their
answers are `Frame(header, view of the block)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar, cast

import grpc
from google.protobuf.message import Message

from ackq import limits
from ackq.v1 import (
    admin_pb2,
    consuming_pb2,
    links_pb2,
    messages_pb2,
    publishing_pb2,
    sessions_pb2,
)
from ackq.wire import frame

T_co = TypeVar("T_co", covariant=True)
Response = TypeVar("Response", bound=Message)

REQUEST_TIMEOUT_S = limits.REQUEST_TIMEOUT_MS / 1000
_UNHEARD_S = limits.HEARTBEAT_SEND_MS / 1000
Deliveries = frame.Frame[messages_pb2.DeliveryRuns]

# gRPC counts a deadline in nanoseconds since 1970 in 64 bits: one after the year 2262 has passed.
_LONGEST_S: Final = 365 * 86_400.0


class AnswerStream(Protocol[T_co]):
    """A streaming call in progress."""

    def __iter__(self) -> Iterator[T_co]:
        """The answers; raises grpc.RpcError when the call fails."""
        ...

    def __next__(self) -> T_co:
        """The next answer."""
        ...

    def cancel(self) -> bool:
        """Ends the call."""
        ...

    def done(self) -> bool:
        """Whether the call has ended."""
        ...


def bounded(timeout_s: float) -> float:
    """A timeout for gRPC, in seconds: a longer one than a year is a year."""
    return min(timeout_s, _LONGEST_S)


def unary(
    channel: grpc.Channel,
    method: str,
    request: Message,
    response: type[Response],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> Response:
    """Calls `ackq.v1.<method>`, for instance "AdminService/Bind"; raises grpc.RpcError."""
    call: Any = channel.unary_unary(
        f"/ackq.v1.{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=response.FromString,
    )
    return cast("Response", call(request, timeout=bounded(timeout_s)))


def publish(
    channel: grpc.Channel, requests: Iterator[bytes]
) -> AnswerStream[frame.Frame[publishing_pb2.PublishAnswer]]:
    """Opens the stream of a publisher (PublishingService.Publish)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.PublishingService/Publish",
        request_serializer=None,
        response_deserializer=frame.deserializer(publishing_pb2.PublishAnswer),
    )
    return cast("AnswerStream[frame.Frame[publishing_pb2.PublishAnswer]]", patient(call(requests)))


def stage(
    channel: grpc.Channel, requests: Iterator[bytes]
) -> AnswerStream[publishing_pb2.StageResponse]:
    """Opens the upload of a stage (PublishingService.Stage)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.PublishingService/Stage",
        request_serializer=None,
        response_deserializer=publishing_pb2.StageResponse.FromString,
    )
    return cast("AnswerStream[publishing_pb2.StageResponse]", call(requests))


def consume(
    channel: grpc.Channel, requests: Iterator[consuming_pb2.ConsumeRequest]
) -> AnswerStream[frame.Frame[consuming_pb2.ConsumeHeader]]:
    """Opens the stream of a channel (ConsumingService.Consume)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.ConsumingService/Consume",
        request_serializer=consuming_pb2.ConsumeRequest.SerializeToString,
        response_deserializer=frame.deserializer(consuming_pb2.ConsumeHeader),
    )
    return cast("AnswerStream[frame.Frame[consuming_pb2.ConsumeHeader]]", patient(call(requests)))


def link(channel: grpc.Channel, requests: Iterator[bytes]) -> AnswerStream[links_pb2.LinkResponse]:
    """Opens the stream of a link (LinksService.Link)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.LinksService/Link",
        request_serializer=None,
        response_deserializer=links_pb2.LinkResponse.FromString,
    )
    return cast("AnswerStream[links_pb2.LinkResponse]", patient(call(requests)))


def hold(
    channel: grpc.Channel, requests: Iterator[sessions_pb2.HoldRequest]
) -> AnswerStream[sessions_pb2.HoldResponse]:
    """Opens the liveness stream of a holder (SessionsService.Hold)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.SessionsService/Hold",
        request_serializer=sessions_pb2.HoldRequest.SerializeToString,
        response_deserializer=sessions_pb2.HoldResponse.FromString,
    )
    return cast("AnswerStream[sessions_pb2.HoldResponse]", patient(call(requests)))


def report_outbound(
    channel: grpc.Channel, requests: Iterator[links_pb2.ReportOutboundRequest]
) -> AnswerStream[links_pb2.ReportOutboundResponse]:
    """Opens the stream of an outbound link's reports (LinksService.ReportOutbound)."""
    call: Any = channel.stream_stream(
        "/ackq.v1.LinksService/ReportOutbound",
        request_serializer=links_pb2.ReportOutboundRequest.SerializeToString,
        response_deserializer=links_pb2.ReportOutboundResponse.FromString,
    )
    return cast("AnswerStream[links_pb2.ReportOutboundResponse]", patient(call(requests)))


def stage_outcomes(
    channel: grpc.Channel, requests: Iterable[sessions_pb2.StageOutcomesRequest]
) -> sessions_pb2.StageOutcomesResponse:
    """Stages the outcomes of messages (SessionsService.StageOutcomes); raises grpc.RpcError."""
    call: Any = channel.stream_unary(
        "/ackq.v1.SessionsService/StageOutcomes",
        request_serializer=sessions_pb2.StageOutcomesRequest.SerializeToString,
        response_deserializer=sessions_pb2.StageOutcomesResponse.FromString,
    )
    return cast(
        "sessions_pb2.StageOutcomesResponse", call(iter(requests), timeout=REQUEST_TIMEOUT_S)
    )


def fetch(channel: grpc.Channel, request: sessions_pb2.FetchRequest) -> AnswerStream[Deliveries]:
    """Streams the messages of a lease (SessionsService.Fetch)."""
    return _deliveries(channel, "SessionsService/Fetch", request)


def browse_lease(
    channel: grpc.Channel, request: sessions_pb2.BrowseLeaseRequest
) -> AnswerStream[Deliveries]:
    """Streams the messages of a session's lease to an operator (SessionsService.BrowseLease)."""
    return _deliveries(channel, "SessionsService/BrowseLease", request)


def browse(channel: grpc.Channel, request: admin_pb2.BrowseRequest) -> AnswerStream[Deliveries]:
    """Streams messages of a queue without leasing them (AdminService.Browse)."""
    return _deliveries(channel, "AdminService/Browse", request)


def _deliveries(channel: grpc.Channel, method: str, request: Message) -> AnswerStream[Deliveries]:
    call: Any = channel.unary_stream(
        f"/ackq.v1.{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=frame.deserializer(messages_pb2.DeliveryRuns),
    )
    return cast("AnswerStream[Deliveries]", call(request))


def patient(call: Any) -> Any:
    """Changes a streaming call so that its reader sleeps until an answer comes, and does not poll.

    gRPC polls ten times a second, for programs that read on their main thread and want to be
    interrupted; with 500 channels in a process that is 5,000 times. Each answer, and the end, wakes
    the reader anyway. The call stays unchanged if gRPC's internals differ, or if gRPC watches for
    forks as it polls.
    """
    if os.environ.get("GRPC_ENABLE_FORK_SUPPORT"):
        return call
    condition = getattr(getattr(call, "_state", None), "condition", None)
    wait = getattr(condition, "wait", None)
    if condition is not None and wait is not None:
        condition.wait = lambda timeout=None: wait(_UNHEARD_S)  # noqa: ARG005 - theirs
    return call
