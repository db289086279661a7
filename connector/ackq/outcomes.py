"""Outcomes of delivered messages (C4, S6), the same for broker, client and Spark.

Pure: both a broker's core and a Spark executor import it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple

OutcomeName = Literal["accepted", "failed", "rejected", "released"]


class Outcome(Enum):
    """Outcome of a delivered message (C4).

    Attributes:
        ACCEPTED: Removes the message.
        FAILED: Requeues it after the queue's redelivery delay; counts against its delivery limit.
        REJECTED: Removes it; dead-letters it if its queue has a dead-letter queue.
        RELEASED: Requeues it without counting.
    """

    ACCEPTED = "accepted"
    FAILED = "failed"
    REJECTED = "rejected"
    RELEASED = "released"


class Disposition(NamedTuple):
    """An outcome with its details, as AMQP 1.0 uses the word.

    Attributes:
        outcome: The outcome.
        reason: Why, for FAILED and REJECTED.
        delay_ms: Redelivery delay for FAILED and RELEASED; 0 takes the queue's (C14).
    """

    outcome: Outcome
    reason: str = ""
    delay_ms: int = 0


ACCEPT: Final = Disposition(Outcome.ACCEPTED)
RELEASE: Final = Disposition(Outcome.RELEASED)
