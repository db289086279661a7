"""A consumer of a channel: its configuration, and its room for more messages (C5, C8).

Invariant: a configuration names only outcomes that the broker announced.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from ackq import limits
from ackq.errors import AckqError, InvalidArgumentError, InvalidOperationError
from ackq.outcomes import Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.held_bytes import HeldBytes
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.service.consuming.unacked import UnackedOwner

# No delivery has more messages, so this stands for no bound.
_UNLIMITED: Final = limits.FRAME_TARGET_ROWS


class ConsumerConfig(NamedTuple):
    """A consumer's configuration, as its client requested it."""

    name: str
    queue: str
    prefetch: int
    outcomes: frozenset[Outcome]
    no_ack: bool
    message_ids: bool = False
    prefetch_bytes: int = 0

    def compatible(self, other: ConsumerConfig) -> bool:
        """Whether two configurations differ in nothing but the prefetch, which can be changed."""
        return self._replace(prefetch=other.prefetch) == other


def decode_config(request: pb.Subscribe) -> ConsumerConfig:
    """Decodes the consumer configuration of a request.

    Raises:
        InvalidArgumentError: It has no name, or a name that is too long.
        InvalidOperationError: It declares an outcome that the broker did not announce (C5).
    """
    size = len(request.consumer.encode())
    if not 0 < size <= limits.MAX_NAME_BYTES:
        raise InvalidArgumentError(
            f"A consumer's name has 1 to {limits.MAX_NAME_BYTES} bytes, not {size}.",
            limit=limits.MAX_NAME_BYTES,
        )
    unknown = [outcome for outcome in request.outcomes if outcome not in FROM_WIRE]
    if unknown:
        raise InvalidOperationError(
            f"The consumer '{request.consumer}' declares outcome {unknown[0]}, which this broker"
            " does not announce; declare failed, rejected or released.",
            consumer=request.consumer,
            outcome=unknown[0],
        )
    return ConsumerConfig(
        request.consumer,
        request.queue,
        request.prefetch,
        frozenset(FROM_WIRE[outcome] for outcome in request.outcomes),
        request.no_ack,
        request.message_ids,
        request.prefetch_bytes,
    )


class DeliveringChannel(Protocol):
    """The part of a channel's interface that its consumers use."""

    def room(self, *, no_ack: bool) -> int: ...  # noqa: D102

    def deliver(self, consumer: BrokerConsumer, messages: int) -> int: ...  # noqa: D102

    def park(self, consumer: BrokerConsumer) -> None: ...  # noqa: D102

    def cancel(self, consumer: BrokerConsumer, reason: AckqError) -> None: ...  # noqa: D102


class BrokerConsumer:
    """One consumer of a channel, as the dispatcher serves it.

    Attributes:
        prefetch: Maximum number of its unacked messages; 0 for no bound.
        owner: Its unacked tags.
        channel: The channel whose room it shares with other consumers.
    """

    def __init__(self, channel: DeliveringChannel, config: ConsumerConfig) -> None:
        self.config = config
        self.prefetch = config.prefetch
        held = HeldBytes() if config.prefetch_bytes else None
        self.owner = UnackedOwner(config.name, config.outcomes, held)
        self.channel = channel

    @property
    def no_ack(self) -> bool:
        """Whether the consumer takes messages without acks (C10)."""
        return self.config.no_ack

    @property
    def queue(self) -> str:
        """The queue that the consumer reads."""
        return self.config.queue

    def room(self, beside: int = 0) -> int:
        """The number of messages it can be delivered now, next to `beside` more on its channel."""
        shared = self.channel.room(no_ack=self.config.no_ack) - beside
        return min(self._own_room(), max(shared, 0))

    def deliver(self, messages: int) -> int:
        """Delivers up to `messages` messages to the consumer; returns the number delivered."""
        return self.channel.deliver(self, messages)

    def park(self) -> None:
        """Parks the consumer if only its channel lacks room; else a settlement offers it again."""
        if self._own_room():
            self.channel.park(self)

    def cancel(self, reason: AckqError) -> None:
        """Cancels the consumer on the broker's initiative and notifies the client."""
        self.channel.cancel(self, reason)

    def _own_room(self) -> int:
        held = self.owner.held
        if held is not None and held.total >= self.config.prefetch_bytes:
            return 0
        if not self.prefetch or self.config.no_ack:
            return _UNLIMITED
        return max(0, self.prefetch - self.owner.unacked)
