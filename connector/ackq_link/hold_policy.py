"""How long a link holds deliveries, and its cost at the remote broker. Rules L14 - L16.

Invariant: this module only decides, from facts about the remote broker; it takes and acknowledges
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ackq.errors import PreconditionFailedError
from ackq_link.adapter import QueueLimits

# Where no consumer timeout is known: two thirds of RabbitMQ's default.
_HOLD_S: Final = 1_200.0
_HOLD_PART: Final = 0.8
# Deliveries kept in reserve below the remote delivery limit.
_SPARED: Final = 2


class OnMaxHold(StrEnum):
    """The action when a delivery was held for `max-hold` (L15)."""

    RENEW = "renew"  # all held deliveries are given back, and received again
    STORE = "store"  # likewise, and acknowledged as soon as they are matched
    FAIL = "fail"  # the link ends


@dataclass(frozen=True, slots=True)
class HoldRules:
    """The user's settings for holding deliveries.

    Attributes:
        max_hold_s: None: 80 % of the consumer timeout, or 20 minutes where that is not known.
        on_max_hold: None: store where a renewal counts as a delivery and half of the deliveries up
            to the limit are used, else renew.
        accept_limit: Start although the remote broker may drop messages (L14).
    """

    max_hold_s: float | None = None
    on_max_hold: OnMaxHold | None = None
    accept_limit: bool = False


class HoldPolicy:
    """Decides how long deliveries are held, from the source's limits and delivery counts.

    Attributes:
        limits: As they were learnt last.
        most_deliveries: The highest delivery count of any message of the present subscription.
    """

    def __init__(self, rules: HoldRules) -> None:
        self._rules = rules
        self.limits = QueueLimits()
        self.most_deliveries = 0

    def check_start(self, link: str, queue: str) -> None:
        """Raises PreconditionFailedError where holding would lose messages silently."""
        limit = self.limits.delivery_limit
        if not limit or self.limits.dead_letters is not False or self._rules.accept_limit:
            return
        raise PreconditionFailedError(
            f"The queue '{queue}' drops a message at its delivery {limit + 1}, and has no"
            f" dead-letter exchange: messages that link {link} holds are delivered again after each"
            f" cut. Give the queue one: {self.limits.remedy} - or acknowledge messages when they"
            " are stored (ack=stored), or accept the loss (accept-limit=true)."
        )

    def subscribed(self) -> None:
        """Resets the highest delivery count: a subscription began."""
        self.most_deliveries = 0

    def saw(self, counts: Sequence[int]) -> None:
        """Updates the highest delivery count seen."""
        self.most_deliveries = max(self.most_deliveries, *counts, 0)

    @property
    def lives_left(self) -> int | None:
        """Number of cuts that the message delivered most often survives; None: no limit."""
        limit = self.limits.delivery_limit
        return max(0, limit - self.most_deliveries) if limit else None

    @property
    def half_spent(self) -> bool:
        """Whether a message has used half of its deliveries up to the limit (L16)."""
        limit = self.limits.delivery_limit
        return bool(limit) and 2 * self.most_deliveries >= limit  # type: ignore[operator]

    @property
    def spares_all(self) -> bool:
        """Whether the limit is so low that all messages are acknowledged when stored (L16)."""
        limit = self.limits.delivery_limit
        return bool(limit) and limit <= _SPARED  # type: ignore[operator]

    def at_once(self, rows: int, counts: Sequence[int]) -> list[bool] | None:
        """Per row, whether its delivery limit is so near that it is acknowledged once stored (L16).

        None: no row.
        """
        limit = self.limits.delivery_limit
        if not limit:
            return None
        if self.spares_all:
            return [True] * rows
        if not counts or max(counts) < limit - _SPARED:
            return None
        return [count >= limit - _SPARED for count in counts]

    @property
    def max_hold_s(self) -> float:
        """The longest time in seconds that a delivery is held (L15)."""
        if self._rules.max_hold_s is not None:
            return self._rules.max_hold_s
        timeout_s = self.limits.consumer_timeout_s
        if timeout_s is None:
            return _HOLD_S
        return _HOLD_PART * timeout_s if timeout_s else float("inf")

    @property
    def at_max_hold(self) -> OnMaxHold:
        """The action when a delivery was held for `max_hold_s` (L15)."""
        if self._rules.on_max_hold is not None:
            return self._rules.on_max_hold
        costs = self.limits.requeue_counts and self.half_spent
        return OnMaxHold.STORE if costs else OnMaxHold.RENEW


class OnReject(StrEnum):
    """Where a message rejected at the edge goes: a dead letter of the edge or remotely (L28)."""

    HERE = "here"  # it is a dead letter of the edge, and acknowledged at the remote broker
    THERE = "there"  # it is rejected at the remote broker, and no dead letter of the edge
    DISCARD = "discard"  # likewise, although the remote broker may drop it

    @property
    def there(self) -> bool:
        """Whether the message is rejected at the remote broker."""
        return self is not OnReject.HERE


def rejects_unfit(on_reject: OnReject, limits: QueueLimits) -> bool:
    """Whether a message the edge cannot take is rejected remotely, not left unacked (L29)."""
    kept = on_reject is OnReject.DISCARD or limits.dead_letters is True
    return kept and not limits.rejected_again


def loses_rejected(on_reject: OnReject, limits: QueueLimits) -> bool:
    """Whether the remote broker would drop messages that are rejected there to be kept (L28).

    With `here`, too: what was rejected there before the option changed may have to be rejected
    again.
    """
    return on_reject is not OnReject.DISCARD and limits.dead_letters is False


def check_rejections(link: str, queue: str, on_reject: OnReject, limits: QueueLimits) -> str:
    """A warning if it is not known whether the remote queue keeps rejected messages; else empty.

    Raises:
        PreconditionFailedError: The remote broker would drop a rejected message, or redeliver it.
    """
    if not on_reject.there:
        return ""
    if limits.rejected_again:
        raise PreconditionFailedError(
            f"The broker of the queue '{queue}' delivers rejected messages again, so with"
            f" on-reject={on_reject} link {link} would get and reject them again and again. Leave"
            " on-reject=here."
        )
    if on_reject is OnReject.DISCARD:
        return ""
    if loses_rejected(on_reject, limits):
        raise PreconditionFailedError(
            f"The queue '{queue}' has no dead-letter exchange: messages that link {link} rejects at"
            f" its broker would be lost. Give it one: {limits.remedy} - or keep dead letters at the"
            " local broker (on-reject=here): what was rejected already waits until the queue has"
            " one. Or accept the loss (on-reject=discard)."
        )
    if limits.dead_letters is None:
        return (
            f"it is not known whether the queue '{queue}' has a dead-letter exchange: without one,"
            " messages that are rejected at the remote broker are lost. Let the link read the"
            " queue's properties (management), or declare that it has one (dead-letters)"
        )
    return ""
