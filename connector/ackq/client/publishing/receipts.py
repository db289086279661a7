"""Receipts resolve the application's futures, per message or per batch; each row once.

A receipt is called by one thread at a time and never under the publisher's lock, so callbacks may
publish.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from copy import copy
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from ackq.client.publishing import confirmations
from ackq.client.publishing.confirmations import RAISED, ConfirmationFuture
from ackq.client.ranges import Range
from ackq.errors import AckqError, UnroutableError

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Returned(NamedTuple):
    """Unroutable messages (P7); reported before they are confirmed.

    Attributes:
        numbers: The publish numbers, ascending.
        reason: Why they are unroutable.
        messages: The messages: columns `body` to `published_at` and `persistent`, one row per
            number.
    """

    numbers: tuple[int, ...]
    reason: UnroutableError
    messages: pa.RecordBatch


Returns = Mapping[int, UnroutableError]


class Receipt(Protocol):
    """Takes the answers for the rows of one frame."""

    def confirm(self, first_number: int, answered: Range, returns: Returns) -> None:
        """Takes confirmed rows; `returns`: reasons of the returns reported to the application."""

    def fail(self, first_number: int, answered: Range, error: AckqError) -> None:
        """Takes rows nacked, returned without `on_return` (P7), unsent, or of unknown outcome."""


class MessageReceipt:
    """A receipt with one future per row; releases all futures once each is resolved."""

    __slots__ = ("_futures", "_open")

    def __init__(self, futures: list[ConfirmationFuture]) -> None:
        self._futures = futures
        self._open = len(futures)

    def confirm(self, first_number: int, answered: Range, returns: Returns) -> None:
        """Resolves the futures of the rows."""
        confirmations.confirm(self._of(first_number, answered), answered.first, returns)
        self._answered(answered)

    def fail(self, first_number: int, answered: Range, error: AckqError) -> None:
        """Fails the futures of the rows, each with its own copy of the error."""
        confirmations.fail(self._of(first_number, answered), error)
        self._answered(answered)

    def _of(self, first_number: int, answered: Range) -> list[ConfirmationFuture]:
        return self._futures[answered.first - first_number : answered.last - first_number + 1]

    def _answered(self, answered: Range) -> None:
        self._open -= answered.last - answered.first + 1
        if not self._open:
            self._futures.clear()


class BatchesReceipt:
    """Combines the receipts of batches whose rows follow one another in a frame."""

    __slots__ = ("_ends", "_receipts")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._receipts: list[Receipt] = []

    def add(self, rows: int, receipt: Receipt) -> None:
        """Adds the rows of a batch after the others."""
        self._ends.append(rows + (self._ends[-1] if self._ends else 0))
        self._receipts.append(receipt)

    def confirm(self, first_number: int, answered: Range, returns: Returns) -> None:
        """Passes the rows on to their batches."""
        for receipt, rows in self._parts(first_number, answered):
            inside = range(rows.first, rows.last + 1)
            mine = {number: why for number, why in returns.items() if number in inside}
            receipt.confirm(first_number, rows, mine)

    def fail(self, first_number: int, answered: Range, error: AckqError) -> None:
        """Passes the rows on to their batches."""
        for receipt, rows in self._parts(first_number, answered):
            receipt.fail(first_number, rows, error)

    def _parts(self, first_number: int, answered: Range) -> Iterator[tuple[Receipt, Range]]:
        at = bisect_right(self._ends, answered.first - first_number)
        first = answered.first
        while first <= answered.last:
            last = min(answered.last, first_number + self._ends[at] - 1)
            yield self._receipts[at], Range(first, last)
            first, at = last + 1, at + 1


class BatchReceipt:
    """A receipt with one future for the rows of several frames.

    It resolves to the number of rows once all are confirmed, or to the first failure.

    Args:
        future: The future.
        rows: Rows in all frames.
    """

    __slots__ = ("_error", "_future", "_open", "_rows")

    def __init__(self, future: Future[int], rows: int) -> None:
        self._future = future
        self._rows = rows
        self._open = rows
        self._error: AckqError | None = None

    def confirm(self, first_number: int, answered: Range, returns: Returns) -> None:  # noqa: ARG002
        """Counts the rows."""
        self._answered(answered)

    def fail(self, first_number: int, answered: Range, error: AckqError) -> None:  # noqa: ARG002
        """Counts the rows and keeps the first failure."""
        self._error = self._error or copy(error)
        self._answered(answered)

    def give_up(self, error: AckqError) -> None:
        """Fails the future: rows that are in no frame yet will never be sent."""
        _set_error(self._future, error)

    def _answered(self, answered: Range) -> None:
        self._open -= answered.last - answered.first + 1
        assert self._open >= 0, "a row is answered once (P3)"
        if self._open:
            return
        if self._error is None:
            _set(self._future, self._rows)
        else:
            _set_error(self._future, self._error)


def _set(future: Future[T], value: T) -> None:
    try:
        future.set_result(value)
    except BaseException:  # noqa: BLE001 - see RAISED
        _log.exception(RAISED)


def _set_error(future: Future[Any], error: AckqError) -> None:
    try:
        future.set_exception(error)
    except BaseException:  # noqa: BLE001 - see RAISED
        _log.exception(RAISED)
