"""Calls of an administration client, and those on sessions.

Rules S5, S8, S13, S14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import grpc
from google.protobuf.message import Message

from ackq.client.arguments import uint64
from ackq.client.connection import calls, errors
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.errors import SessionNotFoundError
from ackq.info import (
    ReleasedSession,
    RetainedBatches,
    RewoundSession,
    SessionInfo,
    SettledSession,
)
from ackq.outcomes import Outcome
from ackq.v1 import sessions_pb2
from ackq.wire.answers import answer_class, decoded
from ackq.wire.outcomes import TO_WIRE

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class AdminCalls:
    """Makes the calls of an administration client."""

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        security: Security | None = None,
        timeout_s: float = calls.REQUEST_TIMEOUT_S,
    ) -> None:
        self._broker = Broker.of(endpoint, security)
        self._timeout_s = timeout_s
        grpc_channel(self._broker)  # raises for a bad address or certificate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: the gRPC channel is shared by the process."""

    def _rows(
        self,
        start: Callable[[grpc.Channel], calls.AnswerStream[calls.Deliveries]],
        assemble: Callable[..., pa.RecordBatch],
        names: tuple[str, ...],
    ) -> Iterator[pa.RecordBatch]:
        call = start(grpc_channel(self._broker))
        try:
            for runs, content in call:
                yield assemble(runs, content, names)
        except grpc.RpcError as rpc:
            raise errors.from_rpc(rpc, self._broker) from rpc
        finally:
            call.cancel()  # also when the caller stops early

    def _told(
        self, kind: Callable[..., T], method: str, request: Message, timeout_s: float | None = None
    ) -> T:
        """Makes a call and converts its answer to a class of `ackq.info`."""
        return decoded(kind, self._call(method, request, answer_class(method), timeout_s))

    def _call(
        self,
        method: str,
        request: Message,
        response: type[calls.Response],
        timeout_s: float | None = None,
    ) -> calls.Response:
        # Looked up for each call: after a fork or `close_channels` the gRPC channel is a new one.
        to_broker = grpc_channel(self._broker)
        try:
            return calls.unary(to_broker, method, request, response, timeout_s or self._timeout_s)
        except grpc.RpcError as rpc:
            raise errors.from_rpc(rpc, self._broker) from rpc


class SessionCalls(AdminCalls):
    """Administration of sessions, a part of `Admin`."""

    def sessions(self, *, finished: bool = False) -> list[SessionInfo]:
        """Lists all sessions by name; with `finished` also unnamed ones that hold nothing (S8)."""
        return self._sessions(sessions_pb2.ListSessionsRequest(finished=finished))

    def session(self, name: str) -> SessionInfo:
        """Describes one session. Raises SessionNotFoundError."""
        found = self._sessions(sessions_pb2.ListSessionsRequest(session=name))
        if not found:
            raise SessionNotFoundError(
                f"There is no session '{name}'. `ackq session list` lists the sessions.",
                session=name,
            )
        return found[0]

    def release_session(self, name: str, *, fence: bool = False) -> ReleasedSession:
        """Requeues a session's lease and ends its incarnation (S5, S9).

        The answer counts the requeued messages, and the messages dropped because their queue was
        deleted (Q4).

        Raises:
            SessionNotFoundError: No such session.
            AlreadyHeldError: A live holder is attached, and `fence` is off (S8).
        """
        request = sessions_pb2.ReleaseSessionRequest(session=name, fence=fence)
        return self._told(ReleasedSession, "SessionsService/ReleaseSession", request)

    def settle_session(
        self,
        name: str,
        outcome: Outcome | Literal["rejected", "released"],
        ranges: Iterable[tuple[int, int]],
        *,
        reason: str = "",
        fence: bool = False,
        discard: bool = False,
        incarnation: str = "",
    ) -> SettledSession:
        """Rejects or releases tags of a session's outstanding lease, between two epochs (S8).

        The next attach of its query runs the batch again without these messages.

        Args:
            name: Name of the session.
            outcome: REJECTED or RELEASED, or its name.
            ranges: First and last tag of each range, both included.
            reason: Why, for REJECTED.
            fence: Settle even if a live holder is attached: that holder is ended first.
            discard: REJECTED may lose messages of a queue without a dead-letter queue.
            incarnation: The incarnation to which the tags belong: a session that was opened again
                begins at tag 1. Empty: the current incarnation.

        Raises:
            SessionNotFoundError: No such session.
            AlreadyHeldError: A live holder is attached, and `fence` is off.
            UnknownDeliveryTagError: A tag is outside the outstanding lease.
            PreconditionFailedError: The session has another incarnation now; or REJECTED on a queue
                without dead-letter queue, no `discard`.
            InvalidArgumentError: Another outcome, no tags, or a reason that is too long.
        """
        from ackq.client import outcomes  # noqa: PLC0415 - as in browse_lease

        disposition = outcomes.disposition(outcomes.outcome_of(outcome), reason)
        pairs = [(uint64("first tag", a), uint64("last tag", b)) for a, b in ranges]
        request = sessions_pb2.SettleSessionRequest(
            session=name,
            outcome=TO_WIRE[disposition.outcome],
            first_tag=[first for first, _ in pairs],
            last_tag=[last for _, last in pairs],
            reason=disposition.reason,
            fence=fence,
            discard=discard,
            incarnation=incarnation,
        )
        return self._told(SettledSession, "SessionsService/SettleSession", request)

    def rewind_session(
        self,
        name: str,
        *,
        batch: int | None = None,
        from_us: int = 0,
        with_rejected: bool = False,
        dry_run: bool = False,
    ) -> RewoundSession:
        """Makes what a session accepted ready again, where it is retained (S14).

        Its query reads these messages again before newer ones, as redelivered, under new tags and
        in new batches. Without `batch` and `from_us` all that is retained is read again.

        Args:
            name: Name of the session.
            batch: The query's number of the first batch that is read again.
            from_us: Batches accepted at or after this time are, microseconds since the epoch.
            with_rejected: Rejected messages, too; they stay in the dead-letter queue.
            dry_run: Only count them.

        Raises:
            SessionNotFoundError: No such session.
            PreconditionFailedError: It has an outstanding lease; some of that is not retained; or a
                queue has other readers.
        """
        request = sessions_pb2.RewindSessionRequest(
            session=name,
            rewind=sessions_pb2.RewindPoint(batch_id=batch, from_us=from_us),
            with_rejected=with_rejected,
            dry_run=dry_run,
        )
        return self._told(RewoundSession, "SessionsService/RewindSession", request)

    def browse_lease(
        self,
        name: str,
        *,
        first_tag: int = 0,
        last_tag: int = 0,
        max_messages: int = 0,
        columns: Sequence[str] | None = None,
        incarnation: str = "",
    ) -> Iterator[pa.RecordBatch]:
        """Reads a session's outstanding lease without being its holder (S8), in tag order.

        Args:
            name: Name of the session.
            first_tag: First tag; 0: the lease's first.
            last_tag: Last tag; 0: the lease's last.
            max_messages: Maximum number of messages; 0: no limit.
            columns: Names of `ackq.wire.columns.DELIVERED`, in the order wanted; None: all.
            incarnation: Read the tags of retained batches instead (S13), as `retained` returned
                them with this incarnation.

        Raises:
            SessionNotFoundError: No such session, or the incarnation has ended.
            UnknownDeliveryTagError: A tag is outside the outstanding lease.
            PreconditionFailedError: With `incarnation`: a tag is no longer retained.
            SchemaError: A column does not exist.
        """
        # Arrow takes 0.15 s to import, and no other method needs it, except `browse`.
        from ackq.client.blocks import decoding  # noqa: PLC0415 - see above
        from ackq.wire import columns as wire_columns  # noqa: PLC0415 - see above

        names = tuple(wire_columns.DELIVERED) if columns is None else tuple(columns)
        decoding.schema(names)
        request = sessions_pb2.BrowseLeaseRequest(
            session=name,
            first_tag=uint64("first_tag", first_tag),
            last_tag=uint64("last_tag", last_tag),
            max_messages=uint64("max_messages", max_messages),
            columns=wire_columns.bits(names),
            incarnation=incarnation,
        )
        return self._rows(lambda to: calls.browse_lease(to, request), decoding.delivered, names)

    def retained(
        self, name: str, *, batch: int | None = None, from_us: int = 0, to_us: int = 0
    ) -> RetainedBatches:
        """Finds accepted batches of a session that can be read again (S13), oldest first.

        Args:
            name: Name of the session.
            batch: Only the batch of this number.
            from_us: Only batches accepted at or after this time, microseconds since the epoch.
            to_us: Only batches accepted before this time; 0: up to the newest.

        Raises:
            SessionNotFoundError: No such session.
            PreconditionFailedError: Some of that is not retained; the message says what is.
        """
        request = sessions_pb2.PlanRetainedRequest(
            session=name, batch_id=batch, from_us=from_us, to_us=to_us
        )
        return self._told(RetainedBatches, "SessionsService/PlanRetained", request)

    def _sessions(self, request: sessions_pb2.ListSessionsRequest) -> list[SessionInfo]:
        answer = self._call(
            "SessionsService/ListSessions", request, sessions_pb2.ListSessionsResponse
        )
        return [decoded(SessionInfo, each) for each in answer.sessions]
