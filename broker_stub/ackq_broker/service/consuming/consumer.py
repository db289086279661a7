"""A consumer of a channel: a subscription, and how much more it may hold (C8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ackq import limits
from ackq_broker.service.consuming.subscriptions import Subscription
from ackq_broker.service.consuming.unacked import Holder

if TYPE_CHECKING:
    from ackq.errors import AckqError
    from ackq_broker.service.consuming.channel import Channel

# No delivery has more, so that no bound is as good as this one.
_UNLIMITED: Final = limits.FRAME_TARGET_ROWS


class Consumer:
    """One of a channel's consumers, as the dispatcher serves it.

    Attributes:
        prefetch: At most so many unacked; 0 for no bound.
        holder: What it holds.
    """

    def __init__(self, channel: Channel, subscription: Subscription) -> None:
        self.subscription = subscription
        self.prefetch = subscription.prefetch
        self.holder = Holder(subscription.consumer, subscription.outcomes)
        self._channel = channel

    @property
    def queue(self) -> str:
        """The queue it reads."""
        return self.subscription.queue

    def room(self) -> int:
        """How many messages it can take now."""
        return min(self._own_room(), self._channel.room(no_ack=self.subscription.no_ack))

    def take(self, messages: int) -> int:
        """Delivers up to so many to it; gives how many there were."""
        return self._channel.deliver(self, messages)

    def park(self) -> None:
        """It has no room. If that is for its own prefetch, a settlement will offer it again."""
        if self._own_room():
            self._channel.park(self)

    def cancel(self, reason: AckqError) -> None:
        """Ends it from the broker's side; its client is told why."""
        self._channel.cancel(self, reason)

    def _own_room(self) -> int:
        if not self.prefetch or self.subscription.no_ack:
            return _UNLIMITED
        return max(0, self.prefetch - self.holder.unacked)
