"""Settlements: the future of the application (C15), and what is pending until its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from ackq.client.connection import errors
from ackq.client.futures import LightFuture
from ackq.client.ranges import Range
from ackq.errors import AckqError, ClosedError, InternalError, OutcomeUnknownError
from ackq.outcomes import Disposition

_log = logging.getLogger(__name__)

# A future logs an `Exception` of its callbacks itself; another BaseException, for instance of
# `sys.exit()`, would end the thread that resolves it.
_RAISED = "A callback of a settlement's future raised"


class Settlement(LightFuture[int]):
    """A future with the number of messages that were settled; in a coroutine, `await` it.

    It fails with the error that ended the channel: nothing was settled, the messages are
    redelivered. Or with OutcomeUnknownError: they are redelivered unless the settlement took
    effect. Its callbacks run on the channel's thread: they may settle and publish, and must not
    block.
    """

    def __await__(self) -> Generator[Any, None, int]:
        return asyncio.wrap_future(self).__await__()

    def succeed(self, messages: int) -> None:
        """Resolves it: the settlement took effect."""
        try:
            self.set_result(messages)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)

    def fail(self, error: AckqError) -> None:
        """Fails it: the settlement did not take effect, or its outcome is unknown."""
        try:
            self.set_exception(error)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)


@dataclass(slots=True, eq=False)
class PendingSettlement:
    """What one call settled, until the broker has answered all of it.

    Attributes:
        disposition: The outcome and its details.
        runs: Its tags.
        future: Of the application; None: the client settles by itself.
        messages: Number of its tags.
        left: Messages without an answer.
        sent: Whether the broker may have received any of it.
        mismatched: An answer had another number of messages than its request.
    """

    disposition: Disposition
    runs: list[Range]
    future: Settlement | None
    messages: int
    left: int = field(init=False)
    sent: bool = False
    mismatched: bool = False

    def __post_init__(self) -> None:
        self.left = self.messages

    def resolve(self) -> None:
        """Resolves the future: every message has its answer (C15)."""
        if self.future is None:
            return
        if not self.mismatched:
            self.future.succeed(self.messages)
            return
        self.future.fail(
            OutcomeUnknownError(
                "The broker settled another number of messages than it was asked for. Check that "
                "client and broker are of one version.",
                messages=self.messages,
            )
        )

    def fail(self, error: AckqError) -> None:
        """Fails the future: the channel has ended without an answer.

        An unsent settlement did not take effect. The outcome of a sent one is unknown, except when
        the broker ended the channel: then it did so before the settlement.
        """
        if self.future is None:
            return
        unknown = isinstance(error, ClosedError | InternalError) or errors.is_transient(error)
        self.future.fail(_outcome_unknown(error) if self.sent and unknown else copy(error))


@dataclass(slots=True, eq=False)
class SettleDraft:
    """Tags with the same disposition that are not yet sent; becomes one `Settle` or several.

    Attributes:
        disposition: Of all the tags.
        runs: The tags.
        settlements: The settlements they belong to, and how many of each.
        sweep: They are all outstanding tags up to the last: one `Settle` with `multiple` (C3).
    """

    disposition: Disposition
    runs: list[Range]
    settlements: list[tuple[PendingSettlement, int]]
    sweep: bool

    def add(self, first: int, last: int, settlement: PendingSettlement) -> None:
        """Adds tags; above the others in a sweep."""
        if self.runs and self.runs[-1].last + 1 == first:
            self.runs[-1] = Range(self.runs[-1].first, last)
        else:
            self.runs.append(Range(first, last))
        self.settlements.append((settlement, last - first + 1))


def _outcome_unknown(error: AckqError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether this settlement took effect is unknown: {error.message} Its messages are "
        "delivered again unless it did.",
        **{**error.fields, "cause": error.code},
    )
