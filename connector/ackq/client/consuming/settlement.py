"""Settlements: futures for the application (C15), and their tags until the broker's answer."""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass, field

from ackq.client.connection import errors
from ackq.client.futures import LightFuture
from ackq.client.ranges import Range
from ackq.errors import (
    AckqError,
    ClosedError,
    InternalError,
    OutcomeUnknownError,
    StaleDeliveryTagError,
)
from ackq.outcomes import Disposition

_log = logging.getLogger(__name__)

# A future logs an `Exception` of its callbacks itself; any other BaseException, for instance from
# `sys.exit()`, would end the thread that resolves the future.
_RAISED = "A callback of a settlement's future raised an exception"


class Settlement(LightFuture[int]):
    """A future with the number of messages that were settled; in a coroutine, `await` it.

    It fails with the error that ended the channel: nothing was settled, and the messages are
    redelivered. Or it fails with OutcomeUnknownError: the messages are redelivered unless the
    settlement took effect. Its callbacks run on the channel's thread: they may settle and publish,
    and must not block.

    Attributes:
        messages: Number of messages that it settles.
    """

    messages = 1

    def succeed(self, messages: int) -> None:
        """Resolves the future: the settlement took effect."""
        try:
            self._resolve(messages, None)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)

    def fail(self, error: AckqError) -> None:
        """Fails the future: the settlement had no effect, or its outcome is unknown."""
        try:
            self.set_exception(error)
        except BaseException:  # noqa: BLE001 - see _RAISED
            _log.exception(_RAISED)


@dataclass(slots=True, eq=False)
class PendingSettlement:
    """Tags that were settled with one disposition, until the broker has answered all of them.

    Collects the tags of all calls until the sender makes drafts of them.

    Attributes:
        disposition: The outcome and its details.
        runs: Its tags, as pairs of first and last.
        futures: Futures to resolve; automatic settlements may have none.
        messages: Number of its tags.
        answered: Number of its tags that the broker has answered.
        sent: Whether the broker may have received any part of it.
        mismatched: Whether an answer had another number of messages than its request.
        ended: Whether its futures have their results.
    """

    disposition: Disposition
    runs: list[list[int]] = field(default_factory=list)
    futures: list[Settlement] = field(default_factory=list)
    messages: int = 0
    answered: int = 0
    sent: bool = False
    mismatched: bool = False
    ended: bool = False

    def add(self, runs: list[Range], messages: int, future: Settlement | None) -> None:
        """Adds the tags of a call; consecutive tags become one run."""
        self.messages += messages
        for first, last in runs:
            if self.runs and self.runs[-1][1] + 1 == first:
                self.runs[-1][1] = last
            else:
                self.runs.append([first, last])
        if future is not None:
            future.messages = messages
            self.futures.append(future)

    def add_one(self, tag: int, future: Settlement | None) -> None:
        """Adds one tag; a tag after the last run extends it."""
        self.messages += 1
        if self.runs and self.runs[-1][1] + 1 == tag:
            self.runs[-1][1] = tag
        else:
            self.runs.append([tag, tag])
        if future is not None:
            self.futures.append(future)

    def resolve(self) -> None:
        """Resolves the futures; to be called once every message is answered (C15)."""
        if self.mismatched:
            self._fail_all(
                OutcomeUnknownError(
                    "The broker settled a different number of messages than requested. Check that "
                    "client and broker have the same version.",
                    messages=self.messages,
                )
            )
            return
        for future in self.futures:
            future.succeed(future.messages)
        self.ended = True

    def fail(self, error: AckqError) -> AckqError:
        """Fails the futures, as the channel ended or was renewed before the answer.

        An unsent settlement had no effect. The outcome of a sent one is unknown, unless the broker
        ended the channel with an error: then it did so before the settlement.

        Returns the error of the futures.
        """
        unknown = isinstance(
            error, ClosedError | InternalError | StaleDeliveryTagError
        ) or errors.is_transient(error)
        failure = _outcome_unknown(error) if self.sent and unknown else error
        self._fail_all(failure)
        return failure

    def _fail_all(self, error: AckqError) -> None:
        for future in self.futures:
            future.fail(copy(error))
        self.ended = True


@dataclass(slots=True, eq=False)
class SettleDraft:
    """Unsent tags of a settlement; becomes one or several `Settle`s.

    Attributes:
        settlement: The settlement to which the tags belong.
        sweep: Whether the tags are all outstanding tags up to the last: one `Settle` with
            `multiple` (C3).
        runs: The tags.
        messages: Number of tags.
    """

    settlement: PendingSettlement
    sweep: bool
    runs: list[Range] = field(default_factory=list)
    messages: int = 0

    def add(self, run: Range) -> None:
        """Adds a run of tags; in a sweep it must be above all others."""
        if self.runs and self.runs[-1].last + 1 == run.first:
            self.runs[-1] = Range(self.runs[-1].first, run.last)
        else:
            self.runs.append(run)
        self.messages += run.last - run.first + 1

    def split_first(self) -> SettleDraft:
        """Splits off the first tag as a draft of its own; its run must have further tags."""
        first, last = self.runs[0]
        self.runs[0] = Range(first + 1, last)
        self.messages -= 1
        return SettleDraft(self.settlement, sweep=False, runs=[Range(first, first)], messages=1)


def _outcome_unknown(error: AckqError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"Whether this settlement took effect is unknown: {error.message} If it did not, its "
        "messages are delivered again.",
        **{**error.fields, "cause": error.code},
    )
