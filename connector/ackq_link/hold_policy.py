"""How long a link holds deliveries, and what that costs them at the other broker. Rules L14 - L16.

Invariant: it decides only, of what the other broker told; nothing here takes or acknowledges.
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
# The last lives, which no message is brought to by this link.
_SPARED: Final = 2


class OnMaxHold(StrEnum):
    """What happens when a delivery was held for so long (L15)."""

    RENEW = "renew"  # all are given back, and received again
    STORE = "store"  # likewise, and acknowledged as soon as they are matched
    FAIL = "fail"  # the link ends


@dataclass(frozen=True, slots=True)
class HoldRules:
    """What the user says of holding.

    Attributes:
        max_hold_s: None: 80 % of the consumer timeout, or 20 minutes where that is not known.
        on_max_hold: None: store where a renewal costs lives of which half are spent, else renew.
        accept_limit: Go on though messages may be dropped there (L14).
    """

    max_hold_s: float | None = None
    on_max_hold: OnMaxHold | None = None
    accept_limit: bool = False


class HoldPolicy:
    """The limits of a source, the lives of its messages, and what follows.

    Attributes:
        limits: As they were learnt last.
        most_deliveries: Of any message of the present subscription: how often it was delivered
            before.
    """

    def __init__(self, rules: HoldRules) -> None:
        self._rules = rules
        self.limits = QueueLimits()
        self.most_deliveries = 0

    def check_start(self, link: str, queue: str) -> None:
        """Raises PreconditionFailedError where holding would lose messages without a word."""
        limit = self.limits.delivery_limit
        if not limit or self.limits.dead_letters is not False or self._rules.accept_limit:
            return
        raise PreconditionFailedError(
            f"The queue '{queue}' drops a message at its delivery {limit + 1}, and has no"
            f" dead-letter exchange: what link {link} holds is delivered again at each cut. Give"
            f" it one: {self.limits.remedy} - or acknowledge what is stored (ack=stored), or accept"
            " the loss (accept-limit=true)."
        )

    def subscribed(self) -> None:
        """A subscription began."""
        self.most_deliveries = 0

    def saw(self, counts: Sequence[int]) -> None:
        """Deliveries came that were delivered so often before."""
        self.most_deliveries = max(self.most_deliveries, *counts, 0)

    @property
    def lives_left(self) -> int | None:
        """Cuts that the message with the fewest lives survives; None: nothing limits them."""
        limit = self.limits.delivery_limit
        return max(0, limit - self.most_deliveries) if limit else None

    @property
    def half_spent(self) -> bool:
        """Whether a message has spent half of its lives (L16)."""
        limit = self.limits.delivery_limit
        return bool(limit) and 2 * self.most_deliveries >= limit  # type: ignore[operator]

    @property
    def spares_all(self) -> bool:
        """Whether the limit is so low that every message is acknowledged when it is stored."""
        limit = self.limits.delivery_limit
        return bool(limit) and limit <= _SPARED  # type: ignore[operator]

    def at_once(self, rows: int, counts: Sequence[int]) -> list[bool] | None:
        """The rows to acknowledge as soon as they are stored, for their lives; None: none (L16)."""
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
        """A delivery is held no longer (L15)."""
        if self._rules.max_hold_s is not None:
            return self._rules.max_hold_s
        timeout_s = self.limits.consumer_timeout_s
        if timeout_s is None:
            return _HOLD_S
        return _HOLD_PART * timeout_s if timeout_s else float("inf")

    @property
    def at_max_hold(self) -> OnMaxHold:
        """What to do then."""
        if self._rules.on_max_hold is not None:
            return self._rules.on_max_hold
        costs = self.limits.requeue_counts and self.half_spent
        return OnMaxHold.STORE if costs else OnMaxHold.RENEW


class OnReject(StrEnum):
    """What the rejection of a message at the edge does: a dead letter here or there (L28)."""

    HERE = "here"  # it is a dead letter of the edge, and acknowledged there
    THERE = "there"  # it is rejected there, and no dead letter of the edge
    DISCARD = "discard"  # likewise, though it may be gone then

    @property
    def there(self) -> bool:
        """Whether the other broker is told."""
        return self is not OnReject.HERE


def rejects_unfit(on_reject: OnReject, limits: QueueLimits) -> bool:
    """Whether a message that the edge cannot take is rejected there, and not left there (L29)."""
    kept = on_reject is OnReject.DISCARD or limits.dead_letters is True
    return kept and not limits.rejected_again


def check_rejections(link: str, queue: str, on_reject: OnReject, limits: QueueLimits) -> str:
    """What is not known of a queue where this link rejects; empty: nothing.

    Raises:
        PreconditionFailedError: What is rejected there would be gone, or come again.
    """
    if not on_reject.there:
        return ""
    if limits.rejected_again:
        raise PreconditionFailedError(
            f"The queue '{queue}' is one of a broker that delivers again what link {link} rejects,"
            f" so on-reject={on_reject} would bring it here again and again. Leave on-reject=here."
        )
    if on_reject is OnReject.DISCARD:
        return ""
    if limits.dead_letters is False:
        raise PreconditionFailedError(
            f"The queue '{queue}' has no dead-letter exchange: what link {link} rejects there would"
            f" be gone. Give it one: {limits.remedy} - or keep dead letters here (on-reject=here),"
            " or accept the loss (on-reject=discard)."
        )
    if limits.dead_letters is None:
        return (
            f"it is not known whether the queue '{queue}' has a dead-letter exchange: without one,"
            " what is rejected there is gone. Let the link ask (management), or say that it has"
            " one (dead-letters)"
        )
    return ""
