"""Decodes a settlement into a disposition; drops fields that its outcome does not use (C4)."""

from __future__ import annotations

from typing import Final

from ackq import limits
from ackq.errors import InvalidArgumentError
from ackq.outcomes import Disposition, Outcome
from ackq.v1 import consuming_pb2 as pb
from ackq.v1 import sessions_pb2
from ackq.wire.outcomes import FROM_WIRE
from ackq_broker.service.transport.texts import shorten

_NEEDS_REASON: Final = (Outcome.FAILED, Outcome.REJECTED)
_NEEDS_DELAY: Final = (Outcome.FAILED, Outcome.RELEASED)


def decode_disposition(
    said: pb.Settle | sessions_pb2.OutcomeGroup, delivery_tag: int = 0
) -> Disposition:
    """The disposition of one delivery tag, or (0) of many.

    Raises:
        InvalidArgumentError: There is no such outcome, or the delay is too long.
    """
    outcome = FROM_WIRE.get(said.outcome)
    if outcome is None:
        raise _refused(
            f"has outcome {said.outcome}, which this broker does not know; use accepted, failed,"
            " rejected or released.",
            delivery_tag,
        )
    if said.delay_ms > limits.MAX_TTL_MS:
        raise _refused(
            f"asks for a delay of {said.delay_ms} ms, which is too long; at most"
            f" {limits.MAX_TTL_MS} are allowed.",
            delivery_tag,
            limit=limits.MAX_TTL_MS,
        )
    return Disposition(
        outcome,
        shorten(said.reason) if outcome in _NEEDS_REASON else "",
        said.delay_ms if outcome in _NEEDS_DELAY else 0,
    )


def _refused(why: str, delivery_tag: int, **fields: int) -> InvalidArgumentError:
    if not delivery_tag:
        return InvalidArgumentError(f"The settlement {why}", **fields)
    return InvalidArgumentError(
        f"The settlement of delivery tag {delivery_tag} {why}", delivery_tag=delivery_tag, **fields
    )
