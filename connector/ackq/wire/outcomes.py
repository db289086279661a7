"""Maps outcomes to their numbers in the protocol, and back."""

from __future__ import annotations

from typing import Final

from ackq.outcomes import Outcome
from ackq.v1 import consuming_pb2 as pb

TO_WIRE: Final = {
    Outcome.ACCEPTED: pb.OUTCOME_ACCEPTED,
    Outcome.FAILED: pb.OUTCOME_FAILED,
    Outcome.REJECTED: pb.OUTCOME_REJECTED,
    Outcome.RELEASED: pb.OUTCOME_RELEASED,
}
FROM_WIRE: Final = {number: outcome for outcome, number in TO_WIRE.items()}
