"""Calls of a session's reader: typed, with transient failures retried within a bound.

Rules S1-S4, S9.

Nothing is remembered between calls: what is leased and accepted is the broker's to know and the
checkpoint's to prove.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grpc
import pyarrow as pa
from google.protobuf.message import Message

from ackq import limits
from ackq.client import batches, calls, retry, rpc_errors
from ackq.client.channels import channel
from ackq.client.hold import Hold
from ackq.client.security import Security
from ackq.v1 import sessions_pb2 as pb
from ackq.wire import columns as wire_columns


class Session:
    """A broker's sessions, as a reader uses them.

    Holds no connection of its own and needs no close.

    Args:
        endpoint: `host:port`.
        security: Transport security.
        retry_total_ms: Give up after so long without a broker, with BrokerUnavailableError naming
            endpoint and cause.
        on_wait: Told before each wait: the error, and for how many seconds.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        security: Security | None = None,
        retry_total_ms: int = limits.RETRY_TOTAL_MS,
        on_wait: retry.OnWait | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._security = security
        self._retry_total_ms = retry_total_ms
        self._on_wait = on_wait

    def horizon(self) -> int:
        """The journal sequence now: the bound of an AvailableNow run (K5)."""
        return self._call("Horizon", pb.HorizonRequest(), pb.HorizonResponse).sequence

    def advance(self, request: pb.AdvanceRequest) -> pb.AdvanceResponse:
        """Accepts up to `start_tag` and leases anew, or answers the outstanding lease (S4).

        Repeating it is safe.

        Raises:
            AlreadyHeldError: Another live reader holds the session, for twice the heartbeat by now
                (S3).
            FencedError: Another holder has taken over.
            CheckpointMismatchError: `start_tag` does not fit the session (S4, S10).
            SessionNotFoundError: The incarnation is gone.
            LeaseHeldError: The opening would abandon a lease (S9).
            QueueNotFoundError: One of the queues does not exist.
            BrokerUnavailableError: No broker answered within the bound.
        """
        timeout_s = request.wait_ms / 1000 + calls.REQUEST_TIMEOUT_S
        return self._call("Advance", request, pb.AdvanceResponse, timeout_s)

    def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        """Attaches for a replay of exactly the outstanding lease; raises as `advance`."""
        return self._call("Attach", request, pb.AttachResponse)

    def fetch(self, request: pb.FetchRequest, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Reads the tags (after_tag, last_tag] of the outstanding lease (S2), one batch per frame.

        A cut stream is resumed after the last tag received; the bound counts from the last batch.

        Args:
            request: Its `columns` is set from the argument.
            columns: Names of `ackq.wire.columns.DELIVERED`: the batches hold exactly these, in this
                order.

        Raises:
            SchemaError: A column does not exist.
            FencedError: Another holder has taken over (S3).
            BrokerUnavailableError: No broker answered within the bound.
        """
        batches.schema(tuple(columns))
        rest = pb.FetchRequest()
        rest.CopyFrom(request)
        rest.columns = wire_columns.bits(list(columns))
        return self._fetch(rest, tuple(columns))

    def hold(self, session: str, incarnation: str, epoch: int, token: bytes) -> Hold:
        """Holds the session: a thread keeps its liveness stream until `close` (S3)."""
        request = pb.HoldRequest(session=session, incarnation=incarnation, epoch=epoch, token=token)
        return Hold(self._endpoint, request, self._security)

    def _fetch(self, rest: pb.FetchRequest, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        patience = self._patience()
        while True:
            call = calls.fetch(channel(self._endpoint, self._security), rest)
            try:
                for runs, content in call:
                    patience.progress()
                    yield batches.delivered(runs, content, columns)
                    rest.after_tag = batches.last_tag(runs)
            except grpc.RpcError as rpc:
                error = rpc_errors.from_rpc(rpc, self._endpoint)
                if rest.after_tag >= rest.last_tag:
                    return
                try:
                    patience.wait_or_raise(error)
                except type(error) as final:
                    raise final from rpc
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
        return retry.call(
            lambda: calls.unary(
                channel(self._endpoint, self._security),
                f"SessionsService/{method}",
                request,
                response,
                timeout_s,
            ),
            self._endpoint,
            self._patience(),
        )

    def _patience(self) -> retry.Patience:
        return retry.Patience(self._endpoint, self._retry_total_ms, on_wait=self._on_wait)
