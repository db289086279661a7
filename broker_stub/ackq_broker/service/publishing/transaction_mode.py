"""A publisher's stream in transaction mode: frames, commits, rollbacks in, answers out (P7, P13).

Invariant: every commit, also a repeated one, is answered after the sync gate (I1) and after the
returns of its transaction; one refused row refuses the commit, and no row of the transaction
becomes visible.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from pyroaring import BitMap64

from ackq import limits
from ackq.errors import (
    AckqError,
    InvalidArgumentError,
    MalformedBlockError,
    NackError,
    NotFoundError,
    PermissionDeniedError,
    TransactionRolledBackError,
    WrongModeError,
)
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.core.columns import bitmaps
from ackq_broker.core.fields import Unroutable
from ackq_broker.security.callers import current
from ackq_broker.service.blocks import coalescing, ingest
from ackq_broker.service.publishing.stream import (
    Numbers,
    PublisherStream,
    Request,
    Response,
    numbers_of,
    return_of,
    too_many_rows,
)
from ackq_broker.service.transport.fields import check_id, error_detail
from ackq_broker.service.transport.rpc import Denied

# Bytes of a transaction that are buffered until its end. A small transaction is then appended in
# one step and costs one sync, or none if it is rolled back; staged on arrival, it would cost two.
_BUFFER_BYTES: Final = 64 * limits.KIB


# Errors that refuse a commit, but do not end the stream.
_REFUSES_COMMIT: Final = (
    InvalidArgumentError,
    NackError,
    NotFoundError,
    PermissionDeniedError,
    TransactionRolledBackError,
)


class _Refused(NamedTuple):
    """A transaction that can only be rolled back, and the reason."""

    transaction_id: bytes
    reason: AckqError


class TransactionModeStream(PublisherStream[Response]):
    """A publisher's stream whose publishes become visible at the commit of their transaction."""

    TRANSACTIONAL: ClassVar[bool] = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._buffered: list[Request] = []
        self._buffered_bytes = 0
        self._refused: _Refused | None = None

    async def _handle_group(self, group: list[Request]) -> None:
        header = group[0].header
        kind = header.WhichOneof("kind")
        if kind == "data":
            await self._publish(group)
        elif kind == "commit":
            await self._stage_and_commit(header.commit)
        elif kind == "rollback":
            self._roll_back(header.rollback)
        elif kind == "probe":
            raise WrongModeError(
                "A publisher in transaction mode sent a probe; its publishes have no answers of"
                " their own. Open another publisher in confirm mode."
            )
        else:
            raise InvalidArgumentError("A publish stream is opened once and then carries data.")

    async def _answer(self, answers: list[Response]) -> None:
        for answer in answers:
            await self._write(answer)
            self._engine.counters["confirmed"] += answer.header.transaction.messages

    def _notify(self, answer: Response) -> None:
        self._responses.put(answer)

    # --- publishes ---

    async def _publish(self, group: list[Request]) -> None:
        """Buffers frames that arrived together; stages the buffer once it is large."""
        transaction_id = group[0].header.data.transaction_id
        if not transaction_id:
            raise WrongModeError(
                "A publisher in transaction mode sent publishes that name no transaction; open"
                " another publisher in confirm mode."
            )
        check_id("A transaction id", transaction_id)
        for request in group:
            if isinstance(request, Denied):
                self._deny(transaction_id, request.error)
        allowed = [request for request in group if not isinstance(request, Denied)]
        self._buffered += allowed
        self._engine.buffering.add(self._publisher_id)
        self._buffered_bytes += sum(map(coalescing.size_of, allowed))
        messages = group[-1].header.data.commit_messages
        if messages:
            commit = pb.PublishTransaction(transaction_id=transaction_id, messages=messages)
            await self._stage_and_commit(commit)
        elif self._buffered_bytes > _BUFFER_BYTES:
            await self._stage_buffered()

    async def _stage_buffered(self) -> None:
        """Stages the buffered rows in order, except rows of a refused transaction."""
        buffered, self._buffered, self._buffered_bytes = self._buffered, [], 0
        if self._fence is None:  # else a newer stream may be buffering
            self._engine.buffering.discard(self._publisher_id)
        for group in coalescing.groups(buffered):
            if self._fence is not None:
                return  # the open transaction belongs to the newer stream
            transaction_id = group[0].header.data.transaction_id
            if self._refused is None or self._refused.transaction_id != transaction_id:
                try:
                    await self._stage(group)
                except (NackError, NotFoundError) as refusal:
                    self._refuse(transaction_id, refusal)
                except PermissionDeniedError as error:
                    self._deny(transaction_id, error)
                except MalformedBlockError as error:
                    if "column" not in error.fields:
                        raise  # not a frame of the protocol
                    self._refuse(transaction_id, error)

    async def _stage(self, group: list[Request]) -> None:
        """Stages the rows of frames that form one block; raises the reason of a refusal."""
        too_many = too_many_rows(group)
        if too_many is not None:
            raise too_many
        numbers = numbers_of(group)
        prepared = await self._prepare(group)
        if prepared is None:
            return
        if prepared.refusals:
            self._refuse(group[0].header.data.transaction_id, prepared.refusals[0].reason)
            return
        data = group[0].header.data
        for part in prepared.parts:
            if not await self._ready(data.exchange, part):
                return
            self._stage_part(data, numbers, part)

    def _stage_part(
        self, data: pb.PublishData, numbers: Numbers, part: ingest.PreparedPart
    ) -> None:
        """Stages one part; the return of its unroutable rows waits for the sync."""
        named = numbers if part.rows is None else numbers[part.rows]
        command = commands.TransactionBlock(
            self._publisher_id,
            data.transaction_id,
            BitMap64(named.tolist()),
            data.exchange,
            data.mandatory,
            part.routes,
            part.row_count,
            part.payload_bytes,
            part.persistent,
            part.expiries,
            part.transient,
            part.sizes,
        )
        reply, sequence = self._engine.decide(command, part.block)
        if reply.returned:
            self._engine.counters["returned"] += len(reply.returned)
            rows = bitmaps.row_array(reply.returned).astype(np.int64)
            self._responses.put(self._return(named[rows], rows, part, data.exchange), sequence)

    def _deny(self, transaction_id: bytes, error: PermissionDeniedError) -> None:
        """Refuses a transaction because its caller may not publish one of its frames (A3)."""
        current.get().denied(error)
        self._refuse(transaction_id, error)

    def _refuse(self, transaction_id: bytes, reason: AckqError) -> None:
        """Rolls back now, which frees the rows; the commit is answered with the reason.

        A fenced stream has nothing to roll back: the transaction is a newer stream's.
        """
        self._refused = _Refused(transaction_id, reason)
        if self._fence is None:
            self._engine.decide(commands.RollbackTransaction(self._publisher_id))

    # --- end of a transaction ---

    async def _stage_and_commit(self, commit: pb.PublishTransaction) -> None:
        """Stages the buffered rows, then commits the transaction."""
        await self._read_answers()
        await self._stage_buffered()
        if self._fence is None:
            self._commit(commit)

    def _commit(self, commit: pb.PublishTransaction) -> None:
        check_id("A transaction id", commit.transaction_id)
        answer = pb.PublishTransaction(transaction_id=commit.transaction_id)
        try:
            committed = self._committed(commit)
        except _REFUSES_COMMIT as no:
            # Rows of a transaction that cannot be committed are dropped.
            self._engine.decide(commands.RollbackTransaction(self._publisher_id))
            answer.reason.CopyFrom(error_detail(no))
        else:
            answer.messages, answer.repeated = committed.messages, committed.repeated
            if committed.repeated:
                self._return_again(committed.returned)
        self._end(answer)

    def _committed(self, commit: pb.PublishTransaction) -> commands.CommittedTransaction:
        """Commits the transaction; raises the reason if it is refused."""
        if self._refused is not None and self._refused.transaction_id == commit.transaction_id:
            raise self._refused.reason
        command = commands.CommitTransaction(
            self._publisher_id, commit.transaction_id, commit.messages
        )
        reply: commands.CommittedTransaction = self._engine.decide(command).reply
        if not reply.repeated:
            self._engine.counters["published"] += reply.messages
            self._engine.counters["transactions"] += 1
        return reply

    def _return_again(self, returned: tuple[Unroutable, ...]) -> None:
        """Repeats returns that may be lost with the answer; the client keeps their messages."""
        for each in returned:
            answer = return_of(each.numbers.to_array(), each.exchange)
            self._returned_bytes += answer.header.ByteSize()
            self._responses.put(answer, self._engine.core.sequence)

    def _roll_back(self, rollback: pb.PublishTransaction) -> None:
        check_id("A transaction id", rollback.transaction_id)
        self._buffered, self._buffered_bytes = [], 0
        self._engine.buffering.discard(self._publisher_id)
        self._engine.decide(commands.RollbackTransaction(self._publisher_id))
        self._end(pb.PublishTransaction(transaction_id=rollback.transaction_id))

    def _end(self, answer: pb.PublishTransaction) -> None:
        """Answers a commit or rollback once everything decided so far is synced."""
        self._refused = None
        self._responses.put(
            frame.Frame(pb.PublishAnswer(transaction=answer)), self._engine.core.sequence
        )
