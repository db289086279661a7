"""Administration: exchanges, queues, bindings, browse, sessions, links, writers.

Rules Q1-Q6, Q8, S8, L25, K3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from ackq.client.admin_calls import SessionCalls
from ackq.client.arguments import EXCHANGE_KINDS, choice, queue_properties, uint64
from ackq.client.connection import calls, health
from ackq.errors import (
    InternalError,
    QueueNotFoundError,
)
from ackq.info import (
    AcceptedHistory,
    Backup,
    BatchInfo,
    BrowseChunk,
    DeathCause,
    DeclaredExchange,
    DeclaredQueue,
    DeletedQueue,
    Drain,
    DroppedBatch,
    ExchangeInfo,
    ExchangeKind,
    Holdings,
    LinkInfo,
    OutboundReport,
    OverflowName,
    QueueInfo,
    Redriven,
    RemovedLink,
    ServerInfo,
    WriterInfo,
)
from ackq.v1 import admin_pb2 as pb
from ackq.v1 import links_pb2, publishing_pb2
from ackq.wire.answers import decoded

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K", str, tuple[str, int])

# Number of queues that one call lists: about 3 ms of the broker's time.
_PAGE: Final = 1_000
# Long, because a backup to another file system copies the data.
BACKUP_TIMEOUT_S: Final = 6 * 3600.0


class Admin(SessionCalls):
    """Administration for operators and set-up code. Any method may raise BrokerUnavailableError.

    Args:
        endpoint: `host:port`, or a `Broker`, which includes its security.
        security: Transport security.
        timeout_s: Maximum wait for each call, in seconds.

    Raises:
        InvalidArgumentError: The endpoint is not host:port, or a certificate cannot be read.
    """

    # --- broker ---

    def info(self) -> ServerInfo:
        """Describes the broker: version, history, journal position."""
        return self._told(ServerInfo, "AdminService/ServerInfo", pb.ServerInfoRequest())

    def serving(self) -> bool:
        """Whether the broker accepts new work; False while it starts, or drains before a stop."""
        return health.serving(self._broker, self._timeout_s)

    def accept_history(self) -> AcceptedHistory:
        """Readmits publishers, sessions, writers and links of older histories; counts them (Q8).

        For an operator who knows that the restored or repaired journal has everything that was
        confirmed, accepted or committed before, or that a loss does not matter.
        """
        return self._told(AcceptedHistory, "AdminService/AcceptHistory", pb.AcceptHistoryRequest())

    def backup(self, name: str = "", *, timeout_s: float = BACKUP_TIMEOUT_S) -> Backup:
        """Makes a backup of the running broker on its machine (O5).

        Args:
            name: Name of the backup's directory inside the one that is set with
                `ackq-broker serve --backup-dir`; empty: the current time.
            timeout_s: Maximum wait, in seconds. The broker finishes the backup even after it.

        Raises:
            PreconditionFailedError: A backup of that name exists, or the broker has no backup
                directory.
            DiskFullError: The disk has not enough space.
        """
        request = pb.BackupRequest(name=name)
        return self._told(Backup, "AdminService/Backup", request, timeout_s)

    def drain(self, *, resume: bool = False, look: bool = False) -> Drain:
        """Makes the broker refuse new work before a restart; reports work in progress (O6).

        Args:
            resume: Ends the drain: the broker accepts new work again.
            look: Changes nothing, only reports.
        """
        return self._told(Drain, "AdminService/Drain", pb.DrainRequest(resume=resume, look=look))

    # --- queues ---

    def declare_queue(
        self,
        name: str,
        *,
        durable: bool = True,
        max_length: int = 0,
        max_bytes: int = 0,
        overflow: OverflowName = "reject-publish",
        message_ttl_ms: int = 0,
        expires_ms: int = 0,
        delivery_limit: int = 0,
        dead_letter_queue: str = "",
        redelivery_delay_ms: int = 0,
        redelivery_delay_max_ms: int = 0,
        drop_on_limit: bool = False,
        retain_ms: int = 0,
        passive: bool = False,
        check: bool = False,
    ) -> DeclaredQueue:
        """Declares a queue: creates it, or checks that it exists with these properties (Q1).

        0 and "" mean that the property is not set.

        Args:
            name: Name of the queue, 1 to 255 bytes.
            durable: Whether the queue survives a restart.
            max_length: Maximum number of messages: with reject-publish all of them, staged ones
                included; with drop-head the ready ones.
            max_bytes: Maximum number of payload bytes, of the same messages.
            overflow: Behaviour at the bound: "reject-publish" or "drop-head" (Q3).
            message_ttl_ms: Messages expire this long after publish.
            expires_ms: The queue is deleted after this time without a consumer, session or link,
                with its messages, which become no dead letters; publishing is no use (Q3).
            delivery_limit: Number of FAILED deliveries allowed (C13).
            dead_letter_queue: Queue for rejected, expired and over-limit messages.
            redelivery_delay_ms: First redelivery delay (C14).
            redelivery_delay_max_ms: Maximum redelivery delay.
            drop_on_limit: Without a dead-letter queue, drop messages at the delivery limit.
            retain_ms: How long messages that channels accepted stay, for `rewind_queue` (S13).
            passive: Only check that the queue exists.
            check: Change nothing, but answer or raise as if it had been done; needs a broker that
                supports this.

        Returns:
            The queue's id, whether it is new, and warnings about properties that have no effect,
            which are logged as well.

        Raises:
            PropertiesDifferError: The queue exists with other properties.
            QueueNotFoundError: `passive`, and the queue does not exist.
            InvalidArgumentError: A name or property is out of its range.
            LimitError, UnsupportedError: The broker refuses the declare.
        """
        properties = queue_properties(
            durable=durable,
            max_length=max_length,
            max_bytes=max_bytes,
            overflow=overflow,
            message_ttl_ms=message_ttl_ms,
            expires_ms=expires_ms,
            delivery_limit=delivery_limit,
            dead_letter_queue=dead_letter_queue,
            redelivery_delay_ms=redelivery_delay_ms,
            redelivery_delay_max_ms=redelivery_delay_max_ms,
            drop_on_limit=drop_on_limit,
            retain_ms=retain_ms,
        )
        request = pb.DeclareQueueRequest(
            queue=name, properties=properties, passive=passive, check=check
        )
        answer = self._call("AdminService/DeclareQueue", request, pb.DeclareQueueResponse)
        declared = decoded(DeclaredQueue, answer)
        for warning in () if check else declared.warnings:
            _log.warning("%s", warning)
        return declared

    def delete_queue(
        self, name: str, *, force: bool = False, if_empty: bool = False
    ) -> DeletedQueue:
        """Deletes a queue (Q4). Raises QueueNotFoundError; InUseError unless `force`."""
        request = pb.DeleteQueueRequest(queue=name, force=force, if_empty=if_empty)
        return self._told(DeletedQueue, "AdminService/DeleteQueue", request)

    def purge_queue(self, name: str) -> int:
        """Removes the ready messages of a queue; returns their number (Q4).

        Raises QueueNotFoundError.
        """
        return self._call(
            "AdminService/PurgeQueue", pb.PurgeQueueRequest(queue=name), pb.PurgeQueueResponse
        ).purged

    def rewind_queue(self, name: str, *, from_us: int = 0, dry_run: bool = False) -> int:
        """Makes accepted messages of channels ready again, where the queue retains them (S14).

        They return to their places, before newer messages, and are delivered as redelivered.

        Args:
            name: Name of the queue.
            from_us: Only messages accepted at or after this time, microseconds since the epoch; up
                to 1/512 of the retention earlier ones may be among them.
            dry_run: Only count the messages.

        Returns:
            The number of messages.

        Raises:
            QueueNotFoundError: No such queue.
            PreconditionFailedError: The queue retains nothing, or no longer from that time on.
        """
        request = pb.RewindQueueRequest(queue=name, from_us=from_us, dry_run=dry_run)
        return self._call("AdminService/RewindQueue", request, pb.RewindQueueResponse).messages

    def redrive(
        self,
        queue: str,
        *,
        first_position: int = 0,
        last_position: int = 0,
        max_messages: int = 0,
        cause: DeathCause | Literal[""] = "",
        reason: str = "",
        to_queue: str = "",
    ) -> Redriven:
        """Moves dead letters back to their queues of origin, or to another queue (Q6).

        Each move is atomic. Messages that are dead-lettered again during the redrive stay.

        Args:
            queue: The dead-letter queue.
            first_position: First position; 0: from the head.
            last_position: Last position; 0: to the tail.
            max_messages: Maximum number of messages, lowest positions first; 0: no limit.
            cause: Only messages with this cause: "rejected", "expired" or "delivery_limit"; "":
                any.
            reason: Only messages with exactly this reason; "": any.
            to_queue: The target queue; "": the queue from which each message came.

        Returns:
            The number of moved messages, and the number left of that range, cause and reason: above
            `max_messages`, with a deleted or full target queue, or never dead-lettered.

        Raises:
            QueueNotFoundError: No such queue.
            InvalidArgumentError: A position, number or cause is invalid, or `to_queue` is `queue`.
        """
        request = pb.RedriveRequest(
            queue=queue,
            first_position=uint64("first_position", first_position),
            last_position=uint64("last_position", last_position),
            max_messages=uint64("max_messages", max_messages),
            cause=cause,
            reason=reason,
            to_queue=to_queue,
        )
        moved = 0
        while True:
            answer = self._call("AdminService/Redrive", request, pb.RedriveResponse)
            moved += answer.messages
            if not answer.more:
                answer.messages = moved
                return decoded(Redriven, answer)
            request.last_position = answer.last_position
            if max_messages:
                request.max_messages = max_messages - moved

    def queues(
        self, pattern: str = "", *, not_empty: bool = False, after: str = "", limit: int = 0
    ) -> list[QueueInfo]:
        """Lists the queues by name, fetched in pages (Q5).

        Args:
            pattern: Only queues whose names match: `*` stands for any characters, `?` for one.
            not_empty: Only queues that hold messages, staged ones included.
            after: Only queues whose names come after this one.
            limit: Maximum number of queues; 0: all.

        Raises:
            InvalidArgumentError: The pattern is too long.
        """
        request = pb.ListQueuesRequest(pattern=pattern, not_empty=not_empty, after=after)
        found: list[QueueInfo] = []
        request.page_size = min(limit or _PAGE, _PAGE)
        while True:
            page = self._call("AdminService/ListQueues", request, pb.ListQueuesResponse)
            found += [decoded(QueueInfo, each) for each in page.queues]
            if not page.more or (limit and len(found) >= limit):
                return found[: limit or None]
            if page.queues:
                request.after = _behind(request.after, page.queues[-1].queue)
            elif not request.page_size:
                raise _no_answer("it announces more queues and lists none.")
            else:  # this user may see no queue of the page: fetch the rest in one answer
                request.page_size = 0

    def queue(self, name: str) -> QueueInfo:
        """Describes one queue. Raises QueueNotFoundError."""
        found = self._call(
            "AdminService/ListQueues", pb.ListQueuesRequest(queue=name), pb.ListQueuesResponse
        ).queues
        if not found:
            raise QueueNotFoundError(
                f"There is no queue '{name}'. Declare it with `ackq queue declare {name}`.",
                queue=name,
            )
        return decoded(QueueInfo, found[0])

    def holdings(self, queue: str, *, position: int = 0) -> Holdings:
        """Lists the owners that hold messages of a queue, since when, and what they pin (Q9).

        Args:
            queue: Name of the queue.
            position: Only the owner of the message at this position; 0: all.

        Raises:
            QueueNotFoundError: No such queue.
        """
        request = pb.ListHoldingsRequest(queue=queue, position=uint64("position", position))
        return self._told(Holdings, "AdminService/ListHoldings", request)

    # --- exchanges and bindings ---

    def declare_exchange(
        self, name: str, kind: ExchangeKind = "topic", *, durable: bool = True, check: bool = False
    ) -> DeclaredExchange:
        """Declares an exchange of kind "direct", "fanout" or "topic" (Q2).

        For `check` see `declare_queue`. Raises PropertiesDifferError, InvalidArgumentError.
        """
        request = pb.DeclareExchangeRequest(
            exchange=name,
            type=choice(EXCHANGE_KINDS, "kind", kind),
            durable=durable,
            check=check,
        )
        return self._told(DeclaredExchange, "AdminService/DeclareExchange", request)

    def delete_exchange(self, name: str) -> int:
        """Deletes an exchange and its bindings; returns the number of bindings.

        Raises ExchangeNotFoundError.
        """
        request = pb.DeleteExchangeRequest(exchange=name)
        return self._call(
            "AdminService/DeleteExchange", request, pb.DeleteExchangeResponse
        ).bindings

    def exchanges(self) -> list[ExchangeInfo]:
        """Lists all exchanges with their bindings, by name."""
        request = pb.ListExchangesRequest()
        answer = self._call("AdminService/ListExchanges", request, pb.ListExchangesResponse)
        return [decoded(ExchangeInfo, each) for each in answer.exchanges]

    def bind(
        self, exchange: str, queue: str, binding_key: str = "", *, check: bool = False
    ) -> bool:
        """Binds a queue to an exchange; False: it was already bound.

        For `check` see `declare_queue`. Raises ExchangeNotFoundError, QueueNotFoundError.
        """
        request = pb.BindRequest(
            exchange=exchange, queue=queue, binding_key=binding_key, check=check
        )
        return self._call("AdminService/Bind", request, pb.BindResponse).created

    def unbind(self, exchange: str, queue: str, binding_key: str = "") -> bool:
        """Removes a binding; False: it did not exist.

        Raises ExchangeNotFoundError, QueueNotFoundError.
        """
        request = pb.UnbindRequest(exchange=exchange, queue=queue, binding_key=binding_key)
        return self._call("AdminService/Unbind", request, pb.UnbindResponse).removed

    # --- links ---

    def links(self) -> list[LinkInfo]:
        """Lists all inbound links, by name (L26)."""
        return self._links("")

    def link(self, name: str) -> LinkInfo:
        """Describes one inbound link. Raises LinkNotFoundError."""
        return _some(self._links(name))[0]

    def outbound_links(self, name: str = "") -> list[OutboundReport]:
        """Lists the running outbound links, by name, or only those called `name` (L26).

        Raises:
            LinkNotFoundError: No outbound or inbound link has this name.
        """
        request = links_pb2.ListLinksRequest(link=name, outbound=True)
        answer = self._call("LinksService/ListLinks", request, links_pb2.ListLinksResponse)
        return [decoded(OutboundReport, each) for each in answer.outbound]

    def pause_link(self, name: str, *, paused: bool = True) -> bool:
        """Pauses a link, or resumes it; a paused link takes no messages but still acknowledges.

        Returns:
            Whether the call changed the link (L25).

        Raises:
            LinkNotFoundError: No such link.
        """
        request = links_pb2.PauseLinkRequest(link=name, paused=paused)
        return self._call("LinksService/PauseLink", request, links_pb2.PauseLinkResponse).changed

    def remove_link(self, name: str, *, forget: bool = False) -> RemovedLink:
        """Removes a link; returns counts of held messages and unproven acknowledgements (L25).

        Args:
            name: Name of the link.
            forget: Remove the link even if messages are held or acknowledgements are unproven: the
                local broker stores messages that the remote broker redelivers as new ones.

        Raises:
            LinkNotFoundError: No such link.
            InUseError: The link runs, or (without `forget`) still holds messages or has unproven
                acknowledgements.
        """
        request = links_pb2.RemoveLinkRequest(link=name, forget=forget)
        return self._told(RemovedLink, "LinksService/RemoveLink", request)

    def _links(self, name: str) -> list[LinkInfo]:
        request = links_pb2.ListLinksRequest(link=name)
        answer = self._call("LinksService/ListLinks", request, links_pb2.ListLinksResponse)
        return [decoded(LinkInfo, each) for each in answer.links]

    # --- writers ---

    def batches(self, queue: str = "") -> list[BatchInfo]:
        """Lists the batches that are staged and not committed, by writer and batch (K3).

        Args:
            queue: Only batches with rows for this queue; empty: all.

        Raises:
            QueueNotFoundError: No such queue.
        """
        request = publishing_pb2.ListBatchesRequest(queue=queue)
        found: list[BatchInfo] = []
        while True:
            page = self._batches(request)
            found += [decoded(BatchInfo, each) for each in page.batches]
            if not page.more:
                return found
            last, after = _some(page.batches)[-1], request.after
            writer, batch_id = _behind(
                (after.writer, after.batch_id if request.HasField("after") else -1),
                (last.writer, last.batch_id),
            )
            after.CopyFrom(publishing_pb2.BatchKey(writer=writer, batch_id=batch_id))

    def batch(self, writer: str, batch_id: int) -> BatchInfo:
        """Describes one staged batch, with its stages. Raises BatchNotFoundError."""
        key = publishing_pb2.BatchKey(writer=writer, batch_id=uint64("batch_id", batch_id))
        answer = self._batches(publishing_pb2.ListBatchesRequest(batch=key))
        return decoded(BatchInfo, _some(answer.batches)[0])

    def drop_batch(self, writer: str, batch_id: int, *, force: bool = False) -> DroppedBatch:
        """Drops the staged rows of a batch, and frees the room that they held (K3).

        For a write that is dead. If it is not, its commit is refused and none of its rows become
        visible: a query runs the batch again at its next start, and a batch write fails.

        Args:
            writer: The writer's name, from `batches`.
            batch_id: The batch's id, from `batches`.
            force: Drop the batch even while a task is writing to it.

        Raises:
            BatchNotFoundError: Nothing of the batch is staged.
            InUseError: A task is writing to the batch, and `force` is off.
        """
        key = publishing_pb2.BatchKey(writer=writer, batch_id=uint64("batch_id", batch_id))
        return self._told(
            DroppedBatch,
            "PublishingService/DropBatch",
            publishing_pb2.DropBatchRequest(batch=key, force=force),
        )

    def writers(self, *, idle_s: float = 0) -> list[WriterInfo]:
        """Lists the writers that the broker remembers, by name, idle for at least `idle_s` (K3)."""
        request = publishing_pb2.ListWritersRequest(age_ms=uint64("idle_s", int(1000 * idle_s)))
        found: list[WriterInfo] = []
        while True:
            page = self._writers(request)
            found += [decoded(WriterInfo, each) for each in page.writers]
            if not page.more:
                return found
            request.after = _behind(request.after, _some(page.writers)[-1].writer)

    def writer(self, name: str) -> WriterInfo:
        """Describes one writer. Raises WriterNotFoundError."""
        answer = self._writers(publishing_pb2.ListWritersRequest(writer=name))
        return decoded(WriterInfo, _some(answer.writers)[0])

    def forget_writer(self, name: str, *, force: bool = False) -> bool:
        """Forgets a writer that will not write again; False: it was forgotten before (K3).

        This cannot be undone: any write under its name is refused with WriterForgottenError, as the
        broker can no longer recognise a repetition.

        Args:
            name: Name of the writer.
            force: Forget even a writer that was active within the last day.

        Raises:
            WriterNotFoundError: No such writer.
            InUseError: The writer has stages, or was active within a day and `force` is off.
            LimitError: The broker remembers the maximum number of forgotten writers.
        """
        return self._call(
            "PublishingService/ForgetWriter",
            publishing_pb2.ForgetWriterRequest(writer=name, force=force),
            publishing_pb2.ForgetWriterResponse,
        ).forgotten

    def assign_writer(self, name: str, user: str) -> str:
        """Assigns a writer to another user of the broker, for instance with its query (A10).

        Returns:
            The previous owner; empty if the writer had none.

        Raises:
            WriterNotFoundError: No such writer.
            InvalidArgumentError: No user can have that name.
        """
        return self._call(
            "PublishingService/AssignWriter",
            publishing_pb2.AssignWriterRequest(writer=name, user=user),
            publishing_pb2.AssignWriterResponse,
        ).before

    def _batches(
        self, request: publishing_pb2.ListBatchesRequest
    ) -> publishing_pb2.ListBatchesResponse:
        return self._call(
            "PublishingService/ListBatches", request, publishing_pb2.ListBatchesResponse
        )

    def _writers(
        self, request: publishing_pb2.ListWritersRequest
    ) -> publishing_pb2.ListWritersResponse:
        return self._call(
            "PublishingService/ListWriters", request, publishing_pb2.ListWritersResponse
        )

    # --- browse ---

    def plan_browse(self, queue: str) -> list[BrowseChunk]:
        """Splits a queue into chunks in position order, for a parallel browse.

        Raises QueueNotFoundError.
        """
        request = pb.PlanBrowseRequest(queue=queue)
        answer = self._call("AdminService/PlanBrowse", request, pb.PlanBrowseResponse)
        return [decoded(BrowseChunk, each) for each in answer.chunks]

    def browse(
        self,
        queue: str,
        *,
        first_position: int = 0,
        last_position: int = 0,
        max_messages: int = 0,
        columns: Sequence[str] | None = None,
        max_body_bytes: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the messages of a queue without consuming them (Q5), in position order.

        Args:
            queue: Name of the queue.
            first_position: First position; 0: from the head.
            last_position: Last position; 0: to the tail.
            max_messages: Maximum number of messages; 0: no limit.
            columns: Names of `ackq.wire.columns.BROWSED`, in the order wanted; None: all.
            max_body_bytes: Bodies are cut to this many bytes, and a last column `body_bytes`
                (int64) has the length of each whole body; 0: whole bodies, and no such column.

        Raises:
            QueueNotFoundError: No such queue.
            SchemaError: A column does not exist.
        """
        from ackq.client.blocks import decoding  # noqa: PLC0415 - as in browse_lease
        from ackq.wire import columns as wire_columns  # noqa: PLC0415 - as in browse_lease

        names = tuple(wire_columns.BROWSED) if columns is None else tuple(columns)
        decoding.schema(names, browse=True)
        request = pb.BrowseRequest(
            queue=queue,
            first_position=uint64("first_position", first_position),
            last_position=uint64("last_position", last_position),
            max_messages=uint64("max_messages", max_messages),
            columns=wire_columns.bits(names),
            max_body_bytes=max_body_bytes,
        )
        assemble = decoding.previewed if max_body_bytes else decoding.browsed
        return self._rows(lambda to: calls.browse(to, request), assemble, names)


def _some(found: Sequence[T]) -> Sequence[T]:
    """The items that an answer lists; raises InternalError for an empty list."""
    if not found:
        raise _no_answer("it lists nothing.")
    return found


def _behind(after: K, last: K) -> K:
    """The key after which the next page begins; raises InternalError if it does not advance."""
    if not last > after:
        raise _no_answer("its next page does not follow the previous one.")
    return last


def _no_answer(what: str) -> InternalError:
    remedy = "Check that client and broker have the same version."
    return InternalError(f"The broker's answer violates the protocol: {what} {remedy}")
