"""Typed calls of a session's reader, with transient failures retried within a bound.

Rules S1-S4, S6, S9.

No state is kept between calls: the broker knows which messages are leased and accepted, and the
checkpoint proves it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from ackq import limits
from ackq.client.blocks import decoding
from ackq.client.connection import calls, retry
from ackq.client.connection.broker import Broker
from ackq.client.connection.grpc_channels import grpc_channel
from ackq.client.connection.security import Security
from ackq.client.sessions import outcomes
from ackq.client.sessions.liveness_stream import LivenessStream
from ackq.client.sessions.outcomes import OutcomeStage
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns as wire_columns
from ackq.wire.fetch_key import fetch_key


class Session:
    """Client of a broker's sessions, for a reader.

    Holds no connection of its own and needs no close.

    Args:
        endpoint: `host:port`, or a `Broker`, which includes the next two arguments.
        security: Transport security.
        retry_total_ms: After this time without a broker, calls fail with BrokerUnavailableError,
            which names endpoint and cause.
        on_wait: Called before each back-off wait with the error and the seconds.
    """

    def __init__(
        self,
        endpoint: str | Broker,
        *,
        security: Security | None = None,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        on_wait: retry.OnWait | None = None,
    ) -> None:
        self._broker = Broker.of(endpoint, security, retry_total_ms)
        self._on_wait = on_wait

    def horizon(self) -> int:
        """The current journal sequence: the bound of an AvailableNow run (K5)."""
        return self._call("Horizon", pb.HorizonRequest(), pb.HorizonResponse).sequence

    def advance(self, request: pb.AdvanceRequest) -> pb.AdvanceResponse:
        """Accepts up to `start_tag` and leases again, or returns the outstanding lease (S4).

        Idempotent: an opening without a session name gets one, so that it is repeated on its
        session when the answer was lost (S9).

        Raises:
            AlreadyHeldError: Another live reader holds the session, for twice the heartbeat by now
                (S3).
            FencedError: Another holder has taken over.
            CheckpointMismatchError: `start_tag` does not fit the session (S4, S10).
            SessionNotFoundError: The incarnation no longer exists.
            LeaseHeldError: The opening would abandon a lease (S9).
            QueueNotFoundError: One of the queues does not exist.
            BrokerUnavailableError: No broker answered within the bound.
        """
        timeout_s = request.wait_ms / 1000 + calls.REQUEST_TIMEOUT_S
        if not (request.session or request.incarnation):
            anonymous = pb.AdvanceRequest()
            anonymous.CopyFrom(request)
            anonymous.session = f"{limits.ANONYMOUS_PREFIX}{secrets.token_hex(16)}"
            request = anonymous
        return self._call("Advance", request, pb.AdvanceResponse, timeout_s)

    def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches for a replay of exactly the outstanding lease; raises like `advance`."""
        return self._call("Attach", request, pb.AttachResponse)

    def fetch(
        self, request: pb.FetchRequest, columns: Sequence[str], *, token: bytes = b""
    ) -> Iterator[pa.RecordBatch]:
        """Reads the tags (after_tag, last_tag] of the outstanding lease (S2), one batch per frame.

        After a disconnect it resumes after the last tag received; the retry bound counts from the
        last batch.

        Args:
            request: The range to fetch; its field `columns` is set from the argument.
            columns: Names of `ackq.wire.columns.DELIVERED`: the batches hold exactly these, in this
                order.
            token: The holder's token, from which `key` is derived (A4); empty if the request has a
                key.

        Raises:
            SchemaError: A column does not exist.
            FencedError: Another holder has taken over (S3).
            PermissionDeniedError: The key is not the holder's, or a queue may not be read.
            BrokerUnavailableError: No broker answered within the bound.
        """
        decoding.schema(tuple(columns))
        rest = pb.FetchRequest()
        rest.CopyFrom(request)
        if token:
            rest.key = fetch_key(token, rest.incarnation, rest.epoch)
        rest.columns = wire_columns.bits(list(columns))
        return self._fetch(rest, tuple(columns))

    def hold(self, session: str, incarnation: str, epoch: int, token: bytes) -> LivenessStream:
        """Holds the session: a thread keeps its liveness stream until `close` (S3)."""
        request = pb.HoldRequest(session=session, incarnation=incarnation, epoch=epoch, token=token)
        return LivenessStream(self._broker, request)

    def stage_outcomes(
        self,
        owner: pb.LeaseOwner,
        stage_id: bytes,
        label: str,
        groups: Iterable[Iterable[pb.OutcomeGroup]],
        *,
        discard: bool = False,
    ) -> OutcomeStage:
        """Stages a task's outcomes for messages of the outstanding lease (S6).

        The stage is on the broker's disk when this returns, and has no effect until
        `commit_outcomes` names it. Sent again under the same id while no broker answers: the call
        is idempotent.

        Args:
            owner: Owner of the lease: a session, with the epoch if the caller holds it itself, or
                the query, run and batch that read it.
            stage_id: 16 random bytes for each attempt of a task.
            label: Partition and attempt, for operators.
            groups: One request for each inner iterable, of about 2 MiB; see
                `ackq.client.outcome_group`. The last outcome of a repeated tag counts.
            discard: REJECTED may lose messages of a queue without a dead-letter queue.

        Raises:
            SessionNotFoundError: No such session, or none is read by this query, run and batch.
            FencedError: Another holder has taken over.
            UnknownDeliveryTagError: A tag is outside the outstanding lease.
            PreconditionFailedError: REJECTED on a queue without dead-letter queue, no `discard`.
            InvalidArgumentError: An outcome, a delay or the owner is not valid for the call.
            LimitError: The stage is larger than the limit.
            BrokerUnavailableError: No broker answered within the bound.
        """
        requests = outcomes.requests(owner, stage_id, label, groups, discard=discard)
        response = self._retried(lambda: calls.stage_outcomes(grpc_channel(self._broker), requests))
        return OutcomeStage(stage_id, response.tags)

    def commit_outcomes(
        self, owner: pb.LeaseOwner, stages: Iterable[OutcomeStage]
    ) -> pb.CommitOutcomesResponse:
        """Makes the outcomes of a whole settle call effective with the lease's accept (S6).

        Idempotent.

        Args:
            owner: Owner of the lease; see `stage_outcomes`.
            stages: The stages in order; the last outcome of a tag in several stages counts.

        Raises:
            StageMismatchError: A stage is missing or has another count; no stage takes effect.
            AckqError: Other errors, like `stage_outcomes`.
        """
        request = pb.CommitOutcomesRequest(
            owner=owner, stages=[pb.OutcomeStage(**stage._asdict()) for stage in stages]
        )
        return self._call("CommitOutcomes", request, pb.CommitOutcomesResponse)

    def abort_outcomes(self, stage_ids: Iterable[bytes]) -> int:
        """Drops stages that no commit will name; returns their number, without unknown ones."""
        request = pb.AbortOutcomesRequest(stage_ids=stage_ids)
        return self._call("AbortOutcomes", request, pb.AbortOutcomesResponse).dropped

    def _fetch(self, rest: pb.FetchRequest, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        patience = self._patience()
        empty = rest.after_tag >= rest.last_tag  # the answer is all that it is for (S11)
        while True:
            call = calls.fetch(grpc_channel(self._broker), rest)
            try:
                for runs, content in call:
                    patience.progress()
                    yield decoding.delivered(runs, content, columns)
                    rest.after_tag = decoding.last_tag(runs)
            except grpc.RpcError as rpc:
                if rest.after_tag >= rest.last_tag and not empty:
                    return
                patience.judge(rpc)
            else:
                return
            finally:
                call.cancel()  # also when the reader stops in the middle

    def _call(
        self,
        method: str,
        request: Message,
        response: type[calls.Response],
        timeout_s: float = calls.REQUEST_TIMEOUT_S,
    ) -> calls.Response:
        return self._retried(
            lambda: calls.unary(
                grpc_channel(self._broker),
                f"SessionsService/{method}",
                request,
                response,
                timeout_s,
            )
        )

    def _retried(self, attempt: Callable[[], calls.Response]) -> calls.Response:
        return retry.call(attempt, self._patience())

    def _patience(self) -> retry.Patience:
        return retry.Patience(self._broker, on_wait=self._on_wait)
