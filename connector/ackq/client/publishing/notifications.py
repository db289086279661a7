"""Notifies the application of publish results: futures, callbacks, and progress for `flush`.

Invariant: the application is notified of a publish exactly once (P3), and before `answered_below`
passes its number. Receipts and callbacks run on the receiving thread, without the lock, in the
order of the answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from ackq.client.blocks import decoding
from ackq.client.condition import StreamCondition
from ackq.client.connection import errors
from ackq.client.publishing.confirm_state import ConfirmState
from ackq.client.publishing.receipts import Returned
from ackq.client.publishing.requests import AddRows
from ackq.client.publishing.state import PublishState
from ackq.client.publishing.unconfirmed import Answered
from ackq.client.ranges import Range
from ackq.errors import AckqError, MalformedBlockError, OutcomeUnknownError, UnroutableError
from ackq.v1 import publishing_pb2 as pb
from ackq.wire import columns, frame

_log = logging.getLogger(__name__)
T = TypeVar("T")
Answer = frame.Frame[pb.PublishAnswer]

OnReturn = Callable[[Returned], None]
# The reason, or None when the broker takes publishes again.
OnBlocked = Callable[[str | None], None]

_RETURNED_COLUMNS: Final = tuple(
    name for name in columns.STORED if name not in ("expires_at", "ttl_ms")
)


class AnsweredCondition(StreamCondition):
    """A condition that coroutines can wait on too.

    Attributes:
        wakers: Called with each notification, under the lock.
    """

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(lock)
        self.wakers: set[Callable[[], None]] = set()

    def notify_all(self) -> None:
        """As `Condition.notify_all`."""
        super().notify_all()
        for wake in self.wakers:
            wake()


class Conditions(NamedTuple):
    """The conditions of a publisher's lock.

    There are two, because a thread that is woken in vain takes part of the time of a confirm.

    Attributes:
        work: Notified when the stream's own threads may have something to do.
        answered: Notified when a wait of the application's threads may be over.
    """

    work: StreamCondition
    answered: AnsweredCondition

    def notify_all(self) -> None:
        """Wakes all threads; under the lock."""
        self.work.notify_all()
        self.answered.notify_all()


class BlockedNotifier:
    """Notifies the application, in either mode, when the broker stops and resumes (P14).

    Args:
        conditions: Of the publisher's lock.
        state: The publisher's state, touched under the lock only.
        on_blocked: Called when the broker stops taking publishes, when its reason changes, and when
            it resumes.
    """

    def __init__(
        self, conditions: Conditions, state: PublishState, on_blocked: OnBlocked | None
    ) -> None:
        self._conditions = conditions
        self._state = state
        self._on_blocked = on_blocked

    def blocked(self, answer: Answer) -> None:
        """Holds publishes back: the broker takes none for now (P14)."""
        reason = answer.header.blocked.reason
        with self._conditions.work.lock:
            self._state.on_blocked(reason)
        _log.warning("The broker blocks publishers: %s", reason)
        self._notify_blocked(reason)

    def unblocked(self, _: Answer) -> None:
        """Resumes: the broker takes publishes again (P14)."""
        with self._conditions.work.lock:
            self._state.on_unblocked()
            self._conditions.work.notify_all()
        self._notify_blocked(None)

    def disconnected(self) -> None:
        """Resets the state for the next stream; a block ends with the stream that announced it."""
        with self._conditions.work.lock:
            was_blocked = self._state.blocked is not None
            self._state.on_disconnect()
            self._conditions.notify_all()
        if was_blocked:
            self._notify_blocked(None)

    def _notify_blocked(self, reason: str | None) -> None:
        if self._on_blocked is not None:
            guarded(self._on_blocked, reason)


class PublishNotifier:
    """Applies answers to the state and notifies the application of the results.

    Args:
        conditions: Of the publisher's lock.
        state: The publisher's state, touched under the lock only.
        on_return: Called with unroutable messages, before they are confirmed (P7).
    """

    def __init__(
        self, conditions: Conditions, state: ConfirmState, on_return: OnReturn | None
    ) -> None:
        self._conditions = conditions
        self._state = state
        self._on_return = on_return
        self._first_error: AckqError | None = None
        self.answered_below = 1  # the application has the result of every number below

    def take_first_error(self) -> AckqError | None:
        """Returns and clears the first failure since the last call; under the lock."""
        error, self._first_error = self._first_error, None
        return error

    def confirmed(self, answer: Answer) -> None:
        """Resolves the receipts of confirmed rows (P2, P3)."""
        confirm = answer.header.confirm
        with self._conditions.answered.lock:
            answered = self._state.on_confirm(
                confirm.first_number, confirm.last_number, multiple=confirm.multiple
            )
            returns = [self._state.take_returns(each.numbers) for each in answered]
            if self._on_return is None:
                # They are reported nowhere else, so the first is a failure of the next flush.
                reasons = (reason for returned in returns for reason in returned.values())
                self._first_error = self._first_error or next(reasons, None)
            answered_below = self._window_opened()
        for each, returned in zip(answered, returns, strict=True):
            if returned and self._on_return is None:
                _fail_returned(each, returned)
            else:
                each.frame.receipt.confirm(each.frame.first, each.numbers, returned)
        self._advance(answered_below)

    def nacked(self, answer: Answer) -> None:
        """Fails the receipts of nacked rows (P8)."""
        nack = answer.header.nack
        error = errors.from_detail(nack.reason)
        with self._conditions.answered.lock:
            answered = self._state.on_nack(nack.first_number, nack.last_number)
            if answered:
                self._first_error = self._first_error or error
            answered_below = self._window_opened()
        for each in answered:
            each.frame.receipt.fail(each.frame.first, each.numbers, error)
        self._advance(answered_below)

    def returned(self, answer: Answer) -> None:
        """Reports returned messages; they come before their confirm (P7)."""
        numbers = list(answer.header.returned.numbers)
        reason = unroutable(answer, named=self._on_return is None)
        with self._conditions.answered.lock:
            news = self._state.on_return(numbers, reason)
        if not news or self._on_return is None:
            return
        messages = returned_messages(answer, news)
        guarded(self._on_return, Returned(tuple(news), reason, messages))

    def failed(self, error: AckqError) -> None:
        """Fails unanswered publishes: those never sent with `error`, the others as unknown.

        They are never sent under a new publisher id (P10), so only the application can decide.
        """
        unknown = OutcomeUnknownError(
            f"Whether this publish took effect is unknown: {error.message} "
            "Look into the queue before publishing it again.",
            **{**error.fields, "cause": error.code},
        )
        with self._conditions.answered.lock:
            answered = self._state.drain()
            answered_below = self._window_opened()
            if answered:
                sent = any(each.frame.ever_sent for each in answered)
                self._first_error = self._first_error or (unknown if sent else error)
        for each in answered:
            result = unknown if each.frame.ever_sent else error
            each.frame.receipt.fail(each.frame.first, each.numbers, result)
        self._advance(answered_below)

    def _window_opened(self) -> int:
        """Wakes publishes that wait for room; returns the next `answered_below`; under the lock."""
        self._conditions.answered.notify_all()
        if self._state.has_work:
            self._conditions.work.notify_all()
        return self._state.unconfirmed.lowest_unanswered

    def _advance(self, below: int) -> None:
        with self._conditions.answered.lock:
            self.answered_below = below
            self._conditions.answered.notify_all()


def _fail_returned(answered: Answered, returned: Mapping[int, UnroutableError]) -> None:
    """Resolves the receipt of rows that include returned ones, without `on_return` (P7)."""
    receipt, first = answered.frame.receipt, answered.frame.first
    start = answered.numbers.first
    for number in sorted(returned):
        if start < number:
            receipt.confirm(first, Range(start, number - 1), {})
        receipt.fail(first, Range(number, number), returned[number])
        start = number + 1
    if start <= answered.numbers.last:
        receipt.confirm(first, Range(start, answered.numbers.last), {})


def unroutable(answer: Answer, *, named: bool) -> UnroutableError:
    """The error of a return (P7); `named`: with the first routing key, for lack of `on_return`."""
    detail = answer.header.returned.reason
    message, fields = detail.message, dict(detail.fields)
    if named and answer.block:
        keys = _returned_rows(answer, ("routing_key",)).column(0)
        fields["routing_key"] = keys[0].as_py()
        message = f"{message} The first of these routing keys is {fields['routing_key']!r}."
    return UnroutableError(message, **fields)


def returned_messages(answer: Answer, wanted: Sequence[int]) -> pa.RecordBatch:
    """The messages of a return (P7) whose publish numbers are `wanted`."""
    messages = _returned_rows(answer, _RETURNED_COLUMNS)
    numbers = answer.header.returned.numbers
    if len(wanted) == len(numbers):
        return messages
    row_of = {number: row for row, number in enumerate(numbers)}
    return messages.take([row_of[number] for number in wanted])


def _returned_rows(answer: Answer, columns: Sequence[str]) -> pa.RecordBatch:
    """The messages of a return, one per number; MalformedBlockError if the counts differ."""
    rows = decoding.stored(answer.block, columns)
    numbers = len(answer.header.returned.numbers)
    if not 0 < rows.num_rows == numbers:
        raise MalformedBlockError(
            f"The broker returned {numbers} publish numbers with {rows.num_rows} messages."
        )
    return rows


def kept_messages(kept: Sequence[tuple[AddRows, Sequence[int]]]) -> pa.RecordBatch:
    """The messages of a return, from at least one frame that the publisher kept."""
    batches = [
        decoding.stored(frame.content(), _RETURNED_COLUMNS).take(rows) for frame, rows in kept
    ]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def guarded(callback: Callable[[T], None], argument: T) -> None:
    """Runs an application's callback and logs any exception of it.

    As with futures, no exception stops the publisher, not even that of `sys.exit()`.
    """
    try:
        callback(argument)
    except BaseException:  # noqa: BLE001 - what an application raises is its own
        _log.exception("A callback of the publisher raised an exception")
