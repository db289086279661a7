"""The stream of a publisher in transaction mode: backpressure, commits and rollbacks (P13).

Invariant: a commit returns its outcome once, and after `close` no commit is waiting.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Unpack

from ackq.client.blocks import encoding
from ackq.client.connection import errors
from ackq.client.connection.broker import Broker
from ackq.client.publishing.notifications import (
    Answer,
    guarded,
    kept_messages,
    returned_messages,
    unroutable,
)
from ackq.client.publishing.receipts import Returned
from ackq.client.publishing.requests import AddRows
from ackq.client.publishing.stream import PublishStream, StreamArguments
from ackq.client.publishing.transaction_state import Committed, OpenTransaction, TransactionState
from ackq.client.publishing.unconfirmed import Destination
from ackq.errors import (
    AckqError,
    OutcomeUnknownError,
    PreconditionFailedError,
    UnroutableError,
)
from ackq.v1 import publishing_pb2 as pb


class TransactionStream(PublishStream[TransactionState]):
    """The stream of a `TransactionState`; for the arguments see `PublishStream`."""

    mode = pb.PUBLISH_MODE_TRANSACTION

    def __init__(
        self,
        broker: Broker,
        state: TransactionState,
        **arguments: Unpack[StreamArguments],
    ) -> None:
        super().__init__(broker, state, **arguments)
        self._handlers |= {"transaction": self._on_transaction, "returned": self._on_returned}

    # --- called by the application's threads ---

    @property
    def committing(self) -> bool:
        """Whether a commit was requested whose outcome commit() has not handed over."""
        return self._state.transaction.committing

    @property
    def dropped(self) -> int:
        """Number of messages that ending rolls back; a requested commit may take effect.

        The application knows of a transaction that was lost.
        """
        transaction = self._state.transaction
        committed = transaction.pending or isinstance(transaction.outcome, Committed)
        return 0 if committed or transaction.lost is not None else self.pending

    def publish(
        self, destination: Destination, message: encoding.Message, payload_bytes: int
    ) -> int:
        """Adds a message; returns its number. Waits while the window is full (P14)."""
        self.refuse_fork()
        with self.lock:
            self._admit(1, payload_bytes)
            number = self._state.append(destination, message, payload_bytes)
            if not self._state.idle:
                self._changed.notify_all()
            return number

    def publish_frame(self, destination: Destination, content: bytes, rows: int) -> int:
        """Adds a frame; returns its first number. Waits while the window is full (P14)."""
        self.refuse_fork()
        with self.lock:
            self._admit(rows, len(content))
            number = self._state.append_frame(destination, content, rows)
            self._changed.notify_all()
            return number

    def commit(self, timeout_s: float | None) -> Committed:
        """Requests the commit, unless that was done before, and waits for its outcome."""
        self.refuse_fork()
        self._refuse_callbacks("commit() and close()")
        with self.lock:
            if self._state.finishing or (self._failure is not None and not self.pending):
                raise self._closed()
            transaction = self._state.commit()
            self._changed.notify_all()
            self._wait_until(lambda: transaction.outcome is not None, timeout_s)
            if self._state.transaction is transaction:
                self._state.begin()
        return self._result(transaction)

    def roll_back(self) -> None:
        """Drops the transaction without waiting; an empty one is a success."""
        self.refuse_fork()
        with self.lock:
            transaction = self._state.transaction
            if transaction.pending or isinstance(transaction.outcome, Committed):
                raise self._committing()
            self._state.roll_back()
            self._conditions.notify_all()

    def close(self) -> int:
        """Drops uncommitted messages and ends the threads; returns how many were dropped.

        A repeated close does nothing, nor does one in a fork. A pending commit is not awaited.
        """
        if self.inherited:
            return 0
        self._refuse_callbacks("commit() and close()")
        with self.lock:
            if self._state.finishing and self._thread is None:
                return 0
            dropped = self.dropped
            if not self._state.transaction.pending:
                self._state.roll_back()
            self._state.finishing = True
            self._conditions.notify_all()
        self._end(answered=self._state.idle)
        return dropped

    def _check_open(self) -> None:
        if self._state.transaction.committing:
            raise self._committing()
        lost = self._state.transaction.lost
        if lost is not None:
            raise copy(lost)
        super()._check_open()

    def _committing(self) -> PreconditionFailedError:
        return PreconditionFailedError(
            "The commit was requested, and its outcome is not handed over yet; call commit() again "
            "to wait for it.",
            transaction=self._state.transaction.transaction_id.hex(),
        )

    def _result(self, transaction: OpenTransaction) -> Committed:
        """The outcome of a commit; raises it if it is an error."""
        outcome = transaction.outcome
        if not isinstance(outcome, Committed):
            assert outcome is not None
            raise outcome
        reason = transaction.unroutable
        if reason is not None and self._on_return is None:
            raise UnroutableError(
                f"The transaction is committed, but messages are in no queue ({outcome.returned} "
                f"of {outcome.messages}): {reason.message}",
                **{**reason.fields, "committed": True, "returned": outcome.returned},
            )
        return outcome

    def _late(self, timeout_s: float | None) -> OutcomeUnknownError:
        blocked = f" It blocks publishers: {self._state.blocked}." if self._state.blocked else ""
        why = f" {self._outage.message}" if self._outage is not None else blocked
        return OutcomeUnknownError(
            f"The broker at {self.endpoint} did not answer the commit within {timeout_s:g} s; it "
            f"is under way.{why} Call commit() again to wait for it.",
            endpoint=self.endpoint,
            transaction=self._state.transaction.transaction_id.hex(),
        )

    # --- called by the stream ---

    def _encode(self, action: Any) -> bytes | None:
        if isinstance(action, AddRows):
            with self.lock:
                self._conditions.answered.notify_all()  # there is room in the window again
        return super()._encode(action)

    def _on_failure(self, error: AckqError) -> None:
        with self.lock:
            self._state.on_failure(error)
            self._conditions.notify_all()

    # --- answers ---

    def _on_opened(self, answer: Answer) -> None:
        with self.lock:
            self._state.commit_with_data = answer.header.opened.commit_with_data
        super()._on_opened(answer)

    def _on_transaction(self, answer: Answer) -> None:
        """Ends the transaction that the broker committed or refused (P13)."""
        ended = answer.header.transaction
        refusal = errors.from_detail(ended.reason) if ended.HasField("reason") else None
        with self.lock:
            self._state.on_transaction(ended.transaction_id, ended.messages, refusal)
            self._conditions.notify_all()

    def _on_returned(self, answer: Answer) -> None:
        """Reports returned messages; they come before the commit's answer (P7).

        After a repeated commit the returns come again, without the messages (P13).
        """
        numbers = list(answer.header.returned.numbers)
        reason = unroutable(answer, named=self._on_return is None)
        with self.lock:
            news = self._state.on_return(numbers, reason)
            wanted = bool(news) and self._on_return is not None
            kept = self._state.kept_rows(news) if wanted and not answer.block else []
        if self._on_return is None or not news:
            return
        messages = kept_messages(kept) if kept else returned_messages(answer, news)
        guarded(self._on_return, Returned(tuple(news), reason, messages))
