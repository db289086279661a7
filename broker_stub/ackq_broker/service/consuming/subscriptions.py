"""What a client asks for when it starts a consumer, checked (C5).

Invariant: a subscription names outcomes that the broker announced, and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from ackq import limits
from ackq.errors import InvalidArgumentError, InvalidOperationError
from ackq.outcomes import Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq.wire.outcomes import FROM_WIRE


class Subscription(NamedTuple):
    """A consumer as its client wants it."""

    consumer: str
    queue: str
    prefetch: int
    outcomes: frozenset[Outcome]
    no_ack: bool

    def same_as(self, other: Subscription) -> bool:
        """Whether they differ in nothing, or in what can be changed: the prefetch."""
        return self._replace(prefetch=other.prefetch) == other


def subscription_of(request: pb.Subscribe) -> Subscription:
    """A subscription from its request.

    Raises:
        InvalidArgumentError: It has no name, or one that is too long.
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
    return Subscription(
        request.consumer,
        request.queue,
        request.prefetch,
        frozenset(FROM_WIRE[outcome] for outcome in request.outcomes),
        request.no_ack,
    )
