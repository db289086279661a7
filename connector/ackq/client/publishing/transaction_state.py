"""State machine of a publisher in transaction mode; no I/O, no clock, no lock.

Invariant: rows, commit and rollback of a transaction go on one stream, in their order; only the
commit may be repeated on a later one. A transaction whose stream was disconnected before its commit
was sent can only be rolled back (P13). A message is reported as returned once, even if its return
is repeated (P7). While the broker is blocked, only commits and rollbacks are sent (P14).
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ackq.client.blocks import encoding
from ackq.client.connection.duplex import Wait
from ackq.client.publishing.drafts import MessageDraft
from ackq.client.publishing.requests import Action, AddRows, Commit, Rollback
from ackq.client.publishing.state import PublishState, Window
from ackq.client.publishing.unconfirmed import Destination
from ackq.errors import (
    AckqError,
    InternalError,
    OutcomeUnknownError,
    TransactionRolledBackError,
    UnroutableError,
)

_ID_BYTES = 16


class Committed(NamedTuple):
    """Outcome of a commit: the transaction is visible and on disk (P13).

    Attributes:
        messages: Number of messages published in the transaction.
        returned: Number of its mandatory messages that were unroutable (P7).
    """

    messages: int
    returned: int = 0


class OpenTransaction:
    """A transaction: the messages published since the last commit or rollback.

    Attributes:
        first_number: The publish number of its first message.
        messages: Number of messages.
        returned: Publish numbers of the returned messages (P7); `unroutable`: the first reason.
        kept: Sent rows, in order, that the broker may return without their messages.
        added: Some of its rows were sent.
        committing: The application requested the commit.
        asked: The commit was sent on the present stream; `ever_asked`: on any stream.
        lost: Why the transaction can only be rolled back.
        outcome: The outcome of the commit; None while there is none.
    """

    def __init__(self, first_number: int) -> None:
        self.transaction_id = secrets.token_bytes(_ID_BYTES)
        self.first_number = first_number
        self.messages = 0
        self.returned: set[int] = set()
        self.unroutable: UnroutableError | None = None
        self.kept: list[AddRows] = []
        self.added = False
        self.committing = False
        self.asked = False
        self.ever_asked = False
        self.lost: AckqError | None = None
        self.outcome: Committed | AckqError | None = None

    @property
    def pending(self) -> bool:
        """Whether the transaction's commit was requested and has no outcome yet."""
        return self.committing and self.outcome is None

    def lose(self, error: AckqError) -> None:
        """Fails the transaction: none of its messages becomes visible."""
        self.lost = self.lost or error
        if self.pending:
            self.outcome = self.lost


class TransactionState(PublishState):
    """The state of one publisher: its transaction, the rows to send, and its stream.

    Args:
        persistent: Default delivery mode of messages (P12).
        window_messages: Maximum number of messages that are published and not sent (P14).
        window_bytes: Maximum number of their payload bytes.
        keep_mandatory: Whether mandatory messages are kept until their commit is answered.
        routing_key: For messages that are only a body.

    Attributes:
        transaction: The messages published since the last commit or rollback.
        commit_with_data: Whether the broker takes a commit in the frame of the last rows.
    """

    def __init__(
        self,
        *,
        persistent: bool,
        window_messages: int,
        window_bytes: int,
        keep_mandatory: bool = False,
        routing_key: str = "",
    ) -> None:
        super().__init__(Window(window_messages, window_bytes))
        self.transaction = OpenTransaction(1)
        self.commit_with_data = False
        self._persistent = persistent
        self._keep_mandatory = keep_mandatory
        self._routing_key = routing_key
        self._next_number = 1
        self._draft: MessageDraft | None = None
        self._to_send: deque[tuple[AddRows, int]] = deque()  # with their bytes in the window
        self._rollback: Rollback | None = None  # not sent yet

    # --- the application's side ---

    def append(
        self, destination: Destination, message: encoding.Message, payload_bytes: int
    ) -> int:
        """Adds a message; returns its number. Its frame is sent when full, or with the commit.

        So a transaction of one message is sent together with its commit.
        """
        if self._draft is not None and not self._draft.fits(destination, payload_bytes):
            self.close_draft()
        if self._draft is None:
            self._draft = MessageDraft(destination, self._routing_key)
        self._draft.add(message, payload_bytes)
        self.window.take(1, payload_bytes)
        self.transaction.messages += 1
        number = self._next_number + len(self._draft) - 1
        if self._draft.full:
            self.close_draft()
        return number

    def append_frame(self, destination: Destination, content: bytes, rows: int) -> int:
        """Adds a ready frame after the earlier messages; returns its first number."""
        self.close_draft()
        self.window.take(rows, len(content))
        self.transaction.messages += rows
        return self._add(destination, rows, lambda: content, len(content))

    def close_draft(self) -> None:
        """Queues the draft, if any, to be sent."""
        draft, self._draft = self._draft, None
        if draft is not None:
            content = draft.content(persistent=self._persistent)
            self._add(draft.destination, len(draft), content, draft.payload_bytes)

    def commit(self) -> OpenTransaction:
        """Requests the commit, once; returns the transaction, which gets the outcome."""
        transaction = self.transaction
        if not transaction.committing:
            transaction.committing = True
            self.close_draft()
            if transaction.lost is not None:
                transaction.outcome = transaction.lost
            elif not transaction.messages:
                transaction.outcome = Committed(0)
        return transaction

    def roll_back(self) -> None:
        """Drops the transaction: its unsent rows at once, the sent ones by a rollback request."""
        transaction = self.transaction
        assert not transaction.pending, "a commit under way cannot be taken back"
        self._drop()
        if transaction.added and transaction.outcome is None and transaction.lost is None:
            self._rollback = Rollback(transaction.transaction_id)
        self.begin()

    def begin(self) -> None:
        """Begins the next transaction."""
        self.transaction = OpenTransaction(self._next_number)

    @property
    def idle(self) -> bool:
        """Whether nothing is to be sent and no answer is due; a transaction may be open."""
        return not (self._to_send or self._rollback or self.transaction.pending)

    @property
    def pending(self) -> int:
        """Number of messages in the open transaction."""
        return self.transaction.messages

    @property
    def lowest_unanswered(self) -> int:
        """The publish number of the transaction's first message (P10)."""
        return self.transaction.first_number

    @property
    def window_messages(self) -> int:
        """Always 0: the messages of a transaction are not confirmed one by one (P11)."""
        return 0

    # --- the sender's side ---

    def next_action(self, _now: float) -> Action:
        """The next rows, commit or rollback to send; a wait if there is nothing to send."""
        if self.done:
            return self.last_action()
        if not self.opened:
            return Wait(None)
        if self._rollback is not None:
            action, self._rollback = self._rollback, None
            return action
        if self._to_send:
            return self._next_rows()
        transaction = self.transaction
        if transaction.pending and not transaction.asked:
            transaction.asked = transaction.ever_asked = True
            return Commit(transaction.transaction_id, transaction.messages)
        return Wait(None)

    def _next_rows(self) -> Action:
        if self.blocked is not None:
            return Wait(None)
        rows, payload_bytes = self._to_send.popleft()
        self.window.give_back(rows.rows, payload_bytes)
        self.transaction.added = True
        if self._keep_mandatory and rows.destination.mandatory:
            self.transaction.kept.append(rows)
        if self._to_send or not self.commit_with_data or not self.transaction.pending:
            return rows
        self.transaction.asked = self.transaction.ever_asked = True
        return rows._replace(commit_messages=self.transaction.messages)

    # --- answers and disconnects ---

    def on_return(self, numbers: Sequence[int], reason: UnroutableError) -> list[int]:
        """Records returned messages (P7); gives the numbers that were not returned before.

        It leaves out messages of a transaction that was rolled back: the broker may return them
        before the rollback reaches it. A repeated commit repeats the returns.
        """
        transaction = self.transaction
        news = [
            number
            for number in numbers
            if number >= transaction.first_number and number not in transaction.returned
        ]
        if news:
            transaction.returned.update(news)
            transaction.unroutable = transaction.unroutable or reason
        return news

    def kept_rows(self, numbers: Sequence[int]) -> list[tuple[AddRows, list[int]]]:
        """The kept messages with these ascending numbers, as frames, each with its row indexes.

        Raises:
            InternalError: A number is not that of a mandatory message of the transaction.
        """
        found = []
        done = 0
        for rows in self.transaction.kept:
            end = bisect_left(numbers, rows.first_number + rows.rows, lo=done)
            inside = [number - rows.first_number for number in numbers[done:end]]
            if inside and inside[0] < 0:
                break
            if inside:
                found.append((rows, inside))
            done = end
        if done < len(numbers):
            raise InternalError(
                f"The broker returned the publish {numbers[done]}, which was not mandatory. Check "
                "that client and broker have the same version."
            )
        return found

    def on_transaction(
        self, transaction_id: bytes, messages: int, refusal: AckqError | None
    ) -> None:
        """Applies the answer to a commit (P13); ignores the answer to a rollback.

        Raises:
            InternalError: The commit was never requested.
        """
        transaction = self.transaction
        if transaction_id != transaction.transaction_id:
            return
        if not transaction.asked:
            raise InternalError(
                f"The broker answered a commit of transaction {transaction_id.hex()} that was not "
                "requested. Check that client and broker have the same version."
            )
        transaction.outcome = refusal or Committed(messages, len(transaction.returned))
        transaction.kept.clear()

    def on_disconnect(self) -> None:
        """Fails a transaction that was sent without its commit; repeats a commit that was sent."""
        super().on_disconnect()
        self._rollback = None
        transaction = self.transaction
        if transaction.ever_asked:
            transaction.asked = False  # it is sent again, and answered from the record
        elif transaction.added:
            self._drop()
            transaction.lose(
                TransactionRolledBackError(
                    "The stream to the broker was cut before the commit: nothing of the "
                    "transaction is visible. Roll it back and publish it again.",
                    transaction=transaction.transaction_id.hex(),
                )
            )

    def on_failure(self, error: AckqError) -> None:
        """Fails the transaction: with `error`, or as unknown once its commit was sent."""
        self._drop()
        transaction = self.transaction
        if transaction.ever_asked:
            error = OutcomeUnknownError(
                f"Whether the transaction was committed is unknown: {error.message} "
                "Look into the queue before publishing it again.",
                **{**error.fields, "cause": error.code},
            )
        if transaction.messages:
            transaction.lose(error)

    # --- internals ---

    def _add(
        self, destination: Destination, rows: int, content: Callable[[], bytes], payload_bytes: int
    ) -> int:
        """Numbers rows and queues them to be sent; returns the first number."""
        first = self._next_number
        self._next_number += rows
        added = AddRows(self.transaction.transaction_id, destination, first, rows, content)
        self._to_send.append((added, payload_bytes))
        return first

    def _drop(self) -> None:
        """Drops the rows that were not sent."""
        self.close_draft()
        for rows, payload_bytes in self._to_send:
            self.window.give_back(rows.rows, payload_bytes)
        self._to_send.clear()
